// The keys of the short pieces of a group, as a kernel makes them: plain data, so that kernel files need no standard
// header with inline functions (code compiled there for a newer CPU must not be linked into the baseline).
#pragma once

#include <cstddef>
#include <cstdint>

namespace gristmill {

inline constexpr std::size_t kShortBytes = 7;
// Pieces per group: keys first, with a prefetch of each slot, then the probes, so that the cache misses of a group
// overlap. Groups of 512 and more push each other's lines out of the first-level cache (5 % slower).
inline constexpr std::size_t kCountGroup = 128;

// A piece of up to kShortBytes bytes and its length are one 64-bit key: bytes in text order from the lowest, length in
// the top byte. Vector kernels write up to 8 values of no meaning after the last.
struct ShortProbes {
    std::uint64_t keys[kCountGroup + 8];
    std::uint32_t slots[kCountGroup + 8];   // the top bits of key * multiplier
    std::uint32_t starts[kCountGroup + 8];  // of the piece, from base
    std::uint16_t others[kCountGroup + 8];  // the longer pieces, by number
    std::size_t num_shorts, num_others;
};

// Pieces 0 to num_pieces - 1 <= kCountGroup of those that begin at ends[i] and end at ends[i + 1], from base. 8 bytes
// from the begin of each are readable, and 8 more ends.
using MakeShortProbes = void (*)(const std::uint8_t* base, const std::uint16_t* ends, std::size_t num_pieces,
                                 std::uint64_t multiplier, unsigned slot_shift, ShortProbes& probes);

void make_short_probes(const std::uint8_t* base, const std::uint16_t* ends, std::size_t num_pieces,
                       std::uint64_t multiplier, unsigned slot_shift, ShortProbes& probes);
#if defined(__x86_64__)
void make_short_probes_avx512(const std::uint8_t* base, const std::uint16_t* ends, std::size_t num_pieces,
                              std::uint64_t multiplier, unsigned slot_shift, ShortProbes& probes);
#endif

}  // namespace gristmill
