// Open addressing with linear probing over zeroed memory on huge pages: the mechanics that the parts of a PieceTable
// share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace gristmill {

// Zeroed memory, on huge pages where the system has them: a table of some megabytes otherwise misses the TLB at every
// probe.
class ZeroedMemory {
  public:
    explicit ZeroedMemory(std::size_t size) : size_(size) {
        if (!size) return;
#if defined(__linux__)
        mapped_ = size_ + kHugePage;
        void* raw = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (raw == MAP_FAILED) throw std::bad_alloc();
        raw_ = raw;
        const auto address = (reinterpret_cast<std::uintptr_t>(raw) + kHugePage - 1) & ~(kHugePage - 1);
        data_ = reinterpret_cast<void*>(address);
        if (size_ >= kHugePage) madvise(data_, size_ & ~(kHugePage - 1), MADV_HUGEPAGE);  // before the first touch
#else
        raw_ = std::calloc(size_ + kLine, 1);
        if (!raw_) throw std::bad_alloc();
        data_ = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(raw_) + kLine - 1) & ~(kLine - 1));
#endif
    }
    ZeroedMemory(ZeroedMemory&& other) noexcept
        : raw_(std::exchange(other.raw_, nullptr)),
          data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0)),
          mapped_(std::exchange(other.mapped_, 0)) {}
    ZeroedMemory& operator=(ZeroedMemory&& other) noexcept {
        std::swap(raw_, other.raw_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(mapped_, other.mapped_);
        return *this;
    }
    ~ZeroedMemory() {
        if (!raw_) return;
#if defined(__linux__)
        munmap(raw_, mapped_);
#else
        std::free(raw_);
#endif
    }
    void* data() const { return data_; }
    std::size_t size() const { return size_; }

  private:
    static constexpr std::uintptr_t kHugePage = 2u << 20;
    static constexpr std::uintptr_t kLine = 64;
    void* raw_ = nullptr;
    void* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t mapped_ = 0;
};

// Slot of a hash = its high bits, so that entries lie in hash order (but for displacement by a few slots): growing is a
// sequential sweep, and tables of different sizes can be joined range by range.
template <class Entry>
class Slots {
  public:
    explicit Slots(unsigned bits) : initial_bits_(bits), bits_(bits), memory_(sizeof(Entry) << bits) {}

    std::size_t slot_of(std::uint64_t hash) const { return static_cast<std::size_t>(hash >> (64 - bits_)); }
    Entry& operator[](std::size_t slot) { return entries()[slot]; }
    const Entry& operator[](std::size_t slot) const { return entries()[slot]; }
    void prefetch(std::size_t slot) const { __builtin_prefetch(entries() + slot, 1); }
    std::size_t after(std::size_t slot) const { return (slot + 1) & (capacity() - 1); }
    Entry* entries() const { return static_cast<Entry*>(memory_.data()); }

    std::size_t capacity() const { return std::size_t{1} << bits_; }
    std::size_t size() const { return size_; }
    std::uint64_t memory_bytes() const { return memory_.size(); }
    void count_insertion() { ++size_; }

    // Room for `more` entries at a load of at most one half: above that, displaced probes cost more than the smaller
    // table saves.
    bool has_room(std::size_t more) const { return (size_ + more) * 2 <= capacity(); }
    template <class Hash>
    void grow(std::size_t more, const Hash& hash) {
        unsigned bits = bits_;
        while ((size_ + more) * 2 > (std::size_t{1} << bits)) ++bits;
        // Slots and ordinals are kept in 32 bits.
        if (bits > 32) throw std::length_error("more than 2^31 different words; pass a memory_limit");
        Slots larger(bits);
        for (std::size_t slot = 0; slot < capacity(); ++slot) {
            const Entry& entry = entries()[slot];
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
    ZeroedMemory memory_;
};

}  // namespace gristmill
