// Runs the tasks of a queue on a crew.
#pragma once

#include <atomic>
#include <exception>
#include <limits>
#include <mutex>

#include "crew.hpp"
#include "driver/tasks.hpp"
#include "gristmill/monitor.hpp"

namespace gristmill {

// The failure of the earliest task. Tasks are handed out in order and those under way are finished, so an earlier one
// is never missed: what is reported does not depend on the number of threads.
class EarliestFailure {
  public:
    explicit operator bool() const { return happened_.load(std::memory_order_relaxed); }
    // Called while the exception is handled.
    void note(std::size_t task) {
        const std::lock_guard lock(mutex_);
        happened_ = true;
        if (exception_ && task_ <= task) return;
        exception_ = std::current_exception();
        task_ = task;
    }
    void rethrow() const {
        if (exception_) std::rethrow_exception(exception_);
    }

  private:
    std::atomic<bool> happened_{false};
    std::mutex mutex_;
    std::exception_ptr exception_;
    std::size_t task_ = std::numeric_limits<std::size_t>::max();
};

// `start(member)` is called on every member of the crew that finds a task, and gives the function that does one.
template <class Start>
void drive(TaskQueue& queue, Crew& crew, Monitor& monitor, const Start& start) {
    EarliestFailure failure;
    crew.run([&](unsigned member) {
        Task task;
        if (!queue.next(task)) return;
        try {
            auto&& do_task = start(member);
            do {
                monitor.check();
                do_task(task);
                monitor.advance(task.num_bytes());
            } while (!failure && queue.next(task));
        } catch (...) {
            failure.note(task.index);
        }
    });
    failure.rethrow();
}

}  // namespace gristmill
