// count: corpus bytes -> word table, on all threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gristmill/monitor.hpp"
#include "gristmill/pretokenize.hpp"
#include "gristmill/words.hpp"

namespace gristmill {

struct CountOptions {
    Pattern pattern = Pattern::gpt2;
    Kernel kernel = Kernel::scalar;
    std::vector<std::string> specials;  // hard boundaries: no piece crosses one, none is counted
    unsigned num_threads = 1;
    std::uint64_t block_bytes = 0;   // how much of a file one thread takes at a time; 0: chosen
    std::uint64_t memory_limit = 0;  // bytes for tables and buffers; 0: none. Beyond it, sorted runs go to spill_folder
    std::string spill_folder;
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

// A file that grew, shrank or was replaced between its first and its last read.
struct InputChanged : std::runtime_error {
    InputChanged(const std::string& path, const std::string& how);
    std::string path;
};
// open(), read() or write() failed; errno and the path for an OSError.
struct FileError : std::runtime_error {
    FileError(int code, const std::string& path);
    int code;
    std::string path;
};
// memory_limit cannot hold even the result.
struct MemoryLimitExceeded : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Collects counts from any mix of files and texts; finish() joins them. Not for use by several threads at once: it has
// its own.
class Counter {
  public:
    Counter(CountOptions options, Monitor& monitor);
    ~Counter();
    // Each file is one text; cuts at any safe place share it among the threads.
    void add_files(const std::vector<std::string>& paths);
    // Each text is complete in itself. The views must stay valid until the call returns.
    void add_texts(const std::vector<std::string_view>& texts);
    // Where a text that goes on may be cut in two and added part by part: near its end, behind `start`; 0 if nowhere.
    std::size_t last_cut(std::string_view text, std::size_t start) const;
    WordTable finish(CountStats& stats);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace gristmill
