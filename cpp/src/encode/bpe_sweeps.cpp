// BPE of a long piece: rank by rank, all places of a rank in one sweep from left to right.
//
// Where a merge is always learned after its parts, what merging makes has a higher rank than what is being merged, so
// no place is added to a rank once its turn has come. Finding the next rank then needs no heap of places, which costs
// a mispredicted branch per level, jumps about in memory and takes three times as much of it.
#include <stdexcept>

#include "encode/bpe.hpp"

namespace gristmill {
namespace {

constexpr Id kInside = static_cast<Id>(-1);

}  // namespace

// A symbol has its id in the first and in the last cell of those it covers: the left neighbour of a symbol is found in
// the cell before it, the right one after its length. The first cell of a right part that was merged holds kInside, so
// a place whose pair is gone does not match.
std::size_t Bpe::encode_sweeps(std::string_view piece, Id* ids, const Monitor* monitor, SweepState& state) const {
    const auto size = static_cast<std::uint32_t>(piece.size());
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(piece.data());
    if (state.symbols.size() < size) state.symbols.resize(size);
    Id* const symbols = state.symbols.data();
    PlacesByRank& places = state.places;
    places.begin(ranks_.size(), size);
    const Poll poll(monitor);
    symbols[size - 1] = ranks_.id_of_byte(bytes[size - 1]);
    for (std::uint32_t at = size - 1; at-- > 0;) {  // a list begins with what was added last
        poll();
        symbols[at] = ranks_.id_of_byte(bytes[at]);
        places.add(ranks_.of_bytes(bytes[at], bytes[at + 1]), at);
    }
    for (Rank rank; (rank = places.take_lowest()) != kNoRank;) {
        const auto [left, right, made] = ranks_.merge(rank);
        const std::uint32_t left_size = tokens_.length(left), made_size = left_size + tokens_.length(right);
        // Two places of a pair overlap only if both its symbols are the same: the order of the others does not matter.
        if (left == right) places.sort_taken(poll);
        for (std::uint32_t at; places.next(at);) {
            poll();
            if (symbols[at] != left || symbols[at + left_size] != right) continue;
            symbols[at + left_size] = kInside;
            symbols[at] = symbols[at + made_size - 1] = made;
            // Both questions before either answer is used, so that their cache misses overlap.
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
