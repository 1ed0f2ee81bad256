#include "count/spill.hpp"

#include <unistd.h>
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
void write_sorted(std::vector<CountedWord>& words, const Less& less, const std::string& path, const Monitor& monitor) {
    std::size_t num_compared = 0;
    std::sort(words.begin(), words.end(), [&](const CountedWord& a, const CountedWord& b) {
        if (++num_compared % kWordsPerCheck == 0) monitor.check();
        return less(a, b);
    });
    RunWriter writer(path);
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (i % kWordsPerCheck == 0) monitor.check();
        writer.write(words[i]);
    }
    writer.finish();
}

// Calls visit(word) for the words of all runs in order.
template <class Less, class Visit>
void merge_runs(const std::vector<std::string>& paths, const Less& less, Monitor& monitor, const Visit& visit) {
    std::vector<std::unique_ptr<RunReader>> readers;
    const auto later = [&](RunReader* a, RunReader* b) { return less(b->word(), a->word()); };
    std::priority_queue<RunReader*, std::vector<RunReader*>, decltype(later)> queue(later);
    for (const std::string& path : paths) {
        readers.push_back(std::make_unique<RunReader>(path, kReadBuffer));
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
    void write_sorted_by_first(const std::string& path, const Monitor& monitor) {
        for (CountedWord& word : words_) {
            if (word.is_long()) word.set_long_bytes(bytes_.data() + word.low);
        }
        write_sorted(words_, by_first, path, monitor);
        words_.clear();
        bytes_.clear();
    }

  private:
    std::vector<CountedWord> words_;
    std::vector<std::uint8_t> bytes_;
};

}  // namespace

Spill::~Spill() { remove(runs_); }

void Spill::remove(std::vector<std::string>& paths) {
    for (const std::string& path : paths) ::unlink(path.c_str());
    paths.clear();
}

std::string Spill::new_path() {
    const std::lock_guard lock(mutex_);
    std::string path = folder_ + "/run-" + std::to_string(next_name_++);
    runs_.push_back(path);  // before it exists: whatever happens, the destructor removes it
    return path;
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
    write_sorted(words, by_word, new_path(), monitor);
    table.clear();
    const std::lock_guard lock(mutex_);
    ++num_written_;
}

WordTable Spill::merge(std::uint64_t min_frequency, std::uint64_t& num_words, Monitor& monitor) {
    return_free_memory();
    reduce(monitor, [&](const std::vector<std::string>& some, RunWriter& writer) {
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
    reduce(monitor, [&](const std::vector<std::string>& some, RunWriter& writer) {
        merge_runs(some, by_first, monitor, [&](const CountedWord& word) { writer.write(word); });
    });
    return read_result(size, monitor);
}

// Merges runs by `merge_some` until no more are left than may be open at once.
template <class MergeSome>
void Spill::reduce(Monitor& monitor, const MergeSome& merge_some) {
    while (runs_.size() > max_fan_in_) {
        monitor.check();
        std::vector<std::string> some(runs_.begin(), runs_.begin() + static_cast<std::ptrdiff_t>(max_fan_in_));
        RunWriter writer(new_path());
        merge_some(some, writer);
        writer.finish();
        runs_.erase(runs_.begin(), runs_.begin() + static_cast<std::ptrdiff_t>(max_fan_in_));
        remove(some);
    }
}

// Adds up equal words; those to keep go into new runs sorted by first occurrence, each as large as the memory allows.
Spill::Size Spill::sort_by_first(std::uint64_t min_frequency, std::uint64_t& num_words, Monitor& monitor) {
    const std::size_t num_old = runs_.size();
    std::vector<std::string> old(runs_.begin(), runs_.end());
    Size size;
    num_words = 0;
    RunBuilder builder(memory_limit_ / 2);
    const auto keep = [&](const CountedWord& word) {
        ++num_words;
        if (word.count < min_frequency) return;
        ++size.num_words;
        size.num_bytes += word.size();
        if (!builder.has_room(word) && !builder.empty()) builder.write_sorted_by_first(new_path(), monitor);
        builder.add(word);
    };
    Summing summing;
    merge_runs(old, by_word, monitor, [&](const CountedWord& word) { summing.add(word, keep); });
    summing.flush(keep);
    if (!builder.empty()) builder.write_sorted_by_first(new_path(), monitor);
    runs_.erase(runs_.begin(), runs_.begin() + static_cast<std::ptrdiff_t>(num_old));
    remove(old);
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
    remove(runs_);
    return result;
}

}  // namespace gristmill
