// The part of a text that a task processes.
#pragma once

#include <cstdint>
#include <memory>

#include "gristmill/corpus.hpp"
#include "gristmill/monitor.hpp"
#include "gristmill/pretokenize.hpp"

namespace gristmill {

// A complete stretch of a text: it begins and ends at cuts, or at the ends of the text.
struct Stretch {
    const std::uint8_t* data;
    std::size_t size;
    std::size_t readable;    // bytes that may be read from `data`
    std::uint64_t position;  // in the text
};

// Makes part of one text readable: in place for a text in memory, otherwise in a buffer that grows at its end.
class Window {
  public:
    // The stretch of the block [begin, end) of a text: from the first cut in the block to the first cut at or after its
    // end. Each cut depends only on the bytes near it, so neighbouring blocks agree on the cut between them without
    // communication. A block without a cut gives an empty stretch, because its bytes belong to an earlier block. The
    // stretch is valid until the next call.
    Stretch load(Texts& texts, std::size_t text, std::uint64_t begin, std::uint64_t end, const Cutter& cutter,
                 const Monitor& monitor);

    std::size_t capacity() const { return capacity_; }

  private:
    void open(Texts& texts, std::size_t text, std::uint64_t from);
    void extend(std::uint64_t to);
    std::uint64_t first_cut(std::uint64_t from, std::uint64_t limit, const Cutter& cutter, const Monitor& monitor);
    std::uint64_t end() const { return begin_ + size_; }

    Texts* texts_ = nullptr;
    std::size_t text_ = 0;
    std::uint64_t text_bytes_ = 0;
    const std::uint8_t* data_ = nullptr;  // readable bytes: [begin_, begin_ + size_) of the text
    std::uint64_t begin_ = 0;
    std::size_t size_ = 0;
    std::size_t readable_ = 0;
    std::size_t capacity_ = 0;
    std::unique_ptr<std::uint8_t[]> buffer_;
};

}  // namespace gristmill
