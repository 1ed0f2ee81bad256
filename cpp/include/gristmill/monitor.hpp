// Cancels a running stage, polls for progress from outside, and holds the trace of the call if there is one.
//
// All stages follow one rule: the calling thread takes part in the work. Every working thread calls check() about once
// per millisecond. On the calling thread check() also polls, ten times per second, and so does a caller that waits for
// other threads (crew.hpp).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <thread>

#include "gristmill/trace.hpp"

namespace gristmill {

// Thrown by a stage after Monitor::cancel(). The partial result is discarded.
struct Cancelled : std::exception {
    const char* what() const noexcept override { return "cancelled"; }
};

enum class Stage : std::uint8_t { idle, count, spill, join, setup, merge, encode };

constexpr const char* name_of(Stage stage) {
    switch (stage) {
        case Stage::count:
            return "count";
        case Stage::spill:
            return "spill";
        case Stage::join:
            return "join";
        case Stage::setup:
            return "setup";
        case Stage::merge:
            return "merge";
        case Stage::encode:
            return "encode";
        case Stage::idle:
            break;
    }
    return "idle";
}

class Monitor {
  public:
    void begin(Stage stage, std::uint64_t total) {
        if (trace_) trace_->begin_stage(name_of(stage));
        done_.store(0, std::memory_order_relaxed);
        total_.store(total, std::memory_order_relaxed);
        stage_.store(stage, std::memory_order_release);
    }
    void advance(std::uint64_t amount) { done_.fetch_add(amount, std::memory_order_relaxed); }
    void set_done(std::uint64_t amount) { done_.store(amount, std::memory_order_relaxed); }
    void cancel() { cancelled_.store(true, std::memory_order_relaxed); }

    bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
    // Costs one relaxed load, and on the polling thread one read of the clock.
    void check() const {
        if (cancelled()) throw Cancelled();
        if (poll_ && std::this_thread::get_id() == poller_ && std::chrono::steady_clock::now() >= next_poll_) poll();
    }
    // From now on check() calls `poll(context)` ten times per second, on this thread only. An exception from `poll`
    // ends the work; `poll` should call cancel() as well, to stop the other threads.
    void poll_on_this_thread(void (*poll)(void*), void* context) {
        poll_ = poll;
        poll_context_ = context;
        poller_ = std::this_thread::get_id();
        next_poll_ = std::chrono::steady_clock::now() + kPollInterval;
    }
    // From now on the stages record their spans in `trace`; null ends this. A monitor that several calls share at the
    // same time must have no trace, because their rows would mix.
    void record_in(Trace* trace) { trace_ = trace; }
    Trace* trace() const { return trace_; }

    Stage stage() const { return stage_.load(std::memory_order_acquire); }
    std::uint64_t done() const { return done_.load(std::memory_order_relaxed); }
    std::uint64_t total() const { return total_.load(std::memory_order_relaxed); }

    static constexpr auto kPollInterval = std::chrono::milliseconds(100);

  private:
    void poll() const {
        next_poll_ = std::chrono::steady_clock::now() + kPollInterval;
        poll_(poll_context_);
    }

    std::atomic<Stage> stage_{Stage::idle};
    std::atomic<std::uint64_t> done_{0};
    std::atomic<std::uint64_t> total_{0};
    std::atomic<bool> cancelled_{false};
    void (*poll_)(void*) = nullptr;
    void* poll_context_ = nullptr;
    Trace* trace_ = nullptr;
    std::thread::id poller_;
    mutable std::chrono::steady_clock::time_point next_poll_;  // used by the polling thread only
};

}  // namespace gristmill
