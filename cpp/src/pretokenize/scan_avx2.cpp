// The AVX2 kernel (with BMI2: Haswell, Zen and later).
#include "pretokenize/block_kernel.hpp"
#include "pretokenize/simd_avx2.hpp"

namespace gristmill {

constinit const BlockKernels kAvx2Kernels = block_kernels<Avx2<PextPacking>>();

}  // namespace gristmill
