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

// The word of a cell of a group: one word later for each end before it in the group.
template <class Symbol>
struct CellGroup {
    static constexpr u32 kGroup = Cells<Symbol>::kGroup;
    Symbol symbols[kGroup + 1];  // and the first one of the next group

    __device__ u32 ends_before(u32 cell) const {
        u32 num = 0;
        for (u32 i = 0; i < kGroup; ++i) num += i < cell && symbols[i] == Cells<Symbol>::kEnd;
        return num;
    }
};

__device__ __forceinline__ u32 bloom_hash(u16 left, u16 right) {
    return (static_cast<u32>(right) << 16 | left) * 0x9E3779B1u;
}
__device__ __forceinline__ u32 bloom_hash(u32 left, u32 right) { return left * 0x9E3779B1u + right * 0x85EBCA6Bu; }

// A set of pairs in shared memory: a filter that lets few other pairs through, and a hash table.
template <class Symbol>
class PairSet {
  public:
    __device__ explicit PairSet(BlockState& s) : s_(s) {}

    __device__ void clear() {
        for (u32 i = threadIdx.x; i < kBloomWords * 32; i += blockDim.x) s_.bloom[i] = 0;
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

    __device__ bool may_contain(Symbol left, Symbol right) const {
        const u32 hash = bloom_hash(left, right);
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
    for (u32 base = threadIdx.x / 32 * 32; base < num_groups; base += blockDim.x) {
        const u32 g = base + lane_of_thread();
        union {
            uint4 loaded;
            Symbol symbols[kGroup];
        };
        loaded = uint4{~0u, ~0u, ~0u, ~0u};
        if (g < num_groups) loaded = groups[g];
        Symbol next = static_cast<Symbol>(__shfl_down_sync(kAllLanes, static_cast<u32>(symbols[0]), 1));
        if (lane_of_thread() == 31) next = g < num_groups ? cells[(g + 1) * kGroup] : Cells<Symbol>::kEnd;
        u32 hits = 0;
        GRISTMILL_UNROLL
        for (u32 i = 0; i < kGroup; ++i) {
            const Symbol right = i + 1 < kGroup ? symbols[i + 1 < kGroup ? i + 1 : 0] : next;
            hits |= static_cast<u32>(set.may_contain(symbols[i], right)) << i;
        }
        while (hits) {
            const u32 i = __ffs(hits) - 1;
            hits &= hits - 1;
            CellGroup<Symbol> group;
            for (u32 k = 0; k < kGroup; ++k) group.symbols[k] = symbols[k];
            group.symbols[kGroup] = next;
            const Symbol left = group.symbols[i], right = group.symbols[i + 1];
            if (!Cells<Symbol>::is_token(left) || !Cells<Symbol>::is_token(right)) continue;
            const int index = set.find(left, right);
            if (index >= 0) on_hit(at_group[g] + group.ends_before(i), g * kGroup + i, static_cast<u32>(index));
        }
    }
}

}  // namespace gristmill::gpu
