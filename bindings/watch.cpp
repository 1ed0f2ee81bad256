#include "bindings.hpp"

namespace gristmill::bindings {
const char* OutOfMemory::what() const noexcept {
    switch (stage) {
        case Stage::count:
        case Stage::spill:
        case Stage::join:
            return "out of memory while counting words. Pass memory_limit to limit the memory of counting, a smaller "
                   "num_threads, or a smaller corpus.";
        case Stage::setup:
        case Stage::merge:
            return "out of memory while learning merges. Pass a larger min_frequency to keep fewer words, or a smaller "
                   "num_threads.";
        case Stage::encode:
            return "out of memory while encoding. Pass shorter texts, or a smaller num_threads.";
        case Stage::idle:
            break;
    }
    return "out of memory";
}

void report_progress(const nb::object& on_progress, const Monitor& monitor) {
    if (on_progress.is_none() || monitor.stage() == Stage::idle) return;
    const unsigned long long done = monitor.done(), total = monitor.total();
    nb::steal(checked(call_python(
        [&] { return PyObject_CallFunction(on_progress.ptr(), "sKK", name_of(monitor.stage()), done, total); })));
}

void Watch::poll() {
    try {
        released_->with_gil([this] {
            if (call_python(PyErr_CheckSignals) != 0) throw nb::python_error();
            report_progress(on_progress_, monitor_);
        });
    } catch (...) {
        if (!interruption_) interruption_ = std::current_exception();
        monitor_.cancel();
        throw Cancelled();
    }
}

}  // namespace gristmill::bindings
