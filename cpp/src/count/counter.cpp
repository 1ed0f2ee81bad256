// The top of the stage: shares blocks of the corpus among threads, each with a scanner and a table of its own, and
// joins them.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>

#include "corpus/source.hpp"
#include "count/join.hpp"
#include "count/piece_table.hpp"
#include "count/spill.hpp"
#include "gristmill/count.hpp"
#include "gristmill/pretokenize.hpp"
#include "threads.hpp"

namespace gristmill {
namespace {

// Small enough for text just read to be still in the second-level cache when it is scanned.
constexpr std::uint64_t kDefaultBlockBytes = 256 << 10;
// A thread with less to do than this costs more to start, with a table of its own, than it saves.
constexpr std::size_t kMinBlocksPerThread = 8;
// For what is not counted one by one: buffers of runs and of the scanner, the rounding of arrays to whole pages.
constexpr std::uint64_t kSpareBytes = 4 << 20;
// Below this a table spills so often that merging runs is all the work: a smaller limit means fewer threads.
constexpr std::uint64_t kMinBytesPerThread = 16 << 20;
// A smaller run is not worth its file. Where the window alone passes a thread's share, because the text has no cut for
// long, every batch would otherwise become one.
constexpr std::uint64_t kMinRunBytes = 256 << 10;

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Block {
    Source* source;
    std::uint64_t begin, end;  // of the source
    std::uint64_t position;    // of the source's first byte in the corpus
};

}  // namespace

struct Counter::Impl {
    struct Worker {
        explicit Worker(const CountOptions& options) : scanner(make_scanner(options.pattern, options.kernel)) {}
        std::unique_ptr<BoundaryScanner> scanner;
        std::unique_ptr<PieceTable> table;  // made by its thread, which so clears the memory itself
        Window window;
        std::uint64_t num_pieces = 0;
    };

    Impl(CountOptions given, Monitor& watching)
        : options(std::move(given)),
          monitor(watching),
          specials(options.specials),
          spill(options.spill_folder, options.memory_limit) {
        if (!options.block_bytes) options.block_bytes = kDefaultBlockBytes;
        unsigned num_threads = std::max(1u, options.num_threads);
        if (options.memory_limit) {
            const std::uint64_t most = std::max<std::uint64_t>(1, options.memory_limit / kMinBytesPerThread);
            num_threads = static_cast<unsigned>(std::min<std::uint64_t>(num_threads, most));
        }
        for (unsigned t = 0; t < num_threads; ++t) workers.emplace_back(options);
    }

    void count(std::vector<std::unique_ptr<Source>> sources);
    void count_block(Worker& worker, const Block& block);
    void count_text(Worker& worker, const std::uint8_t* text, std::size_t size, std::uint64_t position);
    void keep_within_limit(Worker& worker);

    CountOptions options;
    Monitor& monitor;
    SpecialFinder specials;
    Spill spill;
    const HashSeed seed = HashSeed::random();
    std::deque<Worker> workers;
    std::uint64_t source_bytes = 0;
    double count_seconds = 0;
};

// Blocks are handed out in corpus order, so a thread meets the words it owns in the order of their first occurrence:
// the position stored with a new word is the smallest of that thread, and joining takes the smallest of all.
void Counter::Impl::count(std::vector<std::unique_ptr<Source>> sources) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<Block> blocks;
    std::uint64_t total = 0;
    for (const auto& source : sources) {
        for (std::uint64_t begin = 0; begin == 0 || begin < source->size(); begin += options.block_bytes) {
            blocks.push_back(
                {source.get(), begin, std::min(begin + options.block_bytes, source->size()), source_bytes + total});
        }
        total += source->size();
    }
    monitor.begin(Stage::count, total);
    std::atomic<std::size_t> next_block{0};
    std::atomic<bool> failed{false};
    const auto num_threads =
        static_cast<unsigned>(std::clamp<std::size_t>(blocks.size() / kMinBlocksPerThread, 1, workers.size()));
    run_threads(num_threads, [&](unsigned index) {
        try {
            if (!workers[index].table) workers[index].table = std::make_unique<PieceTable>(seed);
            for (std::size_t b; !failed && (b = next_block.fetch_add(1)) < blocks.size();) {
                monitor.check();
                count_block(workers[index], blocks[b]);
                blocks[b].source->block_done();
                monitor.advance(blocks[b].end - blocks[b].begin);
            }
        } catch (...) {
            failed = true;
            throw;
        }
    });
    source_bytes += total;
    count_seconds += seconds_since(start);
}

