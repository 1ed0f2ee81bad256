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
        for (u64 probes = 0; probes <= mask_; probes += kLine, at = (at + kLine) & mask_) {
            u64 seen[kLine];
            load_line(at, seen);
            GRISTMILL_UNROLL
            for (u32 i = 0; i < kLine; ++i) {
                if (seen[i] == key) return at + i;
                if (seen[i] == 0) return kNoEntry;
            }
        }
        return kNoEntry;
    }

    // Returns kNoEntry if the table has no room. `is_new` becomes true if the pair was not there.
    __device__ u64 find_or_insert(u64 key, bool& is_new) const {
        u64 at = home(key);
        for (u64 probes = 0; probes <= mask_; probes += kLine, at = (at + kLine) & mask_) {
            u64 seen[kLine];
            load_line(at, seen);
            GRISTMILL_UNROLL
            for (u32 i = 0; i < kLine; ++i) {
                if (seen[i] == 0) {
                    seen[i] = atomicCAS(&entries_[at + i].key, u64{0}, key);
                    if (seen[i] == 0) {
                        is_new = true;
                        return at + i;
                    }
                }
                if (seen[i] == key) return at + i;
            }
        }
        return kNoEntry;
    }

  private:
    // Entries that are loaded at once: a search that needs several loads makes all other blocks wait.
#ifndef GRISTMILL_LINE
#define GRISTMILL_LINE 2
#endif
    static constexpr u32 kLine = GRISTMILL_LINE;

    __device__ u64 home(u64 key) const {
        const u64 mixed = (key ^ key >> 29) * multiplier_;
        return (mixed ^ mixed >> 32) & mask_ & ~u64{kLine - 1};
    }
    __device__ void load_line(u64 at, u64* seen) const {
        GRISTMILL_UNROLL
        for (u32 i = 0; i < kLine; ++i) seen[i] = __ldcg(&entries_[at + i].key);
    }

    Entry* entries_;
    u64 mask_, multiplier_;
};

}  // namespace gristmill::gpu
