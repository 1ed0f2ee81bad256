// Positions in a piece by the rank of the merge that is possible there: the work lists of encode_sweeps().
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "encode/pair_ranks_view.hpp"
#include "gristmill/large_memory.hpp"

namespace gristmill {

// A worker keeps this from piece to piece, because allocating the tables for all ranks costs as much as encoding a
// piece of a kilobyte. Between two pieces all lists are empty; after an exception clear() empties them.
//
// The places of a rank are a linked list in one pool of nodes. One bit per rank, and one bit per 64 of those, mark the
// ranks with places: finding the lowest takes a few instructions, because no rank below the current one is ever added.
class PlacesByRank {
  public:
    // Call this before the first place of a piece. Reserves address space for two nodes per place, the maximum at any
    // time, so that the pool never moves; only the used part of it is touched.
    void begin(std::size_t num_ranks, std::size_t num_places) {
        num_ranks_ = static_cast<Rank>(num_ranks);
        if (first_.size() < num_ranks + 1) {
            has_places_.resize(num_ranks / 64 + 1);
            has_bits_.resize(num_ranks / 4096 + 1);
            first_.resize(num_ranks + 1);  // the last of the three, since memory may run out before it
        }
        const std::size_t most = 2 * num_places + 1 + kChunk;
        if (nodes_.capacity() < most) nodes_.reserve(num_places < kChunk ? std::bit_ceil(most) : most);
        if (nodes_.empty()) nodes_.resize(1);  // index 0 means "no node"
        word_ = 0;
    }

    // kNoRank adds nothing, without a branch: the place goes to an unused list, and its node stays free.
    void add(Rank rank, std::uint32_t place) {
        if (!free_) [[unlikely]]
            add_nodes();
        const bool is_real = rank != kNoRank;
        const Rank slot = is_real ? rank : num_ranks_;
        Node& node = nodes_[free_];
        const std::uint32_t next_free = node.next;
        node = {place, is_real ? first_[slot] : next_free};
        first_[slot] = free_;
        free_ = is_real ? next_free : free_;
        has_places_[slot / 64] |= std::uint64_t{is_real} << slot % 64;
        has_bits_[slot / 4096] |= std::uint64_t{is_real} << slot / 64 % 64;
    }

    // Takes the list of the lowest rank, to be read with next(); returns kNoRank if no place is left. Ranks added from
    // now on must be higher.
    Rank take_lowest() {
        while (word_ < has_bits_.size() && !has_bits_[word_]) ++word_;
        if (word_ == has_bits_.size()) return kNoRank;
        const std::size_t word = word_ * 64 + static_cast<std::size_t>(std::countr_zero(has_bits_[word_]));
        const auto rank = static_cast<Rank>(word * 64 + static_cast<std::size_t>(std::countr_zero(has_places_[word])));
        if (!(has_places_[word] &= has_places_[word] - 1)) has_bits_[word_] &= has_bits_[word_] - 1;
        taken_ = first_[rank];
        first_[rank] = 0;
        return rank;
    }

    // Returns whether a place was left, and sets `place` to it.
    bool next(std::uint32_t& place) {
        const std::uint32_t node = taken_;
        if (!node) return false;
        place = nodes_[node].place;
        taken_ = nodes_[node].next;
        nodes_[node].next = free_;
        free_ = node;
        return true;
    }

    // Sorts the taken places in ascending order. `poll` is called regularly and may throw.
    template <class Poll>
    void sort_taken(const Poll& poll) {
        bool ascends = true, descends = true;
        for (std::uint32_t node = taken_; node && nodes_[node].next; node = nodes_[node].next) {
            poll();
            const bool less = nodes_[node].place < nodes_[nodes_[node].next].place;
            ascends &= less;
            descends &= !less;
        }
        if (ascends) return;
        if (descends) return reverse_taken(poll);
        LargeVector<std::uint32_t> places;
        for (std::uint32_t node = taken_; node; node = nodes_[node].next) {
            poll();
            places.push_back(nodes_[node].place);
        }
        std::sort(places.begin(), places.end(), [&poll](std::uint32_t a, std::uint32_t b) {
            poll();
            return a < b;
        });
        const std::uint32_t* place = places.data();
        for (std::uint32_t node = taken_; node; node = nodes_[node].next) {
            poll();
            nodes_[node].place = *place++;
        }
    }

    void clear() {
        std::fill(first_.begin(), first_.end(), 0);
        std::fill(has_places_.begin(), has_places_.end(), 0);
        std::fill(has_bits_.begin(), has_bits_.end(), 0);
        release_nodes();
    }
    // Frees the memory that grows with the piece.
    void release_nodes() {
        nodes_ = LargeVector<Node>();
        free_ = taken_ = 0;
    }

  private:
    struct Node {
        std::uint32_t place, next;
    };
    static constexpr std::size_t kChunk = 4096;

    [[gnu::noinline]] void add_nodes() {
        const std::size_t begin = nodes_.size();
        nodes_.resize(begin + kChunk);
        for (std::size_t i = begin; i < nodes_.size(); ++i) nodes_[i].next = static_cast<std::uint32_t>(i) + 1;
        nodes_.back().next = 0;
        free_ = static_cast<std::uint32_t>(begin);
    }
    template <class Poll>
    void reverse_taken(const Poll& poll) {
        std::uint32_t before = 0;
        for (std::uint32_t node = taken_; node;) {
            poll();
            const std::uint32_t next = nodes_[node].next;
            nodes_[node].next = before;
            before = node;
            node = next;
        }
        taken_ = before;
    }

    Rank num_ranks_ = 0;
    std::vector<std::uint32_t> first_;  // by rank: the first node, or 0. One more entry for kNoRank
    std::vector<std::uint64_t> has_places_, has_bits_;
    std::size_t word_ = 0;  // index into has_bits_; all words before it are 0
    LargeVector<Node> nodes_;
    std::uint32_t free_ = 0, taken_ = 0;
};

}  // namespace gristmill
