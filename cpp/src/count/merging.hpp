// Merging runs: what Spill, which keeps counting within its memory, and RunMerger, which joins parts, share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "count/run_file.hpp"
#include "count/sorted_words.hpp"
#include "gristmill/monitor.hpp"

namespace gristmill {

// Each run that is open for reading holds a buffer of this size.
inline constexpr std::size_t kReadBuffer = 64 << 10;
// More runs are merged in several passes.
inline constexpr std::size_t kMaxFanIn = 128;

inline bool by_word(const CountedWord& a, const CountedWord& b) { return a.compare(b) < 0; }
inline bool by_first(const CountedWord& a, const CountedWord& b) { return a.first < b.first; }

// Calls visit(word, partition) for the words of all runs, in the order of the partitions and then of `less`.
template <class Less, class Visit>
void merge_runs(const std::vector<Run>& runs, std::size_t num_partitions, const Less& less, Monitor& monitor,
                const Visit& visit) {
    struct Head {
        std::size_t partition;
        RunReader* reader;
    };
    std::vector<std::unique_ptr<RunReader>> readers;
    const auto later = [&](const Head& a, const Head& b) {
        if (a.partition != b.partition) return a.partition > b.partition;
        return less(b.reader->word(), a.reader->word());
    };
    std::vector<Head> heap;
    for (const Run& run : runs) {
        readers.push_back(std::make_unique<RunReader>(run, kReadBuffer));
        RunReader* reader = readers.back().get();
        if (reader->next()) heap.push_back({partition_of(reader->word(), num_partitions), reader});
    }
    std::make_heap(heap.begin(), heap.end(), later);
    // Puts the first one, which has changed, where it belongs now: half the comparisons of a pop and a push.
    const auto sift = [&] {
        const Head moved = heap.front();
        std::size_t at = 0;
        for (std::size_t child; (child = 2 * at + 1) < heap.size(); at = child) {
            if (child + 1 < heap.size() && later(heap[child], heap[child + 1])) ++child;
            if (!later(moved, heap[child])) break;
            heap[at] = heap[child];
        }
        heap[at] = moved;
    };
    for (std::size_t visited = 0; !heap.empty(); ++visited) {
        if (visited % kWordsPerCheck == 0) monitor.check();
        Head& first = heap.front();
        visit(first.reader->word(), first.partition);
        if (first.reader->next()) {
            first.partition = partition_of(first.reader->word(), num_partitions);
        } else {
            first = heap.back();
            heap.pop_back();
        }
        if (!heap.empty()) sift();
    }
}

// Adds up neighbours that are the same word; a long word's bytes are copied, since its reader moves on.
class Summing {
  public:
    template <class Emit>
    void add(const CountedWord& word, std::size_t partition, const Emit& emit) {
        if (has_word_ && word_.compare(word) == 0) return word_.add(word);
        flush(emit);
        word_ = word;
        partition_ = partition;
        has_word_ = true;
        if (word.is_long()) {
            bytes_.assign(word.long_bytes(), word.long_bytes() + word.size());
            word_.set_long_bytes(bytes_.data());
        }
    }
    template <class Emit>
    void flush(const Emit& emit) {
        if (has_word_) emit(word_, partition_);
        has_word_ = false;
    }

  private:
    bool has_word_ = false;
    CountedWord word_{};
    std::size_t partition_ = 0;
    std::vector<std::uint8_t> bytes_;
};

// Calls visit(word, partition) for each different word of runs that are sorted by word, its counts added up.
template <class Visit>
void merge_and_sum(const std::vector<Run>& runs, std::size_t num_partitions, Monitor& monitor, const Visit& visit) {
    Summing summing;
    merge_runs(runs, num_partitions, by_word, monitor,
               [&](const CountedWord& word, std::size_t partition) { summing.add(word, partition, visit); });
    summing.flush(visit);
}

// Words gathered up to a size, to be sorted by first occurrence. The size is reserved at once: a vector that grows holds
// its contents twice meanwhile.
class RunBuilder {
  public:
    explicit RunBuilder(std::uint64_t memory_bytes) {
        words_.reserve(memory_bytes / 2 / sizeof(CountedWord) + 1);
        bytes_.reserve(memory_bytes / 2);
    }
    bool has_room(const CountedWord& word) const {
        return words_.size() < words_.capacity() &&
               (!word.is_long() || bytes_.size() + word.size() <= bytes_.capacity());
    }
    void add(const CountedWord& word) {
        words_.push_back(word);
        if (!word.is_long()) return;
        words_.back().low = bytes_.size();  // an offset until visit_sorted(): the bytes may still move
        bytes_.insert(bytes_.end(), word.long_bytes(), word.long_bytes() + word.size());
    }
    bool empty() const { return words_.empty(); }
    // Calls visit(word) for the words in order, and forgets them.
    template <class Visit>
    void visit_sorted(const Monitor& monitor, const Visit& visit) {
        for (CountedWord& word : words_) {
            if (word.is_long()) word.set_long_bytes(bytes_.data() + word.low);
        }
        sort_words(words_.data(), words_.data() + words_.size(), by_first, monitor);
        for (std::size_t i = 0; i < words_.size(); ++i) {
            if (i % kWordsPerCheck == 0) monitor.check();
            visit(words_[i]);
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
    std::vector<CountedWord> words_;
    std::vector<std::uint8_t> bytes_;
};

// The allocator keeps freed memory for later; under a limit the next phase must not stand on top of it.
void return_free_memory();

std::vector<RunEntry> write_partitions(const SortedWords& sorted, const Write& write, const Monitor& monitor);

// Appends a word to a table; the table's last offset is set by the caller when all are there.
void append_word(WordTable& table, const CountedWord& word);

}  // namespace gristmill
