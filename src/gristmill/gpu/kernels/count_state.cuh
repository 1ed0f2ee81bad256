// The state of a count in device memory, and the shared memory of a block.
#pragma once

#include "device.cuh"

namespace gristmill::gpu {

// Classes of the bytes of a text, in shared memory. A character has one of the first four flags on its first byte; a
// mark is an "other" that is in both letter sets of o200k.
constexpr u8 kLetter = 1, kNumber = 2, kSpace = 4, kOther = 8;
constexpr u8 kNewline = 16;                // \r or \n
constexpr u8 kBlank = 32;                  // 0x20
constexpr u8 kCapital = 64, kSmall = 128;  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and [\p{Ll}\p{Lm}\p{Lo}\p{M}]
constexpr u8 kCaseless = kCapital | kSmall;
constexpr u8 kVisible = kLetter | kNumber | kOther;
constexpr u8 kBlankSpace = kSpace | kBlank;
// The other bytes of a character: a run of any kind includes them.
constexpr u8 kInside = kLetter | kNumber | kSpace | kOther | kCaseless;
constexpr u8 kNoText = 0;          // a special, a gap between two texts, or after the end
constexpr u8 kNotLoaded = kBlank;  // a byte after those that the block has loaded

// A word and its count. The key of a word of at most 15 bytes is the word itself:
//
//     at most 7 bytes  tail: the bytes, and their number in the top byte; head: 0
//     8 to 15 bytes    head: the first 8 bytes; tail: the others, and the number of all in the top byte
//     longer           tail: 56 bits of a hash, 0xFF in the top byte; head: 1 + its offset in the arena
//
// An empty entry has tail 0. Threads claim the tail first and then the head, so every key is written by two atomic
// operations of 64 bits, and no thread ever waits for another. An entry whose tail is claimed gets the first head that
// arrives; a thread with another head continues at the next entry. A word of 8 to 15 bytes that begins with 8 zero
// bytes would have an empty head, so it is stored like a longer one.
struct Word {
    u64 tail, head;
    u64 count;
    u64 before;  // the complement of the position of its first occurrence, so that 0 means none
};
constexpr u32 kKeyBytes = 15;
constexpr u64 kLongTag = u64{0xFF} << 56;

// A frequent word that blocks count in shared memory, and its entry. `count` selects among the words of one line.
constexpr u32 kCacheLines = 2048;

// A part of a text that the host counts, because a piece in it does not fit in what a block loads.
struct Span {
    u32 begin;
    u32 tile;  // it ends where the first tile after this one begins, or at the end of the text
};

// Every field has eight bytes, so that the host can fill it in as an array.
struct CountState {
    // The text: several texts with a gap of one byte after each. The first `begin` bytes were counted before.
    const u8* text;
    u64 size;
    u64 position;     // of the first byte in the corpus
    const u32* gaps;  // ascending
    u64 num_gaps;
    u32* no_text;       // a bit per byte that is in a special or a gap; null if there is none
    u32* first_starts;  // by tile: where it begins its first piece; ~0 if it has none

    const u16* class_rows;  // as in the core
    const u8* classes;

    Word* table;
    u64 table_mask;
    u64 hash_seed, hash_multiplier;  // random, so that no text can be made to fill one part of the table
    u64* cache;                      // by line: the count of its word, at most 2^32 - 1, and its entry
    u8* arena;
    u64 arena_capacity;
    Span* spans;  // at most one per tile

    u64 num_tiles;
    u64 most_words;  // a block starts a tile only while the table has fewer
    u64 most_arena;
    u64 stop_tile;  // tiles before this are counted in this launch

    // The rest changes.
    u64 next_tile;
    u64 num_words;
    u64 arena_used;
    u64 num_pieces;
    u64 num_spans;
    u64 specials_overlap;
    u64 num_extracted;  // words in the upper 28 bits, their bytes in the lower 36
};

}  // namespace gristmill::gpu
