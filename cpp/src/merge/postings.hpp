// Posting lists: the cell positions where a pair occurs, and the memory for them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "gristmill/large_memory.hpp"
#include "table_size.hpp"

namespace gristmill::merge {

// Index of a cell. Four bytes, because posting traffic limits the speed of the loop on large tables.
using Position = std::uint32_t;

struct PostingList {
    Position* data = nullptr;
    std::uint32_t num = 0;
};

// A list is allocated once at its final size. The block of a dead small list is reused for the next list of its size
// class; that of a dead large one is divided again, because the lists of byte pairs are the largest of all and die
// first.
class PostingPool {
  public:
    Position* allocate(std::uint32_t num) {
        const unsigned size_class = class_of(num);
        if (Position* block = free_[size_class]) {
            std::memcpy(&free_[size_class], block, sizeof(Position*));
            return block;
        }
        return cut(capacity_of(size_class));
    }

    // `num` is the argument that was passed to allocate().
    void recycle(Position* block, std::uint32_t num) {
        const unsigned size_class = class_of(num);
        const std::size_t capacity = capacity_of(size_class);
        if (capacity >= kLarge) return keep({block, block + capacity});
        std::memcpy(block, &free_[size_class], sizeof(Position*));
        free_[size_class] = block;
    }

    // Frees all lists.
    void clear() {
        free_.fill(nullptr);
        for (std::vector<Region>& regions : regions_) regions.clear();
        chunks_.clear();
        current_ = {};
    }

  private:
    struct Region {
        Position* begin = nullptr;
        Position* end = nullptr;
        std::size_t size() const { return static_cast<std::size_t>(end - begin); }
    };

    static constexpr std::size_t kLarge = 256;
    static constexpr std::size_t kChunkPostings = first_size(std::size_t{1} << 19, 512);
    static constexpr std::size_t kRegionsTried = 8;

    // Four classes per octave: 4, 6, 6, 8, 8, 10, 12, 14, 16, 20, … postings; even, because a free block stores a
    // pointer.
    static unsigned class_of(std::uint32_t num) {
        if (num <= 4) return 0;
        const std::uint64_t last = num - 1;
        const unsigned shift = std::bit_width(last) - 3;
        return shift * 4 + static_cast<unsigned>(last >> shift) - 3;
    }
    static std::size_t capacity_of(unsigned size_class) {
        const std::size_t capacity = (std::size_t{4} + size_class % 4) << (size_class / 4);
        return capacity + capacity % 2;
    }

    Position* cut(std::size_t capacity) {
        if (current_.size() >= capacity) return take(current_, capacity);
        Region region = find_region(capacity);
        Position* block = take(region, capacity);
        if (region.size() > current_.size()) std::swap(region, current_);
        if (region.size() >= kLarge) keep(region);
        return block;
    }

    static Position* take(Region& region, std::size_t capacity) {
        Position* block = region.begin;
        region.begin += capacity;
        return block;
    }

    void keep(Region region) { regions_[std::bit_width(region.size())].push_back(region); }

    // Takes the newest region of the lowest octave that has one large enough. In the octave of `capacity` itself some
    // regions are too small, so only a few are tried there.
    Region find_region(std::size_t capacity) {
        for (std::size_t octave = std::bit_width(capacity); octave < regions_.size(); ++octave) {
            std::vector<Region>& regions = regions_[octave];
            for (std::size_t i = regions.size(), tried = 0; i-- > 0 && tried < kRegionsTried; ++tried) {
                if (regions[i].size() < capacity) continue;
                std::swap(regions[i], regions.back());
                const Region region = regions.back();
                regions.pop_back();
                return region;
            }
        }
        chunks_.emplace_back(std::max(capacity, kChunkPostings));
        return {chunks_.back().data(), chunks_.back().data() + chunks_.back().size()};
    }

    std::array<Position*, 128> free_{};
    Region current_;
    std::array<std::vector<Region>, 65> regions_;  // by the bit width of their size
    std::vector<ZeroedArray<Position>> chunks_;
};

// The occurrences of a pair seen so far.
struct Tally {
    std::uint64_t weight;  // their total count in the corpus
    std::uint32_t num;     // their number in the symbol array
};

// The position where the next posting of a pair is written.
struct PostingCursor {
    Position* next;
    std::uint32_t step;    // 1, or 0 where the postings are not kept
    std::uint32_t offset;  // from the start of the pair to the position passed to place()

    static PostingCursor into(Position* list, std::uint32_t offset = 0) { return {list, 1, offset}; }
    // The postings of a pair that is not kept are all written to one unused cell: cheaper than a branch that is hard to
    // predict.
    static PostingCursor nowhere(Position* cell) { return {cell, 0, 0}; }

    void place(Position position) {
        *next = position - offset;
        next += step;
    }
};

}  // namespace gristmill::merge
