// Sorted runs on disk, which keep counting exact and within a memory limit.
//
// A thread with a full table writes it as a run sorted by word and starts an empty table. At the end all runs are
// merged, and equal words are added up. The remaining words are sorted by first occurrence, again through runs, and
// written to the result in order.
//
// The runs of one thread are concatenated in one file, and so are those of each later phase: only a few files are open,
// regardless of the number of runs.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "count/merging.hpp"
#include "count/piece_table.hpp"
#include "count/run_file.hpp"
#include "gristmill/count.hpp"
#include "gristmill/monitor.hpp"

namespace gristmill {

// The words of a table, in the order of runs.
SortedWords sort_table(const PieceTable& table, const Monitor& monitor);

class Spill {
  public:
    // More than `max_fan_in` runs are merged in several passes, because each run that is read needs a buffer.
    Spill(std::string folder, std::uint64_t memory_limit, std::size_t max_fan_in = kMaxFanIn)
        : folder_(std::move(folder)), memory_limit_(memory_limit), max_fan_in_(max_fan_in) {}

    // Writes `table` as one run and clears it. Safe to call from several threads.
    void write_run(PieceTable& table, const Monitor& monitor);
    std::size_t num_runs() const { return num_written_; }
    // Merges and frees all runs. Throws MemoryLimitExceeded when the result alone is larger than the limit.
    WordTable merge(std::uint64_t min_frequency, std::uint64_t& num_words, Monitor& monitor);
    // The same, but the words stay in the order of runs, and their number is not limited.
    std::vector<RunEntry> merge_into_partitions(std::size_t num_partitions, const Write& write,
                                                std::uint64_t& num_words, Monitor& monitor);

  private:
    // Size of the result.
    struct Size {
        std::uint64_t num_words = 0, num_bytes = 0;
        std::uint64_t allocated() const {
            return allocated_bytes(num_bytes) + 3 * allocated_bytes((num_words + 1) * sizeof(std::uint64_t));
        }
    };

    std::shared_ptr<SpillFile> take_idle_file();
    void reduce_by_word(Monitor& monitor);
    template <class MergeSome>
    void reduce(Monitor& monitor, const MergeSome& merge_some);
    Size sort_by_first(std::uint64_t min_frequency, std::uint64_t& num_words, Monitor& monitor);
    WordTable read_result(const Size& size, Monitor& monitor);

    std::string folder_;
    std::uint64_t memory_limit_;
    std::size_t max_fan_in_;
    std::mutex mutex_;
    std::size_t num_written_ = 0;
    std::vector<Run> runs_;
    std::vector<std::shared_ptr<SpillFile>> idle_;  // files to which a thread may append its next run
};

}  // namespace gristmill
