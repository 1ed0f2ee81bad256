#include "count/piece_table.hpp"

#include <algorithm>

namespace gristmill {
namespace {

constexpr unsigned kShortBits = 18, kMediumBits = 15, kLongBits = 12;

unsigned first_bits(unsigned usual, unsigned fewer) {
    constexpr unsigned kLeastBits = 4;
    return usual > fewer + kLeastBits ? usual - fewer : kLeastBits;
}

// The first `size` <= 7 bytes and the tag in the eighth. A larger size gives an unused key, not undefined behaviour.
std::uint64_t tagged_key(const std::uint8_t* bytes, std::size_t size, std::size_t tag) {
    return (load_8(bytes) & ~(~std::uint64_t{0} << (8 * size & 63))) | static_cast<std::uint64_t>(tag) << 56;
}

}  // namespace

void make_short_probes(const std::uint8_t* base, const std::uint16_t* ends, std::size_t num_pieces,
                       std::uint64_t multiplier, unsigned slot_shift, ShortProbes& probes) {
    std::size_t num_shorts = 0, num_others = 0;
    for (std::size_t i = 0; i < num_pieces; ++i) {
        // No branch on the length, which is unpredictable: every piece is written to both lists, and only one list
        // advances.
        const std::uint32_t start = ends[i], size = ends[i + 1] - start;
        const std::uint64_t key = tagged_key(base + start, size, size);
        probes.keys[num_shorts] = key;
        probes.slots[num_shorts] = static_cast<std::uint32_t>(key * multiplier >> slot_shift);
        probes.starts[num_shorts] = start;
        probes.others[num_others] = static_cast<std::uint16_t>(i);
        num_shorts += size <= kShortBytes;
        num_others += size > kShortBytes;
    }
    probes.num_shorts = num_shorts;
    probes.num_others = num_others;
}

PieceTable::PieceTable(HashSeed seed, Kernel kernel, unsigned fewer_bits)
    : seed_(seed),
      short_(first_bits(kShortBits, fewer_bits)),
      medium_(first_bits(kMediumBits, fewer_bits)),
      long_(first_bits(kLongBits, fewer_bits)) {
#if defined(__x86_64__)
    if (kernel == Kernel::avx512) make_short_probes_ = make_short_probes_avx512;
#else
    (void)kernel;
#endif
}

void PieceTable::count_batch(const std::uint8_t* begin, const std::uint8_t* base, const std::uint16_t* ends,
                             std::size_t num_ends, std::uint64_t position) {
    if (!num_ends) return;
    // The first piece may have begun in an earlier batch, at any distance.
    const std::uint8_t* first_end = base + ends[0];
    count_piece(begin, static_cast<std::size_t>(first_end - begin),
                position + static_cast<std::uint64_t>(begin - base));
    for (std::size_t from = 0; from + 1 < num_ends; from += kCountGroup)
        count_group(base, ends + from, std::min(kCountGroup, num_ends - 1 - from), position);
}

// Piece i spans from ends[i] to ends[i + 1]. Three passes: keys of short pieces, keys of the others, probes.
void PieceTable::count_group(const std::uint8_t* base, const std::uint16_t* ends, std::size_t num_pieces,
                             std::uint64_t position) {
    reserve_group(num_pieces);
    ShortProbes shorts;
    make_short_probes_(base, ends, num_pieces, seed_.a, short_.slots.shift(), shorts);
    for (std::size_t j = 0; j < shorts.num_shorts; ++j) short_.slots.prefetch(shorts.slots[j]);
    OtherProbe others[kCountGroup];
    for (std::size_t j = 0; j < shorts.num_others; ++j) {
        const std::uint32_t start = ends[shorts.others[j]], size = ends[shorts.others[j] + 1] - start;
        others[j] = size <= kMediumBytes ? probe_medium(base + start, size) : probe_long(base + start, size);
    }
    for (std::size_t j = 0; j < shorts.num_shorts; ++j)
        add_short(shorts.keys[j], shorts.slots[j], position + shorts.starts[j]);
    for (std::size_t j = 0; j < shorts.num_others; ++j)
        add_other(others[j], position + static_cast<std::uint64_t>(others[j].piece - base));
}

void PieceTable::count_piece(const std::uint8_t* piece, std::size_t size, std::uint64_t position) {
    reserve_group(1);
    if (size <= kShortBytes) {
        const std::uint64_t key = tagged_key(piece, size, size);
        add_short(key, short_.slots.slot_of(key * seed_.a), position);
    } else {
        add_other(size <= kMediumBytes ? probe_medium(piece, size) : probe_long(piece, size), position);
    }
}

// The key of a medium or long piece, computed before its slot is read; also prefetches the slot.
inline PieceTable::OtherProbe PieceTable::probe_medium(const std::uint8_t* piece, std::size_t size) const {
    OtherProbe probe{piece, load_8(piece), tagged_key(piece + 8, size - 8, size), 0};
    probe.slot = medium_.slots.slot_of(probe.low * seed_.a + probe.high * seed_.b);
    medium_.slots.prefetch(probe.slot);
    return probe;
}

inline PieceTable::OtherProbe PieceTable::probe_long(const std::uint8_t* piece, std::size_t size) const {
    OtherProbe probe{piece, hash_long(piece, size), size | CountedWord::kLongTag, 0};
    probe.slot = long_.slots.slot_of(probe.low);
    long_.slots.prefetch(probe.slot);
    return probe;
}

inline void PieceTable::add_short(std::uint64_t key, std::size_t slot, std::uint64_t first) {
    Slots<ShortEntry>& slots = short_.slots;
    while (slots[slot].key != key) {
        if (is_free(slots[slot])) return short_.insert(slot, {key, 0, 0}, {key, 0, first});
        slot = slots.after(slot);
    }
    short_.count_hit(slot);
}

inline void PieceTable::add_other(const OtherProbe& probe, std::uint64_t first) {
    probe.high& CountedWord::kLongTag ? add_long(probe, first) : add_medium(probe, first);
}

inline void PieceTable::add_medium(const OtherProbe& probe, std::uint64_t first) {
    Slots<MediumEntry>& slots = medium_.slots;
    std::size_t slot = probe.slot;
    while (slots[slot].low != probe.low || slots[slot].high != probe.high) {
        if (is_free(slots[slot]))
            return medium_.insert(slot, {probe.low, probe.high, 0, 0}, {probe.low, probe.high, first});
        slot = slots.after(slot);
    }
    medium_.count_hit(slot);
}

void PieceTable::add_long(const OtherProbe& probe, std::uint64_t first) {
    Slots<LongEntry>& slots = long_.slots;
    const std::uint64_t hash = probe.low;
    const auto size = static_cast<std::size_t>(probe.high & ~CountedWord::kLongTag);
    const auto is_same = [&](const WordRecord& record) {
        return record.high == probe.high && std::memcmp(arena_.data() + record.low, probe.piece, size) == 0;
    };
    std::size_t slot = probe.slot;
    while (slots[slot].hash != hash || !is_same(long_.records[slots[slot].ordinal])) {
        if (is_free(slots[slot])) {
            long_.insert(slot, {hash, 0, 0}, {arena_.size(), probe.high, first});
            arena_.insert(arena_.end(), probe.piece, probe.piece + size);
            return;
        }
        slot = slots.after(slot);
    }
    long_.count_hit(slot);
}

// Never 0, which marks a free slot. size > kMediumBytes, so the last eight bytes at worst overlap the others.
std::uint64_t PieceTable::hash_long(const std::uint8_t* piece, std::size_t size) const {
    std::uint64_t hash = seed_.b ^ size;
    for (std::size_t at = 0; at + 8 < size; at += 8) hash = fold_multiply(hash ^ load_8(piece + at), seed_.a);
    hash = fold_multiply(hash ^ load_8(piece + size - 8), seed_.b);
    hash *= seed_.a;
    return hash ? hash : 1;
}

// Slots computed in the first pass over a group must stay valid in the second: tables grow only here.
void PieceTable::reserve_group(std::size_t num_pieces) {
    const auto reserve = [&](auto& slots) {
        if (!slots.has_room(num_pieces)) slots.grow(num_pieces, [this](const auto& entry) { return hash(entry); });
    };
    reserve(short_.slots);
    reserve(medium_.slots);
    reserve(long_.slots);
}

std::uint64_t PieceTable::memory_bytes() const {
    return short_.memory_bytes() + medium_.memory_bytes() + long_.memory_bytes() + allocated_bytes(arena_.capacity());
}

std::uint64_t PieceTable::memory_bytes_after_growth() const {
    constexpr std::size_t kSoon = 2 * kCountGroup;
    const std::uint64_t arena_growth =
        arena_.size() * 4 > arena_.capacity() * 3 ? allocated_bytes(2 * arena_.capacity()) : 0;
    return memory_bytes() + short_.growth_bytes(kSoon) + medium_.growth_bytes(kSoon) + long_.growth_bytes(kSoon) +
           arena_growth;
}

void PieceTable::clear() {
    short_.clear();
    medium_.clear();
    long_.clear();
    arena_ = LargeVector<std::uint8_t>();
}

}  // namespace gristmill
