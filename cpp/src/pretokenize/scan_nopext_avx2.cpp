// The AVX2 kernel without pext and pdep, which take up to 300 cycles on AMD CPUs before Zen 3.
#include "pretokenize/block_kernel.hpp"
#include "pretokenize/simd_avx2.hpp"

namespace gristmill {

constinit const BlockKernels kAvx2NoPextKernels = block_kernels<Avx2<MovePacking>>();

}  // namespace gristmill
