// Special tokens are hard boundaries of text: found by their spelling, the leftmost first, the longest among those.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gristmill {

class SpecialFinder {
  public:
    // `specials` are distinct and not empty.
    explicit SpecialFinder(const std::vector<std::string>& specials);

    struct Match {
        std::size_t position;
        std::uint32_t index;  // into the list given; kNone when there is no match, and position is then `size`
    };
    static constexpr std::uint32_t kNone = static_cast<std::uint32_t>(-1);

    // The first special that starts at or behind `from` and ends within text[0, size).
    Match find(const std::uint8_t* text, std::size_t size, std::size_t from) const;
    // Whether any special, wherever the search began, could cover both text[at - 1] and text[at].
    bool may_span(const std::uint8_t* text, std::size_t size, std::size_t at) const;
    // How many bytes on either side of `at` may_span() looks at.
    std::size_t span_reach() const { return span_reach_; }
    std::size_t length(std::uint32_t index) const { return specials_[index].size(); }
    bool empty() const { return specials_.empty(); }

  private:
    std::size_t next_candidate(const std::uint8_t* text, std::size_t size, std::size_t from) const;
    std::uint32_t longest_at(const std::uint8_t* text, std::size_t size, std::size_t at) const;

    std::vector<std::string> specials_;
    std::vector<std::uint32_t> sorted_;    // indices, by spelling
    std::vector<std::uint16_t> prefixes_;  // distinct first two bytes of the specials that have two
    std::vector<bool> starts_with_;  // by the first two bytes, for more prefixes than a register compare is good for
    bool has_single_byte_ = false;
    std::size_t span_reach_ = 0;  // the longest special with ASCII white space inside: only such can cover a cut
};

}  // namespace gristmill
