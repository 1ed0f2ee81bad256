#include "count/spill.hpp"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <algorithm>
#include <cstdio>
#include <memory>
#include <queue>
#include <utility>

#include "count/run_file.hpp"
#include "gristmill/count.hpp"

namespace gristmill {
namespace {

// Each run that is open for reading holds a buffer of this size.
constexpr std::size_t kReadBuffer = 64 << 10;
// Words, or comparisons of two, between two looks at the monitor.
constexpr std::size_t kWordsPerCheck = 65536;

bool by_word(const CountedWord& a, const CountedWord& b) { return a.compare(b) < 0; }
bool by_first(const CountedWord& a, const CountedWord& b) { return a.first < b.first; }

// The allocator keeps freed memory for later; under a limit the next phase must not stand on top of it.
void return_free_memory() {
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}

// Sorts the words and writes them as one run. Polls while it sorts: with a large limit that takes many seconds.
template <class Less>
Run write_sorted(std::vector<CountedWord>& words, const Less& less, std::shared_ptr<SpillFile> file,
                 const Monitor& monitor) {
    std::size_t num_compared = 0;
    std::sort(words.begin(), words.end(), [&](const CountedWord& a, const CountedWord& b) {
        if (++num_compared % kWordsPerCheck == 0) monitor.check();
        return less(a, b);
    });
    RunWriter writer(std::move(file));
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (i % kWordsPerCheck == 0) monitor.check();
        writer.write(words[i]);
    }
    return writer.finish();
}

// Calls visit(word) for the words of all runs in order.
template <class Less, class Visit>
void merge_runs(const std::vector<Run>& runs, const Less& less, Monitor& monitor, const Visit& visit) {
    std::vector<std::unique_ptr<RunReader>> readers;
    const auto later = [&](RunReader* a, RunReader* b) { return less(b->word(), a->word()); };
    std::priority_queue<RunReader*, std::vector<RunReader*>, decltype(later)> queue(later);
    for (const Run& run : runs) {
        readers.push_back(std::make_unique<RunReader>(run, kReadBuffer));
        if (readers.back()->next()) queue.push(readers.back().get());
    }
    for (std::size_t visited = 0; !queue.empty(); ++visited) {
        if (visited % kWordsPerCheck == 0) monitor.check();
        RunReader* reader = queue.top();
        queue.pop();
        visit(reader->word());
        if (reader->next()) queue.push(reader);
    }
}

// Adds up neighbours that are the same word; a long word's bytes are copied, since its reader moves on.
class Summing {
  public:
    template <class Emit>
    void add(const CountedWord& word, const Emit& emit) {
        if (has_word_ && word_.compare(word) == 0) return word_.add(word);
        flush(emit);
        word_ = word;
        has_word_ = true;
        if (word.is_long()) {
            bytes_.assign(word.long_bytes(), word.long_bytes() + word.size());
            word_.set_long_bytes(bytes_.data());
        }
    }
    template <class Emit>
    void flush(const Emit& emit) {
        if (has_word_) emit(word_);
        has_word_ = false;
    }

  private:
    bool has_word_ = false;
    CountedWord word_{};
    std::vector<std::uint8_t> bytes_;
};

// Words gathered up to a size, to be sorted and written as a run. The size is reserved at once: a vector that grows
// holds its contents twice meanwhile.
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
        words_.back().low = bytes_.size();  // an offset until write_sorted_by_first(): the bytes may still move
        bytes_.insert(bytes_.end(), word.long_bytes(), word.long_bytes() + word.size());
    }
    bool empty() const { return words_.empty(); }
    Run write_sorted_by_first(std::shared_ptr<SpillFile> file, const Monitor& monitor) {
        for (CountedWord& word : words_) {
            if (word.is_long()) word.set_long_bytes(bytes_.data() + word.low);
        }
        Run run = write_sorted(words_, by_first, std::move(file), monitor);
        words_.clear();
        bytes_.clear();
        return run;
    }

  private:
    std::vector<CountedWord> words_;
    std::vector<std::uint8_t> bytes_;
};

}  // namespace

std::shared_ptr<SpillFile> Spill::take_idle_file() {
    {
        const std::lock_guard lock(mutex_);
        if (!idle_.empty()) {
            std::shared_ptr<SpillFile> file = std::move(idle_.back());
            idle_.pop_back();
            return file;
        }
    }
    return std::make_shared<SpillFile>(folder_);
}

