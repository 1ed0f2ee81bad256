// Piece -> ids, for the pieces that one thread has seen: a private table of bounded size.
//
// Entries are half a cache line, and every search begins at a cache line boundary, so that one cache miss brings two
// entries. A piece of up to 15 bytes is its own key, and a short list of ids is in the entry. Longer pieces are found
// by 120 bits of hash; their bytes, which are compared, and their ids are in an arena.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "encode/packed_ids.hpp"
#include "encode/piece_key.hpp"
#include "encode/probe_kernel.hpp"
#include "gristmill/ids.hpp"
#include "gristmill/large_memory.hpp"
#include "hash.hpp"

namespace gristmill {

// Compares both halves in one test; two tests would be two branches.
inline bool operator==(const PieceKey& a, const PieceKey& b) {
#if defined(__SSE2__)
    const __m128i same = _mm_cmpeq_epi8(_mm_load_si128(reinterpret_cast<const __m128i*>(&a)),
                                        _mm_load_si128(reinterpret_cast<const __m128i*>(&b)));
    return _mm_movemask_epi8(same) == 0xffff;
#else
    return !((a.low ^ b.low) | (a.high ^ b.high));
#endif
}

// size <= kMaxKeyBytes; 16 bytes are readable.
inline PieceKey inline_key(const std::uint8_t* piece, std::size_t size) {
    const KeyMasks::Row& mask = kKeyMasks.rows[size];
#if defined(__SSE2__)
    const auto* row = reinterpret_cast<const __m128i*>(&mask);
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(piece));
    PieceKey key;
    _mm_store_si128(reinterpret_cast<__m128i*>(&key), _mm_or_si128(_mm_and_si128(bytes, row[0]), row[1]));
    return key;
#else
    return {load_8(piece) & mask.low, (load_8(piece + 8) & mask.high) | mask.tag};
#endif
}

// `Token`: std::uint16_t or std::uint32_t, the type of the ids.
template <class Token>
struct alignas(32) PieceEntry {
    PieceKey key;          // high == 0: free
    PackedIds<Token> ids;  // or, if they do not fit, the position in the arena
};
static_assert(sizeof(PieceEntry<std::uint16_t>) == 32 && sizeof(PieceEntry<std::uint32_t>) == 32);

// Open addressing; does not access the arena. A search begins at the first entry of a cache line, continues with the
// second, then with the following lines.
template <class Token>
class PieceSlots {
  public:
    using Entry = PieceEntry<Token>;
    PieceSlots() = default;
    // `size`: a power of two, at least 2.
    PieceSlots(const ProbeKernel& kernel, PieceKey seed, std::size_t size);

    const PieceTableView& view() const { return view_; }
    const ProbeKernel& kernel() const { return *kernel_; }
    std::size_t offset_of(const PieceKey& key) const { return kernel_->offset_of(view_, key); }
    // The first entry from `offset` that `is_it` accepts; nullptr if a free entry comes first.
    template <class IsIt>
    const Entry* find(std::size_t offset, const IsIt& is_it) const {
        const std::size_t home = offset / sizeof(Entry);
        for (std::size_t step = 0;; ++step) {
            const Entry& entry = entries_[at(home, step)];
            if (is_it(entry)) return &entry;
            if (!entry.key.high) return nullptr;
        }
    }
    void insert(std::size_t offset, const Entry& entry) {
        const std::size_t home = offset / sizeof(Entry);
        std::size_t step = 0;
        while (entries_[at(home, step)].key.high) ++step;
        entries_[at(home, step)] = entry;
    }
    void clear();

    std::size_t size() const { return entries_.size(); }
    const Entry& operator[](std::size_t i) const { return entries_[i]; }
    static std::size_t memory_bytes(std::size_t size) { return allocated_bytes(size * sizeof(Entry)); }
    std::size_t memory_bytes() const { return memory_bytes(entries_.size()); }

  private:
    std::size_t at(std::size_t home, std::size_t step) const { return (home + step) & (entries_.size() - 1); }
    const ProbeKernel* kernel_ = nullptr;
    ZeroedArray<Entry> entries_;
    PieceTableView view_{};
};

