// Words in the order of runs: by the XXH64 of their bytes, and where that is the same, by word.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "count/counted_word.hpp"
#include "gristmill/monitor.hpp"
#include "gristmill/shards.hpp"

namespace gristmill {

// Words, or comparisons of two, between two looks at the monitor.
inline constexpr std::size_t kWordsPerCheck = 65536;

// The same in every process and on every machine. Runs are sorted by it: one number is compared faster than words, and
// numbers that are spread evenly are sorted in two passes.
inline std::uint64_t order_of(const CountedWord& word) {
    std::uint8_t copied[16];
    const std::uint8_t* bytes = word.is_long() ? word.long_bytes() : copied;
    if (!word.is_long()) word.copy_bytes(copied);
    return xxh64({reinterpret_cast<const char*>(bytes), word.size()}, 0);
}

// Ascends with `order`: a partition is a stretch of the sorted words.
inline std::size_t partition_of(std::uint64_t order, std::size_t num_partitions) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::size_t>(static_cast<Wide>(order) * num_partitions >> 64);
}

// Sorts words with `less`, and polls meanwhile: with a large limit that takes many seconds.
template <class Less>
void sort_words(CountedWord* begin, CountedWord* end, const Less& less, const Monitor& monitor) {
    std::size_t num_compared = 0;
    std::sort(begin, end, [&](const CountedWord& a, const CountedWord& b) {
        if (++num_compared % kWordsPerCheck == 0) monitor.check();
        return less(a, b);
    });
}

// Words, and where in the order of runs each stands.
class SortedWords {
  public:
    explicit SortedWords(std::size_t num_words) {
        words_.reserve(num_words);
        places_.reserve(num_words);
    }
    void add(const CountedWord& word) {
        places_.push_back({order_of(word), words_.size()});
        words_.push_back(word);
    }
    std::size_t size() const { return words_.size(); }
    static constexpr std::size_t bytes_per_word() { return sizeof(CountedWord) + 2 * sizeof(Place); }

    // First into 2^16 buckets, then each of these: a few words, unless there are many millions.
    void sort(const Monitor& monitor) {
        std::vector<std::size_t> ends(kNumBuckets + 1);
        for (const Place& place : places_) ++ends[(place.order >> kBucketShift) + 1];
        for (std::size_t b = 0; b < kNumBuckets; ++b) ends[b + 1] += ends[b];
        std::vector<Place> sorted(places_.size());
        // Where each bucket begins, until its places have been put there: then where it ends.
        for (const Place& place : places_) sorted[ends[place.order >> kBucketShift]++] = place;
        places_ = std::move(sorted);
        std::size_t begin = 0;
        for (std::size_t b = 0; b < kNumBuckets; ++b) {
            if (b % 256 == 0) monitor.check();
            std::sort(places_.begin() + static_cast<std::ptrdiff_t>(begin),
                      places_.begin() + static_cast<std::ptrdiff_t>(ends[b]), [&](const Place& x, const Place& y) {
                          return x.order != y.order ? x.order < y.order : words_[x.word].compare(words_[y.word]) < 0;
                      });
            begin = ends[b];
        }
    }
    // Calls visit(word, order) for all words in order.
    template <class Visit>
    void visit(const Monitor& monitor, const Visit& visit) const {
        for (std::size_t i = 0; i < places_.size(); ++i) {
            if (i % kWordsPerCheck == 0) monitor.check();
            visit(words_[places_[i].word], places_[i].order);
        }
    }

  private:
    struct Place {
        std::uint64_t order;
        std::size_t word;
    };
    static constexpr unsigned kBucketShift = 48;
    static constexpr std::size_t kNumBuckets = std::size_t{1} << (64 - kBucketShift);

    std::vector<CountedWord> words_;
    std::vector<Place> places_;
};

}  // namespace gristmill
