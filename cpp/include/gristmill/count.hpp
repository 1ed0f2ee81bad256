// count: corpus bytes -> word table, on all threads. `merge` takes the word table as its input.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gristmill/corpus.hpp"
#include "gristmill/errors.hpp"
#include "gristmill/large_memory.hpp"
#include "gristmill/monitor.hpp"
#include "gristmill/pretokenize.hpp"

namespace gristmill {

// Distinct pieces with their counts, in the order of their first occurrence in the corpus. The table is the same for
// every thread count, chunk size and kernel.
struct WordTable {
    LargeVector<std::uint8_t> bytes;     // all words, concatenated
    LargeVector<std::uint64_t> offsets;  // word i is bytes[offsets[i], offsets[i + 1]); size() + 1 entries
    LargeVector<std::uint64_t> counts;   // 64-bit: a common word in a terabyte passes 2^32
    LargeVector<std::uint64_t> firsts;   // corpus byte position of the first occurrence, strictly ascending
    std::uint64_t source_bytes = 0;      // size of the corpus

    std::size_t size() const { return counts.size(); }
    std::uint64_t total() const;  // number of pieces, modulo 2^64
    std::string_view word(std::size_t i) const {
        return {reinterpret_cast<const char*>(bytes.data()) + offsets[i],
                static_cast<std::size_t>(offsets[i + 1] - offsets[i])};
    }
};

// Makes a table from its parts, in any order. Throws std::invalid_argument when they are inconsistent: offsets that do
// not ascend from 0 to the size of the bytes, an empty or repeated word, a count of 0 or over 2^63 - 1, a repeated
// first position. Throws std::overflow_error when the sum of all counts exceeds 2^63 - 1.
WordTable make_word_table(LargeVector<std::uint8_t> bytes, LargeVector<std::uint64_t> offsets,
                          LargeVector<std::uint64_t> counts, LargeVector<std::uint64_t> firsts,
                          std::uint64_t source_bytes);
// The table of both corpora, `second` read after `first`. Throws std::overflow_error when the sum of all counts would
// exceed 2^63 - 1, or a position 2^64 - 1.
WordTable join_word_tables(const WordTable& first, const WordTable& second);
// The table without words counted fewer than `min_frequency` times.
WordTable words_at_least(const WordTable& words, std::uint64_t min_frequency);

struct CountOptions {
    Pattern pattern = Pattern::gpt2;
    Kernel kernel = Kernel::scalar;
    std::vector<std::string> specials;  // hard boundaries: pieces do not cross them, and they are not counted
    unsigned num_threads = 1;
    std::uint64_t block_bytes = 0;    // bytes of a file that one thread takes at a time; 0: automatic
    std::uint64_t memory_limit = 0;   // bytes for tables and buffers; 0: no limit. Beyond it, sorted runs are spilled
    std::string spill_folder;         // folder of the spilled runs, which are unnamed files and need no cleanup
    std::uint64_t min_frequency = 1;  // words with a smaller count are left out of the result
    std::size_t num_partitions = 1;   // for finish_runs()
    unsigned smaller_tables = 0;      // for tests: tables start with 2^this times fewer slots. Changes no result
};

struct CountStats {
    std::uint64_t source_bytes = 0;
    std::uint64_t num_pieces = 0;  // sum of all counts
    std::uint64_t num_words = 0;   // distinct, before min_frequency
    std::uint64_t num_spilled_runs = 0;
    double count_seconds = 0;
    double join_seconds = 0;
};

// Receives the bytes of runs in order, in chunks.
using Write = std::function<void(std::string_view)>;

// A run: words with counts, sorted by word or by first occurrence. All numbers are little-endian.
//
//     u64 × 2  the word: up to 15 bytes in text order, with the length in the top byte of the first number (at most 7
//              bytes; the second number is 0) or of the second; for a longer word 0 and 2^63 + its length
//     u64      its count
//     u64      the position of its first occurrence
//     u8 × n   the bytes of a longer word
//
// Words are sorted by XXH64(word, seed 0). The runs of one part of a corpus are concatenated in one file, one run per
// partition. With n partitions, a word belongs to partition floor(XXH64 × n / 2^64), so that equal words of different
// parts always meet in the same merge.
struct RunEntry {
    std::uint64_t end = 0;       // offset in the file; the run starts where the previous one ends
    std::uint64_t checksum = 0;  // XXH64 of its bytes
    std::uint64_t num_words = 0;
    std::uint64_t num_bytes = 0;  // total size of the words
};

// Writes the words of a table as runs sorted by word.
std::vector<RunEntry> write_runs(const WordTable& words, std::size_t num_partitions, const Write& write,
                                 Monitor& monitor);

// Collects counts from texts of any kind; finish() or finish_runs() joins them. One thread at a time may use a Counter,
// which starts its own worker threads.
class Counter {
  public:
    Counter(CountOptions options, Monitor& monitor);
    ~Counter();
    // Groups short texts, and cuts long ones at safe positions to share them among the threads.
    void add(Texts& texts);
    // A position after `start`, near the end of an unfinished text, where it may be cut and added in parts; 0 if none.
    std::size_t last_cut(std::string_view text, std::size_t start) const;
    WordTable finish(CountStats& stats);
    // All words, regardless of min_frequency, as runs sorted by word. The memory limit applies to the table, not to
    // them.
    std::vector<RunEntry> finish_runs(const Write& write, CountStats& stats);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// The location of a run, and its expected content.
struct RunPlace {
    std::string name;  // for messages, and for the caller that recreates the run
    std::string path;
    std::uint64_t begin, end;
    std::uint64_t checksum;
    std::uint64_t base = 0;  // added to the positions of the run
};

// A run differs from what was written: truncated or changed.
struct DamagedRun : std::runtime_error {
    DamagedRun(const std::string& run_name, const std::string& how)
        : std::runtime_error(run_name + " is damaged: " + how), name(run_name) {}
    std::string name;
};

enum class RunOrder : std::uint8_t { by_word, by_first };

// Merges runs of the same order in bounded memory and with few open files, regardless of their number: the caller adds
// some runs and calls reduce(), which merges them into one run in a temporary file, then adds the next. Counts of a
// word that is in several runs sorted by word are added.
class RunMerger {
  public:
    RunMerger(RunOrder order, std::string spill_folder, std::uint64_t memory_limit, Monitor& monitor);
    ~RunMerger();
    // Opens the file, which may be unlinked afterwards.
    void add(const RunPlace& place);
    // Throws DamagedRun.
    void reduce();
    // Both functions merge the added runs and finish the merger. They throw DamagedRun, and std::overflow_error when a
    // count, or the sum of all counts of a table, exceeds 2^63 - 1.
    //
    // Merges runs sorted by word into one run sorted by first occurrence, without words counted fewer than
    // `min_frequency` times. `num_words` is the number of words before that filter.
    RunEntry write_by_first(std::uint64_t min_frequency, const Write& write, std::uint64_t& num_words);
    // Merges runs sorted by first occurrence into a table of `num_words` words with `num_bytes` bytes.
    WordTable make_table(std::uint64_t num_words, std::uint64_t num_bytes, std::uint64_t source_bytes);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace gristmill
