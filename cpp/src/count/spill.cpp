#include "count/spill.hpp"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <memory>
#include <utility>

#include "count/merging.hpp"

namespace gristmill {

void return_free_memory() {
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}

std::vector<RunEntry> write_partitions(const SortedWords& sorted, std::size_t num_partitions, const Write& write,
                                       const Monitor& monitor) {
    PartitionWriter writer(num_partitions, write);
    sorted.visit(monitor, [&](const CountedWord& word, std::uint64_t order) {
        writer.write(word, partition_of(order, num_partitions));
    });
    return writer.finish();
}

void append_word(WordTable& table, const CountedWord& word) {
    table.offsets.push_back(table.bytes.size());
    table.counts.push_back(word.count);
    table.firsts.push_back(word.first);
    table.bytes.resize(table.bytes.size() + word.size());
    word.copy_bytes(table.bytes.data() + table.offsets.back());
}

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

SortedWords sort_table(const PieceTable& table, const Monitor& monitor) {
    SortedWords sorted(table.size());
    const auto take = [&](const auto& part) {
        const ZeroedArray<std::uint64_t> counts = part.counts();
        for (std::size_t i = 0; i < counts.size(); ++i)
            sorted.add(part.records[i].with_count(counts[i], table.arena()));
    };
    take(table.short_part());
    take(table.medium_part());
    take(table.long_part());
    sorted.sort(monitor);
    return sorted;
}

void Spill::write_run(PieceTable& table, const Monitor& monitor) {
    const SortedWords sorted = sort_table(table, monitor);
    std::shared_ptr<SpillFile> file = take_idle_file();
    RunWriter writer(file);
    sorted.visit(monitor, [&](const CountedWord& word, std::uint64_t) { writer.write(word); });
    Run run = writer.finish();
    table.clear();
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(file));
    runs_.push_back(std::move(run));
    ++num_written_;
}

void Spill::reduce_by_word(Monitor& monitor) {
    return_free_memory();
    idle_.clear();  // from now on a file is freed with its last run
    reduce(monitor, [&](const std::vector<Run>& some, RunWriter& writer) {
        merge_and_sum(some, monitor, [&](const CountedWord& word, std::uint64_t) { writer.write(word); });
    });
}

std::vector<RunEntry> Spill::merge_into_partitions(std::size_t num_partitions, const Write& write,
                                                   std::uint64_t& num_words, Monitor& monitor) {
    reduce_by_word(monitor);
    num_words = 0;
    PartitionWriter writer(num_partitions, write);
    merge_and_sum(runs_, monitor, [&](const CountedWord& word, std::uint64_t order) {
        ++num_words;
        writer.write(word, partition_of(order, num_partitions));
    });
    runs_.clear();
    return writer.finish();
}

WordTable Spill::merge(std::uint64_t min_frequency, std::uint64_t& num_words, Monitor& monitor) {
    reduce_by_word(monitor);
    const Size size = sort_by_first(min_frequency, num_words, monitor);
    if (size.allocated() > memory_limit_) {
        throw MemoryLimitExceeded("the table of " + std::to_string(size.num_words) + " words takes " +
                                  std::to_string(size.allocated()) +
                                  " bytes, more than memory_limit=" + std::to_string(memory_limit_) +
                                  ". Pass a larger memory_limit, or a larger min_frequency to keep fewer words.");
    }
    return_free_memory();
    reduce(monitor, [&](const std::vector<Run>& some, RunWriter& writer) {
        merge_runs<ByFirst>(some, monitor, [&](const CountedWord& word, std::uint64_t) { writer.write(word); });
    });
    return read_result(size, monitor);
}

// Merges runs with `merge_some` until the remaining runs can be read at the same time.
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

// Adds up equal words and writes the words to keep to new runs sorted by first occurrence, each as large as the memory
// allows.
Spill::Size Spill::sort_by_first(std::uint64_t min_frequency, std::uint64_t& num_words, Monitor& monitor) {
    const std::vector<Run> by_words = std::exchange(runs_, {});
    const auto file = std::make_shared<SpillFile>(folder_);
    Size size;
    num_words = 0;
    RunBuilder builder(memory_limit_ / 2);
    merge_and_sum(by_words, monitor, [&](const CountedWord& word, std::uint64_t) {
        ++num_words;
        if (word.count < min_frequency) return;
        ++size.num_words;
        size.num_bytes += word.size();
        if (!builder.has_room(word) && !builder.empty()) runs_.push_back(builder.write_sorted(file, monitor));
        builder.add(word);
    });
    if (!builder.empty()) runs_.push_back(builder.write_sorted(file, monitor));
    return size;
}

WordTable Spill::read_result(const Size& size, Monitor& monitor) {
    WordTable result;
    result.bytes.reserve(size.num_bytes);
    result.offsets.reserve(size.num_words + 1);
    result.counts.reserve(size.num_words);
    result.firsts.reserve(size.num_words);
    merge_runs<ByFirst>(runs_, monitor, [&](const CountedWord& word, std::uint64_t) { append_word(result, word); });
    result.offsets.push_back(result.bytes.size());
    runs_.clear();
    return result;
}

}  // namespace gristmill
