// The two loops of learn_merges() and their common starting state.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "crew.hpp"
#include "gristmill/merge.hpp"
#include "hash.hpp"
#include "merge/symbols.hpp"
#include "merge/tokens.hpp"

namespace gristmill::merge {

// For tests. Zero means automatic. These change only how the merges are found, never the merges.
struct Tuning {
    std::uint64_t initial_threshold = 0;
    std::uint32_t shared_postings = 0;  // length from which the sequential loop shares a list among threads
    bool wide_symbols = false;          // 32-bit symbols even where 16 bits are enough
    std::optional<HashSeed> seed{};     // of the hash tables; random if not set
};

MergeRun learn_merges(const WordTable& words, const std::vector<Merge>& given, const MergeOptions& options,
                      const Tuning& tuning, Monitor& monitor);

// The starting state of a loop: the symbol array of the words, with `given` applied.
template <class Symbol>
struct Training {
    using Clock = std::chrono::steady_clock;

    const MergeOptions& options;
    Monitor& monitor;
    Crew& crew;
    const Tuning& tuning;
    HashSeed seed;
    Tokens tokens{};
    SymbolArray<Symbol> array{};
    std::uint64_t threshold = 1;  // minimum count for a posting list: an estimate; 1 is always correct
    MergeRun run{};

    void begin_loop() {
        run.setup_seconds = seconds_since_mark();
        monitor.begin(Stage::merge, options.num_merges);
    }
    void end_loop() { run.loop_seconds = seconds_since_mark(); }

    Clock::time_point mark = Clock::now();
    double seconds_since_mark() {
        const Clock::time_point now = Clock::now();
        return std::chrono::duration<double>(now - std::exchange(mark, now)).count();
    }
};

// Applies merges to the symbol array in order and adds their tokens. Throws std::invalid_argument for a merge of ids
// that do not exist yet.
template <class Symbol>
void apply_given(const std::vector<Merge>& given, HashSeed seed, Tokens& tokens, SymbolArray<Symbol>& array, Crew& crew,
                 Monitor& monitor);

// Merges one pair at a time; setup, rebuilds and merges of long lists use all threads.
template <class Symbol>
void learn_sequentially(Training<Symbol>& training);

// Merges in exact batched rounds; all work uses all threads.
template <class Symbol>
void learn_in_rounds(Training<Symbol>& training);

}  // namespace gristmill::merge
