// BPE of a long piece: rank by rank, all positions of a rank in one sweep from left to right.
//
// If every merge is learned after its parts, the pairs that a merge creates have a higher rank than the merge itself,
// so no position is added to a rank once the rank is reached. Finding the next rank then needs no heap of positions,
// which costs a mispredicted branch per level, accesses memory at random and takes three times as much of it.
#include <stdexcept>

#include "encode/bpe.hpp"

namespace gristmill {
namespace {

constexpr Id kInside = static_cast<Id>(-1);

}  // namespace

// A symbol has its id in the first and the last cell that it covers: its left neighbour is in the cell before it, the
// right one in the cell after it. The first cell of a merged right part contains kInside, so that a position whose pair
// is gone does not match.
std::size_t Bpe::encode_sweeps(std::string_view piece, Id* ids, const Monitor* monitor, SweepState& state) const {
    const auto size = static_cast<std::uint32_t>(piece.size());
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(piece.data());
    if (state.symbols.size() < size) state.symbols.resize(size);
    Id* const symbols = state.symbols.data();
    PlacesByRank& places = state.places;
    places.begin(ranks_.size(), size);
    const Poll poll(monitor);
    symbols[size - 1] = ranks_.id_of_byte(bytes[size - 1]);
    for (std::uint32_t at = size - 1; at-- > 0;) {  // a list begins with the last position added
        poll();
        symbols[at] = ranks_.id_of_byte(bytes[at]);
        places.add(ranks_.of_bytes(bytes[at], bytes[at + 1]), at);
    }
    for (Rank rank; (rank = places.take_lowest()) != kNoRank;) {
        const auto [left, right, made] = ranks_.merge(rank);
        const std::uint32_t left_size = tokens_.length(left), made_size = left_size + tokens_.length(right);
        // Two positions of a pair overlap only if both its symbols are equal: otherwise their order does not matter.
        if (left == right) places.sort_taken(poll);
        for (std::uint32_t at; places.next(at);) {
            poll();
            if (symbols[at] != left || symbols[at + left_size] != right) continue;
            symbols[at + left_size] = kInside;
            symbols[at] = symbols[at + made_size - 1] = made;
            // Look up both ranks before using either, so that their cache misses overlap.
            const std::uint32_t end = at + made_size;
            const Rank with_left = at ? ranks_.of(symbols[at - 1], made) : kNoRank;
            const Rank with_right = end < size ? ranks_.of(made, symbols[end]) : kNoRank;
            if (at) places.add(with_left, at - tokens_.length(symbols[at - 1]));
            places.add(with_right, at);
        }
    }
    std::size_t num_ids = 0;
    for (std::uint32_t at = 0; at < size; at += tokens_.length(symbols[at])) {
        poll();
        ids[num_ids++] = symbols[at];
    }
    return num_ids;
}

}  // namespace gristmill
