// Finds the longest special that begins at each position of a text, from right to left.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gristmill {

// An Aho-Corasick automaton over the specials spelled backwards. Reading from right to left, the longest special that
// completes its spelling at a position is the longest one that begins there: one answer per position, in time linear in
// the text, regardless of the number, length and overlap of the specials. Reading from left to right would give ends,
// any number of which may belong to one position.
//
// Nodes are numbered level by level, so the children of a node are adjacent, sorted by their bytes: 13 bytes per node,
// and at most as many nodes as the specials have bytes.
class SpecialAutomaton {
  public:
    explicit SpecialAutomaton(const std::vector<std::string>& specials);

    using State = std::uint32_t;
    static constexpr State kStart = 0;
    static constexpr std::uint32_t kNone = static_cast<std::uint32_t>(-1);

    // The state after one more byte, the one before the bytes read so far.
    State next(State state, std::uint8_t byte) const {
        // Each step back along `shorter` is paid for by an earlier step forward.
        while (state != kStart) {
            const State child = find_child(state, byte);
            if (child != kStart) return child;
            state = nodes_[state].shorter;
        }
        return first_level_[byte];
    }
    // The longest special that the bytes read last spell, from left to right, or kNone.
    std::uint32_t longest(State state) const { return nodes_[state].longest; }

    std::size_t memory_bytes() const { return nodes_.capacity() * sizeof(Node) + labels_.capacity(); }

  private:
    struct Node {
        State children;         // index of the first child; the children end where those of the next node begin
        State shorter;          // the node of the longest proper ending of this node's spelling
        std::uint32_t longest;  // index of a special
    };

    State find_child(State state, std::uint8_t byte) const;
    void add_node(std::uint8_t label, State shorter);

    std::vector<Node> nodes_;
    std::vector<std::uint8_t> labels_;  // by node: the byte that leads to it
    std::array<State, 256> first_level_{};
};

}  // namespace gristmill
