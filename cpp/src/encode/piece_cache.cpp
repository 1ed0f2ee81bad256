#include "encode/piece_cache.hpp"

#include <algorithm>
#include <bit>

namespace gristmill {
namespace {

// The shift that leaves as many of 64 bits as number a power of two.
unsigned shift_for(std::size_t number) { return 64 - static_cast<unsigned>(std::bit_width(number - 1)); }

}  // namespace

template <class Token>
PieceCache<Token>::PieceCache(HashSeed seed, std::size_t num_seeds, std::size_t limit_bytes)
    // Four times as large: a text of some megabytes then never has to wait for the table to grow.
    : limit_bytes_(limit_bytes), entries_(std::bit_ceil((num_seeds + kMaxReserved) * 4)) {
    home_.seed = seed;
    set_sizes();
}

template <class Token>
PieceCache<Token>::PieceCache(const PieceCache& seeded)
    : limit_bytes_(seeded.limit_bytes_),
      home_(seeded.home_),
      entries_(seeded.entries_.size()),
      arena_(seeded.arena_),
      size_(seeded.size_),
      seeds_(seeded.seeds_),
      seeded_arena_bytes_(seeded.seeded_arena_bytes_) {
    std::memcpy(static_cast<void*>(entries_.data()), seeded.entries_.data(), entries_.size() * sizeof(Entry));
    set_sizes();
}

template <class Token>
void PieceCache<Token>::set_sizes() {
    home_.entries = entries_.data();
    home_.shift = shift_for(entries_.size() / 2);
    // Half full while it can grow; then as full as searches stay short.
    max_size_ = can_grow() ? entries_.size() / 2 : entries_.size() / 4 * 3;
    max_arena_ = seeded_arena_bytes_ + limit_bytes_ / 4;  // the memory it is in may be twice as large
}

// size > kMaxKeyBytes, so the last eight bytes overlap the others at worst.
template <class Token>
PieceKey PieceCache<Token>::long_key(const std::uint8_t* piece, std::size_t size) const {
    const auto [a, b] = home_.seed;
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
    if (arena_.size() > max_arena_ || !can_grow()) return clear();
    try {
        grow();
    } catch (const std::bad_alloc&) {
        clear();  // and encoding goes on
    }
}

template <class Token>
void PieceCache<Token>::grow() {
    ZeroedArray<Entry> larger(entries_.size() * 2), old = std::move(entries_);
    entries_ = std::move(larger);
    set_sizes();
    // The tokens first, the earliest learned among them before the others: what is frequent shall lie where its search
    // begins.
    for (const Entry& entry : seeds_) place(entry);
    for (std::size_t slot = 0; slot < old.size(); ++slot) {
        if (old[slot].key.high) place(old[slot]);
    }
}

template <class Token>
void PieceCache<Token>::clear() {
    std::memset(static_cast<void*>(entries_.data()), 0, entries_.size() * sizeof(Entry));
    arena_.resize(seeded_arena_bytes_);
    size_ = seeds_.size();
    for (const Entry& entry : seeds_) place(entry);
}

// Does nothing if it is there.
template <class Token>
void PieceCache<Token>::place(const Entry& entry) {
    std::uint32_t slot = home_.slot_of(entry.key);
    for (; entries_[slot].key.high; slot = after(slot)) {
        // Of long pieces two may have one key: those are told apart by where their bytes lie.
        if (std::memcmp(&entries_[slot], &entry, sizeof entry) == 0) return;
    }
    entries_[slot] = entry;
}

template <class Token>
void PieceCache<Token>::insert(const PieceKey& key, std::uint32_t slot, std::string_view piece, const Id* ids,
                               std::size_t num_ids) {
    try {
        const Entry entry = make_entry(key, piece, ids, num_ids);
        while (entries_[slot].key.high) slot = after(slot);
        entries_[slot] = entry;
        ++size_;
    } catch (const std::bad_alloc&) {
        // Not remembered, and encoding goes on.
    }
}

template <class Token>
void PieceCache<Token>::seed(const PieceKey& key, std::string_view piece, const Id* ids, std::size_t num_ids) {
    seeds_.push_back(make_entry(key, piece, ids, num_ids));
    seeded_arena_bytes_ = arena_.size();
    place(seeds_.back());
    ++size_;
    set_sizes();
}

template <class Token>
typename PieceCache<Token>::Entry PieceCache<Token>::make_entry(const PieceKey& key, std::string_view piece,
                                                                const Id* ids, std::size_t num_ids) {
    Entry entry{};
    entry.key = key;
    const bool is_long = key.high & kHashedTag;
    if (!is_long && PackedIds<Token>::fits(ids, num_ids)) {
        entry.ids.set(ids, num_ids);
        return entry;
    }
    const std::size_t num_bytes = is_long ? piece.size() : 0;
    const auto unit = static_cast<std::uint32_t>(arena_.size() / kArenaUnit);
    const std::size_t record_bytes = 8 + num_ids * sizeof(Token) + num_bytes;
    arena_.resize(arena_.size() + (record_bytes + kArenaUnit - 1) / kArenaUnit * kArenaUnit);
    std::uint8_t* at = arena_.data() + std::size_t{unit} * kArenaUnit;
    const std::uint32_t header[2] = {static_cast<std::uint32_t>(num_bytes), static_cast<std::uint32_t>(num_ids)};
    std::memcpy(at, header, 8);
    std::copy(ids, ids + num_ids, reinterpret_cast<Token*>(at + 8));
    if (num_bytes) std::memcpy(at + 8 + num_ids * sizeof(Token), piece.data(), num_bytes);
    entry.ids.set_place(unit);
    return entry;
}

template class PieceCache<std::uint16_t>;
template class PieceCache<std::uint32_t>;

}  // namespace gristmill
