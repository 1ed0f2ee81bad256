// BPE with all ranks of a piece in registers.
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes its own intrinsics' deliberately undefined operands for mistakes (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "encode/bpe_kernel.hpp"

namespace gristmill {
namespace {

constexpr std::uint32_t kNothing = static_cast<std::uint32_t>(-1);
constexpr unsigned kPositionBits = 6;
// Fits the packed table and is no id there: a pair with it has no rank.
constexpr std::uint32_t kNoSymbol = (1u << kPackedIdBits) - 1;

// `rank` and where it stands: the smallest of these is the lowest rank, and of equal ones the leftmost.
inline std::uint32_t with_position(Rank rank, unsigned position) {
    return rank == kNoRank ? kNothing : rank << kPositionBits | position;
}

// Every symbol stays at the byte where it begins, `alive` says where one does, and the rank of merging it with its
// right neighbour stands in the lane of the same number. Nothing is ever moved.
template <unsigned kVectors>
std::size_t encode_piece(const PairRanksView& ranks, const std::uint8_t* piece, std::size_t size, std::uint32_t* ids) {
    constexpr unsigned kNone = 16 * kVectors;  // where no symbol is
    std::uint32_t symbols[kNone + 1];
    symbols[kNone] = kNoSymbol;
    alignas(64) std::uint32_t initial[16 * kVectors];
    for (unsigned i = 0; i < kVectors; ++i) _mm512_store_si512(initial + 16 * i, _mm512_set1_epi32(-1));
    for (unsigned i = 0; i + 1 < size; ++i) {
        symbols[i] = ranks.byte_ids[piece[i]];
        initial[i] = with_position(ranks.byte_ranks[std::size_t{piece[i]} << 8 | piece[i + 1]], i);
    }
    symbols[size - 1] = ranks.byte_ids[piece[size - 1]];
    __m512i lanes[kVectors];
    for (unsigned i = 0; i < kVectors; ++i) lanes[i] = _mm512_load_si512(initial + 16 * i);
    const auto set_lane = [&lanes](std::uint64_t bit, std::uint32_t value) {
        for (unsigned i = 0; i < kVectors; ++i) {
            const auto mask = static_cast<__mmask16>(bit >> 16 * i);
            lanes[i] = _mm512_mask_set1_epi32(lanes[i], mask, static_cast<int>(value));
        }
    };

    std::uint64_t alive = size == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << size) - 1;
    for (;;) {
        __m512i least = lanes[0];
        for (unsigned i = 1; i < kVectors; ++i) least = _mm512_min_epu32(least, lanes[i]);
        const std::uint32_t best = _mm512_reduce_min_epu32(least);
        if (best == kNothing) break;
        const unsigned at = best & ((1u << kPositionBits) - 1);
        const Rank rank = best >> kPositionBits;
        const std::uint32_t made = ranks.made ? ranks.made[rank] : ranks.first_made + rank;
        const std::uint64_t at_bit = std::uint64_t{1} << at;
        const std::uint64_t behind = alive & ~(at_bit | (at_bit - 1));
        const std::uint64_t gone_bit = behind & (~behind + 1);
        alive ^= gone_bit;
        const std::uint64_t right_side = behind ^ gone_bit, left_side = alive & (at_bit - 1);
        const unsigned right = right_side ? static_cast<unsigned>(_tzcnt_u64(right_side)) : kNone;
        const unsigned left = left_side ? 63 - static_cast<unsigned>(_lzcnt_u64(left_side)) : kNone;
        symbols[at] = made;
        const Rank with_right = rank_of_pair(ranks, made, symbols[right]);
        const Rank with_left = rank_of_pair(ranks, symbols[left], made);
        set_lane(gone_bit, kNothing);
        set_lane(at_bit, with_position(with_right, at));
        set_lane(left_side ? std::uint64_t{1} << (left & 63) : 0, with_position(with_left, left));
    }
    std::size_t num_ids = 0;
    for (; alive; alive &= alive - 1) ids[num_ids++] = symbols[_tzcnt_u64(alive)];
    return num_ids;
}

}  // namespace

std::size_t encode_piece_avx512(const PairRanksView& ranks, const std::uint8_t* piece, std::size_t size,
                                std::uint32_t* ids) {
    if (size <= 16) return encode_piece<1>(ranks, piece, size, ids);
    if (size <= 32) return encode_piece<2>(ranks, piece, size, ids);
    return encode_piece<4>(ranks, piece, size, ids);
}

}  // namespace gristmill
