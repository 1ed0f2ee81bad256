// Looking up pieces of up to 15 bytes in a thread's table, as a kernel gives it: keys of a group first, with a prefetch
// of each entry, then the ids of those whose entry is where its search begins.
#pragma once

#include "encode/piece_key.hpp"

namespace gristmill {

// A table of entries of 32 bytes: a key and packed ids (PackedIds).
struct PieceTableView {
    const char* entries;
    std::uint64_t mask;  // of the byte offset of an entry
    unsigned shift;      // leaves as many of 64 bits as a byte offset has
    PieceKey seed;       // of the hash
};

inline constexpr std::size_t kMaxGroup = 512;
// A group of pieces that are looked up together.
struct PieceGroup {
    alignas(64) PieceKey keys[kMaxGroup + 4];
    std::uint32_t offsets[kMaxGroup + 4];  // where in the table the search begins, in bytes
};
// In `high` of the key of a longer piece in a group: no entry has it.
inline constexpr std::uint64_t kTooLongTag = std::uint64_t{0x60} << 56;

template <class Token>
struct Written {
    std::size_t num_pieces;
    Token* out;
};

struct ProbeKernel {
    // Where the search for a key begins, as a byte offset.
    std::size_t (*offset_of)(const PieceTableView& table, const PieceKey& key);
    // Fills `group`. Piece i runs from ends[i] to ends[i + 1], relative to `base`; 16 bytes of each are readable. `tag`
    // is or-ed into `high` of every key.
    void (*prepare)(const PieceTableView& table, const std::uint8_t* base, const std::uint16_t* ends,
                    std::size_t num_pieces, std::uint64_t tag, PieceGroup& group);
    // Writes the ids of pieces from `from` on, and up to kIdSlack ids of no meaning, until one is not in the entry
    // where its search begins; returns the number of that piece, or num_pieces, and the end of the ids.
    Written<std::uint16_t> (*write_narrow)(const PieceTableView& table, const PieceGroup& group, std::size_t from,
                                           std::size_t num_pieces, std::uint16_t* out);
    Written<std::uint32_t> (*write_wide)(const PieceTableView& table, const PieceGroup& group, std::size_t from,
                                         std::size_t num_pieces, std::uint32_t* out);
};

extern const ProbeKernel kProbePortable;
#if defined(__x86_64__)
extern const ProbeKernel kProbeAvx512;
#endif

}  // namespace gristmill
