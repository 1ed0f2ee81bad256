// Looks up pieces of up to 15 bytes in the table of a thread: first computes the keys of a group and prefetches each
// entry, then writes the ids of the pieces whose entry is at the start of its search.
#pragma once

#include "encode/piece_key.hpp"

namespace gristmill {

// A table of 32-byte entries, each with a key and packed ids (PackedIds).
struct PieceTableView {
    const char* entries;
    std::uint64_t mask;  // mask for the byte offset of an entry
    unsigned shift;      // reduces 64 bits to the number of bits of a byte offset
    PieceKey seed;       // seed of the hash
};

inline constexpr std::size_t kMaxGroup = 512;
// A group of pieces that are looked up together.
struct PieceGroup {
    alignas(64) PieceKey keys[kMaxGroup + 4];
    std::uint32_t offsets[kMaxGroup + 4];  // byte offset in the table where the search begins
};
// In `high` of the key of a longer piece in a group; no entry has it.
inline constexpr std::uint64_t kTooLongTag = std::uint64_t{0x60} << 56;

template <class Token>
struct Written {
    std::size_t num_pieces;
    Token* out;
};

struct ProbeKernel {
    // The byte offset where the search for a key begins.
    std::size_t (*offset_of)(const PieceTableView& table, const PieceKey& key);
    // Fills `group`. Piece i spans from ends[i] to ends[i + 1], relative to `base`; 16 bytes of each are readable.
    // `tag` is or-ed into `high` of every key.
    void (*prepare)(const PieceTableView& table, const std::uint8_t* base, const std::uint16_t* ends,
                    std::size_t num_pieces, std::uint64_t tag, PieceGroup& group);
    // Writes the ids of pieces starting with `from`, and up to kIdSlack meaningless ids, until a piece is not in the
    // entry where its search begins. Returns the index of that piece, or num_pieces, and the end of the ids.
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
