// count: corpus bytes -> word table, on all threads. The word table is what `merge` takes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gristmill/corpus.hpp"
#include "gristmill/errors.hpp"
#include "gristmill/large_memory.hpp"
#include "gristmill/monitor.hpp"
#include "gristmill/pretokenize.hpp"

namespace gristmill {

// Distinct pieces with their counts, in the order of their first occurrence in the corpus: the same table for every
// thread count, chunk size and kernel.
struct WordTable {
    LargeVector<std::uint8_t> bytes;     // all words, end to end
    LargeVector<std::uint64_t> offsets;  // word i is bytes[offsets[i], offsets[i + 1]); size() + 1 entries
    LargeVector<std::uint64_t> counts;   // 64-bit: a common word in a terabyte passes 2^32
    LargeVector<std::uint64_t> firsts;   // corpus byte position of the first occurrence, strictly ascending
    std::uint64_t source_bytes = 0;      // bytes of the corpus that was counted

    std::size_t size() const { return counts.size(); }
    std::uint64_t total() const;  // pieces counted, wrapping beyond 2^64
    std::string_view word(std::size_t i) const {
        return {reinterpret_cast<const char*>(bytes.data()) + offsets[i],
                static_cast<std::size_t>(offsets[i + 1] - offsets[i])};
    }
};

// A table from its parts, in any order. Throws std::invalid_argument when they do not fit together: offsets that do not
// ascend from 0 to the size of the bytes, an empty or repeated word, a count of 0 or over 2^63 - 1, a repeated first
// position; std::overflow_error when all counts together pass 2^63 - 1.
WordTable make_word_table(LargeVector<std::uint8_t> bytes, LargeVector<std::uint64_t> offsets,
                          LargeVector<std::uint64_t> counts, LargeVector<std::uint64_t> firsts,
                          std::uint64_t source_bytes);
// The table of both corpora, `second` read after `first`. Throws std::overflow_error when all counts together would
// pass 2^63 - 1, or a position 2^64 - 1.
WordTable join_word_tables(const WordTable& first, const WordTable& second);
// The table without words counted fewer than `min_frequency` times.
WordTable words_at_least(const WordTable& words, std::uint64_t min_frequency);

struct CountOptions {
    Pattern pattern = Pattern::gpt2;
    Kernel kernel = Kernel::scalar;
    std::vector<std::string> specials;  // hard boundaries: no piece crosses one, none is counted
    unsigned num_threads = 1;
    std::uint64_t block_bytes = 0;   // how much of a file one thread takes at a time; 0: chosen
    std::uint64_t memory_limit = 0;  // bytes for tables and buffers; 0: none. Beyond it, sorted runs go to spill_folder
    std::string spill_folder;        // where these are, in files without a name that nobody has to clean up
    std::uint64_t min_frequency = 1;  // words with a smaller count are left out of the result
};

struct CountStats {
    std::uint64_t source_bytes = 0;
    std::uint64_t num_pieces = 0;  // sum of all counts
    std::uint64_t num_words = 0;   // distinct, before min_frequency
    std::uint64_t num_spilled_runs = 0;
    double count_seconds = 0;
    double join_seconds = 0;
};

// Collects counts from texts of any kind; finish() joins them. Not for use by several threads at once: it has
// its own.
class Counter {
  public:
    Counter(CountOptions options, Monitor& monitor);
    ~Counter();
    // Short texts are taken together, long ones cut at safe places and shared among the threads.
    void add(Texts& texts);
    // Where a text that goes on may be cut in two and added part by part: near its end, after `start`; 0 if nowhere.
    std::size_t last_cut(std::string_view text, std::size_t start) const;
    WordTable finish(CountStats& stats);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace gristmill
