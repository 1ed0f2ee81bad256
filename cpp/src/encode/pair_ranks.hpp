// Pair of ids -> rank of their merge, which BPE looks up several times per byte.
#pragma once

#include <array>
#include <unordered_map>
#include <utility>
#include <vector>

#include "encode/pair_ranks_view.hpp"
#include "gristmill/tokenizer.hpp"
#include "hash.hpp"

namespace gristmill {

using RankedPair = std::pair<std::uint64_t, Rank>;  // left id << 32 | right id

class PairRanks {
  public:
    // `draw_seed` is called for every attempt to fill the packed table.
    explicit PairRanks(const VocabularyParts& parts, HashSeed (*draw_seed)() = HashSeed::random);
    PairRanks(const PairRanks&) = delete;  // view_ points into the object
    PairRanks& operator=(const PairRanks&) = delete;

    // Whether the pairs are in the packed table; true with fewer than a million ids.
    bool is_packed() const { return view_.buckets != nullptr; }
    const PairRanksView& view() const { return view_; }

    Id id_of_byte(std::uint8_t byte) const { return byte_ids_[byte]; }
    // The rank of merging the ids of two bytes.
    Rank of_bytes(std::uint8_t left, std::uint8_t right) const { return byte_ranks_[std::size_t{left} << 8 | right]; }
    Rank of(Id left, Id right) const {
        if (is_packed()) return rank_of_pair(view_, left, right);
        const auto found = ranks_.find(std::uint64_t{left} << 32 | right);
        return found == ranks_.end() ? kNoRank : found->second;
    }
    Id made(Rank rank) const { return made_[rank]; }
    const MergeRule& merge(Rank rank) const { return merges_[rank]; }
    std::size_t size() const { return merges_.size(); }
    std::size_t table_bytes() const { return buckets_.size() * sizeof(std::uint64_t); }

  private:
    // Returns false if every attempt failed; the table is then empty.
    bool fill_buckets(const std::vector<RankedPair>& pairs, HashSeed (*draw_seed)());
    bool insert(std::uint64_t slot);
    void rank_bytes(const std::vector<RankedPair>& pairs);

    std::array<Id, 256> byte_ids_;
    std::vector<Rank> byte_ranks_;
    std::vector<MergeRule> merges_;
    std::vector<Id> made_;  // ids made by merges_, for the kernels
    std::vector<std::uint64_t> buckets_;
    std::unordered_map<std::uint64_t, Rank, SeededHash> ranks_;  // for pairs that do not fit in the packed table
    PairRanksView view_{};
};

}  // namespace gristmill
