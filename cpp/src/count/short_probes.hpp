// The keys of the short pieces of a group, made by a kernel. Plain data, so that kernel files need no standard header
// with inline functions (code compiled there for a newer CPU must not be linked into the baseline).
#pragma once

#include <cstddef>
#include <cstdint>

namespace gristmill {

inline constexpr std::size_t kShortBytes = 7;
// Pieces per group: computes all keys first and prefetches each slot, then probes, so that the cache misses of a group
// overlap. Groups of 512 or more evict each other's lines from the L1 cache (5 % slower).
inline constexpr std::size_t kCountGroup = 128;

// A piece of up to kShortBytes bytes and its length form one 64-bit key: bytes in text order from the lowest, length in
// the top byte. Vector kernels write up to 8 meaningless values after the last.
struct ShortProbes {
    std::uint64_t keys[kCountGroup + 8];
    std::uint32_t slots[kCountGroup + 8];   // the top bits of key * multiplier
    std::uint32_t starts[kCountGroup + 8];  // start of the piece, relative to base
    std::uint16_t others[kCountGroup + 8];  // indices of the longer pieces
    std::size_t num_shorts, num_others;
};

// Pieces 0 to num_pieces - 1 <= kCountGroup; piece i begins at ends[i] and ends at ends[i + 1], relative to base. 8
// bytes from the start of each piece are readable, and 8 more ends.
using MakeShortProbes = void (*)(const std::uint8_t* base, const std::uint16_t* ends, std::size_t num_pieces,
                                 std::uint64_t multiplier, unsigned slot_shift, ShortProbes& probes);

void make_short_probes(const std::uint8_t* base, const std::uint16_t* ends, std::size_t num_pieces,
                       std::uint64_t multiplier, unsigned slot_shift, ShortProbes& probes);
#if defined(__x86_64__)
void make_short_probes_avx512(const std::uint8_t* base, const std::uint16_t* ends, std::size_t num_pieces,
                              std::uint64_t multiplier, unsigned slot_shift, ShortProbes& probes);
#endif

}  // namespace gristmill
