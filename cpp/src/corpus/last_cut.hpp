// Where a text that goes on may be cut.
#pragma once

#include <string_view>

#include "gristmill/pretokenize.hpp"
#include "gristmill/specials.hpp"

namespace gristmill {

// A position p > start, near the end of `text`, where it may be cut in two whatever follows: pieces and specials of
// both parts are those of the whole. 0 if there is none. `longest` is the length of the longest special.
std::size_t last_cut(std::string_view text, std::size_t start, Pattern pattern, const SpecialFinder& specials,
                     std::size_t longest);

}  // namespace gristmill
