#include "encode/piece_cache.hpp"

#include <algorithm>
#include <bit>

#include "table_size.hpp"

namespace gristmill {
namespace {

constexpr std::size_t kFirstEntries = first_size(8 << 10, 16);
constexpr std::size_t kFirstArenaBytes = 4 << 10;

}  // namespace

template <class Token>
PieceSlots<Token>::PieceSlots(const ProbeKernel& kernel, PieceKey seed, std::size_t size)
    : kernel_(&kernel),
      entries_(size),
      view_{reinterpret_cast<const char*>(entries_.data()), (size / 2 - 1) * 2 * sizeof(Entry),
            64 - static_cast<unsigned>(std::bit_width(size * sizeof(Entry) - 1)), seed} {
    entries_.touch();  // every search reads before an insertion writes
}

template <class Token>
void PieceSlots<Token>::clear() {
    std::memset(static_cast<void*>(entries_.data()), 0, entries_.size() * sizeof(Entry));
}

template <class Token>
PieceCache<Token>::PieceCache(const ProbeKernel& kernel, std::size_t num_expected, std::size_t limit_bytes)
    : limit_bytes_(std::max(limit_bytes, kMinBytes)) {
    std::size_t size = std::bit_ceil(std::max(2 * num_expected, kFirstEntries));
    while (PieceSlots<Token>::memory_bytes(size) > max_table_bytes()) size /= 2;
    const auto [a, b] = HashSeed::random();
    slots_ = PieceSlots<Token>(kernel, {a, b}, size);
    set_max_size();
}

template <class Token>
void PieceCache<Token>::set_max_size() {
    // Half full while it can grow; at the limit, as full as is possible with short searches.
    max_size_ = can_grow(2) ? slots_.size() / 2 : slots_.size() / 8 * 5;
}

// size > kMaxKeyBytes, so the last eight bytes at worst overlap the others.
template <class Token>
PieceKey PieceCache<Token>::long_key(const std::uint8_t* piece, std::size_t size) const {
    const auto [a, b] = slots_.view().seed;
    std::uint64_t x = a ^ size, y = b + size;
    for (std::size_t at = 0; at + 8 < size; at += 8) {
        const std::uint64_t word = load_8(piece + at);
        x = fold_multiply(x ^ word, a);
        y = (y + word) * b;
        y ^= y >> 32;
    }
    const std::uint64_t word = load_8(piece + size - 8);
    x = fold_multiply(x ^ word, b);
    y = fold_multiply(y ^ word, a);
    return {x, y >> 8 | kHashedTag};
}

template <class Token>
void PieceCache<Token>::make_room() {
    if (arena_full_ || !can_grow(2)) return clear();
    try {
        grow();
    } catch (const std::bad_alloc&) {
        clear();  // encoding continues with an empty cache
    }
}

template <class Token>
void PieceCache<Token>::grow() {
    PieceSlots<Token> larger(slots_.kernel(), slots_.view().seed, slots_.size() * (can_grow(4) ? 4 : 2));
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        const Entry& entry = slots_[i];
        if (!entry.key.high) continue;
        const bool is_hashed = entry.key.high & kHashedTag;
        const PieceKey key = {entry.key.low, is_hashed ? entry.key.high : entry.key.high & ~kPlacedTag};
        larger.insert(larger.offset_of(key), entry);
    }
    slots_ = std::move(larger);
    set_max_size();
}

template <class Token>
void PieceCache<Token>::clear() {
    slots_.clear();
    arena_.clear();
    arena_full_ = false;
    size_ = 0;
}

// Whether this many more bytes fit within the limit.
template <class Token>
bool PieceCache<Token>::reserve_arena(std::size_t num_bytes) {
    if (arena_.size() + num_bytes <= arena_.capacity()) return true;
    const std::size_t capacity = std::max(2 * arena_.capacity(), kFirstArenaBytes);
    if (allocated_bytes(capacity) > limit_bytes_ / 4) return false;
    arena_.reserve(capacity);
    return true;
}

template <class Token>
void PieceCache<Token>::insert(const PieceKey& key, std::size_t offset, std::string_view piece, const Id* ids,
                               std::size_t num_ids) {
    if (size_ >= slots_.size() / 8 * 7) return;  // keep a free entry, because searches end there
    Entry entry{};
    entry.key = key;
    const bool is_long = key.high & kHashedTag;
    if (!is_long && PackedIds<Token>::fits(ids, num_ids)) {
        entry.ids.set(ids, num_ids);
    } else {
        const std::size_t num_bytes = is_long ? piece.size() : 0;
        const std::size_t record_bytes =
            (8 + num_ids * sizeof(Token) + num_bytes + kArenaUnit - 1) / kArenaUnit * kArenaUnit;
        try {
            arena_full_ |= !reserve_arena(record_bytes);
        } catch (const std::bad_alloc&) {
            return;  // not cached; encoding continues
        }
        if (arena_full_) return;
        const std::size_t begin = arena_.size();
        arena_.resize(begin + record_bytes);
        std::uint8_t* at = arena_.data() + begin;
        const std::uint32_t header[2] = {static_cast<std::uint32_t>(num_bytes), static_cast<std::uint32_t>(num_ids)};
        std::memcpy(at, header, 8);
        std::copy(ids, ids + num_ids, reinterpret_cast<Token*>(at + 8));
        if (num_bytes) std::memcpy(at + 8 + num_ids * sizeof(Token), piece.data(), num_bytes);
        entry.ids.set_place(static_cast<std::uint32_t>(begin / kArenaUnit));
        if (!is_long) entry.key.high |= kPlacedTag;
    }
    slots_.insert(offset, entry);
    ++size_;
}

template class PieceSlots<std::uint16_t>;
template class PieceSlots<std::uint32_t>;
template class PieceCache<std::uint16_t>;
template class PieceCache<std::uint32_t>;

}  // namespace gristmill
