#include <bit>

#include "encode/piece_cache.hpp"
#include "encode/probe_kernel.hpp"

namespace gristmill {
namespace {

// Only the highest bits of the sum depend on all bits of the key.
std::size_t offset_of(const PieceTableView& table, const PieceKey& key) {
    const std::uint64_t hash = key.low * table.seed.low + key.high * table.seed.high;
    return static_cast<std::size_t>(hash >> table.shift & table.mask);
}

void prepare(const PieceTableView& table, const std::uint8_t* base, const std::uint16_t* ends, std::size_t num_pieces,
             std::uint64_t tag, PieceGroup& group) {
    for (std::size_t i = 0; i < num_pieces; ++i) {
        const std::size_t size = std::size_t{ends[i + 1]} - ends[i];
        PieceKey key = size <= kMaxKeyBytes ? inline_key(base + ends[i], size) : PieceKey{0, kTooLongTag};
        key.high |= tag;
        group.keys[i] = key;
        group.offsets[i] = static_cast<std::uint32_t>(offset_of(table, key));
        __builtin_prefetch(table.entries + group.offsets[i]);
    }
}

template <class Token>
Written<Token> write(const PieceTableView& table, const PieceGroup& group, std::size_t from, std::size_t num_pieces,
                     Token* out) {
    for (std::size_t i = from; i < num_pieces; ++i) {
        const auto* entry = reinterpret_cast<const PieceEntry<Token>*>(table.entries + group.offsets[i]);
        entry += !(entry->key == group.keys[i]);
        if (!(entry->key == group.keys[i])) return {i, out};
        out = entry->ids.write(out);
    }
    return {num_pieces, out};
}

}  // namespace

constinit const ProbeKernel kProbePortable = {offset_of, prepare, write<std::uint16_t>, write<std::uint32_t>};

}  // namespace gristmill
