// Splits the work on many texts, in corpus order, into tasks for one thread each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "gristmill/corpus.hpp"

namespace gristmill {

// Whole short texts, or a block of one text.
struct Task {
    std::size_t index = 0;  // of the task
    std::size_t first_text = 0, num_texts = 0;
    std::uint64_t begin = 0, end = 0;  // the block; for several texts, 0 and their total size
    std::uint64_t position = 0;        // of the first byte of the first text in the corpus

    std::uint64_t num_bytes() const { return end - begin; }
};

// Small enough that the text just read, or its ids, are still in the L2 cache when they are used.
inline constexpr std::uint64_t kTaskBytes = 256 << 10;

class TaskQueue {
  public:
    // `position`: of the first text in the corpus.
    TaskQueue(const Texts& texts, std::uint64_t task_bytes, std::uint64_t position = 0);

    std::uint64_t num_bytes() const { return num_bytes_; }
    // The largest number of threads, up to `wanted`, that gives each at least `min_tasks`.
    unsigned useful_threads(unsigned wanted, std::size_t min_tasks) const;

    // Gets the next task; returns false when none is left. Any thread may call this.
    bool next(Task& task);

  private:
    const Texts& texts_;
    const std::size_t num_texts_;
    const std::uint64_t task_bytes_;
    std::uint64_t num_bytes_ = 0;  // total size of the texts
    std::mutex mutex_;
    std::size_t index_ = 0;     // of the next task
    std::size_t text_ = 0;      // of its first text
    std::uint64_t offset_ = 0;  // in that text
    std::uint64_t position_;    // of that text
};

}  // namespace gristmill
