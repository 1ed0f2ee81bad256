// Sorted runs on disk: how counting stays within a memory limit and exact.
//
// A thread whose table is full writes it as a run sorted by word and starts an empty one. At the end all runs are
// merged, equal words added up; the words that stay are sorted by first occurrence, again through runs, and fill the
// result in order.
//
// The runs that one thread writes lie end to end in one file, and so do those of each later phase: however many runs
// there are, a few files are open.
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

// The words of a table, as runs have them.
SortedWords sort_table(const PieceTable& table, const Monitor& monitor);

class Spill {
  public:
    // More than `max_fan_in` runs are merged in several passes: each run that is read holds a buffer.
    Spill(std::string folder, std::uint64_t memory_limit, std::size_t max_fan_in = kMaxFanIn)
        : folder_(std::move(folder)), memory_limit_(memory_limit), max_fan_in_(max_fan_in) {}

    // Writes `table` as one run and clears it. Safe to call from several threads.
    void write_run(PieceTable& table, const Monitor& monitor);
    std::size_t num_runs() const { return num_written_; }
    // Merges all runs and frees them. Throws MemoryLimitExceeded when the result alone is larger than the limit.
    WordTable merge(std::uint64_t min_frequency, std::uint64_t& num_words, Monitor& monitor);
    // Likewise, but the words stay in the order of runs, and there may be any number of them.
    std::vector<RunEntry> merge_into_partitions(std::size_t num_partitions, const Write& write,
                                                std::uint64_t& num_words, Monitor& monitor);

  private:
    // Of the result.
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
    std::vector<std::shared_ptr<SpillFile>> idle_;  // that a thread may append its next run to
};

}  // namespace gristmill
