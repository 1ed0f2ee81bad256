// Names of patterns and kernels, and the code that runs for them.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "gristmill/pretokenize.hpp"
#include "pretokenize/block_scanner.hpp"
#include "pretokenize/scalar.hpp"
#include "pretokenize/unicode.hpp"

namespace gristmill {
namespace {

#define GRISTMILL_PATTERN(name, ...) #name,
constexpr std::string_view kPatternNames[] = {GRISTMILL_PATTERNS(GRISTMILL_PATTERN)};
#undef GRISTMILL_PATTERN

struct KernelEntry {
    std::string_view name;
    Kernel kernel;
};

constexpr KernelEntry kKernels[] = {
    {"scalar", Kernel::scalar}, {"avx2", Kernel::avx2}, {"avx2-nopext", Kernel::avx2_nopext},
    {"avx512", Kernel::avx512}, {"neon", Kernel::neon},
};

#if defined(__x86_64__)
// AMD's Excavator, Zen 1 and Zen 2 have BMI2, but pext and pdep are microcode there: about 8 operations per set bit.
bool has_slow_pext() { return __builtin_cpu_is("bdver4") || __builtin_cpu_is("amdfam17h"); }
#endif

// The SIMD code of a kernel; nullptr for `scalar`.
const BlockKernels* block_kernels(Kernel kernel) {
    switch (kernel) {
#if defined(__x86_64__)
        case Kernel::avx2:
            return has_slow_pext() ? &kAvx2NoPextKernels : &kAvx2Kernels;
        case Kernel::avx2_nopext:
            return &kAvx2NoPextKernels;
        case Kernel::avx512:
            return &kAvx512Kernels;
#elif defined(__aarch64__)
        case Kernel::neon:
            return &kNeonKernels;
#endif
        default:
            return nullptr;
    }
}

}  // namespace

std::optional<Pattern> pattern_from_name(std::string_view name) {
    for (const Pattern pattern : kAllPatterns) {
        if (pattern_name(pattern) == name) return pattern;
    }
    return std::nullopt;
}

std::string_view pattern_name(Pattern pattern) { return kPatternNames[static_cast<std::size_t>(pattern)]; }

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

// The flags of CMakeLists.txt: a kernel file may use all of them.
bool kernel_supported(Kernel kernel) {
    if (kernel == Kernel::scalar) return true;
#if defined(__x86_64__)
    if (kernel == Kernel::neon) return false;
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                      __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("lzcnt") &&
                      __builtin_cpu_supports("popcnt");
    if (kernel != Kernel::avx512) return avx2;
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
           __builtin_cpu_supports("aes") && __builtin_cpu_supports("vaes");
#elif defined(__aarch64__)
    return kernel == Kernel::neon;  // every aarch64 CPU that runs Linux or macOS has NEON
#else
    return false;
#endif
}

Kernel default_kernel() {
    if (const char* forced = std::getenv("GRISTMILL_KERNEL"); forced != nullptr && *forced != '\0') {
        const std::optional<Kernel> kernel = kernel_from_name(forced);
        if (!kernel) {
            throw std::invalid_argument("GRISTMILL_KERNEL=" + std::string(forced) +
                                        " is not a kernel: set it to scalar, avx2, avx512 or neon, or leave it unset.");
        }
        if (!kernel_supported(*kernel)) {
            throw std::invalid_argument("GRISTMILL_KERNEL=" + std::string(forced) +
                                        " is not supported by this CPU: set it to scalar, or leave it unset.");
        }
        return *kernel;
    }
    for (const Kernel kernel : {Kernel::avx512, Kernel::avx2, Kernel::neon}) {
        if (kernel_supported(kernel)) return kernel;
    }
    return Kernel::scalar;
}

std::string_view unicode_version() { return kUnicodeVersion; }

ClassTables class_tables() {
    const std::span rows(kClassRow, 0x110000 / 64);
    return {rows, {kClasses[0], 64 * (*std::max_element(rows.begin(), rows.end()) + std::size_t{1})}};
}

std::unique_ptr<BoundaryScanner> make_scanner(Pattern pattern, Kernel kernel) {
    const BlockKernels* kernels = block_kernels(kernel);
    if (kernels == nullptr) return make_scalar_scanner(pattern);
    return make_block_scanner(kernels->of_pattern[static_cast<std::size_t>(pattern)]);
}

}  // namespace gristmill
