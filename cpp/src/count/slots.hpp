// Open addressing with linear probing in zeroed memory on huge pages, shared by the parts of a PieceTable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>

#include "gristmill/large_memory.hpp"

namespace gristmill {

// The slot of a hash is its high bits, so that entries are in hash order, except for displacement by a few slots:
// growth is a sequential pass, and tables of different sizes can be joined range by range.
template <class Entry>
class Slots {
  public:
    explicit Slots(unsigned bits) : initial_bits_(bits), bits_(bits), entries_(std::size_t{1} << bits) {
        entries_.touch();
    }

    unsigned shift() const { return 64 - bits_; }
    std::size_t slot_of(std::uint64_t hash) const { return static_cast<std::size_t>(hash >> shift()); }
    Entry& operator[](std::size_t slot) { return entries_[slot]; }
    const Entry& operator[](std::size_t slot) const { return entries_[slot]; }
    void prefetch(std::size_t slot) const { __builtin_prefetch(&entries_[slot], 1); }
    std::size_t after(std::size_t slot) const { return (slot + 1) & (capacity() - 1); }

    std::size_t capacity() const { return std::size_t{1} << bits_; }
    std::size_t size() const { return size_; }
    std::uint64_t memory_bytes() const { return allocated_bytes(entries_.size() * sizeof(Entry)); }
    void count_insertion() { ++size_; }

    // Room for `more` entries at a load of at most one half: above that, displaced probes cost more than the smaller
    // table saves.
    bool has_room(std::size_t more) const { return (size_ + more) * 2 <= capacity(); }
    template <class Hash>
    void grow(std::size_t more, const Hash& hash) {
        unsigned bits = bits_;
        while ((size_ + more) * 2 > (std::size_t{1} << bits)) ++bits;
        // Slots and ordinals are kept in 32 bits.
        if (bits > 32) throw std::length_error("more than 2^31 distinct words. Pass a memory_limit.");
        Slots larger(bits);
        for (std::size_t slot = 0; slot < capacity(); ++slot) {
            const Entry& entry = entries_[slot];
            if (is_free(entry)) continue;
            std::size_t to = larger.slot_of(hash(entry));
            while (!is_free(larger[to])) to = larger.after(to);
            larger[to] = entry;
        }
        larger.size_ = size_;
        larger.initial_bits_ = initial_bits_;
        *this = std::move(larger);
    }
    void clear() { *this = Slots(initial_bits_); }

  private:
    unsigned initial_bits_;
    unsigned bits_;
    std::size_t size_ = 0;
    ZeroedArray<Entry> entries_;
};

}  // namespace gristmill
