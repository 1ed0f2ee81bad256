// Where text comes from: files and memory, read in blocks, shared among threads at safe cuts.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "gristmill/errors.hpp"
#include "gristmill/pretokenize.hpp"

namespace gristmill {

// One text: its bytes can be read at any place by any thread.
class Source {
  public:
    virtual ~Source() = default;
    virtual std::uint64_t size() const = 0;
    virtual void read(std::uint64_t at, std::uint8_t* into, std::size_t size) = 0;
    // Called once for each block of the source that is done, by the thread that did it.
    virtual void block_done() {}
};

class MemorySource final : public Source {
  public:
    explicit MemorySource(std::string_view text) : text_(text) {}
    std::uint64_t size() const override { return text_.size(); }
    void read(std::uint64_t at, std::uint8_t* into, std::size_t size) override;

  private:
    std::string_view text_;
};

// Opened at its first block and closed at its last, so that a corpus may have more files than a process may open. The
// state of the file is taken when it is listed and compared at every step: a change while it is read is an error.
class FileSource final : public Source {
  public:
    FileSource(std::string path, std::uint64_t block_bytes);
    ~FileSource() override;
    std::uint64_t size() const override { return state_.size; }
    void read(std::uint64_t at, std::uint8_t* into, std::size_t size) override;
    void block_done() override;

  private:
    struct State {
        std::uint64_t size = 0, device = 0, inode = 0;
        std::int64_t modified_seconds = 0, modified_nanoseconds = 0;
        bool operator==(const State&) const = default;
    };
    static State state_of(int descriptor, const std::string& path);
    void open_once();
    void check_unchanged() const;

    std::string path_;
    State state_;
    std::once_flag opened_;
    int descriptor_ = -1;
    std::atomic<std::uint64_t> blocks_left_;
};

// A stretch of a source held in memory, padded as the scanner needs it. Grows at its end only.
class Window {
  public:
    void open(Source& source, std::uint64_t from);
    // Makes source bytes up to `to` (or the source's end) readable.
    void extend(std::uint64_t to);
    std::uint64_t begin() const { return begin_; }
    std::uint64_t end() const { return begin_ + size_; }
    bool at_source_end() const { return end() == source_->size(); }
    const std::uint8_t* data() const { return buffer_.get(); }
    const std::uint8_t* at(std::uint64_t position) const { return buffer_.get() + (position - begin_); }
    std::size_t capacity() const { return capacity_; }

  private:
    Source* source_ = nullptr;
    std::uint64_t begin_ = 0;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
    std::unique_ptr<std::uint8_t[]> buffer_;
};

// Which bytes of a source belong to one block: from the first cut in [begin, end) to the first cut at or behind `end`.
// Both are found from the bytes near them alone, so neighbouring blocks agree on the cut between them without talking
// to each other; a block without a cut of its own is empty, and its text belongs to the block before.
struct BlockText {
    const std::uint8_t* text;
    std::size_t size;
    std::uint64_t position;  // in the source
};
BlockText load_block(Source& source, std::uint64_t begin, std::uint64_t end, Pattern pattern,
                     const SpecialFinder& specials, Window& window);

}  // namespace gristmill
