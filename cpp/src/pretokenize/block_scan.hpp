// What a SIMD kernel gives to the scanner: plain structures and functions, so that kernel files need no standard header
// with inline functions (code compiled there for a newer CPU must not be linked into the baseline).
//
// A kernel works on blocks of 64 bytes. It turns each into bit masks with one bit a *character* (block_classes.hpp),
// computes which characters begin a piece by bit-parallel algebra (block_rules.hpp) and writes their positions
// (block_kernel.hpp). Look-ahead is a matter of the next block's masks, so every block is classified one step early.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gristmill/pattern_list.hpp"

namespace gristmill {

inline constexpr std::size_t kBlockBytes = 64;
// Positions of one batch stay in the first-level cache beside the text they point into.
inline constexpr std::size_t kBatchBlocks = 128;
inline constexpr std::size_t kBatchBytes = kBatchBlocks * kBlockBytes;

// The characters that begin in one block; bit i of a class mask is the i-th of them. Mask bits from num_chars on are 0
// in class masks and undefined in what is computed from them.
struct Block {
    std::uint64_t starts;       // bit i: *byte* i begins a character
    std::uint64_t apostrophes;  // bit i: *byte* i is '
    std::uint64_t letter;
    std::uint64_t number;
    std::uint64_t space;
    std::uint64_t blank;    // 0x20
    std::uint64_t newline;  // \r and \n
    unsigned num_chars;     // at least 16: no character has more than 4 bytes, and only 3 can belong to one before
};

// For patterns that tell letters by case. A type of its own: more masks in the loop of the others would cost them a
// third of their speed.
struct CasedBlock : Block {
    std::uint64_t upper, lower, mark, slash;
};

// What a block must know of the one before it: each is a single bit about its last character, except `digits`.
struct Carry {
    std::uint64_t letter, number, other, space, blank;
    std::uint64_t plain_space;     // white space but no newline
    std::uint64_t other_begins;    // an "other" that begins a piece
    std::uint64_t takes_newlines;  // an "other" or a newline taken along by one
    std::uint64_t free_space;      // white space not taken along
    std::uint64_t free_newline;
    std::uint64_t punctuation;  // part of a piece of punctuation (this and the next four: o200k)
    std::uint64_t taken;        // a newline or slash taken along
    std::uint64_t small;        // a small letter, or a caseless one behind such
    std::uint64_t open;         // a caseless letter behind no small one
    std::uint64_t contracted;   // characters of this block that belong to a contraction begun in the one before
    std::uint64_t digits;       // how many characters the number piece under way has, 0 if none is
    std::uint64_t set_bits;     // bytes of this block that begin a piece because a contraction ended before them,
    std::uint64_t keep_bits;    // and those (0) that do not because they are inside one
};

struct BlockScan {
    const std::uint8_t* text;
    std::size_t size;
    std::size_t position;    // first byte of `block`
    std::size_t tail_begin;  // blocks from here on are read from `tail`, the end of the text with filler behind it
    std::uint64_t covered;   // first bytes of the block after `block` that belong to a character begun in `block`
    CasedBlock block;        // its last four masks only where the pattern needs them
    Carry carry;
    std::uint8_t tail[4 * kBlockBytes];
};

struct BlockKernel {
    void (*start)(BlockScan& scan, const std::uint8_t* text, std::size_t size);
    // Writes the piece ends of the next kBatchBlocks blocks, relative to scan.position as it was before the call, plus
    // `offset`, with room for kBatchBytes + 64 of them; returns their number, kBatchBytes + 1 at most.
    std::size_t (*batch)(BlockScan& scan, std::uint16_t* ends, std::uint16_t offset);
    // Both for a text of at most kBatchBytes.
    std::size_t (*whole)(BlockScan& scan, const std::uint8_t* text, std::size_t size, std::uint16_t* ends,
                         std::uint16_t offset);
};

#define GRISTMILL_PATTERN(...) +1
inline constexpr std::size_t kNumPatterns = GRISTMILL_PATTERNS(GRISTMILL_PATTERN);
#undef GRISTMILL_PATTERN

// One kernel for each pattern, in the order of the enum.
struct BlockKernels {
    BlockKernel of_pattern[kNumPatterns];
};

#if defined(__x86_64__)
extern const BlockKernels kAvx2Kernels, kAvx2NoPextKernels, kAvx512Kernels;
#elif defined(__aarch64__)
extern const BlockKernels kNeonKernels;
#endif

}  // namespace gristmill
