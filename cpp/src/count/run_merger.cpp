// Joins the runs of many parts: by word, then by first occurrence, then into one table.
#include <string>
#include <utility>

#include "count/merging.hpp"

namespace gristmill {
namespace {

// Reads a checked run from beginning to end.
void verify(const Run& run) {
    if (run.name.empty()) return;
    RunReader reader(run, kReadBuffer);
    while (reader.next()) {
    }
}

}  // namespace

struct RunMerger::Impl {
    // A damaged run may contain any count, so an overflow is reported only after all runs have been verified.
    template <class Merge>
    void guard(const Merge& merge) {
        try {
            merge();
        } catch (const std::overflow_error&) {
            for (const Run& run : runs) verify(run);
            throw;
        }
    }

    // Merges runs into one run at the end of `file`.
    Run merge_some(const std::vector<Run>& some) {
        if (!file) file = std::make_shared<SpillFile>(spill_folder);
        RunWriter writer(file);
        const auto write = [&](const CountedWord& word, std::uint64_t) { writer.write(word); };
        if (order == RunOrder::by_word) {
            merge_and_sum(some, monitor, write);
        } else {
            merge_runs<ByFirst>(some, monitor, write);
        }
        return writer.finish();
    }

    // Merges until the remaining runs can be read at the same time.
    void reduce_all() {
        while (runs.size() > kMaxFanIn) {
            const auto end = runs.begin() + static_cast<std::ptrdiff_t>(kMaxFanIn);
            Run merged = merge_some({runs.begin(), end});
            runs.erase(runs.begin(), end);
            runs.push_back(std::move(merged));
        }
    }

    // Collects the words to keep in runs sorted by first occurrence, each as large as the memory allows. The last one
    // stays in the builder.
    std::vector<Run> sort_by_first(RunBuilder& builder, std::uint64_t min_frequency, std::uint64_t& num_words) {
        const auto sorted_file = std::make_shared<SpillFile>(spill_folder);
        std::vector<Run> sorted;
        num_words = 0;
        merge_and_sum(runs, monitor, [&](const CountedWord& word, std::uint64_t) {
            ++num_words;
            if (word.count < min_frequency) return;
            if (!builder.has_room(word) && !builder.empty())
                sorted.push_back(builder.write_sorted(sorted_file, monitor));
            builder.add(word);
        });
        if (!sorted.empty() && !builder.empty()) sorted.push_back(builder.write_sorted(sorted_file, monitor));
        return sorted;
    }

    RunOrder order;
    std::string spill_folder;
    std::uint64_t memory_limit;
    Monitor& monitor;
    std::vector<Run> runs;
    std::size_t num_reduced = 0;  // reduced runs, at the front of `runs`
    std::shared_ptr<SpillFile> file;
};

RunMerger::RunMerger(RunOrder order, std::string spill_folder, std::uint64_t memory_limit, Monitor& monitor)
    : impl_(new Impl{order, std::move(spill_folder), memory_limit, monitor, {}, 0, nullptr}) {
    monitor.begin(Stage::join, 0);
}

RunMerger::~RunMerger() = default;

void RunMerger::add(const RunPlace& place) {
    auto file = std::make_shared<NamedFile>(place.path);
    impl_->runs.push_back({.file = std::move(file),
                           .begin = place.begin,
                           .end = place.end,
                           .base = place.base,
                           .name = place.name,
                           .checksum = place.checksum});
}

void RunMerger::reduce() {
    Impl& impl = *impl_;
    const auto added = impl.runs.begin() + static_cast<std::ptrdiff_t>(impl.num_reduced);
    if (added == impl.runs.end()) return;
    impl.guard([&] {
        Run merged = impl.merge_some({added, impl.runs.end()});
        impl.runs.erase(added, impl.runs.end());
        impl.runs.push_back(std::move(merged));
        ++impl.num_reduced;
    });
}

RunEntry RunMerger::write_by_first(std::uint64_t min_frequency, const Write& write, std::uint64_t& num_words) {
    Impl& impl = *impl_;
    PartitionWriter writer(1, write);
    impl.guard([&] {
        impl.reduce_all();
        RunBuilder builder(impl.memory_limit / 2);
        impl.runs = impl.sort_by_first(builder, min_frequency, num_words);
        builder.visit_sorted(impl.monitor, [&](const CountedWord& word) { writer.write(word, 0); });
    });
    impl.order = RunOrder::by_first;
    impl.file = nullptr;
    impl.reduce_all();
    merge_runs<ByFirst>(impl.runs, impl.monitor,
                        [&](const CountedWord& word, std::uint64_t) { writer.write(word, 0); });
    return writer.finish().front();
}

WordTable RunMerger::make_table(std::uint64_t num_words, std::uint64_t num_bytes, std::uint64_t source_bytes) {
    Impl& impl = *impl_;
    WordTable table;
    table.source_bytes = source_bytes;
    table.bytes.reserve(num_bytes);
    table.offsets.reserve(num_words + 1);
    table.counts.reserve(num_words);
    table.firsts.reserve(num_words);
    std::uint64_t total = 0;
    impl.guard([&] {
        impl.reduce_all();
        merge_runs<ByFirst>(impl.runs, impl.monitor, [&](const CountedWord& word, std::uint64_t) {
            if (__builtin_add_overflow(total, word.count, &total) || total >> 63)
                throw std::overflow_error("the sum of all counts exceeds 2^63 - 1. Count a smaller corpus.");
            append_word(table, word);
        });
    });
    table.offsets.push_back(table.bytes.size());
    impl.runs.clear();
    return table;
}

std::vector<RunEntry> write_runs(const WordTable& words, std::size_t num_partitions, const Write& write,
                                 Monitor& monitor) {
    SortedWords sorted(words.size());
    for (std::size_t i = 0; i < words.size(); ++i)
        sorted.add(CountedWord::from_bytes(words.word(i), words.counts[i], words.firsts[i]));
    sorted.sort(monitor);
    return write_partitions(sorted, num_partitions, write, monitor);
}

}  // namespace gristmill
