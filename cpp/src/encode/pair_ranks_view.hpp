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
    unsigned bucket_shift;
};

// In an unnamed namespace: every file has a copy of its own, compiled for its own instruction set.
namespace {

inline std::uint64_t packed_pair(std::uint32_t left, std::uint32_t right) {
    return std::uint64_t{left} << kPackedIdBits | right;
}

struct PairBuckets {
    std::size_t first, second;
};

inline PairBuckets buckets_of(std::uint64_t pair, unsigned shift) {
    const std::uint64_t hash = (pair ^ pair >> 23) * 0x9e3779b97f4a7c15u;
    return {static_cast<std::size_t>(hash >> shift), static_cast<std::size_t>(hash * 0xd6e8feb86659fd93u >> shift)};
}

inline Rank rank_of_pair(const PairRanksView& view, std::uint32_t left, std::uint32_t right) {
    const std::uint64_t pair = packed_pair(left, right);
    const auto [first, second] = buckets_of(pair, view.bucket_shift);
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
