#include "pretokenize/special_automaton.hpp"

#include <algorithm>
#include <numeric>
#include <string_view>

namespace gristmill {
namespace {

// Up to this many children, a scan is faster than a binary search.
constexpr std::size_t kScannedChildren = 8;

// Specials [begin, end) in the order of their backward spellings: those with the ending that a node spells.
struct Range {
    std::uint32_t begin, end;
};

// All specials spelled backwards and concatenated; construction reads them level by level.
class BackwardSpellings {
  public:
    explicit BackwardSpellings(const std::vector<std::string>& specials) : order_(specials.size()) {
        for (const std::string& special : specials) {
            begins_.push_back(bytes_.size());
            bytes_.append(special.rbegin(), special.rend());
        }
        begins_.push_back(bytes_.size());
        std::iota(order_.begin(), order_.end(), 0u);
        std::sort(order_.begin(), order_.end(),
                  [this](std::uint32_t a, std::uint32_t b) { return spelling(a) < spelling(b); });
    }

    std::uint32_t index(std::uint32_t place) const { return order_[place]; }
    std::size_t length(std::uint32_t place) const { return spelling(order_[place]).size(); }
    std::uint8_t byte(std::uint32_t place, std::size_t depth) const {
        return static_cast<std::uint8_t>(bytes_[begins_[order_[place]] + depth]);
    }

  private:
    std::string_view spelling(std::uint32_t index) const {
        return std::string_view(bytes_).substr(begins_[index], begins_[index + 1] - begins_[index]);
    }

    std::string bytes_;
    std::vector<std::size_t> begins_;  // starts by index, and the end
    std::vector<std::uint32_t> order_;
};

}  // namespace

SpecialAutomaton::SpecialAutomaton(const std::vector<std::string>& specials) {
    const BackwardSpellings spellings(specials);
    add_node(0, kStart);
    // The nodes of the current level and of the next; `shorter` of a node is in an earlier, complete level.
    std::vector<Range> level{{0, static_cast<std::uint32_t>(specials.size())}}, deeper;
    State node = kStart;
    for (std::size_t depth = 0; !level.empty(); ++depth, std::swap(level, deeper), deeper.clear()) {
        for (auto [at, end] : level) {
            const State shorter = nodes_[node].shorter;
            nodes_[node].children = static_cast<State>(nodes_.size());
            nodes_[node].longest = node == kStart ? kNone : nodes_[shorter].longest;
            // A special that ends here comes first, and so do equal ones.
            for (; at < end && spellings.length(at) == depth; ++at) nodes_[node].longest = spellings.index(at);
            while (at < end) {
                const std::uint8_t label = spellings.byte(at, depth);
                const std::uint32_t first = at;
                while (at < end && spellings.byte(at, depth) == label) ++at;
                deeper.push_back({first, at});
                const auto child = static_cast<State>(nodes_.size());
                add_node(label, node == kStart ? kStart : next(shorter, label));
                if (node == kStart) first_level_[label] = child;
            }
            ++node;
        }
    }
    nodes_.push_back({static_cast<State>(nodes_.size()), kStart, kNone});  // end of the last node's children
    nodes_.shrink_to_fit();
    labels_.shrink_to_fit();
}

void SpecialAutomaton::add_node(std::uint8_t label, State shorter) {
    nodes_.push_back({0, shorter, kNone});
    labels_.push_back(label);
}

// Returns kStart, which is never a child, if there is no such child.
SpecialAutomaton::State SpecialAutomaton::find_child(State state, std::uint8_t byte) const {
    const std::uint8_t* const first = labels_.data() + nodes_[state].children;
    const std::uint8_t* const end = labels_.data() + nodes_[state + 1].children;
    const std::uint8_t* found = first;
    if (static_cast<std::size_t>(end - first) <= kScannedChildren) {
        while (found != end && *found != byte) ++found;
    } else {
        found = std::lower_bound(first, end, byte);
    }
    return found != end && *found == byte ? static_cast<State>(found - labels_.data()) : kStart;
}

}  // namespace gristmill
