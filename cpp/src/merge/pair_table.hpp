// The pairs that can still be chosen, with their exact counts.
#pragma once

#include <cstdint>
#include <vector>

#include "gristmill/merge.hpp"
#include "hash.hpp"
#include "table_size.hpp"

namespace gristmill::merge {

// The number of a pair that is not in the table.
inline constexpr std::uint32_t kNoPair = 0xFFFFFFFF;

// `given` merges come from files: with a fixed hash, a file could contain pairs that all collide. No result depends on
// the seed.
inline std::uint64_t pair_hash(HashSeed seed, Id left, Id right) {
    return fold_multiply(seed.a ^ left, seed.b ^ right);
}

// Invariant: for every pair in the table, `count` is its exact weighted number of occurrences in the symbol array. The
// merge that makes the younger symbol of a pair creates all of its occurrences, and its count only falls afterwards. So
// a pair created below the threshold is never entered, and a missing pair is below the threshold for good.
class PairTable {
  public:
    struct Pair {
        Id left, right;
        std::uint64_t count;
        std::uint32_t next;  // link in the queue
    };

    explicit PairTable(HashSeed seed) : seed_(seed) { clear(); }

    Pair& operator[](std::uint32_t pair) { return pairs_[pair]; }
    const Pair& operator[](std::uint32_t pair) const { return pairs_[pair]; }
    std::uint32_t size() const { return static_cast<std::uint32_t>(pairs_.size()); }

    void clear() {
        pairs_.clear();
        slots_.assign(first_size(1024, 16), Slot{0, kNoPair});
    }

    std::uint32_t find(Id left, Id right) const {
        const std::uint64_t hash = pair_hash(seed_, left, right);
        for (std::size_t i = home(hash);; i = (i + 1) & (slots_.size() - 1)) {
            const Slot slot = slots_[i];
            if (slot.pair == kNoPair) return kNoPair;
            if (slot.tag == tag(hash) && pairs_[slot.pair].left == left && pairs_[slot.pair].right == right)
                return slot.pair;
        }
    }

    // The pair must not be in the table yet.
    std::uint32_t insert(Id left, Id right, std::uint64_t count) {
        if (2 * (pairs_.size() + 1) > slots_.size()) grow();
        const std::uint32_t pair = size();
        pairs_.push_back({left, right, count, 0});
        enter(pair);
        return pair;
    }

    void prefetch(Id left, Id right) const { __builtin_prefetch(&slots_[home(pair_hash(seed_, left, right))]); }

  private:
    // The tag resolves nearly every miss without reading the pair: three of four look-ups are for pairs not in the
    // table.
    struct Slot {
        std::uint32_t tag, pair;
    };

    static std::uint32_t tag(std::uint64_t hash) { return static_cast<std::uint32_t>(hash); }
    std::size_t home(std::uint64_t hash) const { return (hash >> 32) & (slots_.size() - 1); }

    void enter(std::uint32_t pair) {
        const std::uint64_t hash = pair_hash(seed_, pairs_[pair].left, pairs_[pair].right);
        std::size_t i = home(hash);
        while (slots_[i].pair != kNoPair) i = (i + 1) & (slots_.size() - 1);
        slots_[i] = {tag(hash), pair};
    }

    void grow() {
        slots_.assign(slots_.size() * 4, Slot{0, kNoPair});
        for (std::uint32_t pair = 0; pair < size(); ++pair) enter(pair);
    }

    HashSeed seed_;
    std::vector<Pair> pairs_;
    std::vector<Slot> slots_;
};

}  // namespace gristmill::merge
