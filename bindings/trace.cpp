#include "gristmill/trace.hpp"

#include <atomic>

#include "bindings.hpp"

namespace gristmill::bindings {
namespace {

// Process-wide like the recording in gristmill.trace that sets it. Atomic for Python without a GIL.
std::atomic<bool> recording{false};

nb::list to_list(const std::vector<TraceSpan>& spans) {
    nb::list list;
    for (const TraceSpan& span : spans)
        list.append(nb::make_tuple(span.name, span.unit, span.begin, span.end, span.amount));
    return list;
}

}  // namespace

bool is_recording() { return recording.load(std::memory_order_relaxed); }

void deliver(const Trace& trace) noexcept {
    try {
        const nb::object add_native = nb::module_::import_("gristmill.trace").attr("add_native");
        for (std::size_t member = 0; member < trace.rows().size(); ++member) {
            const Trace::Row& row = *trace.rows()[member];
            if (!row.spans().empty()) add_native(member, to_list(row.spans()), row.num_dropped());
        }
    } catch (...) {
        // Out of memory, or the interpreter exits: the work itself has succeeded or has its own error.
    }
}

void register_trace(nb::module_& m) {
    using namespace nb::literals;
    m.def("set_recording", [](bool on) { recording.store(on, std::memory_order_relaxed); }, "on"_a);
    m.def("steady_nanoseconds", &Trace::now);
}

}  // namespace gristmill::bindings
