// Runs: words with counts, in some order, written once and read once, end to end in files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "count/counted_word.hpp"
#include "gristmill/count.hpp"
#include "gristmill/shards.hpp"

namespace gristmill {

// What runs are read from.
class RunFile {
  public:
    virtual ~RunFile() = default;
    // The number of bytes read from `offset` on; 0 only at the end.
    virtual std::size_t read(std::uint8_t* to, std::size_t size, std::uint64_t offset) const = 0;
};

// A temporary file that the system frees when it is closed, or when the process is killed: nothing is left to clean up.
class SpillFile final : public RunFile {
  public:
    explicit SpillFile(const std::string& folder);
    ~SpillFile() override;
    SpillFile(const SpillFile&) = delete;
    SpillFile& operator=(const SpillFile&) = delete;
    // Both throw FileError, e.g. for a full disk. One thread at a time may append.
    void append(std::string_view data);
    std::size_t read(std::uint8_t* to, std::size_t size, std::uint64_t offset) const override;
    // Reports errors of earlier writes that some file systems tell only at the end.
    void check_writes() const;
    std::uint64_t size() const { return size_; }

  private:
    std::string folder_;  // for messages: the file has no name
    int descriptor_;
    std::uint64_t size_ = 0;
};

// A file that another process has written.
class NamedFile final : public RunFile {
  public:
    explicit NamedFile(const std::string& path);
    ~NamedFile() override;
    NamedFile(const NamedFile&) = delete;
    NamedFile& operator=(const NamedFile&) = delete;
    std::size_t read(std::uint8_t* to, std::size_t size, std::uint64_t offset) const override;

  private:
    std::string path_;
    int descriptor_;
};

// A stretch of a file, which is freed with the last of its runs.
struct Run {
    std::shared_ptr<const RunFile> file;
    std::uint64_t begin, end;
    std::uint64_t base = 0;  // what to add to its positions
    std::string name;        // of a run that another process has written: only such a one is checked
    std::uint64_t checksum = 0;
};

// Writes words as records, many at a time.
class RecordWriter {
  public:
    explicit RecordWriter(Write write);
    void write(const CountedWord& word);
    void flush();

  private:
    void append(const void* data, std::size_t size);

    Write write_;
    std::size_t size_ = 0;
    std::vector<std::uint8_t> buffer_;
};

// Appends a run to a file.
class RunWriter {
  public:
    explicit RunWriter(std::shared_ptr<SpillFile> file);
    void write(const CountedWord& word) { records_.write(word); }
    // Everything is in the file when this returns.
    Run finish();

  private:
    std::shared_ptr<SpillFile> file_;
    std::uint64_t begin_;
    RecordWriter records_;
};

// Writes runs end to end, one for each partition, in the order of the partitions.
class PartitionWriter {
  public:
    PartitionWriter(std::size_t num_partitions, const Write& write);
    PartitionWriter(const PartitionWriter&) = delete;
    PartitionWriter& operator=(const PartitionWriter&) = delete;
    void write(const CountedWord& word, std::size_t partition);
    std::vector<RunEntry> finish();

  private:
    void end_partition();

    std::size_t num_partitions_;
    RecordWriter records_;
    Xxh64 checksum_;
    RunEntry entry_;
    std::vector<RunEntry> entries_;
};

class RunReader {
  public:
    RunReader(Run run, std::size_t buffer_bytes);
    // False at the end. The word's long bytes are valid until the next call. Throws DamagedRun for a run that is
    // checked: at the latest at its end.
    bool next();
    const CountedWord& word() const { return word_; }

  private:
    bool fill(std::size_t wanted);
    void read_more();
    [[noreturn]] void fail(const char* how) const;

    Run run_;
    std::vector<std::uint8_t> buffer_;
    std::size_t begin_ = 0, end_ = 0;
    Xxh64 checksum_;
    CountedWord word_{};
};

}  // namespace gristmill
