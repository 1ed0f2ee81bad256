// corpus: texts as one stream of bytes, which threads read ahead into a ring of slots. For consumers that copy the
// bytes elsewhere, such as to a GPU, faster than one thread can read them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "gristmill/corpus.hpp"
#include "gristmill/monitor.hpp"

namespace gristmill {

class TextRing {
  public:
    // After each text. No valid UTF-8, and so no special token, has this byte.
    static constexpr std::uint8_t kGap = 0xFF;

    // `memory` has a multiple of `slot_bytes`. The caller keeps it and the texts alive.
    TextRing(Texts& texts, std::span<std::uint8_t> memory, std::size_t slot_bytes, unsigned num_readers);
    TextRing(const TextRing&) = delete;
    TextRing& operator=(const TextRing&) = delete;
    ~TextRing();

    // Of the stream: the texts, and a gap after each.
    std::uint64_t num_bytes() const { return ends_.empty() ? 0 : ends_.back(); }

    struct Slot {
        std::size_t begin = 0, size = 0;  // in the memory; size 0: the end of the stream
        std::vector<std::uint32_t> gaps;  // where the slot has one
    };
    // The next part of the stream. Waits for its readers, and throws their error, or Cancelled.
    Slot next(const Monitor& monitor);
    // Gives the oldest slot that next() returned back to the readers.
    void release();

  private:
    void read_slots();
    void fill(std::uint64_t slot);

    Texts& texts_;
    const std::span<std::uint8_t> memory_;
    const std::size_t slot_bytes_, num_places_;
    std::vector<std::uint64_t> ends_;  // of each text with its gap, in the stream
    std::uint64_t num_slots_ = 0;      // in the stream

    std::mutex mutex_;
    std::condition_variable may_read_, may_take_;
    std::vector<std::vector<std::uint32_t>> gaps_;  // by place
    std::vector<std::uint64_t> num_filled_;         // by place: 1 + the slot that it has
    std::uint64_t next_to_read_ = 0, num_taken_ = 0, num_released_ = 0;
    std::exception_ptr error_;  // of the earliest slot that could not be read
    std::uint64_t failed_slot_ = ~std::uint64_t{0};
    bool is_closed_ = false;
    std::vector<std::thread> readers_;  // last: they use all members above
};

}  // namespace gristmill
