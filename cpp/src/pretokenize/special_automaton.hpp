// The longest special that begins at each place of a text, found from right to left.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gristmill {

// The automaton of Aho and Corasick over the specials spelled backwards. Read from right to left, the longest special
// that ends its spelling at a place of the text is the longest one that begins there: one answer for each place, in
// time linear in the text, however many specials there are, however long, and whatever they have in common. Read from
// left to right, the same automaton would give ends, of which any number may belong to one place.
//
// Nodes are numbered level by level, so the children of a node follow each other, sorted by their bytes: 13 bytes per
// node, and no more nodes than the specials have bytes.
class SpecialAutomaton {
  public:
    explicit SpecialAutomaton(const std::vector<std::string>& specials);

    using State = std::uint32_t;
    static constexpr State kStart = 0;
    static constexpr std::uint32_t kNone = static_cast<std::uint32_t>(-1);

    // The state after one more byte, the one before those read so far.
    State next(State state, std::uint8_t byte) const {
        // Each step back along `shorter` is paid for by a step forward before.
        while (state != kStart) {
            const State child = find_child(state, byte);
            if (child != kStart) return child;
            state = nodes_[state].shorter;
        }
        return first_level_[byte];
    }
    // The longest special that the bytes read last spell, from left to right; kNone if they spell none.
    std::uint32_t longest(State state) const { return nodes_[state].longest; }

    std::size_t memory_bytes() const { return nodes_.capacity() * sizeof(Node) + labels_.capacity(); }

  private:
    struct Node {
        State children;         // the first one; those of the next node begin where they end
        State shorter;          // the longest node that spells an end of what this one spells
        std::uint32_t longest;  // index of a special
    };

    State find_child(State state, std::uint8_t byte) const;
    void add_node(std::uint8_t label, State shorter);

    std::vector<Node> nodes_;
    std::vector<std::uint8_t> labels_;  // by node: the byte that leads there
    std::array<State, 256> first_level_{};
};

}  // namespace gristmill
