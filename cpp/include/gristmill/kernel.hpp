// Instruction sets with specialized code, and which of them this CPU supports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace gristmill {

// `avx2` runs as `avx2_nopext` where pext is slow (AMD before Zen 3). The separate name lets tests run it on any CPU.
enum class Kernel : std::uint8_t { scalar, avx2, avx2_nopext, avx512, neon };
inline constexpr Kernel kAllKernels[] = {Kernel::scalar, Kernel::avx2, Kernel::avx2_nopext, Kernel::avx512,
                                         Kernel::neon};

std::optional<Kernel> kernel_from_name(std::string_view name);
std::string_view kernel_name(Kernel kernel);
// Whether this CPU supports the kernel. `scalar` is always supported.
bool kernel_supported(Kernel kernel);
// The fastest supported kernel, or the one named by GRISTMILL_KERNEL. Throws std::invalid_argument for an unknown or
// unsupported name.
Kernel default_kernel();

// Readable bytes after a text in our buffers, so that loads of whole words and vectors need no check near its end.
inline constexpr std::size_t kTextPadding = 64;

}  // namespace gristmill
