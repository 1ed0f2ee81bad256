// Piece -> ids, for the pieces met so far: one thread's private table, bounded in size.
//
// Entries are half a cache line, and every search begins at a whole one, so that two entries are looked at for one miss
// of the CPU's cache. A piece of up to 15 bytes is its own key, and its ids lie in the entry if they are few. Longer
// pieces are found by 120 bits of hash; their bytes, which are compared, and their ids lie in an arena.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "encode/packed_ids.hpp"
#include "gristmill/ids.hpp"
#include "gristmill/large_memory.hpp"
#include "hash.hpp"

namespace gristmill {

struct alignas(16) PieceKey {
    std::uint64_t low, high;  // bytes in text order from the lowest; the length in the top byte of `high`: never 0
    // One test of both halves: two would be two branches.
    bool operator==(const PieceKey& other) const {
#if defined(__SSE2__)
        const __m128i same = _mm_cmpeq_epi8(_mm_load_si128(reinterpret_cast<const __m128i*>(this)),
                                            _mm_load_si128(reinterpret_cast<const __m128i*>(&other)));
        return _mm_movemask_epi8(same) == 0xffff;
#else
        return !((low ^ other.low) | (high ^ other.high));
#endif
    }
};

inline constexpr std::size_t kMaxKeyBytes = 15;
inline constexpr std::uint64_t kHashedTag = std::uint64_t{1} << 63;  // in `high`: it is the hash of a longer piece

inline constexpr struct KeyMasks {
    struct alignas(16) Row {
        std::uint64_t low, high;  // the bytes of the piece
        std::uint64_t zero, tag;  // its length
    };
    constexpr KeyMasks() : rows() {
        for (std::size_t size = 0; size <= kMaxKeyBytes; ++size) {
            rows[size].low = size >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * size) - 1;
            rows[size].high = size <= 8 ? 0 : (std::uint64_t{1} << 8 * (size - 8)) - 1;
            rows[size].zero = 0;
            rows[size].tag = std::uint64_t{size} << 56;
        }
    }
    Row rows[kMaxKeyBytes + 1];
} kKeyMasks;

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

// `Token`: std::uint16_t or std::uint32_t, what ids are given in.
template <class Token>
class PieceCache {
  public:
    struct alignas(32) Entry {
        PieceKey key;          // high == 0: free
        PackedIds<Token> ids;  // or, where they do not fit, the place in the arena
    };
    static_assert(sizeof(Entry) == 32);

    // Room for `num_seeds` pieces; `limit_bytes` bounds what comes later.
    PieceCache(HashSeed seed, std::size_t num_seeds, std::size_t limit_bytes);
    PieceCache(const PieceCache& seeded);

    // Where the search for a key begins: a copy that the compiler can keep in registers. Valid until make_room().
    struct Home {
        HashSeed seed;
        unsigned shift;
        const Entry* entries;
        // Even: the first of the two entries of a cache line.
        std::uint32_t slot_of(const PieceKey& key) const {
            return static_cast<std::uint32_t>((key.low * seed.a + key.high * seed.b) >> shift) << 1;
        }
        void prefetch(std::uint32_t slot) const { __builtin_prefetch(entries + slot); }
    };
    const Home& home() const { return home_; }
    PieceKey key_of(const std::uint8_t* piece, std::size_t size) const {
        return size <= kMaxKeyBytes ? inline_key(piece, size) : long_key(piece, size);
    }
    // The entry of a piece, from its slot on; nullptr if it is not there.
    const Entry* find(const PieceKey& key, std::uint32_t slot, std::string_view piece) const {
        for (;; slot = after(slot)) {
            const Entry& entry = entries_[slot];
            if (entry.key == key && (!(key.high & kHashedTag) || record_of(entry).bytes() == piece)) return &entry;
            if (!entry.key.high) return nullptr;
        }
    }
    // Writes the ids of an entry, and up to kIdSlack more, and returns their end.
    Token* copy_ids(const Entry& entry, Token* out) const {
        if (!entry.ids.is_place()) return entry.ids.write(out);
        const ArenaRecord record = record_of(entry);
        std::memcpy(out, record.ids(), record.num_ids * sizeof(Token));
        return out + record.num_ids;
    }

    // Whether `more` <= kMaxReserved pieces can be inserted without make_room().
    static constexpr std::size_t kMaxReserved = 1024;
    bool has_room(std::size_t more) const { return size_ + more <= max_size_ && arena_.size() <= max_arena_; }
    // Grows, or, when the limit is reached, forgets all but the seeds. Slots computed before are no longer valid.
    void make_room();
    void insert(const PieceKey& key, std::uint32_t slot, std::string_view piece, const Id* ids, std::size_t num_ids);
    // Likewise, for good.
    void seed(const PieceKey& key, std::string_view piece, const Id* ids, std::size_t num_ids);

    std::size_t size() const { return size_; }
    std::size_t memory_bytes() const {
        return allocated_bytes(entries_.size() * sizeof(Entry)) + allocated_bytes(arena_.capacity());
    }

  private:
    // In the arena: u32 size of the piece (0 for one that is its own key), u32 number of ids, the ids, the bytes.
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

    std::uint32_t after(std::uint32_t slot) const {
        return (slot + 1) & static_cast<std::uint32_t>(entries_.size() - 1);
    }
    bool can_grow() const { return 2 * entries_.size() * sizeof(Entry) <= limit_bytes_ / 2; }
    void grow();
    void clear();
    void set_sizes();
    void place(const Entry& entry);
    Entry make_entry(const PieceKey& key, std::string_view piece, const Id* ids, std::size_t num_ids);
    PieceKey long_key(const std::uint8_t* piece, std::size_t size) const;

    std::size_t limit_bytes_;
    Home home_{};
    ZeroedArray<Entry> entries_;
    LargeVector<std::uint8_t> arena_;
    std::size_t size_ = 0, max_size_ = 0, max_arena_ = 0;
    std::vector<Entry> seeds_;  // in the order of insertion
    std::size_t seeded_arena_bytes_ = 0;
};

extern template class PieceCache<std::uint16_t>;
extern template class PieceCache<std::uint32_t>;

}  // namespace gristmill
