// Merging runs: shared by Spill, which limits the memory of counting, and RunMerger, which joins parts.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "count/run_file.hpp"
#include "count/sorted_words.hpp"
#include "gristmill/monitor.hpp"
#include "table_size.hpp"

namespace gristmill {

// Each run that is open for reading has a buffer of this size.
inline constexpr std::size_t kReadBuffer = first_size(64 << 10, 48);
// More runs are merged in several passes.
inline constexpr std::size_t kMaxFanIn = 128;

// Sort orders of runs. Keys are compared instead of words; words with the same key may be in any order.
struct ByWord {
    static std::uint64_t key(const CountedWord& word) { return order_of(word); }
};
struct ByFirst {
    static std::uint64_t key(const CountedWord& word) { return word.first; }
};

// Calls visit(word, key) for the words of all runs in key order.
template <class Order, class Visit>
void merge_runs(const std::vector<Run>& runs, Monitor& monitor, const Visit& visit) {
    struct Head {
        std::uint64_t key;
        RunReader* reader;
    };
    std::vector<std::unique_ptr<RunReader>> readers;
    const auto later = [](const Head& a, const Head& b) { return a.key > b.key; };
    std::vector<Head> heap;
    for (const Run& run : runs) {
        readers.push_back(std::make_unique<RunReader>(run, kReadBuffer));
        RunReader* reader = readers.back().get();
        if (reader->next()) heap.push_back({Order::key(reader->word()), reader});
    }
    std::make_heap(heap.begin(), heap.end(), later);
    // Moves the changed first element to its new position: half the comparisons of a pop and a push.
    const auto sift = [&] {
        const Head moved = heap.front();
        std::size_t at = 0;
        for (std::size_t child; (child = 2 * at + 1) < heap.size(); at = child) {
            if (child + 1 < heap.size()) child += later(heap[child], heap[child + 1]);
            if (!later(moved, heap[child])) break;
            heap[at] = heap[child];
        }
        heap[at] = moved;
    };
    for (std::size_t visited = 0; !heap.empty(); ++visited) {
        if (visited % kWordsPerCheck == 0) monitor.check();
        Head& first = heap.front();
        visit(first.reader->word(), first.key);
        if (first.reader->next()) {
            first.key = Order::key(first.reader->word());
        } else {
            first = heap.back();
            heap.pop_back();
        }
        if (!heap.empty()) sift();
    }
}

// Adds up equal words. Words of one key arrive together, in any order; different words with one key are so rare that a
// list is enough. Copies the bytes of a long word, since its reader moves on.
class Summing {
  public:
    template <class Emit>
    void add(const CountedWord& word, std::uint64_t key, const Emit& emit) {
        if (key != key_) flush(emit);
        key_ = key;
        for (std::size_t i = 0; i < size_; ++i) {
            if (words_[i].word.compare(word) == 0) return words_[i].word.add(word);
        }
        if (size_ == words_.size()) words_.emplace_back();
        Held& held = words_[size_++];
        held.word = word;
        if (word.is_long()) {
            held.bytes.assign(word.long_bytes(), word.long_bytes() + word.size());
            held.word.set_long_bytes(held.bytes.data());
        }
    }
    template <class Emit>
    void flush(const Emit& emit) {
        if (size_ > 1) {
            std::sort(words_.begin(), words_.begin() + static_cast<std::ptrdiff_t>(size_),
                      [](const Held& a, const Held& b) { return a.word.compare(b.word) < 0; });
        }
        for (std::size_t i = 0; i < size_; ++i) emit(words_[i].word, key_);
        size_ = 0;
    }

  private:
    struct Held {
        CountedWord word{};
        std::vector<std::uint8_t> bytes;  // of a long word; a move does not change their address
    };
    std::uint64_t key_ = 0;
    std::size_t size_ = 0;
    std::vector<Held> words_;
};

// Calls visit(word, key) for each distinct word of runs sorted by word, with the sum of its counts.
template <class Visit>
void merge_and_sum(const std::vector<Run>& runs, Monitor& monitor, const Visit& visit) {
    Summing summing;
    merge_runs<ByWord>(runs, monitor,
                       [&](const CountedWord& word, std::uint64_t key) { summing.add(word, key, visit); });
    summing.flush(visit);
}

// Collects words up to a given size and sorts them by first occurrence. Reserves the whole size at the start, because a
// growing vector temporarily holds its contents twice.
class RunBuilder {
  public:
    explicit RunBuilder(std::uint64_t memory_bytes) {
        words_.reserve(memory_bytes / 2 / (sizeof(CountedWord) + 2 * sizeof(Place)) + 1);  // sorting needs places
        bytes_.reserve(memory_bytes / 2);
    }
    bool has_room(const CountedWord& word) const {
        return words_.size() < words_.capacity() &&
               (!word.is_long() || bytes_.size() + word.size() <= bytes_.capacity());
    }
    void add(const CountedWord& word) {
        words_.push_back(word);
        if (!word.is_long()) return;
        words_.back().low = bytes_.size();  // an offset until visit_sorted(), because the bytes may still move
        bytes_.insert(bytes_.end(), word.long_bytes(), word.long_bytes() + word.size());
    }
    bool empty() const { return words_.empty(); }
    // Calls visit(word) for the words in order, and removes them.
    template <class Visit>
    void visit_sorted(const Monitor& monitor, const Visit& visit) {
        const std::vector<Place> places = sorted_places(monitor);
        for (std::size_t i = 0; i < places.size(); ++i) {
            if (i % kWordsPerCheck == 0) monitor.check();
            if (i + kWordsAhead < places.size()) __builtin_prefetch(&words_[places[i + kWordsAhead].index]);
            CountedWord word = words_[places[i].index];
            if (word.is_long()) word.set_long_bytes(bytes_.data() + word.low);
            visit(word);
        }
        words_.clear();
        bytes_.clear();
    }
    Run write_sorted(std::shared_ptr<SpillFile> file, const Monitor& monitor) {
        RunWriter writer(std::move(file));
        visit_sorted(monitor, [&](const CountedWord& word) { writer.write(word); });
        return writer.finish();
    }

  private:
    std::vector<Place> sorted_places(const Monitor& monitor) const {
        std::vector<Place> places;
        places.reserve(words_.size());
        std::uint64_t all_bits = 0;
        for (const CountedWord& word : words_) {
            places.push_back({word.first, places.size()});
            all_bits |= word.first;
        }
        sort_by_bits(places, 0, static_cast<unsigned>(std::bit_width(all_bits)), monitor);
        return places;
    }

    std::vector<CountedWord> words_;
    std::vector<std::uint8_t> bytes_;
};

// The allocator retains freed memory; with a limit, the next phase must not add to it.
void return_free_memory();

std::vector<RunEntry> write_partitions(const SortedWords& sorted, std::size_t num_partitions, const Write& write,
                                       const Monitor& monitor);

// Appends a word to a table; the caller sets the last offset when the table is complete.
void append_word(WordTable& table, const CountedWord& word);

}  // namespace gristmill
