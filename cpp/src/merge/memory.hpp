// Large zeroed arrays, on huge pages where the system has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace gristmill::merge {

// An array of zeros. Its pages are not touched before they are used, so a generous size costs address space only.
template <class T>
class ZeroedArray {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

  public:
    ZeroedArray() = default;
    explicit ZeroedArray(std::size_t size) : size_(size) { allocate(size * sizeof(T)); }
    ZeroedArray(ZeroedArray&& other) noexcept { swap(other); }
    ZeroedArray& operator=(ZeroedArray&& other) noexcept {
        swap(other);
        return *this;
    }
    ~ZeroedArray() { release(); }

    T* data() { return data_; }
    const T* data() const { return data_; }
    std::size_t size() const { return size_; }
    T& operator[](std::size_t i) { return data_[i]; }
    const T& operator[](std::size_t i) const { return data_[i]; }

  private:
    static constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

    void swap(ZeroedArray& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(mapping_, other.mapping_);
        std::swap(mapping_bytes_, other.mapping_bytes_);
    }

    void allocate(std::size_t num_bytes) {
#if defined(__linux__)
        // Before the first touch, or the kernel has already handed out small pages.
        if (num_bytes >= kHugePageBytes / 4) {
            mapping_bytes_ = num_bytes + kHugePageBytes;
            mapping_ = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (mapping_ == MAP_FAILED) {
                mapping_ = nullptr;
                throw std::bad_alloc();
            }
            const auto address = reinterpret_cast<std::uintptr_t>(mapping_);
            const std::size_t skip = (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes;
            data_ = reinterpret_cast<T*>(static_cast<char*>(mapping_) + skip);
            madvise(data_, mapping_bytes_ - skip, MADV_HUGEPAGE);
            return;
        }
#endif
        data_ = static_cast<T*>(std::calloc(num_bytes + 1, 1));
        if (!data_) throw std::bad_alloc();
    }

    void release() {
#if defined(__linux__)
        if (mapping_) {
            munmap(mapping_, mapping_bytes_);
            return;
        }
#endif
        std::free(data_);
    }

    T* data_ = nullptr;
    std::size_t size_ = 0;
    void* mapping_ = nullptr;
    std::size_t mapping_bytes_ = 0;
};

}  // namespace gristmill::merge
