// Words in the order of runs: by the XXH64 of their bytes, and words with the same hash by word.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "count/counted_word.hpp"
#include "count/radix.hpp"
#include "gristmill/monitor.hpp"
#include "gristmill/shards.hpp"

namespace gristmill {

// Words between two checks of the monitor.
inline constexpr std::size_t kWordsPerCheck = 65536;
// Prefetch distance in words.
inline constexpr std::size_t kWordsAhead = 16;

// The same in every process and on every machine. Runs are sorted by this hash: comparing one number is faster than
// comparing words, and evenly distributed numbers can be sorted by a few of their bits.
inline std::uint64_t order_of(const CountedWord& word) {
    std::uint8_t copied[16];
    const std::uint8_t* bytes = word.is_long() ? word.long_bytes() : copied;
    if (!word.is_long()) word.copy_bytes(copied);
    return xxh64({reinterpret_cast<const char*>(bytes), word.size()}, 0);
}

// Ascends with `order`: a partition is a contiguous range of the sorted words.
inline std::size_t partition_of(std::uint64_t order, std::size_t num_partitions) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::size_t>(static_cast<Wide>(order) * num_partitions >> 64);
}

// Words, and the position of each in the order of runs.
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

    // Sorts by the upper bits of the order, enough bits that few words share them, then sorts the words that do.
    void sort(const Monitor& monitor) {
        const unsigned shift = 64 - std::max(1u, static_cast<unsigned>(std::bit_width(places_.size())));
        sort_by_bits(places_, shift, 64, monitor);
        const auto less = [&](const Place& x, const Place& y) {
            return x.key != y.key ? x.key < y.key : words_[x.index].compare(words_[y.index]) < 0;
        };
        std::size_t num_groups = 0;
        for (auto begin = places_.begin(); begin != places_.end();) {
            if (++num_groups % kWordsPerCheck == 0) monitor.check();
            auto end = begin + 1;
            while (end != places_.end() && end->key >> shift == begin->key >> shift) ++end;
            if (end - begin > 1) std::sort(begin, end, less);
            begin = end;
        }
    }
    // Calls visit(word, order) for all words in order.
    template <class Visit>
    void visit(const Monitor& monitor, const Visit& visit) const {
        for (std::size_t i = 0; i < places_.size(); ++i) {
            if (i % kWordsPerCheck == 0) monitor.check();
            if (i + kWordsAhead < places_.size()) __builtin_prefetch(&words_[places_[i + kWordsAhead].index]);
            visit(words_[places_[i].index], places_[i].key);
        }
    }

  private:
    std::vector<CountedWord> words_;
    std::vector<Place> places_;
};

}  // namespace gristmill
