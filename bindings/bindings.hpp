// What the binding files share: the registration functions, and the way native work is watched from Python.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <string_view>
#include <vector>

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
void register_words(nb::module_& m);
void register_count(nb::module_& m);
void register_merge(nb::module_& m);
void register_vocabulary(nb::module_& m);
void register_encode(nb::module_& m);

template <class T>
using Array = nb::ndarray<nb::numpy, T, nb::ndim<1>>;
template <class T>
using InputArray = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using InputMerges = nb::ndarray<const std::uint32_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;

// A numpy array that takes over `values`.
template <class T>
Array<T> to_array(std::vector<T> values) {
    auto* owned = new std::vector<T>(std::move(values));
    nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return Array<T>(owned->data(), {owned->size()}, owner);
}

// The object, or the Python error that kept it from being made.
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
// The bytes of any object with one contiguous buffer, valid as long as this is.
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
// Checked: every stretch lies inside the text.
Spans parse_spans(const Bytes& text, const InputArray<std::int64_t>& begins, const InputArray<std::int64_t>& ends);
// A path as the operating system has it: file names are bytes, and not all of them UTF-8.
std::string file_system_path(nb::handle name);

// Calls on_progress(stage, done, total) with what a monitor says.
void report_progress(const nb::object& on_progress, const Monitor& monitor);

// Runs `work` on a thread of its own with the GIL released, while this one answers signals and reports progress some
// ten times a second. What the callback or a signal handler raises cancels the work and is raised again.
class Watch {
  public:
    explicit Watch(nb::object on_progress) : on_progress_(std::move(on_progress)) {}
    Monitor& monitor() { return monitor_; }

    template <class Work>
    auto run(Work&& work) {
        using Result = decltype(work());
        if constexpr (std::is_void_v<Result>) {
            run_erased([](void* w) { (*static_cast<std::remove_reference_t<Work>*>(w))(); }, &work);
        } else {
            std::optional<Result> result;
            auto store = [&] { result.emplace(work()); };
            run_erased([](void* s) { (*static_cast<decltype(store)*>(s))(); }, &store);
            return std::move(*result);
        }
    }

  private:
    void run_erased(void (*call)(void*), void* work);
    Monitor monitor_;
    nb::object on_progress_;
};

// The same for work that may be over in milliseconds: it stays on the calling thread, whose caches are warm, and looks
// out for signals itself.
class Polled {
  public:
    explicit Polled(nb::object on_progress) : on_progress_(std::move(on_progress)) {}

    // `work` takes a Monitor&.
    template <class Work>
    auto run(const Work& work) {
        monitor_.poll_on_this_thread([](void* self) { static_cast<Polled*>(self)->poll(); }, this);
        try {
            auto result = [&] {
                const nb::gil_scoped_release release;
                return work(monitor_);
            }();
            report_progress(on_progress_, monitor_);
            return result;
        } catch (const Cancelled&) {
            if (failure_) std::rethrow_exception(failure_);
            throw;
        }
    }

  private:
    void poll();

    Monitor monitor_;
    nb::object on_progress_;
    std::exception_ptr failure_;  // another thread may be the first to notice that it is cancelled
};

}  // namespace gristmill::bindings