// The pieces that one thread has seen. The cache starts empty; seeds are copied on first use.
template <class Token>
class PieceCache {
  public:
    using Entry = PieceEntry<Token>;
    // Starts with room for `num_expected` pieces, within the limit. `limit_bytes` strictly limits memory_bytes(); the
    // minimum is kMinBytes. (While the table grows, the old one exists too.)
    PieceCache(const ProbeKernel& kernel, std::size_t num_expected, std::size_t limit_bytes);
    static constexpr std::size_t kMinBytes = 64 << 10;

    PieceKey key_of(const std::uint8_t* piece, std::size_t size) const {
        return size <= kMaxKeyBytes ? inline_key(piece, size) : long_key(piece, size);
    }
    const PieceTableView& view() const { return slots_.view(); }
    // The position where the search for a key begins. Valid until make_room().
    std::size_t offset_of(const PieceKey& key) const { return slots_.offset_of(key); }
    // The entry of a piece, or nullptr. Valid until make_room().
    const Entry* find(const PieceKey& key, std::size_t offset, std::string_view piece) const {
        const PieceKey placed = {key.low, key.high | kPlacedTag};
        return slots_.find(offset, [&](const Entry& entry) {
            if (key.high & kHashedTag) return entry.key == key && record_of(entry).bytes() == piece;
            return entry.key == key || entry.key == placed;
        });
    }
    // Writes the ids of an entry, and up to kIdSlack more, and returns the end of the ids.
    Token* copy_ids(const Entry& entry, Token* out) const {
        if (!entry.ids.is_place()) return entry.ids.write(out);
        const ArenaRecord record = record_of(entry);
        std::memcpy(out, record.ids(), record.num_ids * sizeof(Token));
        return out + record.num_ids;
    }

    // Whether `more` pieces can be inserted without make_room().
    bool has_room(std::size_t more) const { return size_ + more <= max_size_ && !arena_full_; }
    // Grows or, at the limit, clears the cache. Invalidates entries.
    void make_room();
    // Does nothing if there is no room.
    void insert(const PieceKey& key, std::size_t offset, std::string_view piece, const Id* ids, std::size_t num_ids);

    std::size_t size() const { return size_; }
    std::size_t memory_bytes() const { return slots_.memory_bytes() + allocated_bytes(arena_.capacity()); }

  private:
    // In the arena: u32 size of the piece (0 if it is its own key), u32 number of ids, the ids, the bytes.
    struct ArenaRecord {
        const std::uint8_t* at;
        std::uint32_t num_bytes, num_ids;
        const Token* ids() const { return reinterpret_cast<const Token*>(at + 8); }
        std::string_view bytes() const {
            return {reinterpret_cast<const char*>(at) + 8 + num_ids * sizeof(Token), num_bytes};
        }
    };
    ArenaRecord record_of(const Entry& entry) const {
        ArenaRecord record{arena_.data() + std::size_t{entry.ids.place()} * kArenaUnit, 0, 0};
        std::memcpy(&record.num_bytes, record.at, 4);
        std::memcpy(&record.num_ids, record.at + 4, 4);
        return record;
    }
    static constexpr std::size_t kArenaUnit = 8;

    // Three quarters for the table, the rest for the arena.
    std::size_t max_table_bytes() const { return std::min(limit_bytes_ / 4 * 3, std::size_t{1} << 31); }
    bool can_grow(std::size_t factor) const {
        return PieceSlots<Token>::memory_bytes(factor * slots_.size()) <= max_table_bytes();
    }
    void grow();
    void clear();
    void set_max_size();
    bool reserve_arena(std::size_t num_bytes);
    PieceKey long_key(const std::uint8_t* piece, std::size_t size) const;

    std::size_t limit_bytes_;
    PieceSlots<Token> slots_;
    LargeVector<std::uint8_t> arena_;
    bool arena_full_ = false;
    std::size_t size_ = 0, max_size_ = 0;
};

extern template class PieceSlots<std::uint16_t>;
extern template class PieceSlots<std::uint32_t>;
extern template class PieceCache<std::uint16_t>;
extern template class PieceCache<std::uint32_t>;

}  // namespace gristmill
