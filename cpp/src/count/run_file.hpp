// Runs: words with counts, in some order, written once and read once, end to end in files that have no name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "count/counted_word.hpp"

namespace gristmill {

// A temporary file that the system frees when it is closed, or when the process is killed: nothing is left to clean up.
class SpillFile {
  public:
    explicit SpillFile(const std::string& folder);
    ~SpillFile();
    SpillFile(const SpillFile&) = delete;
    SpillFile& operator=(const SpillFile&) = delete;
    // Both throw FileError, e.g. for a full disk. One thread at a time may append.
    void append(const std::uint8_t* data, std::size_t size);
    // The number of bytes read from `offset` on: at least 1.
    std::size_t read(std::uint8_t* to, std::size_t size, std::uint64_t offset) const;
    // Reports errors of earlier writes that some file systems tell only at the end.
    void check_writes() const;
    std::uint64_t size() const { return size_; }

  private:
    std::string folder_;  // for messages: the file has no name
    int descriptor_;
    std::uint64_t size_ = 0;
};

// A stretch of a file, which is freed with the last of its runs.
struct Run {
    std::shared_ptr<SpillFile> file;
    std::uint64_t begin, end;
};

// Appends a run to a file.
class RunWriter {
  public:
    explicit RunWriter(std::shared_ptr<SpillFile> file);
    void write(const CountedWord& word);
    // Everything is in the file when this returns.
    Run finish();

  private:
    void append(const void* data, std::size_t size);
    void flush();

    std::shared_ptr<SpillFile> file_;
    std::uint64_t begin_;
    std::vector<std::uint8_t> buffer_;
};

class RunReader {
  public:
    RunReader(Run run, std::size_t buffer_bytes);
    // False at the end. The word's long bytes are valid until the next call.
    bool next();
    const CountedWord& word() const { return word_; }

  private:
    bool fill(std::size_t wanted);

    Run run_;
    std::vector<std::uint8_t> buffer_;
    std::size_t begin_ = 0, end_ = 0;
    CountedWord word_{};
};

}  // namespace gristmill
