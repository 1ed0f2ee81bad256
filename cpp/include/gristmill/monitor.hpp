// How a running stage is watched and stopped from outside: workers write, the calling thread polls.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>

namespace gristmill {

// Thrown by a stage that saw Monitor::cancel(). Nothing it was building is kept.
struct Cancelled : std::exception {
    const char* what() const noexcept override { return "cancelled"; }
};

enum class Stage : std::uint8_t { idle, count, spill, join, setup, merge, encode };

class Monitor {
  public:
    void begin(Stage stage, std::uint64_t total) {
        done_.store(0, std::memory_order_relaxed);
        total_.store(total, std::memory_order_relaxed);
        stage_.store(stage, std::memory_order_release);
    }
    void advance(std::uint64_t amount) { done_.fetch_add(amount, std::memory_order_relaxed); }
    void set_done(std::uint64_t amount) { done_.store(amount, std::memory_order_relaxed); }
    void cancel() { cancelled_.store(true, std::memory_order_relaxed); }

    bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
    // Stages call this a few hundred times a second or more; it costs one relaxed load.
    void check() const {
        if (cancelled()) throw Cancelled();
    }
    Stage stage() const { return stage_.load(std::memory_order_acquire); }
    std::uint64_t done() const { return done_.load(std::memory_order_relaxed); }
    std::uint64_t total() const { return total_.load(std::memory_order_relaxed); }

  private:
    std::atomic<Stage> stage_{Stage::idle};
    std::atomic<std::uint64_t> done_{0};
    std::atomic<std::uint64_t> total_{0};
    std::atomic<bool> cancelled_{false};
};

}  // namespace gristmill
