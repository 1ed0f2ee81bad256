// Runs one function on several threads and carries the first exception back.
#pragma once

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace gristmill {

// Calls work(0) … work(num_threads - 1), each on a thread of its own (work(0) on the caller's), and returns when all
// have. The first exception thrown is rethrown here; the other threads are expected to notice and end early by
// themselves.
template <class Work>
void run_threads(unsigned num_threads, const Work& work) {
    std::exception_ptr failure;
    std::mutex failure_mutex;
    auto guarded = [&](unsigned index) {
        try {
            work(index);
        } catch (...) {
            const std::lock_guard lock(failure_mutex);
            if (!failure) failure = std::current_exception();
        }
    };
    std::vector<std::thread> threads;
    threads.reserve(num_threads);
    try {
        for (unsigned index = 1; index < num_threads; ++index) threads.emplace_back(guarded, index);
    } catch (...) {
        // The system gave fewer threads than asked for: whoever calls must not wait for work that nobody does.
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
    }
    guarded(0);
    for (std::thread& thread : threads) thread.join();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace gristmill
