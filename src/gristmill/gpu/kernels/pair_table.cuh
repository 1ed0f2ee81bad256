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
    // Entries whose keys are loaded at once: a search that needs one load after the other makes all other blocks wait.
    // Memory has sectors of 32 bytes, so the second key costs no further access.
    static constexpr u32 kLine = 2;
    static_assert(kLine * sizeof(Entry) == 32);

    // The first entry of a line.
    __device__ u64 home(u64 key) const {
        const u64 mixed = (key ^ key >> 29) * multiplier_;
        return (mixed ^ mixed >> 32) & mask_ & ~u64{kLine - 1};
    }
    // A key that another block has just inserted may be missing: seen[i] is then 0, and atomicCAS() returns the key.
    __device__ void load_line(u64 at, u64 (&seen)[kLine]) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000 && __CUDACC_VER_MAJOR__ >= 13
        // Older GPUs load at most 16 bytes at once, and the keys are 16 bytes apart.
        [[maybe_unused]] u64 counts[kLine];
        asm volatile("ld.global.cg.v4.u64 {%0, %1, %2, %3}, [%4];"
                     : "=l"(seen[0]), "=l"(counts[0]), "=l"(seen[1]), "=l"(counts[1])
                     : "l"(entries_ + at)
                     : "memory");
#else
        GRISTMILL_UNROLL
        for (u32 i = 0; i < kLine; ++i) seen[i] = __ldcg(&entries_[at + i].key);
#endif
    }

    Entry* entries_;
    u64 mask_, multiplier_;
};

}  // namespace gristmill::gpu
