// Shared by the binding files: the registration functions, and the class that monitors native work from Python.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gil.hpp"
#include "gristmill/corpus.hpp"
#include "gristmill/merge.hpp"
#include "gristmill/monitor.hpp"
#include "gristmill/pretokenize.hpp"

namespace nb = nanobind;

namespace gristmill::bindings {

void register_errors(nb::module_& m);
void register_pretokenize(nb::module_& m);
void register_spans(nb::module_& m);
void register_json_lines(nb::module_& m);
void register_text_ring(nb::module_& m);
void register_words(nb::module_& m);
void register_count(nb::module_& m);
void register_merge(nb::module_& m);
void register_vocabulary(nb::module_& m);
void register_encode(nb::module_& m);
void register_trace(nb::module_& m);

template <class T>
using Array = nb::ndarray<nb::numpy, T, nb::ndim<1>>;
template <class T>
using InputArray = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using InputMerges = nb::ndarray<const std::uint32_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;

// A numpy array that takes ownership of `values`.
template <class T>
Array<T> to_array(std::vector<T> values) {
    auto* owned = new std::vector<T>(std::move(values));
    nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return Array<T>(owned->data(), {owned->size()}, owner);
}

// Returns the object, or throws the pending Python error if it is null.
inline PyObject* checked(PyObject* object) {
    if (!object) throw nb::python_error();
    return object;
}

Pattern parse_pattern(const std::string& name);
Kernel parse_kernel(const std::optional<std::string>& name);
unsigned parse_threads(int num_threads);
std::vector<std::string> parse_specials(const nb::sequence& specials);
std::vector<Merge> parse_merges(const InputMerges& merges);
std::string_view view(const nb::bytes& bytes);
// The bytes of any object with one contiguous buffer, valid for the lifetime of this object.
class Bytes {
  public:
    explicit Bytes(nb::handle object) {
        if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_SIMPLE) != 0) throw nb::python_error();
    }
    ~Bytes() { PyBuffer_Release(&buffer_); }
    Bytes(const Bytes&) = delete;
    Bytes& operator=(const Bytes&) = delete;
    std::string_view view() const {
        return {static_cast<const char*>(buffer_.buf), static_cast<std::size_t>(buffer_.len)};
    }

  private:
    Py_buffer buffer_;
};
// The UTF-8 bytes of a str or bytes object, valid for the lifetime of this object.
class Utf8 {
  public:
    explicit Utf8(nb::handle object) {
        if (PyBytes_CheckExact(object.ptr()) || PyBytes_Check(object.ptr())) {
            kept_ = nb::borrow(object);
            view_ = {PyBytes_AS_STRING(object.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(object.ptr()))};
        } else if (PyUnicode_Check(object.ptr())) {
            // An ASCII str is its own UTF-8. For others, Python would cache the bytes for the lifetime of the str,
            // which is acceptable only for short ones.
            if (PyUnicode_IS_ASCII(object.ptr()) || PyUnicode_GET_LENGTH(object.ptr()) < kShortStr) {
                kept_ = nb::borrow(object);
                Py_ssize_t size = 0;
                const char* data = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
                if (!data) throw nb::python_error();
                view_ = {data, static_cast<std::size_t>(size)};
            } else {
                kept_ = nb::steal(checked(PyUnicode_AsUTF8String(object.ptr())));
                view_ = {PyBytes_AS_STRING(kept_.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(kept_.ptr()))};
            }
        } else {
            PyErr_Format(PyExc_TypeError, "a text is a %s instead of str or bytes", Py_TYPE(object.ptr())->tp_name);
            throw nb::python_error();
        }
    }
    std::string_view view() const { return view_; }

  private:
    static constexpr Py_ssize_t kShortStr = 4096;
    nb::object kept_;
    std::string_view view_;
};
// Checks that every range is inside the text.
Spans parse_spans(const Bytes& text, const InputArray<std::int64_t>& begins, const InputArray<std::int64_t>& ends);
// A path as the operating system sees it: file names are bytes, and not always UTF-8.
std::string file_system_path(nb::handle name);

// Out of memory, with advice for the stage that ran out.
struct OutOfMemory : std::bad_alloc {
    explicit OutOfMemory(Stage stage) noexcept : stage(stage) {}
    const char* what() const noexcept override;
    Stage stage;
};

// Calls on_progress(stage, done, total) with the state of a monitor.
void report_progress(const nb::object& on_progress, const Monitor& monitor);

// Whether gristmill.trace is recording. Set and read with the GIL.
bool is_recording();
// Passes the spans of a call to gristmill.trace, as rows of the calling thread. Never throws: a lost trace must not
// fail the work.
void deliver(const Trace& trace) noexcept;

// Records the spans of one call, if gristmill.trace is recording. Created and destroyed with the GIL.
class Recording {
  public:
    explicit Recording(Monitor& monitor) : monitor_(monitor) {
        if (is_recording()) monitor_.record_in(&trace_.emplace());
    }
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;
    ~Recording() {
        if (!trace_) return;
        monitor_.record_in(nullptr);
        trace_->begin_stage(nullptr);
        deliver(*trace_);
    }

  private:
    Monitor& monitor_;
    std::optional<Trace> trace_;
};

// Runs native work on the calling thread with the GIL released. Ten times per second the monitor handles signals and
// reports progress, whether the calling thread works or waits for others. An exception from a signal handler or from
// the callback cancels the work and is rethrown.
class Watch {
  public:
    explicit Watch(nb::object on_progress = nb::none()) : on_progress_(std::move(on_progress)) {}
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    Monitor& monitor() { return monitor_; }

    template <class Work>
    auto run(const Work& work) -> decltype(work()) {
        monitor_.poll_on_this_thread([](void* self) { static_cast<Watch*>(self)->poll(); }, this);
        try {
            const Recording recording(monitor_);
            const Reporting reporting(*this);
            GilReleased released;
            released_ = &released;
            return work();
        } catch (...) {
            // Another thread may be the first to see the cancellation, and another error may come first.
            if (std::exception_ptr interruption = std::exchange(interruption_, nullptr))
                std::rethrow_exception(interruption);
            try {
                throw;
            } catch (const std::bad_alloc&) {
                throw OutOfMemory(monitor_.stage());
            }
        }
    }

    // Calls `work()` with the GIL, on the thread that called run() and while run() is active.
    template <class Work>
    void with_gil(const Work& work) {
        released_->with_gil(work);
    }

  private:
    // Reports the final state when the work ends without an error.
    struct Reporting {
        explicit Reporting(Watch& watch) : watch(watch), num_exceptions(std::uncaught_exceptions()) {}
        ~Reporting() noexcept(false) {
            if (std::uncaught_exceptions() == num_exceptions) report_progress(watch.on_progress_, watch.monitor_);
        }
        Watch& watch;
        int num_exceptions;
    };
    void poll();

    Monitor monitor_;
    nb::object on_progress_;
    GilReleased* released_ = nullptr;  // set while run() is active
    std::exception_ptr interruption_;
};

}  // namespace gristmill::bindings
