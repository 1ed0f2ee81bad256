// The start of a merge run: words as cells, and the table of the pairs of bytes. Also moves the pairs to a larger
// table.
#pragma once

#include "pair_table.cuh"
#include "words.cuh"

namespace gristmill::gpu {

// Words as the count stage gives them.
struct CountedWords {
    const u8* bytes;
    const u64* offsets;
    const u64* counts;
    u64 first;

    __device__ u32 num_symbols(u32 w) const {
        return counts[first + w] ? static_cast<u32>(offsets[first + w + 1] - offsets[first + w]) : 0;
    }
    __device__ u32 symbol(u32 w, u32 i) const { return bytes[offsets[first + w] + i]; }
    __device__ u64 weight(u32 w) const { return counts[first + w]; }
    __device__ u32 origin(u32 w) const { return static_cast<u32>(first + w); }
};

// The first word of a block, where all blocks get about the same number of cells.
__device__ inline u64 first_word_of(const u64* offsets, u64 num_words, u32 block, u32 num_blocks) {
    const u64 wanted = (offsets[num_words] + num_words) / num_blocks * block;
    u64 low = 0, high = num_words;
    if (block == num_blocks) return num_words;
    while (low < high) {
        const u64 middle = (low + high) / 2;
        if (offsets[middle] + middle < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Lays out the words in cells, and adds up the pairs of bytes. Starts a run together with enter_byte_pairs().
template <class Symbol>
__device__ void lay_out_words(MergeState& g, const u8* bytes, const u64* offsets, const u64* counts, u64 num_words,
                              u64* byte_pairs, BlockState& s) {
    const u64 first = first_word_of(offsets, num_words, blockIdx.x, gridDim.x);
    const u64 end = first_word_of(offsets, num_words, blockIdx.x + 1, gridDim.x);
    if (threadIdx.x == 0)
        s.region = {(offsets[first] + first + 7) / 8 * 8 + 24 * blockIdx.x, first, end - first, 0, 0, 0};
    __syncthreads();
    const CountedWords words{bytes, offsets, counts, first};
    write_words<Symbol>(g.words[0], s.region, static_cast<u32>(end - first), words, s.scratch);
    if (threadIdx.x == 0) {
        g.regions[blockIdx.x] = s.region;
        atomicAdd(&g.num_cells, s.region.num_cells);
        atomicAdd(&g.num_live, s.region.num_live);
    }
    for (u32 w = threadIdx.x; w < end - first; w += blockDim.x)
        for (u32 i = 0; i + 1 < words.num_symbols(w); ++i)
            atomicAdd(&byte_pairs[words.symbol(w, i) << 8 | words.symbol(w, i + 1)], words.weight(w));
}

__device__ inline void insert_pair(MergeState& g, u64 key, u64 count) {
    bool is_new = false;
    const PairTable table(g.table, g.table_mask, g.hash_multiplier);
    table[table.find_or_insert(key, is_new)].count = count;
    atomicAdd(&g.num_entries, u64{1});
}

__device__ inline void enter_byte_pairs(MergeState& g, const u64* byte_pairs) {
    if (g.max_token_bytes < 2) return;
    for (u32 pair = blockIdx.x * blockDim.x + threadIdx.x; pair < 65536; pair += gridDim.x * blockDim.x)
        if (byte_pairs[pair]) insert_pair(g, key_of(pair >> 8, pair & 255), byte_pairs[pair]);
}

// Enters the pairs of a table that still occur into the larger one of `g`.
__device__ inline void move_pairs(MergeState& g, const Entry* entries, u64 size) {
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < size;
         i += static_cast<u64>(gridDim.x) * blockDim.x)
        if (entries[i].count) insert_pair(g, entries[i].key, entries[i].count);
}

}  // namespace gristmill::gpu
