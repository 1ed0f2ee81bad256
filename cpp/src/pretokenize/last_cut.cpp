#include <algorithm>

#include "gristmill/pretokenize.hpp"

namespace gristmill {

std::size_t last_cut(std::string_view text, std::size_t start, Pattern pattern, const SpecialFinder& specials,
                     std::size_t longest) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
    // A special may begin in the last bytes and end behind them, or be longer than it seems: nothing from there on is
    // certain, and neither is a look back over it.
    const std::size_t unsure = longest ? longest - 1 : 0;
    if (text.size() <= unsure) return 0;
    const std::size_t size = text.size() - unsure;
    // Near the end first, then twice as far back each time: real text has a cut within a few bytes.
    for (std::size_t reach = 64, to = size;; reach *= 2) {
        const std::size_t from = std::max(start + 1, size > reach ? size - reach : 1);
        std::size_t last = 0;
        for (std::size_t at = from; at < to && (at = find_cut(pattern, bytes, to, at)) != kNoCut; ++at) {
            if (!specials.may_span(bytes, text.size(), at)) last = at;
        }
        if (last) return last;
        if (from <= start + 1) return 0;
        to = from;
    }
}

}  // namespace gristmill
