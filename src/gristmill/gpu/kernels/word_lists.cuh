// The words of the table as a list, and words of a list into the table.
#pragma once

#include "word_table.cuh"

namespace gristmill::gpu {

// Words as the merge stage takes them, in any order.
struct WordList {
    u8* bytes;
    u64* offsets;
    u64* counts;
    u64* firsts;  // positions of the first occurrences
};

constexpr u32 kExtractBits = 36;

// Adds up the words that occur often enough, and their bytes.
__device__ inline void measure_words(CountState& g, u64 min_frequency, u64* totals) {
    u64 num_words = 0, num_bytes = 0, longest = 0, num_counted = 0;
    const WordTable table(g);
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i <= g.table_mask;
         i += static_cast<u64>(gridDim.x) * blockDim.x) {
        const Word word = g.table[i];
        if (!word.tail) continue;
        ++num_counted;
        if (word.count < min_frequency) continue;
        const u64 size = table.size_of(word);
        ++num_words;
        num_bytes += size;
        longest = max(longest, size);
    }
    for (u32 by = 16; by; by /= 2) {
        num_words += __shfl_xor_sync(kAllLanes, num_words, by);
        num_bytes += __shfl_xor_sync(kAllLanes, num_bytes, by);
        num_counted += __shfl_xor_sync(kAllLanes, num_counted, by);
        longest = max(longest, __shfl_xor_sync(kAllLanes, longest, by));
    }
    if (lane_of_thread() != 0) return;
    atomicAdd(&totals[0], num_words);
    atomicAdd(&totals[1], num_bytes);
    atomicMax(&totals[2], longest);
    atomicAdd(&totals[3], num_counted);
}

// Writes the words. A block reserves room for all of its words with one atomic operation.
__device__ inline void list_words(CountState& g, u64 min_frequency, const WordList& list, u32* scratch,
                                  u64* shared_base) {
    const WordTable table(g);
    const u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
    for (u64 base = static_cast<u64>(blockIdx.x) * blockDim.x; base <= g.table_mask; base += step) {
        const u64 i = base + threadIdx.x;
        Word word{0, 0, 0, 0};
        if (i <= g.table_mask) word = g.table[i];
        const bool is_listed = word.tail && word.count >= min_frequency;
        const u64 size = is_listed ? table.size_of(word) : 0;
        // The words of a block may have more than 2^32 bytes, so their lower 16 bits have a sum of their own.
        u32 num_words, low, high;
        const u32 word_before = sum_before_in_block(is_listed, num_words, scratch);
        const u64 low_before = sum_before_in_block(static_cast<u32>(size & 0xFFFF), low, scratch);
        const u64 high_before = sum_before_in_block(static_cast<u32>(size >> 16), high, scratch);
        const u64 bytes_before = low_before + (high_before << 16), num_bytes = low + (static_cast<u64>(high) << 16);
        if (threadIdx.x == 0)
            *shared_base = atomicAdd(&g.num_extracted, (static_cast<u64>(num_words) << kExtractBits) + num_bytes);
        __syncthreads();
        const u64 first_word = *shared_base >> kExtractBits, first_byte = *shared_base & ((u64{1} << kExtractBits) - 1);
        __syncthreads();
        if (!is_listed) continue;
        const u64 to = first_word + word_before;
        list.offsets[to] = first_byte + bytes_before;
        list.counts[to] = word.count;
        list.firsts[to] = ~word.before;
        u8* bytes = list.bytes + first_byte + bytes_before;
        if (word.tail >= kLongTag) {
            const u8* from = g.arena + word.head - 1 + 8;
            for (u64 k = 0; k < size; ++k) bytes[k] = from[k];
        } else {
            const u64 first = size < 8 ? word.tail : word.head;
            for (u32 k = 0; k < size; ++k) bytes[k] = static_cast<u8>((k < 8 ? first : word.tail) >> 8 * (k % 8));
        }
    }
}

// The words of `from` in another order: word i is order[i].
__device__ inline void reorder_sizes(const WordList& from, const u64* order, u64 num_words, const WordList& to,
                                     u64* sizes) {
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < num_words;
         i += static_cast<u64>(gridDim.x) * blockDim.x) {
        const u64 word = order[i];
        to.counts[i] = from.counts[word];
        to.firsts[i] = from.firsts[word];
        sizes[i] = from.offsets[word + 1] - from.offsets[word];
    }
}
__device__ inline void reorder_bytes(const WordList& from, const u64* order, u64 num_words, const WordList& to) {
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < num_words;
         i += static_cast<u64>(gridDim.x) * blockDim.x) {
        const u8* source = from.bytes + from.offsets[order[i]];
        for (u64 k = to.offsets[i]; k < to.offsets[i + 1]; ++k) to.bytes[k] = *source++;
    }
}

// Adds words of a list to the table, one thread per word. The host has made room for them.
__device__ inline void add_listed_words(CountState& g, const WordList& list, u64 num_words) {
    const WordTable table(g);
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < num_words;
         i += static_cast<u64>(gridDim.x) * blockDim.x) {
        const u64 size = list.offsets[i + 1] - list.offsets[i];
        bool is_new = false;
        const u64 entry =
            add_word(table, StoredBytes{list.bytes + list.offsets[i], size}, size, list.counts[i], is_new);
        table.see_at(entry, list.firsts[i]);
        if (is_new) atomicAdd(&g.num_words, u64{1});
    }
}

__device__ inline void move_all_words(CountState& g, const Word* words, u64 size) {
    const WordTable table(g);
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < size;
         i += static_cast<u64>(gridDim.x) * blockDim.x)
        if (words[i].tail) table.move(words[i]);
}

// Chooses the words that blocks count in shared memory: the most frequent one of each line.
__device__ inline void choose_cached_words(CountState& g) {
    const WordTable table(g);
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i <= g.table_mask;
         i += static_cast<u64>(gridDim.x) * blockDim.x) {
        const Word word = g.table[i];
        if (word.count < 2 || word.tail >= kLongTag || i >> 32) continue;
        const u64 line = (table.hash_of(word.tail, word.head) >> 8) % kCacheLines;
        const u64 rank = min(word.count, u64{0xffffffff}) << 32 | i;
        if (__ldcg(&g.cache[line]) < rank) atomicMax(&g.cache[line], rank);
    }
}

}  // namespace gristmill::gpu
