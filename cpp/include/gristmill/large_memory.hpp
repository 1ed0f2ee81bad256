// Large arrays on huge pages, where available. With small pages, a table of a few megabytes misses the TLB at every
// probe, and page faults take a tenth of the time of a short run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace gristmill {

// Zeroed memory. Blocks of kLargeBytes or more are aligned to a huge page, and their pages are not touched before their
// first use, so that a generous size costs only address space.
inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
inline constexpr std::size_t kLargeBytes = kHugePageBytes / 4;

// The number of bytes that an allocation of `num_bytes` occupies.
inline std::size_t allocated_bytes(std::size_t num_bytes) {
    if (num_bytes < kLargeBytes) return num_bytes;
    return (num_bytes + kHugePageBytes - 1) & ~(kHugePageBytes - 1);
}

#if defined(__linux__)
inline void* allocate_zeroed(std::size_t num_bytes) {
    if (num_bytes < kLargeBytes) {
        void* memory = std::calloc(num_bytes + 1, 1);
        if (!memory) throw std::bad_alloc();
        return memory;
    }
    // Map one huge page more than needed, so that the mapping contains an aligned range, then unmap the excess.
    const std::size_t size = allocated_bytes(num_bytes), mapped = size + kHugePageBytes;
    if (size < num_bytes) throw std::bad_alloc();
    void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    const auto address = reinterpret_cast<std::uintptr_t>(mapping);
    const std::uintptr_t aligned = (address + kHugePageBytes - 1) & ~(kHugePageBytes - 1);
    const std::size_t before = aligned - address, after = mapped - before - size;
    if (before) munmap(mapping, before);
    if (after) munmap(reinterpret_cast<void*>(aligned + size), after);
    void* memory = reinterpret_cast<void*>(aligned);
    madvise(memory, size, MADV_HUGEPAGE);  // before the first touch, or the kernel assigns small pages
    return memory;
}

inline void free_zeroed(void* memory, std::size_t num_bytes) noexcept {
    if (num_bytes < kLargeBytes) {
        std::free(memory);
    } else {
        munmap(memory, allocated_bytes(num_bytes));
    }
}

// Releases the memory after the first `needed` bytes, as far as possible without moving them, and returns the new size
// of the block.
inline std::size_t shrink_zeroed(void* memory, std::size_t num_bytes, std::size_t needed) noexcept {
    if (num_bytes < kLargeBytes) return num_bytes;
    if (needed < kLargeBytes) needed = kLargeBytes;
    const std::size_t kept = allocated_bytes(needed), held = allocated_bytes(num_bytes);
    if (kept < held) munmap(static_cast<char*>(memory) + kept, held - kept);
    return kept < held ? kept : num_bytes;
}
#else
inline void* allocate_zeroed(std::size_t num_bytes) {
    void* memory = std::calloc(num_bytes + 1, 1);
    if (!memory) throw std::bad_alloc();
    return memory;
}
inline void free_zeroed(void* memory, std::size_t) noexcept { std::free(memory); }
inline std::size_t shrink_zeroed(void*, std::size_t num_bytes, std::size_t) noexcept { return num_bytes; }
#endif

// An array of zeros of fixed size.
template <class T>
class ZeroedArray {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

  public:
    ZeroedArray() = default;
    explicit ZeroedArray(std::size_t size) : data_(static_cast<T*>(allocate_zeroed(size * sizeof(T)))), size_(size) {}
    ZeroedArray(ZeroedArray&& other) noexcept { swap(other); }
    ZeroedArray& operator=(ZeroedArray&& other) noexcept {
        swap(other);
        return *this;
    }
    ~ZeroedArray() {
        if (data_) free_zeroed(data_, size_ * sizeof(T));
    }

    T* data() { return data_; }
    const T* data() const { return data_; }
    std::size_t size() const { return size_; }
    T& operator[](std::size_t i) { return data_[i]; }
    const T& operator[](std::size_t i) const { return data_[i]; }

    // Makes every page present. For arrays that are read before they are written: the first read of a page maps the
    // system's shared page of zeros, and the first write replaces it, which interrupts every other thread of the
    // process (measured: 10 % of counting on two threads).
    void touch() {
        constexpr std::size_t kPageBytes = 4096;
        auto* bytes = reinterpret_cast<volatile char*>(data_);
        for (std::size_t at = 0; at < size_ * sizeof(T); at += kPageBytes) bytes[at] = 0;
    }

  private:
    void swap(ZeroedArray& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }

    T* data_ = nullptr;
    std::size_t size_ = 0;
};

// A vector of plain values in such memory. New elements are not cleared a second time, so resize() costs nothing, and
// the page faults happen in the threads that write the elements.
template <class T>
struct LargeAllocator {
    using value_type = T;
    LargeAllocator() = default;
    template <class Other>
    LargeAllocator(const LargeAllocator<Other>&) noexcept {}
    T* allocate(std::size_t size) {
        if (size > static_cast<std::size_t>(-1) / 2 / sizeof(T)) throw std::bad_alloc();
        return static_cast<T*>(allocate_zeroed(size * sizeof(T)));
    }
    void deallocate(T* memory, std::size_t size) noexcept { free_zeroed(memory, size * sizeof(T)); }
    template <class U>
    void construct(U* at) noexcept {
        ::new (static_cast<void*>(at)) U;
    }
    template <class U, class... Arguments>
    void construct(U* at, Arguments&&... arguments) {
        ::new (static_cast<void*>(at)) U(std::forward<Arguments>(arguments)...);
    }
    friend bool operator==(const LargeAllocator&, const LargeAllocator&) { return true; }
};
template <class T>
using LargeVector = std::vector<T, LargeAllocator<T>>;

}  // namespace gristmill
