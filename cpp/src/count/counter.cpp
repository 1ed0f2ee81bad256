// The top of the stage: a sink for the text driver that counts pieces in one table per thread, and the join of the
// tables.
#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>

#include "count/join.hpp"
#include "count/piece_table.hpp"
#include "count/spill.hpp"
#include "driver/drive.hpp"
#include "driver/text_scanner.hpp"
#include "gristmill/count.hpp"

namespace gristmill {
namespace {

// With fewer tasks than this, starting a thread with its own table costs more than it saves.
constexpr std::size_t kMinTasksPerThread = 8;
// Joining fewer words than this takes less time than starting threads.
constexpr std::size_t kMinWordsToShare = 8192;
// For memory that is not counted individually: buffers of runs and scanners, arrays rounded up to whole pages.
constexpr std::uint64_t kSpareBytes = 4 << 20;
// With less memory than this, a table spills so often that merging runs dominates: a smaller limit means fewer threads.
constexpr std::uint64_t kMinBytesPerThread = 16 << 20;
// A smaller run is not worth its file. Without this minimum, every batch would become a run when the window alone
// exceeds the share of a thread, because the text has no cut for a long stretch.
constexpr std::uint64_t kMinRunBytes = 256 << 10;

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Counts the pieces that one thread finds.
class CountSink {
  public:
    static constexpr bool kJoinsTexts = true;

    CountSink(const CountOptions& options, unsigned num_threads, unsigned member, HashSeed seed, Spill& spill,
              const Monitor& monitor)
        : scanner(options.pattern, options.kernel),
          member_(member),
          kernel_(options.kernel),
          smaller_tables_(options.smaller_tables),
          seed_(seed),
          spill_(spill),
          monitor_(monitor) {
        // One eighth is reserved for memory that the allocator retains.
        share_ = (options.memory_limit - options.memory_limit / 8) / num_threads;
    }

    void pieces(const PieceBatch& batch) {
        table->count_batch(batch.begin, batch.base, batch.ends, batch.size, batch.position);
        num_pieces += batch.size;
        if (share_) keep_within_share();
    }
    void special(std::uint32_t) {}

    // Called by the thread that uses the table, so that this thread clears the memory.
    void make_table() {
        if (!table) table = std::make_unique<PieceTable>(seed_, kernel_, smaller_tables_);
    }

    TextScanner scanner;
    std::unique_ptr<PieceTable> table;
    std::uint64_t num_pieces = 0;

  private:
    void keep_within_share() {
        // Writing a run needs arrays for words, counts and positions in addition to the table.
        const std::uint64_t to_spill =
            table->memory_bytes() + table->size() * (SortedWords::bytes_per_word() + sizeof(std::uint64_t));
        const std::uint64_t needed =
            std::max(to_spill, table->memory_bytes_after_growth()) + scanner.memory_bytes() + kSpareBytes;
        const std::uint64_t run_bytes = table->size() * sizeof(CountedWord) + table->long_bytes();
        if (needed <= share_ || run_bytes < kMinRunBytes) return;
        const TraceScope scope(monitor_.trace(), member_, "write run", "words", table->size());
        spill_.write_run(*table, monitor_);
    }

    unsigned member_;  // of the crew, which calls this sink
    Kernel kernel_;
    unsigned smaller_tables_;
    HashSeed seed_;
    Spill& spill_;
    const Monitor& monitor_;
    std::uint64_t share_;  // part of the memory limit; 0: no limit
};

}  // namespace

struct Counter::Impl {
    Impl(CountOptions given, Monitor& watching)
        : options(std::move(given)),
          monitor(watching),
          specials(options.specials),
          rules{specials, Cutter(options.pattern, specials)},
          spill(options.spill_folder, options.memory_limit) {
        if (!options.block_bytes) options.block_bytes = kTaskBytes;
        options.num_threads = std::max(1u, options.num_threads);
        if (options.memory_limit) {
            const std::uint64_t most = std::max<std::uint64_t>(1, options.memory_limit / kMinBytesPerThread);
            options.num_threads = static_cast<unsigned>(std::min<std::uint64_t>(options.num_threads, most));
        }
    }

    // For one call only: threads must not outlive it, because the caller may fork before the next call.
    std::unique_ptr<Crew> make_crew(unsigned num_threads) {
        auto crew = std::make_unique<Crew>(num_threads, monitor);
        while (sinks.size() < crew->size())
            sinks.emplace_back(options, options.num_threads, static_cast<unsigned>(sinks.size()), seed, spill, monitor);
        return crew;
    }