void Spill::write_run(PieceTable& table, const Monitor& monitor) {
    std::vector<CountedWord> words;
    words.reserve(table.size());
    const auto take = [&](const auto& part) {
        const LargeVector<std::uint64_t> counts = part.counts();
        for (std::size_t i = 0; i < counts.size(); ++i)
            words.push_back(part.records[i].with_count(counts[i], table.arena()));
    };
    take(table.short_part());
    take(table.medium_part());
    take(table.long_part());
    Run run = write_sorted(words, by_word, take_idle_file(), monitor);
    table.clear();
    const std::lock_guard lock(mutex_);
    idle_.push_back(run.file);
    runs_.push_back(std::move(run));
    ++num_written_;
}

WordTable Spill::merge(std::uint64_t min_frequency, std::uint64_t& num_words, Monitor& monitor) {
    return_free_memory();
    idle_.clear();  // from here on a file is freed with its last run
    reduce(monitor, [&](const std::vector<Run>& some, RunWriter& writer) {
        Summing summing;
        const auto write = [&](const CountedWord& word) { writer.write(word); };
        merge_runs(some, by_word, monitor, [&](const CountedWord& word) { summing.add(word, write); });
        summing.flush(write);
    });
    const Size size = sort_by_first(min_frequency, num_words, monitor);
    if (size.allocated() > memory_limit_) {
        throw MemoryLimitExceeded("the table of " + std::to_string(size.num_words) + " words takes " +
                                  std::to_string(size.allocated()) +
                                  " bytes, more than memory_limit=" + std::to_string(memory_limit_) +
                                  ". Pass a larger memory_limit, or a larger min_frequency to keep fewer words.");
    }
    return_free_memory();
    reduce(monitor, [&](const std::vector<Run>& some, RunWriter& writer) {
        merge_runs(some, by_first, monitor, [&](const CountedWord& word) { writer.write(word); });
    });
    return read_result(size, monitor);
}

// Merges runs by `merge_some` until no more are left than may be read at once.
template <class MergeSome>
void Spill::reduce(Monitor& monitor, const MergeSome& merge_some) {
    if (runs_.size() <= max_fan_in_) return;
    const auto file = std::make_shared<SpillFile>(folder_);
    while (runs_.size() > max_fan_in_) {
        monitor.check();
        const auto end = runs_.begin() + static_cast<std::ptrdiff_t>(max_fan_in_);
        RunWriter writer(file);
        merge_some({runs_.begin(), end}, writer);
        runs_.erase(runs_.begin(), end);
        runs_.push_back(writer.finish());
    }
}

// Adds up equal words; those to keep go into new runs sorted by first occurrence, each as large as the memory allows.
Spill::Size Spill::sort_by_first(std::uint64_t min_frequency, std::uint64_t& num_words, Monitor& monitor) {
    const std::vector<Run> by_words = std::exchange(runs_, {});
    const auto file = std::make_shared<SpillFile>(folder_);
    Size size;
    num_words = 0;
    RunBuilder builder(memory_limit_ / 2);
    const auto keep = [&](const CountedWord& word) {
        ++num_words;
        if (word.count < min_frequency) return;
        ++size.num_words;
        size.num_bytes += word.size();
        if (!builder.has_room(word) && !builder.empty()) runs_.push_back(builder.write_sorted_by_first(file, monitor));
        builder.add(word);
    };
    Summing summing;
    merge_runs(by_words, by_word, monitor, [&](const CountedWord& word) { summing.add(word, keep); });
    summing.flush(keep);
    if (!builder.empty()) runs_.push_back(builder.write_sorted_by_first(file, monitor));
    return size;
}

WordTable Spill::read_result(const Size& size, Monitor& monitor) {
    WordTable result;
    result.bytes.reserve(size.num_bytes);
    result.offsets.reserve(size.num_words + 1);
    result.counts.reserve(size.num_words);
    result.firsts.reserve(size.num_words);
    merge_runs(runs_, by_first, monitor, [&](const CountedWord& word) {
        result.offsets.push_back(result.bytes.size());
        result.counts.push_back(word.count);
        result.firsts.push_back(word.first);
        result.bytes.resize(result.bytes.size() + word.size());
        word.copy_bytes(result.bytes.data() + result.offsets.back());
    });
    result.offsets.push_back(result.bytes.size());
    runs_.clear();
    return result;
}

}  // namespace gristmill
