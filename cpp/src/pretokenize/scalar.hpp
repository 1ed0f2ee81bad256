// The scalar kernel's scanner, which applies the specification piece by piece.
#pragma once

#include <memory>

#include "gristmill/pretokenize.hpp"

namespace gristmill {

std::unique_ptr<BoundaryScanner> make_scalar_scanner(Pattern pattern);

}  // namespace gristmill
