// The table of all pairs: open addressing in device memory, filled by all blocks at once.
#pragma once

#include "merge_state.cuh"

namespace gristmill::gpu {

constexpr u64 kNoEntry = ~u64{0};

class PairTable {
  public:
    __device__ PairTable(Entry* entries, u64 mask, u64 multiplier)
        : entries_(entries), mask_(mask), multiplier_(multiplier) {}

    __device__ Entry& operator[](u64 i) const { return entries_[i]; }
    __device__ u64 size() const { return mask_ + 1; }

    __device__ u64 find(u64 key) const {
        u64 at = home(key);
        for (u64 probes = 0; probes <= mask_; ++probes, at = (at + 1) & mask_) {
            const u64 seen = __ldcg(&entries_[at].key);
            if (seen == key) return at;
            if (seen == 0) break;
        }
        return kNoEntry;
    }

    // Returns kNoEntry if the table has no room. `is_new` becomes true if the pair was not there.
    __device__ u64 find_or_insert(u64 key, bool& is_new) const {
        u64 at = home(key);
        for (u64 probes = 0; probes <= mask_; ++probes, at = (at + 1) & mask_) {
            u64 seen = __ldcg(&entries_[at].key);
            if (seen == 0) {
                seen = atomicCAS(&entries_[at].key, u64{0}, key);
                if (seen == 0) {
                    is_new = true;
                    return at;
                }
            }
            if (seen == key) return at;
        }
        return kNoEntry;
    }

  private:
    __device__ u64 home(u64 key) const {
        const u64 mixed = (key ^ key >> 29) * multiplier_;
        return (mixed ^ mixed >> 32) & mask_;
    }

    Entry* entries_;
    u64 mask_, multiplier_;
};

}  // namespace gristmill::gpu
