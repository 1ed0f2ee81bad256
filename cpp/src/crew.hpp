// A fixed crew of threads that runs one job after another on all of its members.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "gristmill/monitor.hpp"

namespace gristmill {

// The caller is member 0 and works too. Two atomics start a job and collect its end, because the phases of a merge
// round last tens of microseconds: idle members spin for about as long, then sleep. A caller that waits for the others
// polls its monitor, so that Ctrl-C and progress do not wait for the longest share.
class Crew {
  public:
    // The crew is smaller than requested when the system cannot start more threads; no result depends on its size.
    Crew(unsigned wanted, const Monitor& monitor)
        : monitor_(monitor), num_spins_(wanted <= std::thread::hardware_concurrency() ? kSpins : 0) {
        if (Trace* trace = monitor.trace()) trace->need_rows(wanted);
        if (wanted > 1) threads_.reserve(wanted - 1);
        try {
            for (unsigned member = 1; member < wanted; ++member)
                threads_.emplace_back([this, member] { serve(member); });
        } catch (const std::system_error&) {
            // The threads that could be started do the work.
        } catch (...) {
            dismiss();
            throw;
        }
    }
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;
    ~Crew() { dismiss(); }

    unsigned size() const { return static_cast<unsigned>(threads_.size()) + 1; }

    // Calls job(member) on every member, returns when all are done, and rethrows the first exception of a member. The
    // part of each member is a span `name` of the trace; null for a job that records its own spans.
    template <class Job>
    void run(const char* name, Job&& job) {
        name_ = name;
        context_ = &job;
        call_ = [](void* context, unsigned member) { (*static_cast<std::remove_reference_t<Job>*>(context))(member); };
        busy_.store(size() - 1, std::memory_order_relaxed);
        start();
        attempt(0);
        await_others();
        if (std::exception_ptr error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
    }

  private:
    static constexpr int kSpins = 2000;

    static void pause() {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    }

    template <class Done>
    bool spin(const std::atomic<std::uint32_t>& value, Done done) const {
        for (int i = 0; i < num_spins_; ++i) {
            if (done(value.load(std::memory_order_acquire))) return true;
            pause();
        }
        return false;
    }

    void await_others() {
        if (spin(busy_, [](std::uint32_t busy) { return busy == 0; })) return;
        std::unique_lock lock(mutex_);
        caller_sleeps_.store(true);
        while (busy_.load() != 0) {
            last_done_.wait_for(lock, Monitor::kPollInterval);
            lock.unlock();
            try {
                monitor_.check();
            } catch (...) {
                note_error();  // the job's state is in use until the other members stop, too
            }
            lock.lock();
        }
        caller_sleeps_.store(false);
    }

    void dismiss() {
        call_ = nullptr;
        start();
        for (std::thread& thread : threads_) thread.join();
    }

    void start() {
        generation_.fetch_add(1, std::memory_order_release);
        generation_.notify_all();
    }

    void serve(unsigned member) {
        for (std::uint32_t seen = 0;;) {
            const auto is_new = [seen](std::uint32_t now) { return now != seen; };
            if (!spin(generation_, is_new)) {
                while (!is_new(generation_.load(std::memory_order_acquire))) generation_.wait(seen);
            }
            ++seen;
            if (!call_) return;
            attempt(member);
            // Sequentially consistent, as in await_others(): either the caller reads 0, or this thread sees that it
            // sleeps.
            if (busy_.fetch_sub(1) == 1 && caller_sleeps_.load()) {
                const std::lock_guard lock(mutex_);
                last_done_.notify_one();
            }
        }
    }

    void attempt(unsigned member) noexcept {
        try {
            const TraceScope scope(monitor_.trace(), member, name_);
            call_(context_, member);
        } catch (...) {
            note_error();
        }
    }

    void note_error() noexcept {
        const std::lock_guard lock(error_mutex_);
        if (!error_) error_ = std::current_exception();
    }

    const Monitor& monitor_;
    const int num_spins_;  // 0 where members share a processor: a spinning member would block the ones it waits for
    void (*call_)(void*, unsigned) = nullptr;
    void* context_ = nullptr;
    const char* name_ = nullptr;
    std::exception_ptr error_;
    std::mutex error_mutex_, mutex_;
    std::condition_variable last_done_;
    std::atomic<bool> caller_sleeps_{false};
    alignas(64) std::atomic<std::uint32_t> generation_{0};
    alignas(64) std::atomic<std::uint32_t> busy_{0};
    std::vector<std::thread> threads_;  // last: they use all members above
};

}  // namespace gristmill
