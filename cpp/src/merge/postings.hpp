// Posting lists: where a pair occurs, as cell positions, and the memory they live in.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "merge/memory.hpp"

namespace gristmill::merge {

using Position = std::uint32_t;  // of a cell; four bytes, because posting traffic is what bounds the loop on large tables

struct PostingList {
    Position* data = nullptr;
    std::uint32_t num = 0;
};

// Lists are made once, whole, and never grow; a dead list's block is handed to the next list of its size class. Without
// recycling a run writes four times as much fresh memory (and cache) as it ever has live.
class PostingPool {
  public:
    Position* allocate(std::uint32_t num) {
        const unsigned size_class = class_of(num);
        if (Position* block = free_[size_class]) {
            std::memcpy(&free_[size_class], block, sizeof(Position*));
            return block;
        }
        return fresh(capacity_of(size_class));
    }

    // `num` is what was asked of allocate().
    void recycle(Position* block, std::uint32_t num) {
        const unsigned size_class = class_of(num);
        std::memcpy(block, &free_[size_class], sizeof(Position*));
        free_[size_class] = block;
    }

    // Forgets every list at once.
    void clear() {
        free_.fill(nullptr);
        chunks_.clear();
        next_ = end_ = nullptr;
    }

  private:
    // Four classes an octave: 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, … postings, at most a quarter of a block unused.
    static constexpr std::size_t kChunkPostings = std::size_t{1} << 20;

    static unsigned class_of(std::uint32_t num) {
        if (num <= 4) return 0;
        const std::uint64_t last = num - 1;
        const unsigned shift = std::bit_width(last) - 3;
        return shift * 4 + static_cast<unsigned>(last >> shift) - 4 + 1;
    }
    static std::size_t capacity_of(unsigned size_class) {
        return (std::size_t{4} + size_class % 4) << (size_class / 4);
    }

    Position* fresh(std::size_t capacity) {
        capacity = (capacity + 1) & ~std::size_t{1};  // a free block holds a pointer
        if (static_cast<std::size_t>(end_ - next_) < capacity) {
            chunks_.emplace_back(std::max(capacity, kChunkPostings));
            next_ = chunks_.back().data();
            end_ = next_ + chunks_.back().size();
        }
        Position* block = next_;
        next_ += capacity;
        return block;
    }

    std::array<Position*, 128> free_{};
    std::vector<ZeroedArray<Position>> chunks_;
    Position* next_ = nullptr;
    Position* end_ = nullptr;
};

// First a tally of a pair's occurrences; then, once the pair's fate is decided, the place where its next posting goes.
struct Tally {
    union {
        std::uint64_t weight;
        Position* cursor;
    };
    std::uint32_t num;     // occurrences; after keep() 1 and after drop() 0: how far place() moves
    std::uint32_t length;  // bytes of the left neighbour, where there is one: its pair starts that far before

    void keep(Position* list) {
        cursor = list;
        num = 1;
    }
    // A dropped pair's postings all land in one cell nobody reads: cheaper than a branch that is hard to predict.
    void drop(Position* nowhere) {
        cursor = nowhere;
        num = 0;
    }
    void place(Position position) {
        *cursor = position;
        cursor += num;
    }
};

}  // namespace gristmill::merge