    // Tasks start in corpus order, so a thread finds its words in the order of their first occurrence: the position
    // stored with a new word is the smallest of that thread, and joining takes the smallest of all threads.
    void count(Texts& texts) {
        const auto start = std::chrono::steady_clock::now();
        TaskQueue queue(texts, options.block_bytes, source_bytes);
        monitor.begin(Stage::count, queue.num_bytes());
        const auto crew = make_crew(queue.useful_threads(options.num_threads, kMinTasksPerThread));
        drive(queue, *crew, monitor, "count block", [&](unsigned member) {
            CountSink& sink = sinks[member];
            sink.make_table();
            return [&](const Task& task) { sink.scanner.run(task, texts, rules, sink, monitor); };
        });
        source_bytes += queue.num_bytes();
        count_seconds += seconds_since(start);
    }

    CountStats stats() const {
        CountStats stats;
        stats.source_bytes = source_bytes;
        stats.count_seconds = count_seconds;
        for (const CountSink& sink : sinks) stats.num_pieces += sink.num_pieces;
        return stats;
    }

    void spill_all() {
        monitor.begin(Stage::spill, source_bytes);
        for (CountSink& sink : sinks) {
            if (sink.table && sink.table->size()) spill.write_run(*sink.table, monitor);
        }
        sinks.clear();
    }

    CountOptions options;
    Monitor& monitor;
    SpecialFinder specials;
    TextRules rules;
    Spill spill;
    const HashSeed seed = HashSeed::random();
    std::deque<CountSink> sinks;
    std::uint64_t source_bytes = 0;
    double count_seconds = 0;
};

Counter::Counter(CountOptions options, Monitor& monitor) : impl_(std::make_unique<Impl>(std::move(options), monitor)) {}

Counter::~Counter() = default;

void Counter::add(Texts& texts) { impl_->count(texts); }

std::size_t Counter::last_cut(std::string_view text, std::size_t start) const {
    return impl_->rules.cutter.last(text, start);
}

WordTable Counter::finish(CountStats& stats) {
    const auto start = std::chrono::steady_clock::now();
    Impl& impl = *impl_;
    stats = impl.stats();

    WordTable result;
    if (impl.spill.num_runs()) {
        impl.spill_all();
        stats.num_spilled_runs = impl.spill.num_runs();
        result = impl.spill.merge(impl.options.min_frequency, stats.num_words, impl.monitor);
    } else {
        impl.monitor.begin(Stage::join, impl.source_bytes);
        std::vector<std::unique_ptr<PieceTable>> tables;
        for (CountSink& sink : impl.sinks) {
            if (sink.table) tables.push_back(std::move(sink.table));
        }
        std::size_t num_words = 0;
        for (const auto& table : tables) num_words += table->size();
        Crew crew(num_words < kMinWordsToShare ? 1 : impl.options.num_threads, impl.monitor);
        result = join_tables(std::move(tables), impl.options.min_frequency, crew, stats.num_words, impl.monitor);
    }
    impl.monitor.set_done(impl.source_bytes);
    result.source_bytes = impl.source_bytes;
    stats.join_seconds = seconds_since(start);
    return result;
}

std::vector<RunEntry> Counter::finish_runs(const Write& write, CountStats& stats) {
    const auto start = std::chrono::steady_clock::now();
    Impl& impl = *impl_;
    stats = impl.stats();
    std::size_t num_tables = 0;
    for (const CountSink& sink : impl.sinks) num_tables += sink.table && sink.table->size();

    const std::size_t num_partitions = impl.options.num_partitions;
    std::vector<RunEntry> entries;
    if (impl.spill.num_runs() || num_tables > 1) {
        impl.spill_all();
        stats.num_spilled_runs = impl.spill.num_runs();
        entries = impl.spill.merge_into_partitions(num_partitions, write, stats.num_words, impl.monitor);
    } else {
        impl.monitor.begin(Stage::join, impl.source_bytes);
        SortedWords sorted(0);
        for (const CountSink& sink : impl.sinks) {
            if (sink.table && sink.table->size()) sorted = sort_table(*sink.table, impl.monitor);
        }
        stats.num_words = sorted.size();
        entries = write_partitions(sorted, num_partitions, write, impl.monitor);
    }
    impl.monitor.set_done(impl.source_bytes);
    stats.join_seconds = seconds_since(start);
    return entries;
}

}  // namespace gristmill
