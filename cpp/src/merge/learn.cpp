#include <algorithm>
#include <stdexcept>
#include <string>

#include "merge/loops.hpp"

namespace gristmill {
namespace merge {
namespace {

// A round synchronizes the crew four times, and its merges cost about 1.2 times as much as one by one, divided among
// the members. 90 MB of English (2M symbols) has 3 thousand postings per round, too few to divide. Measured on 16 cores
// (benchmarks/results/scaling_16t.md), loop of 31,743 merges, sequential against rounds: 13.7M symbols 251 ms against
// 175 (4 threads), 130 (8), 113 (16); 19.4M symbols 415 against 374 (4), 280 (8), 243 (16); 2M symbols 62 against 178,
// 77, 79. With two threads, rounds are at best as fast.
bool rounds_pay(const MergeOptions& options, std::uint64_t num_symbols) {
    if (options.loop != MergeLoop::automatic) return options.loop == MergeLoop::rounds;
    return options.num_threads >= 4 && num_symbols >= 8'000'000;
}

template <class Symbol>
MergeRun learn_with(const WordTable& words, const std::vector<Merge>& given, const MergeOptions& options,
                    const Tuning& tuning, Id max_ids, Monitor& monitor) {
    Crew crew(options.num_threads, monitor);
    Training<Symbol> training{options, monitor, crew, tuning, tuning.seed ? *tuning.seed : HashSeed::random()};
    const std::uint64_t rank = std::uint64_t{options.num_merges} + given.size();
    auto layout = lay_out<Symbol>(
        words, {.max_ids = max_ids, .rank = rank, .with_origins = options.tie_break == TieBreak::first_seen}, crew,
        monitor);
    training.array = std::move(layout.array);
    training.run.num_symbols = training.array.num_symbols;
    training.threshold =
        std::max<std::uint64_t>(tuning.initial_threshold ? tuning.initial_threshold : layout.count_at_rank, 1);
    apply_given(given, training.seed, training.tokens, training.array, crew, monitor);
    if (rounds_pay(options, training.array.num_symbols))
        learn_in_rounds(training);
    else
        learn_sequentially(training);
    training.end_loop();
    return std::move(training.run);
}

}  // namespace

MergeRun learn_merges(const WordTable& words, const std::vector<Merge>& given, const MergeOptions& options,
                      const Tuning& tuning, Monitor& monitor) {
    monitor.begin(Stage::setup, words.bytes.size());
    // Every merge shortens a word, so the corpus limits the number of merges; allocate no more than that.
    MergeOptions bounded = options;
    bounded.num_merges = static_cast<std::uint32_t>(std::min<std::uint64_t>(options.num_merges, words.bytes.size()));
    const std::uint64_t max_ids = std::uint64_t{256} + given.size() + bounded.num_merges;
    if (max_ids > UINT32_MAX - 2)
        throw std::length_error(
            std::to_string(max_ids) +
            " ids are too many: the merge stage supports fewer than 2^32 - 2. Use a smaller vocab_size.");
    // Two more symbols than ids: the sentinel and the hole.
    if (max_ids <= 65534 && !tuning.wide_symbols)
        return learn_with<std::uint16_t>(words, given, bounded, tuning, static_cast<Id>(max_ids), monitor);
    return learn_with<std::uint32_t>(words, given, bounded, tuning, static_cast<Id>(max_ids), monitor);
}

}  // namespace merge

MergeRun learn_merges(const WordTable& words, const std::vector<Merge>& given, const MergeOptions& options,
                      Monitor& monitor) {
    return merge::learn_merges(words, given, options, merge::Tuning{}, monitor);
}

}  // namespace gristmill
