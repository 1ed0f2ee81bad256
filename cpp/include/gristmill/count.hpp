// count: corpus bytes -> word table, on all threads. The word table is what `merge` takes.
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
    std::size_t num_partitions = 1;   // for finish_runs()
};

struct CountStats {
    std::uint64_t source_bytes = 0;
    std::uint64_t num_pieces = 0;  // sum of all counts
    std::uint64_t num_words = 0;   // distinct, before min_frequency
    std::uint64_t num_spilled_runs = 0;
    double count_seconds = 0;
    double join_seconds = 0;
};

// Where the bytes of runs go, piece by piece and in order.
using Write = std::function<void(std::string_view)>;

// A run: words with counts, in the order of the words or of their first occurrence. All numbers are little-endian.
//
//     u64 × 2  the word: up to 15 bytes in text order and the length in the top byte of the first number (7 bytes or
//              fewer; the second is 0) or of the second; for a longer word 0 and 2^63 + its length
//     u64      its count
//     u64      the position of its first occurrence
//     u8 × n   the bytes of a longer word
//
// Words are sorted by XXH64(their bytes, seed 0). The runs of one part of a corpus lie end to end in one file, one for
// each partition: of n partitions, a word belongs to number XXH64 × n / 2^64, rounded down, so that what is one word in
// two parts meets in one merge.
struct RunEntry {
    std::uint64_t end = 0;       // in the file; it begins where the one before ends
    std::uint64_t checksum = 0;  // XXH64 of its bytes
    std::uint64_t num_words = 0;
    std::uint64_t num_bytes = 0;  // of the words
};

// Writes the words of a table as runs sorted by word.
std::vector<RunEntry> write_runs(const WordTable& words, std::size_t num_partitions, const Write& write,
                                 Monitor& monitor);

// Collects counts from texts of any kind; finish() or finish_runs() joins them. Not for use by several threads at once:
// it has its own.
class Counter {
  public:
    Counter(CountOptions options, Monitor& monitor);
    ~Counter();
    // Short texts are taken together, long ones cut at safe places and shared among the threads.
    void add(Texts& texts);
    // Where a text that goes on may be cut in two and added part by part: near its end, after `start`; 0 if nowhere.
    std::size_t last_cut(std::string_view text, std::size_t start) const;
    WordTable finish(CountStats& stats);
    // All words, whatever min_frequency is, as runs sorted by word. The memory limit holds for the table, not for them.
    std::vector<RunEntry> finish_runs(const Write& write, CountStats& stats);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// Where a run lies, and what it must be.
struct RunPlace {
    std::string name;  // for messages, and whoever makes it again
    std::string path;
    std::uint64_t begin, end;
    std::uint64_t checksum;
    std::uint64_t base = 0;  // what to add to its positions
};

// A run is not what was written: cut short, or changed.
struct DamagedRun : std::runtime_error {
    DamagedRun(const std::string& run_name, const std::string& how)
        : std::runtime_error(run_name + " is damaged: " + how), name(run_name) {}
    std::string name;
};

enum class RunOrder : std::uint8_t { by_word, by_first };

// Merges runs of one order, in bounded memory and with few open files however many there are: the caller adds some and
// calls reduce(), which makes them one run in a temporary file, and continues with the next. Runs by word are added up
// where a word is in several.
class RunMerger {
  public:
    RunMerger(RunOrder order, std::string spill_folder, std::uint64_t memory_limit, Monitor& monitor);
    ~RunMerger();
    // Opens the file, which may lose its name afterwards.
    void add(const RunPlace& place);
    // Throws DamagedRun.
    void reduce();
    // Both merge what was added and end the work. Throw DamagedRun, and std::overflow_error when a count, or in a table
    // all of them, pass 2^63 - 1.
    //
    // Runs by word become one run sorted by first occurrence, without the words counted fewer than `min_frequency`
    // times; `num_words` is the number before that.
    RunEntry write_by_first(std::uint64_t min_frequency, const Write& write, std::uint64_t& num_words);
    // Runs by first occurrence become a table, of `num_words` words with `num_bytes` bytes.
    WordTable make_table(std::uint64_t num_words, std::uint64_t num_bytes, std::uint64_t source_bytes);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace gristmill
