// The words of a block as cells: laid out from their bytes, scanned for pairs, and moved together as they get shorter.
#pragma once

#include "merge_state.cuh"

namespace gristmill::gpu {

// Writes the words of `source` that have a pair into `to`, one thread per word, and describes them in `region`, which
// is in shared memory. All threads of the block call this.
template <class Symbol, class Source>
__device__ void write_words(const WordArrays& to, Region& region, u32 num_words, const Source& source, u32* scratch) {
    constexpr u32 kGroup = Cells<Symbol>::kGroup;
    Symbol* cells = reinterpret_cast<Symbol*>(to.cells) + region.first_cell;
    u32* at_group = to.at_group + region.first_cell / kGroup;
    u32 next_word = 0, next_cell = 0;
    for (u32 base = 0; base < num_words; base += blockDim.x) {
        const u32 from = base + threadIdx.x;
        const u32 num_symbols = from < num_words ? source.num_symbols(from) : 0;
        const bool is_kept = from < num_words && num_symbols >= 2;
        u32 num_kept, num_cells;
        const u32 word = next_word + sum_before_in_block(is_kept, num_kept, scratch);
        const u32 start = next_cell + sum_before_in_block(is_kept ? num_symbols + 1 : 0, num_cells, scratch);
        if (is_kept) {
            to.starts[region.first_word + word] = start;
            to.lengths[region.first_word + word] = num_symbols;
            to.weights[region.first_word + word] = source.weight(from);
            to.origins[region.first_word + word] = source.origin(from);
            for (u32 i = 0; i < num_symbols; ++i) cells[start + i] = source.symbol(from, i);
            cells[start + num_symbols] = Cells<Symbol>::kEnd;
            for (u32 g = (start + kGroup - 1) / kGroup; g * kGroup <= start + num_symbols; ++g) at_group[g] = word;
        }
        next_word += num_kept;
        next_cell += num_cells;
    }
    // A scan reads whole groups, and one cell after them.
    const u32 end = (next_cell + kGroup - 1) / kGroup * kGroup + kGroup;
    for (u32 i = next_cell + threadIdx.x; i < end; i += blockDim.x) cells[i] = Cells<Symbol>::kEnd;
    __syncthreads();
    if (threadIdx.x == 0) {
        region.num_words = next_word;
        region.num_cells = region.num_live = next_cell;
    }
    __syncthreads();
}

__device__ __forceinline__ u32 bloom_hash(u32 pair) { return pair * 0x9E3779B1u; }
__device__ __forceinline__ u32 bloom_hash(u16 left, u16 right) {
    return bloom_hash(static_cast<u32>(right) << 16 | left);
}
__device__ __forceinline__ u32 bloom_hash(u32 left, u32 right) { return left * 0x9E3779B1u + right * 0x85EBCA6Bu; }

// A group of cells in registers, and the cell after it.
template <class Symbol>
struct CellGroup {
    static constexpr u32 kGroup = Cells<Symbol>::kGroup;
    uint4 loaded{~0u, ~0u, ~0u, ~0u};
    u32 next = Cells<Symbol>::kEnd;

    __device__ u32 word(u32 i) const {
        return i == 0 ? loaded.x : i == 1 ? loaded.y : i == 2 ? loaded.z : i == 3 ? loaded.w : next;
    }
    // Of a place that is known when this is compiled.
    __device__ u32 symbol(u32 i) const {
        if constexpr (sizeof(Symbol) == 4) return word(i);
        return i % 2 == 0 ? word(i / 2) & 0xffff : word(i / 2) >> 16;
    }
    // The hash of the pair at such a place.
    __device__ u32 hash(u32 i) const {
        if constexpr (sizeof(Symbol) == 4) return bloom_hash(word(i), word(i + 1));
        return bloom_hash(i % 2 == 0 ? word(i / 2) : __funnelshift_r(word(i / 2), word(i / 2 + 1), 16));
    }
    // The word of a cell is one later for each end before it in the group.
    __device__ u32 ends_before(u32 cell) const {
        u32 num = 0;
        GRISTMILL_UNROLL
        for (u32 i = 0; i < kGroup; ++i) num += i < cell && symbol(i) == Cells<Symbol>::kEnd;
        return num;
    }
};

// A set of pairs in shared memory: a filter that lets few other pairs through, and a hash table.
template <class Symbol>
class PairSet {
  public:
    __device__ explicit PairSet(BlockState& s) : s_(s) {}

