// A fixed crew of threads that runs one job after another on all of its members.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace gristmill {

// The caller is member 0 and works too. A job is handed over and collected through two atomics, because the phases of a
// round last some tens of microseconds: idle members spin for about as long, then sleep.
class Crew {
  public:
    explicit Crew(unsigned size)
        : size_(size ? size : 1), num_spins_(size_ <= std::thread::hardware_concurrency() ? kSpins : 0) {
        threads_.reserve(size_ - 1);
        try {
            for (unsigned member = 1; member < size_; ++member)
                threads_.emplace_back([this, member] { serve(member); });
        } catch (...) {
            dismiss();
            throw;
        }
    }
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;
    ~Crew() { dismiss(); }

    unsigned size() const { return size_; }

    // Calls job(member) on every member; returns when all are done; throws what the first failing one threw.
    template <class Job>
    void run(Job&& job) {
        context_ = &job;
        call_ = [](void* context, unsigned member) { (*static_cast<std::remove_reference_t<Job>*>(context))(member); };
        busy_.store(size_ - 1, std::memory_order_relaxed);
        start();
        attempt(0);
        await(busy_, [](std::uint32_t busy) { return busy == 0; });
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
    void await(std::atomic<std::uint32_t>& value, Done done) const {
        for (int spin = 0; spin < num_spins_; ++spin) {
            if (done(value.load(std::memory_order_acquire))) return;
            pause();
        }
        for (std::uint32_t seen; !done(seen = value.load(std::memory_order_acquire));) value.wait(seen);
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
            await(generation_, [seen](std::uint32_t now) { return now != seen; });
            ++seen;
            if (!call_) return;
            attempt(member);
            if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
        }
    }

    void attempt(unsigned member) noexcept {
        try {
            call_(context_, member);
        } catch (...) {
            const std::lock_guard lock(error_mutex_);
            if (!error_) error_ = std::current_exception();
        }
    }

    const unsigned size_;
    const int num_spins_;  // none where members share a processor: they would wait for those they keep from working
    void (*call_)(void*, unsigned) = nullptr;
    void* context_ = nullptr;
    std::exception_ptr error_;
    std::mutex error_mutex_;
    alignas(64) std::atomic<std::uint32_t> generation_{0};
    alignas(64) std::atomic<std::uint32_t> busy_{0};
    std::vector<std::thread> threads_;  // last: they use everything above
};

}  // namespace gristmill
