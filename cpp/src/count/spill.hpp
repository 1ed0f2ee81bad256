// Sorted runs on disk: how counting stays within a memory limit and exact.
//
// A thread whose table is full writes it as a run sorted by word and begins anew. At the end all runs are merged, equal
// words added up; the words that stay are sorted by first occurrence, again through runs, and fill the result in order.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "count/piece_table.hpp"
#include "gristmill/monitor.hpp"
#include "gristmill/words.hpp"

namespace gristmill {

class Spill {
  public:
    Spill(std::string folder, std::uint64_t memory_limit) : folder_(std::move(folder)), memory_limit_(memory_limit) {}
    ~Spill();

    // Writes `table` as one run and clears it. Safe to call from several threads.
    void write_run(PieceTable& table, const Monitor& monitor);
    std::size_t num_runs() const { return num_written_; }
    // Merges all runs and removes them. Throws MemoryLimitExceeded when the result alone is larger than the limit.
    WordTable merge(std::uint64_t min_frequency, std::uint64_t& num_words, Monitor& monitor);

  private:
    std::string new_path();
    void remove_runs(std::vector<std::string>& paths);

    std::string folder_;
    std::uint64_t memory_limit_;
    std::mutex mutex_;
    std::size_t num_written_ = 0;
    std::size_t next_name_ = 0;
    std::vector<std::string> runs_;
};

}  // namespace gristmill
