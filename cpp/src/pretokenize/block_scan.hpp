// The interface between a SIMD kernel and the scanner: plain structures and functions, so that kernel files need no
// standard header with inline functions (code compiled there for a newer CPU must not be linked into the baseline).
//
// A kernel processes blocks of 64 bytes. It converts each to bit masks with one bit per *character*
// (block_classes.hpp), finds the characters that begin a piece by bit-parallel algebra (block_rules.hpp), and writes
// their positions (block_kernel.hpp). Look-ahead uses the masks of the next block, so every block is classified one
// step early.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gristmill/pattern_list.hpp"

namespace gristmill {

inline constexpr std::size_t kBlockBytes = 64;
// The positions of one batch stay in the L1 cache, together with the text.
inline constexpr std::size_t kBatchBlocks = 128;
inline constexpr std::size_t kBatchBytes = kBatchBlocks * kBlockBytes;

// The characters that begin in one block; bit i of a class mask is the i-th of them. Bits from num_chars on are 0 in
// class masks, and undefined in masks computed from them.
struct Block {
    std::uint64_t starts;       // bit i: *byte* i begins a character
    std::uint64_t apostrophes;  // bit i: *byte* i is '
    std::uint64_t letter;
    std::uint64_t number;
    std::uint64_t space;
    std::uint64_t blank;    // 0x20
    std::uint64_t newline;  // \r and \n
    unsigned num_chars;     // at least 16: 64 bytes, minus 3 of an earlier character, 4 each
};

// For patterns that distinguish letters by case. A separate type, because more masks in the loop would cost the other
// patterns a third of their speed.
struct CasedBlock : Block {
    std::uint64_t upper, lower, mark, slash;
};

// The state passed from one block to the next: each is a single bit about its last character, except `digits`.
struct Carry {
    std::uint64_t letter, number, other, space, blank;
    std::uint64_t plain_space;     // white space other than newlines
    std::uint64_t other_begins;    // an "other" that begins a piece
    std::uint64_t takes_newlines;  // an "other", or a newline that one has taken along
    std::uint64_t free_space;      // white space that is not taken along
    std::uint64_t free_newline;
    std::uint64_t punctuation;  // part of a piece of punctuation (this and the next four: o200k)
    std::uint64_t taken;        // a newline or slash taken along
    std::uint64_t small;        // a small letter, or a caseless one after such a letter
    std::uint64_t open;         // a caseless letter that does not follow a small one
    std::uint64_t contracted;   // characters of this block in a contraction that began in the previous one
    std::uint64_t digits;       // number of characters of the current number piece, or 0
    std::uint64_t set_bits;     // bytes of this block that begin a piece because a contraction ended before them
    std::uint64_t keep_bits;    // bytes (0) that begin no piece because they are inside a contraction
};

struct BlockScan {
    const std::uint8_t* text;
    std::size_t size;
    std::size_t position;    // first byte of `block`
    std::size_t tail_begin;  // blocks from here on are read from `tail`, the end of the text followed by filler
    std::uint64_t covered;   // first bytes of the next block that belong to a character of `block`
    CasedBlock block;        // its last four masks are set only where the pattern needs them
    Carry carry;
    std::uint8_t tail[4 * kBlockBytes];
};

struct BlockKernel {
    void (*start)(BlockScan& scan, const std::uint8_t* text, std::size_t size);
    // Writes the piece ends of the next kBatchBlocks blocks, relative to the value of scan.position before the call,
    // plus `offset`. `ends` must have room for kBatchBytes + 64 values. Returns their number, at most kBatchBytes + 1.
    std::size_t (*batch)(BlockScan& scan, std::uint16_t* ends, std::uint16_t offset);
    // start and batch together, for a text of at most kBatchBytes.
    std::size_t (*whole)(BlockScan& scan, const std::uint8_t* text, std::size_t size, std::uint16_t* ends,
                         std::uint16_t offset);
};

#define GRISTMILL_PATTERN(...) +1
inline constexpr std::size_t kNumPatterns = GRISTMILL_PATTERNS(GRISTMILL_PATTERN);
#undef GRISTMILL_PATTERN

// One kernel per pattern, in the order of the enum.
struct BlockKernels {
    BlockKernel of_pattern[kNumPatterns];
};

#if defined(__x86_64__)
extern const BlockKernels kAvx2Kernels, kAvx2NoPextKernels, kAvx512Kernels;
#elif defined(__aarch64__)
extern const BlockKernels kNeonKernels;
#endif

}  // namespace gristmill
