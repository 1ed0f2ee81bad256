#include "gristmill/text_ring.hpp"

#include <memory>

#include "bindings.hpp"

namespace gristmill::bindings {
namespace {

using Memory = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// The native ring, and the Python objects that it needs.
class PyTextRing {
  public:
    PyTextRing(std::unique_ptr<Texts> texts, std::unique_ptr<Bytes> text, Memory memory, std::size_t slot_bytes,
               int num_readers)
        : memory_(std::move(memory)), text_(std::move(text)), texts_(std::move(texts)) {
        ring_ = std::make_unique<TextRing>(*texts_, std::span(memory_.data(), memory_.size()), slot_bytes,
                                           parse_threads(num_readers));
    }
    ~PyTextRing() { close(); }
    PyTextRing(const PyTextRing&) = delete;
    PyTextRing& operator=(const PyTextRing&) = delete;

    std::uint64_t num_bytes() { return open().num_bytes(); }
    nb::object next() {
        TextRing::Slot slot = watch_.run([&] { return open().next(watch_.monitor()); });
        if (slot.size == 0) return nb::none();
        return nb::make_tuple(slot.begin, slot.size, to_array(std::move(slot.gaps)));
    }
    void release() { open().release(); }
    void close() {
        const GilReleased released;
        ring_.reset();
    }

  private:
    TextRing& open() {
        if (!ring_) throw std::invalid_argument("this ring is closed");
        return *ring_;
    }
    Watch watch_;
    Memory memory_;
    std::unique_ptr<Bytes> text_;  // of texts in memory
    std::unique_ptr<Texts> texts_;
    std::unique_ptr<TextRing> ring_;
};

std::unique_ptr<PyTextRing> of_files(const nb::sequence& names, Memory memory, std::size_t slot_bytes,
                                     int num_readers) {
    std::vector<std::string> paths;
    for (nb::handle name : names) paths.push_back(file_system_path(name));
    return std::make_unique<PyTextRing>(std::make_unique<FileTexts>(paths), nullptr, std::move(memory), slot_bytes,
                                        num_readers);
}

// The caller keeps `begins` and `ends` alive, too.
std::unique_ptr<PyTextRing> of_spans(nb::handle text, const InputArray<std::int64_t>& begins,
                                     const InputArray<std::int64_t>& ends, Memory memory, std::size_t slot_bytes,
                                     int num_readers) {
    auto bytes = std::make_unique<Bytes>(text);
    auto spans = std::make_unique<SpanTexts>(parse_spans(*bytes, begins, ends));
    return std::make_unique<PyTextRing>(std::move(spans), std::move(bytes), std::move(memory), slot_bytes, num_readers);
}

}  // namespace

void register_text_ring(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<PyTextRing>(m, "TextRing")
        .def_static("of_files", &of_files, "names"_a, "memory"_a, nb::kw_only(), "slot_bytes"_a, "num_readers"_a)
        .def_static("of_spans", &of_spans, "text"_a, "begins"_a.noconvert(), "ends"_a.noconvert(), "memory"_a,
                    nb::kw_only(), "slot_bytes"_a, "num_readers"_a, nb::keep_alive<0, 2>(), nb::keep_alive<0, 3>())
        .def_prop_ro("num_bytes", &PyTextRing::num_bytes)
        .def("next", &PyTextRing::next)
        .def("release", &PyTextRing::release)
        .def("close", &PyTextRing::close);
}

}  // namespace gristmill::bindings
