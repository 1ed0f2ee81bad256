// Ids, and arrays of ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "gristmill/large_memory.hpp"

namespace gristmill {

using Id = std::uint32_t;  // in Gristmill's layout 0..255 are the bytes, and merge i makes 256 + i

// An array of ids, 16 or 32 bits each, with a size that is known only when the array is complete.
//
// Address space is reserved for the worst case, one id per byte, and the unused part is released at the end. The array
// never moves, so threads may write to it while others read the text.
class IdBuffer {
  public:
    IdBuffer() = default;
    IdBuffer(std::size_t capacity, unsigned width)
        : width_(width), memory_bytes_(capacity * width), memory_(allocate_zeroed(memory_bytes_)) {}
    // A copy of a known number of ids, on the heap, so that the memory freed by one call is reused by the next.
    template <class Token>
    static IdBuffer copy_of(const Token* ids, std::size_t size) {
        IdBuffer copy;
        copy.is_on_heap_ = true;
        copy.width_ = sizeof(Token);
        copy.size_ = size;
        copy.memory_ = std::malloc(size * sizeof(Token) + 1);
        if (!copy.memory_) throw std::bad_alloc();
        if (size) std::memcpy(copy.memory_, ids, size * sizeof(Token));
        return copy;
    }
    IdBuffer(IdBuffer&& other) noexcept { swap(other); }
    IdBuffer& operator=(IdBuffer&& other) noexcept {
        swap(other);
        return *this;
    }
    ~IdBuffer() { is_on_heap_ ? std::free(memory_) : memory_ ? free_zeroed(memory_, memory_bytes_) : void(); }

    template <class Token>
    Token* data() {
        return static_cast<Token*>(memory_);
    }
    void* data() { return memory_; }
    std::size_t size() const { return size_; }
    unsigned width() const { return width_; }

    // Keeps the first `size` ids.
    void finish(std::size_t size) {
        size_ = size;
        memory_bytes_ = shrink_zeroed(memory_, memory_bytes_, size * width_);
    }

  private:
    void swap(IdBuffer& other) noexcept {
        std::swap(is_on_heap_, other.is_on_heap_);
        std::swap(width_, other.width_);
        std::swap(size_, other.size_);
        std::swap(memory_bytes_, other.memory_bytes_);
        std::swap(memory_, other.memory_);
    }

    bool is_on_heap_ = false;
    unsigned width_ = 4;
    std::size_t size_ = 0;
    std::size_t memory_bytes_ = 0;
    void* memory_ = nullptr;
};

}  // namespace gristmill
