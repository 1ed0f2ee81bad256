// Runs: sorted words with counts, written once and read once, concatenated in files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "count/counted_word.hpp"
#include "gristmill/count.hpp"
#include "gristmill/shards.hpp"

namespace gristmill {

// The source of runs.
class RunFile {
  public:
    virtual ~RunFile() = default;
    // Returns the number of bytes read at `offset`; 0 only at the end.
    virtual std::size_t read(std::uint8_t* to, std::size_t size, std::uint64_t offset) const = 0;
};

// A temporary file without a name. The system frees it when it is closed or when the process ends, so it needs no
// cleanup.
class SpillFile final : public RunFile {
  public:
    explicit SpillFile(const std::string& folder);
    ~SpillFile() override;
    SpillFile(const SpillFile&) = delete;
    SpillFile& operator=(const SpillFile&) = delete;
    // Both throw FileError, for example for a full disk. One thread at a time may append.
    void append(std::string_view data);
    std::size_t read(std::uint8_t* to, std::size_t size, std::uint64_t offset) const override;
    // Reports errors of earlier writes that some file systems delay until close.
    void check_writes() const;
    std::uint64_t size() const { return size_; }

  private:
    std::string folder_;  // for messages, because the file has no name
    int descriptor_;
    std::uint64_t size_ = 0;
};

// A file written by another process.
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

// A range of a file. The file is freed with the last of its runs.
struct Run {
    std::shared_ptr<const RunFile> file;
    std::uint64_t begin, end;
    std::uint64_t base = 0;  // added to the positions of the run
    std::string name;        // set for a run of another process; only those runs are checked
    std::uint64_t checksum = 0;
};

// Writes words as records, in batches.
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
    // All records are in the file when this returns.
    Run finish();

  private:
    std::shared_ptr<SpillFile> file_;
    std::uint64_t begin_;
    RecordWriter records_;
};

// Concatenates runs, one per partition, in the order of the partitions.
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
    // Returns false at the end. The bytes of a long word are valid until the next call. Throws DamagedRun for a checked
    // run, at the latest at its end.
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
