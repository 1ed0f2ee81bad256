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

// The failure of the earliest task. Tasks start in order and running tasks finish, so no earlier failure is missed: the
// reported failure does not depend on the number of threads.
class EarliestFailure {
  public:
    explicit operator bool() const { return happened_.load(std::memory_order_relaxed); }
    // Call this while handling the exception.
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

// Calls `start(member)` on every member of the crew that gets a task. It returns the function that runs one task. Each
// task is a span `name` of the trace.
template <class Start>
void drive(TaskQueue& queue, Crew& crew, Monitor& monitor, const char* name, const Start& start) {
    EarliestFailure failure;
    crew.run(nullptr, [&](unsigned member) {
        Task task;
        if (!queue.next(task)) return;
        try {
            auto&& do_task = start(member);
            do {
                monitor.check();
                {
                    const TraceScope scope(monitor.trace(), member, name, "bytes", task.num_bytes());
                    do_task(task);
                }
                monitor.advance(task.num_bytes());
            } while (!failure && queue.next(task));
        } catch (...) {
            failure.note(task.index);
        }
    });
    failure.rethrow();
}

}  // namespace gristmill
