// The tokens that can be a whole piece, found without BPE: one table per encoder, read by all threads.
//
// A new piece is looked up here before it is encoded. Most pieces are not a token, so a bit filter of the hashes, small
// enough for the L2 cache, rules those out first.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "encode/piece_key.hpp"
#include "gristmill/ids.hpp"
#include "gristmill/large_memory.hpp"
#include "hash.hpp"

namespace gristmill {

class SeedTable {
  public:
    // Room for `num_seeds`, or for as many as `limit_bytes` allows.
    SeedTable(std::size_t num_seeds, std::size_t limit_bytes) {
        std::size_t size = std::bit_ceil(2 * num_seeds + 2);
        while (size > 2 && allocated_bytes(size * sizeof(Slot)) + size * kFilterBits / 8 > limit_bytes) size /= 2;
        slots_ = ZeroedArray<Slot>(size);
        filter_.resize(std::max<std::size_t>(size * kFilterBits / 64, 1));
    }
    // `key`: of a token that is encoded as this id. Does nothing when the table is full.
    void add(const PieceKey& key, Id id) {
        if (2 * (size_ + 1) > slots_.size()) return;
        const std::uint64_t hash = hash_of(key);
        filter_[filter_bit(hash) / 64] |= std::uint64_t{1} << filter_bit(hash) % 64;
        std::size_t at = hash & (slots_.size() - 1);
        while (slots_[at].id_plus_one) at = (at + 1) & (slots_.size() - 1);
        slots_[at] = {key, id + 1};
        ++size_;
    }
    // Returns whether the piece with this key, of at most kMaxKeyBytes bytes, is a token, and sets `id` to its id.
    bool find(const PieceKey& key, Id& id) const {
        const std::uint64_t hash = hash_of(key);
        if (!(filter_[filter_bit(hash) / 64] >> filter_bit(hash) % 64 & 1)) return false;
        for (std::size_t at = hash & (slots_.size() - 1); slots_[at].id_plus_one; at = (at + 1) & (slots_.size() - 1)) {
            id = slots_[at].id_plus_one - 1;
            if (slots_[at].key.low == key.low && slots_[at].key.high == key.high) return true;
        }
        return false;
    }
    std::size_t size() const { return size_; }
    std::size_t memory_bytes() const { return allocated_bytes(slots_.size() * sizeof(Slot)) + filter_.size() * 8; }

  private:
    struct Slot {
        PieceKey key;
        Id id_plus_one;  // 0: free
    };
    std::uint64_t hash_of(const PieceKey& key) const { return fold_multiply(key.low ^ seed_.a, key.high ^ seed_.b); }
    static constexpr std::size_t kFilterBits = 4;  // per slot
    std::size_t filter_bit(std::uint64_t hash) const { return hash >> 8 & (slots_.size() * kFilterBits - 1); }

    HashSeed seed_ = HashSeed::random();
    ZeroedArray<Slot> slots_;
    std::vector<std::uint64_t> filter_;
    std::size_t size_ = 0;
};

}  // namespace gristmill
