#include "driver/tasks.hpp"

#include <algorithm>

namespace gristmill {
namespace {

// Maximum number of texts per task: empty texts do not add to its bytes.
constexpr std::size_t kMaxTexts = 16384;

}  // namespace

TaskQueue::TaskQueue(const Texts& texts, std::uint64_t task_bytes, std::uint64_t position)
    : texts_(texts), num_texts_(texts.size()), task_bytes_(task_bytes), position_(position) {
    for (std::size_t text = 0; text < num_texts_; ++text) num_bytes_ += texts.num_bytes(text);
}

unsigned TaskQueue::useful_threads(unsigned wanted, std::size_t min_tasks) const {
    const std::uint64_t most = num_bytes_ / task_bytes_ / min_tasks;
    return static_cast<unsigned>(std::clamp<std::uint64_t>(most, 1, std::max(1u, wanted)));
}

bool TaskQueue::next(Task& task) {
    const std::lock_guard lock(mutex_);
    if (text_ == num_texts_) return false;
    task = {index_++, text_, 1, offset_, 0, position_};
    const std::uint64_t size = texts_.num_bytes(text_);
    task.end = size - offset_ > task_bytes_ ? offset_ + task_bytes_ : size;
    offset_ = task.end;
    if (task.end < size) return true;
    // The last block of a text, or a whole text: a short one takes the following short texts along.
    position_ += size;
    offset_ = 0;
    ++text_;
    while (task.begin == 0 && text_ < num_texts_ && task.num_texts < kMaxTexts) {
        const std::uint64_t next_size = texts_.num_bytes(text_);
        if (task.end + next_size > task_bytes_) break;
        task.end += next_size;
        position_ += next_size;
        ++task.num_texts;
        ++text_;
    }
    return true;
}

}  // namespace gristmill
