// One run: words with counts, in some order, written once and read once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "count/counted_word.hpp"

namespace gristmill {

class RunWriter {
  public:
    explicit RunWriter(std::string path);
    ~RunWriter();
    RunWriter(const RunWriter&) = delete;
    RunWriter& operator=(const RunWriter&) = delete;
    void write(const CountedWord& word);
    // Everything is in the file when this returns; throws FileError, e.g. for a full disk.
    void finish();

  private:
    void append(const void* data, std::size_t size);
    void flush();

    std::string path_;
    int descriptor_;
    std::vector<std::uint8_t> buffer_;
};

class RunReader {
  public:
    RunReader(std::string path, std::size_t buffer_bytes);
    ~RunReader();
    RunReader(const RunReader&) = delete;
    RunReader& operator=(const RunReader&) = delete;
    // False at the end. The word's long bytes are valid until the next call.
    bool next();
    const CountedWord& word() const { return word_; }

  private:
    bool fill(std::size_t wanted);

    std::string path_;
    int descriptor_;
    std::vector<std::uint8_t> buffer_;
    std::size_t begin_ = 0, end_ = 0;
    CountedWord word_{};
};

}  // namespace gristmill
