// Chooses the merges of a round. Every block does this by itself, from the same counts, with the same result: that
// saves a barrier of the whole grid.
#pragma once

#include "pair_table.cuh"
#include "words.cuh"

namespace gristmill::gpu {

// Bins of counts whose width is a fixed share of the count: 2^kBits bins per factor of two, and exact small counts.
template <u32 kBits>
__device__ __forceinline__ u32 bin_of(u64 count) {
    const u32 width = 64 - __clzll(count);
    if (width <= kBits + 1) return static_cast<u32>(count);
    const u32 shift = width - kBits - 1;
    return (shift << kBits) + static_cast<u32>(count >> shift);
}
// The smallest count of a bin.
template <u32 kBits>
__device__ __forceinline__ u64 least_in_bin(u32 bin) {
    if (bin < 2u << kBits) return bin;
    const u32 shift = (bin >> kBits) - 1;
    return static_cast<u64>((bin & ((1u << kBits) - 1)) + (1u << kBits)) << shift;
}
constexpr u32 kCandidateBits = 11;

// Which of two tokens has the greater bytes: 1, 0 or -1.
__device__ inline int compare_bytes(const MergeState& g, u32 one, u32 other) {
    if (one == other) return 0;
    const u64 p = __ldcg(&g.prefixes[one]), q = __ldcg(&g.prefixes[other]);
    if (p != q) return p > q ? 1 : -1;
    const u32 n = __ldcg(&g.lengths[one]), m = __ldcg(&g.lengths[other]);
    const u8 *x = g.bytes + __ldcg(&g.offsets[one]), *y = g.bytes + __ldcg(&g.offsets[other]);
    for (u32 i = 8; i < n && i < m; ++i) {
        const u8 a = __ldcg(x + i), b = __ldcg(y + i);
        if (a != b) return a > b ? 1 : -1;
    }
    return n == m ? 0 : n > m ? 1 : -1;
}

// Whether a pair is merged before another one.
template <TieBreak kTieBreak>
__device__ inline bool is_before(const MergeState& g, const Candidate& one, const Candidate& other) {
    if (one.count != other.count) return one.count > other.count;
    if (one.key != other.key) return one.key > other.key;
    if (kTieBreak != TieBreak::greatest_bytes) return false;
    const int left = compare_bytes(g, one.left, other.left);
    if (left) return left > 0;
    if (const int right = compare_bytes(g, one.right, other.right)) return right > 0;
    // Foreign given merges may make the same bytes twice. Then the smaller ids come first.
    return one.left != other.left ? one.left < other.left : one.right < other.right;
}

// The tie-break as a number: the greater one comes first. Only greatest_bytes sometimes needs more.
template <TieBreak kTieBreak>
__device__ inline u64 tie_key(const MergeState& g, u32 left, u32 right) {
    if (kTieBreak == TieBreak::greatest_bytes) return __ldcg(&g.prefixes[left]);
    const u32 a = left < 256 ? g.ranks[left] : left, b = right < 256 ? g.ranks[right] : right;
    return ~(static_cast<u64>(a) << 32 | b);
}

// The hot pairs of a block: a copy of their entries in shared memory, without those that fell below the threshold.
class HotPairs {
  public:
    __device__ HotPairs(const MergeState& g, BlockState& s) : g_(g), s_(s) {}

    __device__ void forget() {
        num_seen_ = 0;
        __syncthreads();
        if (threadIdx.x == 0) s_.num_hot = s_.hot_side = 0;
        __syncthreads();
    }

    // Reads the log from its start, in parts that fit. Returns false if more pairs are still hot than fit.
    __device__ bool read_again(u64 num_logged, u64 threshold) {
        forget();
        if (num_logged > kHotLog) return false;
        while (num_seen_ < num_logged) {
            const u64 room = kMostHot - s_.num_hot;
            if (room == 0) return false;
            refresh(min(num_logged, num_seen_ + room), threshold);
        }
        return true;
    }

    // Whether the pairs that became hot have room.
    __device__ bool has_room(u64 num_logged) const {
        return num_logged <= kHotLog && s_.num_hot + (num_logged - num_seen_) <= kMostHot;
    }

