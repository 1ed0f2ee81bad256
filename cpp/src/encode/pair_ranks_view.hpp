// Pair of ids -> rank of their merge, as plain data, so that kernel files need no standard header with inline functions
// (code compiled there for a newer CPU must not be linked into the baseline).
#pragma once

#include <cstddef>
#include <cstdint>

namespace gristmill {

using Rank = std::uint32_t;
inline constexpr Rank kNoRank = static_cast<Rank>(-1);

// A pair and its rank in 8 bytes: 20 bits per id, 24 for the rank. Larger vocabularies use a hash map instead.
inline constexpr unsigned kPackedIdBits = 20, kPackedRankBits = 24;
inline constexpr std::uint64_t kFreeSlot = ~std::uint64_t{0};

// A pair is in one of two buckets of two slots, so that every look-up takes the same few instructions: two independent
// loads, and no branch to mispredict. At three quarters full, 50,000 merges take half a megabyte.
struct PairRanksView {
    const Rank* byte_ranks;  // [left byte][right byte]
    const std::uint32_t* byte_ids;
    const std::uint32_t* made;  // by rank; nullptr: rank + first_made
    std::uint32_t first_made;
    const std::uint64_t* buckets;  // two slots each; kFreeSlot: free
    std::uint64_t bucket_mask;     // number of buckets, a power of two, minus one
    std::uint64_t seed, multiplier;
};

// In an unnamed namespace, so that every file has its own copy, compiled for its instruction set.
namespace {

inline std::uint64_t packed_pair(std::uint32_t left, std::uint32_t right) {
    return std::uint64_t{left} << kPackedIdBits | right;
}

struct PairBuckets {
    std::size_t first, second;
};

// One multiplication gives both buckets: the middle bits of the 128-bit product depend on every bit of the pair. Seed
// and multiplier are random per table, so that merges cannot be crafted to share buckets.
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