void Counter::Impl::count_block(Worker& worker, const Block& block) {
    if (block.begin == block.end) return;
    const BlockText loaded =
        load_block(*block.source, block.begin, block.end, options.pattern, specials, worker.window);
    for (std::size_t at = 0; at < loaded.size;) {
        const SpecialFinder::Match special = specials.find(loaded.text, loaded.size, at);
        if (special.position > at) {
            count_text(worker, loaded.text + at, special.position - at, block.position + loaded.position + at);
        }
        at = special.index == SpecialFinder::kNone ? loaded.size : special.position + specials.length(special.index);
    }
}

void Counter::Impl::count_text(Worker& worker, const std::uint8_t* text, std::size_t size, std::uint64_t position) {
    BoundaryScanner& scanner = *worker.scanner;
    const std::uint8_t* begin = text;
    scanner.start(text, size);
    while (scanner.next()) {
        monitor.check();
        if (!scanner.size()) continue;
        worker.table->count_batch(begin, scanner.base(), scanner.ends(), scanner.size(),
                                  position + static_cast<std::uint64_t>(scanner.base() - text));
        begin = scanner.base() + scanner.ends()[scanner.size() - 1];
        worker.num_pieces += scanner.size();
        if (options.memory_limit) keep_within_limit(worker);
    }
}

void Counter::Impl::keep_within_limit(Worker& worker) {
    // An eighth is left for what the allocator keeps back.
    const std::uint64_t share = (options.memory_limit - options.memory_limit / 8) / workers.size();
    const PieceTable& table = *worker.table;
    // Writing a run takes arrays of its words and counts beside the table.
    const std::uint64_t to_spill = table.memory_bytes() + table.size() * (sizeof(CountedWord) + sizeof(std::uint64_t));
    const std::uint64_t needed =
        std::max(to_spill, table.memory_bytes_after_growth()) + worker.window.capacity() + kSpareBytes;
    const std::uint64_t run_bytes = table.size() * sizeof(CountedWord) + table.long_bytes();
    if (needed > share && run_bytes >= kMinRunBytes) spill.write_run(*worker.table, monitor);
}

Counter::Counter(CountOptions options, Monitor& monitor) : impl_(std::make_unique<Impl>(std::move(options), monitor)) {}

Counter::~Counter() = default;

void Counter::add_files(const std::vector<std::string>& paths) {
    std::vector<std::unique_ptr<Source>> sources;
    for (const std::string& path : paths)
        sources.push_back(std::make_unique<FileSource>(path, impl_->options.block_bytes));
    impl_->count(std::move(sources));
}

void Counter::add_texts(const std::vector<std::string_view>& texts) {
    std::vector<std::unique_ptr<Source>> sources;
    for (const std::string_view text : texts) sources.push_back(std::make_unique<MemorySource>(text));
    impl_->count(std::move(sources));
}

std::size_t Counter::last_cut(std::string_view text, std::size_t start) const {
    std::size_t longest = 0;
    for (const std::string& special : impl_->options.specials) longest = std::max(longest, special.size());
    return gristmill::last_cut(text, start, impl_->options.pattern, impl_->specials, longest);
}

WordTable Counter::finish(CountStats& stats) {
    const auto start = std::chrono::steady_clock::now();
    Impl& impl = *impl_;
    stats = {};
    stats.source_bytes = impl.source_bytes;
    stats.count_seconds = impl.count_seconds;
    for (const Impl::Worker& worker : impl.workers) stats.num_pieces += worker.num_pieces;

    WordTable result;
    if (impl.spill.num_runs()) {
        impl.monitor.begin(Stage::spill, impl.source_bytes);
        for (Impl::Worker& worker : impl.workers) {
            if (worker.table && worker.table->size()) impl.spill.write_run(*worker.table, impl.monitor);
        }
        impl.workers.clear();
        stats.num_spilled_runs = impl.spill.num_runs();
        result = impl.spill.merge(impl.options.min_frequency, stats.num_words, impl.monitor);
    } else {
        impl.monitor.begin(Stage::join, impl.source_bytes);
        std::vector<std::unique_ptr<PieceTable>> tables;
        for (Impl::Worker& worker : impl.workers) {
            if (worker.table) tables.push_back(std::move(worker.table));
        }
        const auto num_threads = static_cast<unsigned>(impl.workers.size());
        result = join_tables(std::move(tables), impl.options.min_frequency, num_threads, stats.num_words, impl.monitor);
    }
    impl.monitor.set_done(impl.source_bytes);
    result.source_bytes = impl.source_bytes;
    stats.join_seconds = seconds_since(start);
    return result;
}

}  // namespace gristmill