    // Reads the counts of all hot pairs. Afterwards s.num_hot pairs have s.hot_counts, and s.greatest is the greatest.
    __device__ void refresh(u64 num_logged, u64 threshold) {
        const u32 side = s_.hot_side, num_old = s_.num_hot;
        const u32 num = num_old + static_cast<u32>(num_logged - num_seen_);
        __syncthreads();
        if (threadIdx.x == 0) {
            s_.num_hot = 0;
            s_.hot_side = side ^ 1;
            s_.greatest = 0;
        }
        __syncthreads();
        // Several counts at once, because the table is slow to answer.
        constexpr u32 kAtOnce = 4;
        u64 greatest = 0;
        for (u32 base = 0; base < num; base += kAtOnce * blockDim.x) {
            u32 entries[kAtOnce];
            u64 counts[kAtOnce];
            GRISTMILL_UNROLL
            for (u32 k = 0; k < kAtOnce; ++k) {
                const u32 i = base + k * blockDim.x + threadIdx.x;
                entries[k] = i >= num      ? ~0u
                             : i < num_old ? s_.hot[side][i]
                                           : __ldcg(&g_.hot_log[num_seen_ + (i - num_old)]);
            }
            GRISTMILL_UNROLL
            for (u32 k = 0; k < kAtOnce; ++k) counts[k] = entries[k] == ~0u ? 0 : __ldcg(&g_.table[entries[k]].count);
            GRISTMILL_UNROLL
            for (u32 k = 0; k < kAtOnce; ++k) {
                const bool is_kept = entries[k] != ~0u && counts[k] >= threshold;
                const u32 to = place_in_block(is_kept, &s_.num_hot);
                if (!is_kept) continue;
                s_.hot[side ^ 1][to] = entries[k];
                s_.hot_counts[to] = counts[k];
                greatest = max(greatest, counts[k]);
            }
        }
        for (u32 by = 16; by; by /= 2) greatest = max(greatest, __shfl_xor_sync(kAllLanes, greatest, by));
        if (lane_of_thread() == 0 && greatest) atomicMax(&s_.greatest, greatest);
        num_seen_ = static_cast<u32>(num_logged);
        __syncthreads();
    }

    __device__ u32 num() const { return s_.num_hot; }

