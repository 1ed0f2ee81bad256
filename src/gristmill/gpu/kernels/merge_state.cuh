// The state of a merge run in device memory, which outlives a launch, and the shared memory of a block.
#pragma once

#include "device.cuh"

namespace gristmill::gpu {

// A word is its symbols, then pads in the place of the symbols that merges removed, then one end. Groups of 16 bytes
// are loaded at once.
template <class Symbol>
struct Cells {
    static constexpr Symbol kEnd = static_cast<Symbol>(~Symbol{0});
    static constexpr Symbol kPad = static_cast<Symbol>(kEnd - 1);
    static constexpr u32 kGroup = 16 / sizeof(Symbol);
    __device__ static bool is_token(Symbol symbol) { return symbol < kPad; }
};

// A pair and its count. The key is 0 in an empty entry. Pairs are never removed: their count becomes 0.
struct Entry {
    u64 key, count;
};
__device__ __forceinline__ u64 key_of(u32 left, u32 right) { return (static_cast<u64>(right) << 32 | left) + 1; }
__device__ __forceinline__ u32 left_of(u64 key) { return static_cast<u32>(key - 1); }
__device__ __forceinline__ u32 right_of(u64 key) { return static_cast<u32>((key - 1) >> 32); }

// The words of one block. No other block reads or writes them.
struct Region {
    u64 first_cell;  // of the block, in both buffers; a multiple of 8
    u64 first_word;
    u64 num_words;
    u64 num_cells;
    u64 num_live;  // cells that are not pads
    u64 buffer;    // that has the words now
};

// What the words of a buffer have besides cells. The cells of word w start at region.first_cell + starts[w].
struct WordArrays {
    u64 cells;      // Symbol*
    u32* at_group;  // the word (of the region) at the first cell of a group
    u32* starts;
    u32* lengths;  // symbols now
    u64* weights;
    u32* origins;  // the number of the word in the order of first occurrence
};

enum class TieBreak : u32 { greatest_bytes, smallest_ids, huggingface, first_seen };

enum class Outcome : u64 {
    running,     // the limit of rounds is reached
    complete,    // all merges are learned
    no_pair,     // no pair is left
    table_full,  // the table needs more room
    bytes_full,  // the bytes of the tokens need more room
    ties,        // more pairs share the greatest count than a block can order
};

// The shared memory that a block can have: 227 KiB on GPUs of data centers since 2022, 163 KiB on those before them,
// 96 KiB or a little more on all others.
#ifndef GRISTMILL_SHARED_KIB
#define GRISTMILL_SHARED_KIB 227
#endif
constexpr u32 kSharedKib = GRISTMILL_SHARED_KIB;
static_assert(kSharedKib == 227 || kSharedKib == 163 || kSharedKib == 96);
constexpr u32 kMostHot = kSharedKib / 48 * 1024;                // pairs that a block keeps in shared memory
constexpr u32 kHotLog = 1 << 16;                                // pairs that became hot since the last refill
constexpr u32 kMostCandidates = kSharedKib < 163 ? 512 : 1024;  // pairs that are put in order in a round
constexpr u32 kMostInBatch = 256;
constexpr u32 kFewHot = 192;               // with fewer, a refill is due
constexpr u32 kRefill = kMostHot * 3 / 8;  // pairs that a refill makes hot
// Bins of the counts of all pairs, in a refill: 2^kRefillBits bins per factor of two, which are less than 2^(6 + bits).
constexpr u32 kRefillBits = kSharedKib < 163 ? 6 : kSharedKib < 227 ? 7 : 8;
constexpr u32 kBins = 64 << kRefillBits;
constexpr u32 kCandidateBins = 1024;
constexpr u32 kBatchSlotBits = kSharedKib < 163 ? 10 : 11;
constexpr u32 kBatchSlots = 1 << kBatchSlotBits;
static_assert(kBatchSlots == 2 * kMostCandidates);
constexpr u32 kBloomBits = kRefillBits + 1;  // the filter has the memory of the bins
constexpr u32 kBloomWords = 1 << kBloomBits;

constexpr u64 kNoLimit = 0xffffffff;  // max_token_bytes if tokens may have any length

// Read by all blocks, written between barriers. Every field has eight bytes, so that the host can fill it in as an
// array.
struct MergeState {
    WordArrays words[2];
    Region* regions;
    u32* hits;      // the hit words of a block, from its first_word on
    u32* hit_bits;  // a bit per word, where shared memory has no room for them, otherwise null

    Entry* table;  // aligned to 32 bytes, where two entries are loaded at once
    u64 table_mask;
    u64 hash_multiplier;
    u32* hot_log;
    u64* bins;             // kBins
    u64* greatest_births;  // [2][kMostInBatch]: by merge of the batch, the greatest count of a pair that it makes
    u64* firsts;           // [2][kMostCandidates]: by candidate, its first occurrence

    u32* merges;  // left, right
    u64* counts;
    u64* prefixes;  // by token: its first eight bytes, big-endian
    u32* lengths;
    u64* offsets;  // by token: where its bytes start
    u8* bytes;
    u32* ranks;  // by byte: its place in the order of ids

    u64 num_wanted;  // merges, given ones included
    u64 num_given;   // the first merges, which are in `merges` before the run starts
    u64 max_token_bytes;
    u64 bytes_capacity;

    // The rest changes from round to round.
    u64 num_merges;
    u64 num_bytes;
    u64 num_hot;
    u64 num_entries;
    u64 is_table_full;
    u64 threshold;     // pairs with at least this count are hot
    u64 is_log_valid;  // hot_log has all hot pairs: false until the first refill, and after the table has grown
    u64 num_cells;     // of all blocks
    u64 num_live;
    u64 round;
    u64 outcome;
    u64 num_refills, num_cuts;
    u64 barrier;  // arrivals; 0 when a launch starts
};

struct Candidate {
    u64 count, key;
    u32 left, right, entry, unused;
};

struct BlockState {
    union {
        // A filter of 32 bits per word, once per bank, so that lanes do not collide. It is cleared 16 bytes at a time.
        alignas(16) u32 bloom[kBloomWords * 32];
        u32 bins[kBins];
    };
    u32 hot[2][kMostHot];
    u64 hot_counts[kMostHot];
    Candidate candidates[kMostCandidates];
    u32 order[kMostCandidates];
    u32 rank[kMostCandidates];
    u32 candidate_bins[kCandidateBins];
    u64 batch_keys[kBatchSlots];  // a hash table of the pairs to find in the cells
    u16 batch_index[kBatchSlots];
    u32 left[kMostInBatch], right[kMostInBatch], length[kMostInBatch], entry[kMostInBatch];
    u32 batch_ends[kMostInBatch];  // of the bytes of the tokens
    u64 count[kMostInBatch];
    u64 greatest;
    u64 num_logged, num_entries, num_cells, num_live;  // of all blocks, as they were at the barrier before
    u64 num_bytes;
    Region region;
    u32 num_hot, hot_side, num_candidates, num_in_batch, num_hits, num_new_entries, num_removed;
    u32 chosen_bin, num_chosen, num_before_chosen;
    u32 scratch[40];
};
// A bit per word of the block comes after it.
static_assert(sizeof(BlockState) + (4 << 10) <= kSharedKib << 10);

}  // namespace gristmill::gpu
