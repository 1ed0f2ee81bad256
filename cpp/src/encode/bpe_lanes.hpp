// BPE of a piece with all its ranks in vector registers. `Lanes` is an array of these for some instruction set:
//   kSize                 number of 32-bit lanes
//   Lanes(values)         from kSize numbers in memory
//   least()               the smallest lane
//   set(lane, value)      does nothing if `lane` is kSize (its `bit` is 0)
// Included by kernels: see pair_ranks_view.hpp.
#pragma once

#include "encode/bpe_kernel.hpp"

namespace gristmill {
namespace {

constexpr std::uint32_t kNothing = static_cast<std::uint32_t>(-1);
constexpr unsigned kPositionBits = 6;
// Fits the packed table and is not an id there: a pair with it has no rank.
constexpr std::uint32_t kNoSymbol = (1u << kPackedIdBits) - 1;

// `rank` with its position: the smallest of these has the lowest rank, and among equal ranks the leftmost position.
inline std::uint32_t with_position(Rank rank, unsigned position) {
    return rank == kNoRank ? kNothing : rank << kPositionBits | position;
}

// A lane in two representations; an instruction set uses one of them.
struct LanePlace {
    unsigned index;
    std::uint64_t bit;
};

// Every symbol stays at the byte where it begins, `alive` marks these bytes, and the rank of merging a symbol with its
// right neighbour is in the lane of the same number. Nothing is moved.
template <class Lanes>
std::size_t encode_piece(const PairRanksView& ranks, const std::uint8_t* piece, std::size_t size, std::uint32_t* ids) {
    constexpr unsigned kNone = Lanes::kSize;  // position of "no symbol"
    std::uint32_t symbols[kNone + 1];
    symbols[kNone] = kNoSymbol;
    alignas(64) std::uint32_t initial[kNone];
    for (unsigned i = 0; i < kNone; ++i) initial[i] = kNothing;
    for (unsigned i = 0; i + 1 < size; ++i) {
        symbols[i] = ranks.byte_ids[piece[i]];
        initial[i] = with_position(ranks.byte_ranks[std::size_t{piece[i]} << 8 | piece[i + 1]], i);
    }
    symbols[size - 1] = ranks.byte_ids[piece[size - 1]];
    Lanes lanes(initial);

    std::uint64_t alive = size == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << size) - 1;
    for (;;) {
        const std::uint32_t best = lanes.least();
        if (best == kNothing) break;
        const unsigned at = best & ((1u << kPositionBits) - 1);
        const Rank rank = best >> kPositionBits;
        const std::uint32_t made = ranks.made ? ranks.made[rank] : ranks.first_made + rank;
        const std::uint64_t at_bit = std::uint64_t{1} << at;
        const std::uint64_t later = alive & ~(at_bit | (at_bit - 1));
        const std::uint64_t gone_bit = later & (~later + 1);
        alive ^= gone_bit;
        const std::uint64_t right_side = later ^ gone_bit, left_side = alive & (at_bit - 1);
        const unsigned right = right_side ? static_cast<unsigned>(__builtin_ctzll(right_side)) : kNone;
        const unsigned left = left_side ? 63 - static_cast<unsigned>(__builtin_clzll(left_side)) : kNone;
        symbols[at] = made;
        const Rank with_right = rank_of_pair(ranks, made, symbols[right]);
        const Rank with_left = rank_of_pair(ranks, symbols[left], made);
        lanes.set({static_cast<unsigned>(__builtin_ctzll(gone_bit)), gone_bit}, kNothing);
        lanes.set({at, at_bit}, with_position(with_right, at));
        lanes.set({left, left_side ? std::uint64_t{1} << (left & 63) : 0}, with_position(with_left, left));
    }
    std::size_t num_ids = 0;
    for (; alive; alive &= alive - 1) ids[num_ids++] = symbols[__builtin_ctzll(alive)];
    return num_ids;
}

}  // namespace
}  // namespace gristmill
