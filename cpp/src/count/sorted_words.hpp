// Words in the order of runs: by partition, and within one by word.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "count/counted_word.hpp"
#include "gristmill/monitor.hpp"
#include "gristmill/shards.hpp"

namespace gristmill {

// Words, or comparisons of two, between two looks at the monitor.
inline constexpr std::size_t kWordsPerCheck = 65536;
inline constexpr std::size_t kMaxPartitions = 65536;

// The same in every process and on every machine.
inline std::size_t partition_of(const CountedWord& word, std::size_t num_partitions) {
    if (num_partitions == 1) return 0;
    std::uint8_t copied[16];
    const std::uint8_t* bytes = word.is_long() ? word.long_bytes() : copied;
    if (!word.is_long()) word.copy_bytes(copied);
    return static_cast<std::size_t>(xxh64({reinterpret_cast<const char*>(bytes), word.size()}, 0) % num_partitions);
}

struct SortedWords {
    std::vector<CountedWord> words;
    std::vector<std::size_t> ends;  // of the partitions
};

// Sorts words with `less`, and polls meanwhile: with a large limit that takes many seconds.
template <class Less>
void sort_words(CountedWord* begin, CountedWord* end, const Less& less, const Monitor& monitor) {
    std::size_t num_compared = 0;
    std::sort(begin, end, [&](const CountedWord& a, const CountedWord& b) {
        if (++num_compared % kWordsPerCheck == 0) monitor.check();
        return less(a, b);
    });
}

// Sorts words by CountedWord::compare(). Its order is short words, medium ones, long ones: one after the other, each
// is compared with less.
inline void sort_by_word(CountedWord* begin, CountedWord* end, const Monitor& monitor) {
    CountedWord* const medium = std::partition(begin, end, [](const CountedWord& word) { return word.high == 0; });
    CountedWord* const longs = std::partition(medium, end, [](const CountedWord& word) { return !word.is_long(); });
    sort_words(begin, medium, [](const CountedWord& a, const CountedWord& b) { return a.low < b.low; }, monitor);
    sort_words(
        medium, longs,
        [](const CountedWord& a, const CountedWord& b) { return a.high != b.high ? a.high < b.high : a.low < b.low; },
        monitor);
    sort_words(longs, end, [](const CountedWord& a, const CountedWord& b) { return a.compare(b) < 0; }, monitor);
}

// visit_words(take) calls take(word) for each word; it is called twice and must do the same.
template <class VisitWords>
SortedWords sort_into_partitions(std::size_t num_words, std::size_t num_partitions, const VisitWords& visit_words,
                                 const Monitor& monitor) {
    std::vector<std::uint16_t> partitions;
    partitions.reserve(num_words);
    SortedWords sorted;
    sorted.ends.resize(num_partitions + 1);
    visit_words([&](const CountedWord& word) {
        partitions.push_back(static_cast<std::uint16_t>(partition_of(word, num_partitions)));
        ++sorted.ends[partitions.back() + 1u];
    });
    for (std::size_t p = 0; p < num_partitions; ++p) sorted.ends[p + 1] += sorted.ends[p];
    sorted.words.resize(num_words);
    // Where each partition begins, until its words have been put there: then where it ends.
    std::size_t i = 0;
    visit_words([&](const CountedWord& word) { sorted.words[sorted.ends[partitions[i++]]++] = word; });
    sorted.ends.pop_back();
    std::size_t begin = 0;
    for (const std::size_t end : sorted.ends) {
        monitor.check();
        sort_by_word(sorted.words.data() + begin, sorted.words.data() + end, monitor);
        begin = end;
    }
    return sorted;
}

}  // namespace gristmill
