#include "encode/pair_ranks.hpp"

#include <algorithm>
#include <bit>
#include <unordered_set>

namespace gristmill {
namespace {

// If inserting one pair moves this many others, the table is too full.
constexpr int kMaxMoves = 500;
// How often a table is filled with new seeds: at its own size, at twice and at four times that size. A seed fails for
// one in two hundred tables of learned merges, and for one in four very regular ones.
constexpr int kAttempts[] = {4, 2, 2};

bool fits_packed(const VocabularyParts& parts) {
    // The greatest id is excluded: kernels use it for "no symbol", and free slots contain it.
    const auto fits = [](Id id) { return id < (Id{1} << kPackedIdBits) - 1; };
    return parts.merges.size() < std::size_t{1} << kPackedRankBits &&
           std::all_of(parts.byte_ids.begin(), parts.byte_ids.end(), fits) &&
           std::all_of(
               parts.merges.begin(), parts.merges.end(),
               [&](const MergeRule& merge) { return fits(merge.left) && fits(merge.right) && fits(merge.made); });
}

// A repeated pair can only have a higher rank, so it would never be merged.
std::vector<RankedPair> first_ranks(const std::vector<MergeRule>& merges) {
    std::vector<RankedPair> result;
    std::unordered_set<std::uint64_t, SeededHash> seen;
    seen.reserve(merges.size());
    for (Rank rank = 0; rank < merges.size(); ++rank) {
        const std::uint64_t pair = std::uint64_t{merges[rank].left} << 32 | merges[rank].right;
        if (seen.insert(pair).second) result.emplace_back(pair, rank);
    }
    return result;
}

}  // namespace

PairRanks::PairRanks(const VocabularyParts& parts, HashSeed (*draw_seed)())
    : byte_ids_(parts.byte_ids), merges_(parts.merges) {
    made_.reserve(parts.merges.size());
    for (const MergeRule& merge : parts.merges) made_.push_back(merge.made);
    const auto pairs = first_ranks(parts.merges);
    if (!fits_packed(parts) || !fill_buckets(pairs, draw_seed)) {
        ranks_.reserve(pairs.size());
        ranks_.insert(pairs.begin(), pairs.end());
    }
    rank_bytes(pairs);
    view_.byte_ranks = byte_ranks_.data();
    view_.byte_ids = byte_ids_.data();
    // If merges make ids in learning order, kernels compute them instead of loading them.
    const auto follows = [this](Rank rank) { return made_[rank] == made_[0] + rank; };
    bool in_order = true;
    for (Rank rank = 0; rank < made_.size() && in_order; ++rank) in_order = follows(rank);
    view_.made = in_order ? nullptr : made_.data();
    view_.first_made = made_.empty() ? 0 : made_[0];
}

// Visits the merges rather than all 65,536 pairs of bytes, of which few merge.
void PairRanks::rank_bytes(const std::vector<RankedPair>& pairs) {
    byte_ranks_.assign(65536, kNoRank);
    std::unordered_map<Id, std::vector<std::size_t>, SeededHash> bytes_of;
    for (std::size_t byte = 0; byte < 256; ++byte) bytes_of[byte_ids_[byte]].push_back(byte);
    const Id last_id = *std::max_element(byte_ids_.begin(), byte_ids_.end());
    for (const auto& [pair, rank] : pairs) {
        const auto left_id = static_cast<Id>(pair >> 32), right_id = static_cast<Id>(pair);
        if (std::max(left_id, right_id) > last_id) continue;  // most merges: bytes usually have the first ids
        const auto left = bytes_of.find(left_id), right = bytes_of.find(right_id);
        if (left == bytes_of.end() || right == bytes_of.end()) continue;
        for (const std::size_t l : left->second) {
            for (const std::size_t r : right->second) byte_ranks_[l << 8 | r] = rank;
        }
    }
}

bool PairRanks::fill_buckets(const std::vector<RankedPair>& pairs, HashSeed (*draw_seed)()) {
    auto bits = static_cast<unsigned>(std::bit_width(std::max<std::size_t>(pairs.size() * 13 / 10, 8) - 1));
    for (const int num_attempts : kAttempts) {
        for (int attempt = 0; attempt < num_attempts; ++attempt) {
            const HashSeed seed = draw_seed();
            view_.seed = seed.a;
            view_.multiplier = seed.b;
            view_.bucket_mask = (std::uint64_t{1} << (bits - 1)) - 1;
            buckets_.assign(std::size_t{1} << bits, kFreeSlot);
            const bool complete = std::all_of(pairs.begin(), pairs.end(), [this](const RankedPair& item) {
                const auto [pair, rank] = item;
                const auto packed = packed_pair(static_cast<Id>(pair >> 32), static_cast<Id>(pair));
                return insert(packed << kPackedRankBits | rank);
            });
            if (complete) {
                view_.buckets = buckets_.data();
                return true;
            }
        }
        ++bits;
    }
    buckets_ = {};
    return false;
}

// If another pair occupies the slot, it is moved to its other bucket.
bool PairRanks::insert(std::uint64_t slot) {
    std::size_t bucket = buckets_of(view_, slot >> kPackedRankBits).first;
    for (int move = 0; move < kMaxMoves; ++move) {
        const auto [first, second] = buckets_of(view_, slot >> kPackedRankBits);
        for (const std::size_t at : {2 * first, 2 * first + 1, 2 * second, 2 * second + 1}) {
            if (buckets_[at] == kFreeSlot) {
                buckets_[at] = slot;
                return true;
            }
        }
        bucket = bucket == first ? second : first;
        std::swap(slot, buckets_[2 * bucket + static_cast<std::size_t>(move / 2 % 2)]);
    }
    return false;
}

}  // namespace gristmill