    __device__ void clear() {
        uint4* bloom = reinterpret_cast<uint4*>(s_.bloom);
        for (u32 i = threadIdx.x; i < kBloomWords * 8; i += blockDim.x) bloom[i] = uint4{0, 0, 0, 0};
        for (u32 i = threadIdx.x; i < kBatchSlots; i += blockDim.x) s_.batch_keys[i] = 0;
        __syncthreads();
    }

    // By one warp per pair.
    __device__ void insert(u32 left, u32 right, u32 index) {
        const u32 hash = bloom_hash(static_cast<Symbol>(left), static_cast<Symbol>(right));
        atomicOr(&s_.bloom[(hash >> (32 - kBloomBits)) * 32 + lane_of_thread()], 1u << (hash >> kBloomShift & 31));
        if (lane_of_thread() != 0) return;
        const u64 key = key_of(left, right);
        u32 at = slot_of(key);
        while (atomicCAS(&s_.batch_keys[at], u64{0}, key) != 0) at = (at + 1) % kBatchSlots;
        s_.batch_index[at] = static_cast<u16>(index);
    }

    __device__ bool may_contain(Symbol left, Symbol right) const { return may_contain(bloom_hash(left, right)); }
    __device__ bool may_contain(u32 hash) const {
        return s_.bloom[(hash >> (32 - kBloomBits)) * 32 + lane_of_thread()] >> (hash >> kBloomShift & 31) & 1;
    }

    // The index of a pair, or -1.
    __device__ int find(Symbol left, Symbol right) const {
        if (!may_contain(left, right)) return -1;
        const u64 key = key_of(left, right);
        for (u32 at = slot_of(key);; at = (at + 1) % kBatchSlots) {
            const u64 seen = s_.batch_keys[at];
            if (seen == 0) return -1;
            if (seen == key) return s_.batch_index[at];
        }
    }

  private:
    static constexpr u32 kBloomShift = 32 - kBloomBits - 5;

    __device__ static u32 slot_of(u64 key) {
        return static_cast<u32>(key * 0x9E3779B97F4A7C15u >> (64 - kBatchSlotBits));
    }

    BlockState& s_;
};

// Calls on_hit(word, cell, index) for every adjacent pair of symbols that is in `set`. The cell counts from the start
// of the region.
template <class Symbol, class OnHit>
__device__ void scan_cells(const WordArrays& words, const Region& region, const PairSet<Symbol>& set, OnHit on_hit) {
    constexpr u32 kGroup = Cells<Symbol>::kGroup;
    const Symbol* cells = reinterpret_cast<const Symbol*>(words.cells) + region.first_cell;
    const uint4* groups = reinterpret_cast<const uint4*>(cells);
    const u32* at_group = words.at_group + region.first_cell / kGroup;
    const u32 num_groups = static_cast<u32>((region.num_cells + kGroup - 1) / kGroup);
    const auto load = [&](u32 g) {
        CellGroup<Symbol> group;
        if (g >= num_groups) return group;
        // Before the exchange between the lanes, which waits for the group.
        if (lane_of_thread() == 31) group.next = cells[(g + 1) * kGroup];
        group.loaded = groups[g];
        return group;
    };
    CellGroup<Symbol> following = load(threadIdx.x);
    for (u32 base = threadIdx.x / 32 * 32; base < num_groups; base += blockDim.x) {
        const u32 g = base + lane_of_thread();
        CellGroup<Symbol> group = following;
        following = load(g + blockDim.x);
        const u32 next = __shfl_down_sync(kAllLanes, group.loaded.x, 1);
        if (lane_of_thread() != 31) group.next = next;
        u32 hits = 0;
        GRISTMILL_UNROLL
        for (u32 i = 0; i < kGroup; ++i) hits |= static_cast<u32>(set.may_contain(group.hash(i))) << i;
        // After the last group are the cells of another block, and the filter may let a pair of ends through.
        if (g >= num_groups) hits = 0;
        while (hits) {
            const u32 i = __ffs(hits) - 1;
            hits &= hits - 1;
            // Loaded again, because a register cannot be chosen by a number.
            const Symbol left = cells[g * kGroup + i], right = cells[g * kGroup + i + 1];
            if (!Cells<Symbol>::is_token(left) || !Cells<Symbol>::is_token(right)) continue;
            const int index = set.find(left, right);
            if (index >= 0) on_hit(at_group[g] + group.ends_before(i), g * kGroup + i, static_cast<u32>(index));
        }
    }
}

}  // namespace gristmill::gpu
