#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "bindings.hpp"

namespace gristmill::bindings {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(100);

const char* stage_name(Stage stage) {
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

}  // namespace

void report_progress(const nb::object& on_progress, const Monitor& monitor) {
    if (on_progress.is_none() || monitor.stage() == Stage::idle) return;
    on_progress(stage_name(monitor.stage()), monitor.done(), monitor.total());
}

void Polled::poll() {
    try {
        const nb::gil_scoped_acquire acquire;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        report_progress(on_progress_, monitor_);
    } catch (...) {
        failure_ = std::current_exception();
        monitor_.cancel();
        throw Cancelled();
    }
}

void Watch::run_erased(void (*call)(void*), void* work) {
    std::mutex mutex;
    std::condition_variable finished;
    bool done = false;
    std::exception_ptr failure;
    std::thread worker([&] {
        try {
            call(work);
        } catch (...) {
            failure = std::current_exception();
        }
        const std::lock_guard lock(mutex);
        done = true;
        finished.notify_one();
    });

    std::exception_ptr interruption;
    {
        const nb::gil_scoped_release release;
        std::unique_lock lock(mutex);
        while (!finished.wait_for(lock, kPollInterval, [&] { return done; })) {
            if (interruption) continue;
            lock.unlock();
            try {
                const nb::gil_scoped_acquire acquire;
                if (PyErr_CheckSignals() != 0) throw nb::python_error();
                report_progress(on_progress_, monitor_);
            } catch (...) {
                interruption = std::current_exception();
                monitor_.cancel();
            }
            lock.lock();
        }
        lock.unlock();
        worker.join();
    }
    if (interruption) std::rethrow_exception(interruption);
    if (failure) std::rethrow_exception(failure);
    report_progress(on_progress_, monitor_);
}

}  // namespace gristmill::bindings
