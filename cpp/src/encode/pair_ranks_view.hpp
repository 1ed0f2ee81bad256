// Pair of ids -> rank of their merge, as plain data: kernel files need no standard header with inline functions (code
// compiled there for a newer CPU must not be linked into the baseline).
#pragma once

#include <cstddef>
#include <cstdint>

namespace gristmill {

using Rank = std::uint32_t;
inline constexpr Rank kNoRank = static_cast<Rank>(-1);

// A pair and its rank in 8 bytes: 20 bits for each id, 24 for the rank. Whatever does not fit goes another way.
inline constexpr unsigned kPackedIdBits = 20, kPackedRankBits = 24;
inline constexpr std::uint64_t kFreeSlot = ~std::uint64_t{0};

// A pair lies in one of two buckets of two slots, so that every question, whatever its answer, is the same few
// instructions: two loads that do not wait for each other, and no branch to mispredict. At three quarters full that is
// half a megabyte for 50,000 merges.
struct PairRanksView {
    const Rank* byte_ranks;  // [left byte][right byte]
    const std::uint32_t* byte_ids;
    const std::uint32_t* made;  // by rank; nullptr: rank + first_made
    std::uint32_t first_made;
    const std::uint64_t* buckets;  // two slots each; kFreeSlot: free
    std::uint64_t bucket_mask;     // their number, a power of two, less one
    std::uint64_t seed, multiplier;
};

// In an unnamed namespace: every file has a copy of its own, compiled for its own instruction set.
namespace {

inline std::uint64_t packed_pair(std::uint32_t left, std::uint32_t right) {
    return std::uint64_t{left} << kPackedIdBits | right;
}

struct PairBuckets {
    std::size_t first, second;
};

// One multiplication gives both buckets: the bits in the middle of the 128-bit product depend on every bit of the pair.
// Seed and multiplier are random in each table, so that nobody can choose merges that share their buckets.
inline PairBuckets buckets_of(const PairRanksView& view, std::uint64_t pair) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(pair ^ view.seed) * view.multiplier;
    const std::uint64_t high = static_cast<std::uint64_t>(product >> 64);
    const std::uint64_t low = static_cast<std::uint64_t>(product);
    return {static_cast<std::size_t>((high ^ low) & view.bucket_mask),
            static_cast<std::size_t>(low >> 38 & view.bucket_mask)};
}

inline Rank rank_of_pair(const PairRanksView& view, std::uint32_t left, std::uint32_t right) {
    const std::uint64_t pair = packed_pair(left, right);
    const auto [first, second] = buckets_of(view, pair);
    const std::uint64_t *a = view.buckets + 2 * first, *b = view.buckets + 2 * second;
    const auto rank_in = [](std::uint64_t slot) {
        return static_cast<Rank>(slot & ((std::uint64_t{1} << kPackedRankBits) - 1));
    };
    Rank rank = kNoRank;
    rank = a[0] >> kPackedRankBits == pair ? rank_in(a[0]) : rank;
    rank = a[1] >> kPackedRankBits == pair ? rank_in(a[1]) : rank;
    rank = b[0] >> kPackedRankBits == pair ? rank_in(b[0]) : rank;
    rank = b[1] >> kPackedRankBits == pair ? rank_in(b[1]) : rank;
    return rank;
}

}  // namespace
}  // namespace gristmill
