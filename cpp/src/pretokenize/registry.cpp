// Names of patterns and kernels, and which code runs for them.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "gristmill/pretokenize.hpp"
#include "pretokenize/block_scanner.hpp"
#include "pretokenize/scalar.hpp"
#include "pretokenize/unicode.hpp"

namespace gristmill {
namespace {

// A pattern: its name, and its SIMD kernels or null where the scalar one serves.
struct PatternEntry {
    std::string_view name;
    Pattern pattern;
    const BlockKernel* avx2;
    const BlockKernel* avx512;
};

#if defined(__x86_64__)
#define GRISTMILL_X86_KERNELS(name) &k##name##Avx2, &k##name##Avx512
#else
#define GRISTMILL_X86_KERNELS(name) nullptr, nullptr
#endif

constexpr PatternEntry kPatterns[] = {
    {"gpt2", Pattern::gpt2, GRISTMILL_X86_KERNELS(Gpt2)},
    {"cl100k", Pattern::cl100k, GRISTMILL_X86_KERNELS(Cl100k)},
    {"o200k", Pattern::o200k, GRISTMILL_X86_KERNELS(O200k)},
    {"llama3", Pattern::llama3, GRISTMILL_X86_KERNELS(Llama3)},
    {"qwen2", Pattern::qwen2, GRISTMILL_X86_KERNELS(Qwen2)},
    {"whitespace", Pattern::whitespace, GRISTMILL_X86_KERNELS(Whitespace)},
};

struct KernelEntry {
    std::string_view name;
    Kernel kernel;
};

constexpr KernelEntry kKernels[] = {
    {"scalar", Kernel::scalar},
    {"avx2", Kernel::avx2},
    {"avx512", Kernel::avx512},
};

}  // namespace

std::optional<Pattern> pattern_from_name(std::string_view name) {
    for (const PatternEntry& entry : kPatterns) {
        if (entry.name == name) return entry.pattern;
    }
    return std::nullopt;
}

std::optional<Kernel> kernel_from_name(std::string_view name) {
    for (const KernelEntry& entry : kKernels) {
        if (entry.name == name) return entry.kernel;
    }
    return std::nullopt;
}

std::string_view kernel_name(Kernel kernel) {
    for (const KernelEntry& entry : kKernels) {
        if (entry.kernel == kernel) return entry.name;
    }
    return "unknown";
}

// The flags of CMakeLists.txt: a kernel file may use every one of them.
bool kernel_supported(Kernel kernel) {
    if (kernel == Kernel::scalar) return true;
#if defined(__x86_64__)
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                      __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("lzcnt") &&
                      __builtin_cpu_supports("popcnt");
    if (kernel == Kernel::avx2) return avx2;
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
#else
    return false;
#endif
}

Kernel default_kernel() {
    if (const char* forced = std::getenv("GRISTMILL_KERNEL"); forced != nullptr && *forced != '\0') {
        const std::optional<Kernel> kernel = kernel_from_name(forced);
        if (!kernel) {
            throw std::invalid_argument("GRISTMILL_KERNEL=" + std::string(forced) +
                                        " is no kernel: set it to scalar, avx2 or avx512, or leave it unset.");
        }
        if (!kernel_supported(*kernel)) {
            throw std::invalid_argument("GRISTMILL_KERNEL=" + std::string(forced) +
                                        " does not run on this CPU: set it to scalar, or leave it unset.");
        }
        return *kernel;
    }
    for (const Kernel kernel : {Kernel::avx512, Kernel::avx2}) {
        if (kernel_supported(kernel)) return kernel;
    }
    return Kernel::scalar;
}

std::string_view unicode_version() { return kUnicodeVersion; }

std::unique_ptr<BoundaryScanner> make_scanner(Pattern pattern, Kernel kernel) {
    for (const PatternEntry& entry : kPatterns) {
        if (entry.pattern != pattern) continue;
        if (kernel == Kernel::avx2 && entry.avx2 != nullptr) return make_block_scanner(*entry.avx2);
        if (kernel == Kernel::avx512 && entry.avx512 != nullptr) return make_block_scanner(*entry.avx512);
    }
    return make_scalar_scanner(pattern);
}

}  // namespace gristmill