  private:
    const MergeState& g_;
    BlockState& s_;
    u32 num_seen_ = 0;  // of the log
};

// Fills s.candidates with the pairs of the greatest counts: at least `kTarget` if there are so many, and all pairs that
// share a count with the last one. Returns false if more pairs than fit share the greatest count.
__device__ inline bool choose_candidates(BlockState& s, u64 threshold) {
    constexpr u32 kTarget = 80;
    const u32 top = bin_of<kCandidateBits>(s.greatest);
    u32 limit = top - bin_of<kCandidateBits>(threshold);  // distance from the bin of the greatest count
    u64 least = 0;
    for (;;) {
        u32 shift = 0;
        while (limit >> shift >= kCandidateBins) ++shift;
        for (u32 i = threadIdx.x; i < kCandidateBins; i += blockDim.x) s.candidate_bins[i] = 0;
        __syncthreads();
        for (u32 i = threadIdx.x; i < s.num_hot; i += blockDim.x) {
            const u32 distance = top - bin_of<kCandidateBits>(s.hot_counts[i]);
            if (distance <= limit) atomicAdd(&s.candidate_bins[distance >> shift], 1u);
        }
        __syncthreads();
        if (threadIdx.x < 32) {
            // A lane adds up 32 bins, each lane from another bank of the memory. Then the bins of the first lane at
            // which the sum reaches the target are added up one per lane.
            const u32 lane = lane_of_thread();
            u32 sum = 0, total;
            for (u32 i = 0; i < 32; ++i) sum += s.candidate_bins[lane * 32 + (i + lane) % 32];
            const u32 before_lane = sum_before_in_warp(sum, total);
            const u32 wanted = min(kTarget, total);
            const u32 reached = __ffs(__ballot_sync(kAllLanes, before_lane + sum >= wanted)) - 1;
            const u32 mine = s.candidate_bins[reached * 32 + lane];
            u32 ignored;
            const u32 before = __shfl_sync(kAllLanes, before_lane, reached) + sum_before_in_warp(mine, ignored);
            const u32 first = __ffs(__ballot_sync(kAllLanes, before + mine >= wanted)) - 1;
            if (lane == first) {
                s.chosen_bin = reached * 32 + lane;
                s.num_before_chosen = before;
                s.num_chosen = before + mine;
            }
        }
        __syncthreads();
        const u32 bin = s.chosen_bin, num = s.num_chosen, num_before = s.num_before_chosen;
        __syncthreads();
        const u32 end = ((bin + 1) << shift) - 1;
        if (num <= kMostCandidates) {
            limit = min(limit, end);
            break;
        }
        if (end < limit) {
            limit = end;  // look closer
        } else if (num_before) {
            limit = (bin << shift) - 1;
            break;
        } else {
            // All are in the bin of the greatest count, which has a width of one: only the greatest count itself.
            limit = 0;
            least = s.greatest;
            break;
        }
    }
    if (threadIdx.x == 0) s.num_candidates = 0;
    __syncthreads();
    for (u32 base = 0; base < s.num_hot; base += blockDim.x) {
        const u32 i = base + threadIdx.x;
        const u64 count = i < s.num_hot ? s.hot_counts[i] : 0;
        const bool is_chosen = count != 0 && top - bin_of<kCandidateBits>(count) <= limit && count >= least;
        const u32 to = place_in_block(is_chosen, &s.num_candidates);
        if (!is_chosen || to >= kMostCandidates) continue;
        s.candidates[to].count = count;
        s.candidates[to].entry = s.hot[s.hot_side][i];
    }
    __syncthreads();
    return s.num_candidates <= kMostCandidates;
}

// Puts the candidates in order: candidate s.order[i] is merged as number i.
template <TieBreak kTieBreak>
__device__ inline void sort_candidates(const MergeState& g, BlockState& s) {
    const u32 num = s.num_candidates;
    for (u32 i = threadIdx.x; i < num; i += blockDim.x) s.rank[i] = 0;
    __syncthreads();
    // Several threads compare a candidate with the others.
    u32 share = 1;
    while (share < 8 && num * share * 2 <= blockDim.x) share *= 2;
    for (u32 t = threadIdx.x; t < num * share; t += blockDim.x) {
        const u32 i = t / share;
        const Candidate mine = s.candidates[i];
        u32 num_before = 0;
        for (u32 k = t % share; k < num; k += share)
            num_before += k != i && is_before<kTieBreak>(g, s.candidates[k], mine);
        if (num_before) atomicAdd(&s.rank[i], num_before);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < num; i += blockDim.x) s.order[s.rank[i]] = i;
    __syncthreads();
}

// Whether merging one pair changes the count of another one.
__device__ __forceinline__ bool interferes(u32 left, u32 right, u32 later_left, u32 later_right) {
    return left == later_right || right == later_left;
}

// Shortens the batch to the pairs before the first one that an earlier one interferes with. Most batches are short, so
// few pairs are compared first.
__device__ inline void cut_interfering(BlockState& s, u32 num) {
    constexpr u32 kFew = 48;
    __syncthreads();
    if (threadIdx.x == 0) s.num_in_batch = num;
    __syncthreads();
    for (u32 from = 0, to = min(num, kFew); from < num; from = to, to = num) {
        for (u32 k = threadIdx.x; k < (to - from) * to; k += blockDim.x) {
            const u32 later = from + k / to, earlier = k % to;
            if (earlier < later && interferes(s.left[earlier], s.right[earlier], s.left[later], s.right[later]))
                atomicMin(&s.num_in_batch, later);
        }
        __syncthreads();
        const bool is_cut = s.num_in_batch < num;
        __syncthreads();
        if (is_cut) break;
    }
}

}  // namespace gristmill::gpu
