// The scanner of the SIMD kernels.
#pragma once

#include <memory>

#include "gristmill/pretokenize.hpp"
#include "pretokenize/block_scan.hpp"

namespace gristmill {

std::unique_ptr<BoundaryScanner> make_block_scanner(const BlockKernel& kernel);

}  // namespace gristmill
