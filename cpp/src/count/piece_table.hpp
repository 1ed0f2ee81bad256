// Counts pieces in the private table of one thread, which has three open-addressed parts by piece length.
//
// Seven of eight pieces of English have at most 7 bytes: such a piece and its length fit in one 64-bit key, so its
// entry is 16 bytes, and all frequent entries stay in the L2 cache. Pieces of up to 15 bytes take a 128-bit key; longer
// ones a 64-bit hash, and their bytes are in an arena. The table does not depend on the instruction set.
#pragma once

#include <cstdint>
#include <vector>

#include "count/counted_word.hpp"
#include "count/short_probes.hpp"
#include "count/slots.hpp"
#include "gristmill/kernel.hpp"
#include "hash.hpp"

namespace gristmill {

inline constexpr std::size_t kMediumBytes = 15;

// Counts of 32 bits keep entries small. An overflow is rare; it is detected and recorded in `carries`.
struct ShortEntry {
    std::uint64_t key;  // bytes in text order from the lowest, length in the top byte; 0: the slot is free
    std::uint32_t count;
    std::uint32_t ordinal;  // index into the part's records
};

struct MediumEntry {
    std::uint64_t low, high;  // likewise; the length in the top byte of `high`, so high == 0: free
    std::uint32_t count;
    std::uint32_t ordinal;
};

struct LongEntry {
    std::uint64_t hash;  // 0: free
    std::uint32_t count;
    std::uint32_t ordinal;
};

inline bool is_free(const ShortEntry& entry) { return entry.key == 0; }
inline bool is_free(const MediumEntry& entry) { return entry.high == 0; }
inline bool is_free(const LongEntry& entry) { return entry.hash == 0; }

// The part of a word that a hit does not read. As in CountedWord, but `low` of a long word is its offset in the arena.
struct WordRecord {
    std::uint64_t low, high, first;

    CountedWord with_count(std::uint64_t count, const std::uint8_t* arena) const {
        CountedWord word{low, high, count, first};
        if (word.is_long()) word.set_long_bytes(arena + low);
        return word;
    }
};

template <class Entry>
struct Part {
    explicit Part(unsigned bits) : slots(bits) {}

    Slots<Entry> slots;
    LargeVector<WordRecord> records;     // by ordinal, so in the order of first occurrence: a sorted run
    std::vector<std::uint32_t> carries;  // one ordinal per overflow of its 32-bit count

    void insert(std::size_t slot, Entry entry, const WordRecord& record) {
        entry.count = 1;
        entry.ordinal = static_cast<std::uint32_t>(records.size());
        slots[slot] = entry;
        slots.count_insertion();
        records.push_back(record);
    }
    void count_hit(std::size_t slot) {
        if (++slots[slot].count == 0) carries.push_back(slots[slot].ordinal);
    }
    // By ordinal: what the 32-bit counts lost by overflow.
    ZeroedArray<std::uint64_t> overflows() const {
        ZeroedArray<std::uint64_t> result(records.size());
        for (const std::uint32_t ordinal : carries) result[ordinal] += std::uint64_t{1} << 32;
        return result;
    }
    // By ordinal.
    ZeroedArray<std::uint64_t> counts() const {
        ZeroedArray<std::uint64_t> result = overflows();
        for (std::size_t slot = 0; slot < slots.capacity(); ++slot) {
            if (!is_free(slots[slot])) result[slots[slot].ordinal] += slots[slot].count;
        }
        return result;
    }
    void clear() {
        slots.clear();
        records = LargeVector<WordRecord>();  // `= {}` would keep the memory
        carries = std::vector<std::uint32_t>();
    }
    std::uint64_t memory_bytes() const {
        return slots.memory_bytes() + allocated_bytes(records.capacity() * sizeof(WordRecord));
    }
    // The additional memory that growth would need, if it is near: twice the old size while entries are moved.
    std::uint64_t growth_bytes(std::size_t soon) const {
        return (slots.has_room(soon) ? 0 : 2 * slots.memory_bytes()) +
               (records.size() + soon <= records.capacity()
                    ? 0
                    : allocated_bytes(2 * records.capacity() * sizeof(WordRecord)));
    }
};

class PieceTable {
  public:
    // `fewer_bits`: starts with 2^fewer_bits times fewer slots, for tests that cannot afford the usual 5 MiB.
    PieceTable(HashSeed seed, Kernel kernel, unsigned fewer_bits = 0);

    // Counts the pieces whose ends a BoundaryScanner delivered: the first from `begin` to base + ends[0], then each
    // from one end to the next. `position` is the corpus position of `base`.
    void count_batch(const std::uint8_t* begin, const std::uint8_t* base, const std::uint16_t* ends,
                     std::size_t num_ends, std::uint64_t position);
    // Counts one piece; 16 bytes from its start are readable.
    void count_piece(const std::uint8_t* piece, std::size_t size, std::uint64_t position);

    std::size_t size() const { return short_.records.size() + medium_.records.size() + long_.records.size(); }
    std::size_t long_bytes() const { return arena_.size(); }
    std::uint64_t memory_bytes() const;
    // The peak of memory_bytes() if the fullest part grew now.
    std::uint64_t memory_bytes_after_growth() const;
    void clear();

    const Part<ShortEntry>& short_part() const { return short_; }
    const Part<MediumEntry>& medium_part() const { return medium_; }
    const Part<LongEntry>& long_part() const { return long_; }
    const std::uint8_t* arena() const { return arena_.data(); }

    // 64 bits, of which the high ones select the slot: tables with the same seed have a word at the same relative
    // position.
    std::uint64_t hash(const ShortEntry& entry) const { return entry.key * seed_.a; }
    std::uint64_t hash(const MediumEntry& entry) const { return entry.low * seed_.a + entry.high * seed_.b; }
    std::uint64_t hash(const LongEntry& entry) const { return entry.hash; }

  private:
    void count_group(const std::uint8_t* base, const std::uint16_t* ends, std::size_t num_pieces,
                     std::uint64_t position);
    struct OtherProbe {
        const std::uint8_t* piece;
        std::uint64_t low, high;  // as in CountedWord, but `low` of a long piece is its hash
        std::size_t slot;
    };
    OtherProbe probe_medium(const std::uint8_t* piece, std::size_t size) const;
    OtherProbe probe_long(const std::uint8_t* piece, std::size_t size) const;
    void add_short(std::uint64_t key, std::size_t slot, std::uint64_t first);
    void add_other(const OtherProbe& probe, std::uint64_t first);
    void add_medium(const OtherProbe& probe, std::uint64_t first);
    void add_long(const OtherProbe& probe, std::uint64_t first);
    void reserve_group(std::size_t num_pieces);
    std::uint64_t hash_long(const std::uint8_t* piece, std::size_t size) const;

    HashSeed seed_;
    MakeShortProbes make_short_probes_ = make_short_probes;
    Part<ShortEntry> short_;
    Part<MediumEntry> medium_;
    Part<LongEntry> long_;
    LargeVector<std::uint8_t> arena_;  // bytes of long words
};

}  // namespace gristmill
