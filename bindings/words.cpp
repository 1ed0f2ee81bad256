#include "bindings.hpp"
#include "gristmill/count.hpp"

namespace gristmill::bindings {
namespace {

template <class T>
LargeVector<T> copied(const InputArray<T>& array) {
    return LargeVector<T>(array.data(), array.data() + array.size());
}

WordTable from_arrays(const InputArray<std::uint8_t>& data, const InputArray<std::uint64_t>& offsets,
                      const InputArray<std::uint64_t>& counts, const InputArray<std::uint64_t>& firsts,
                      std::uint64_t source_bytes) {
    return make_word_table(copied(data), copied(offsets), copied(counts), copied(firsts), source_bytes);
}

WordTable from_counted(const InputArray<std::uint8_t>& data, const InputArray<std::uint64_t>& offsets,
                       const InputArray<std::uint64_t>& counts, const InputArray<std::uint64_t>& firsts,
                       std::uint64_t source_bytes) {
    if (offsets.size() != counts.size() + 1 || firsts.size() != counts.size() ||
        offsets.data()[counts.size()] != data.size())
        throw std::invalid_argument("words: the parts of the table have different sizes");
    return {copied(data), copied(offsets), copied(counts), copied(firsts), source_bytes};
}

// A view that keeps the table alive; tables never change.
template <class T>
nb::ndarray<nb::numpy, const T, nb::ndim<1>> view_of(nb::handle self, const LargeVector<T>& values) {
    return nb::ndarray<nb::numpy, const T, nb::ndim<1>>(values.data(), {values.size()}, self);
}

const WordTable& table_of(nb::handle self) { return *nb::inst_ptr<WordTable>(self); }

}  // namespace

void register_words(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<WordTable>(m, "WordTable")
        .def_static("from_arrays", &from_arrays, "data"_a.noconvert(), "offsets"_a.noconvert(), "counts"_a.noconvert(),
                    "firsts"_a.noconvert(), "source_bytes"_a)
        .def_static("from_counted", &from_counted, "data"_a.noconvert(), "offsets"_a.noconvert(),
                    "counts"_a.noconvert(), "firsts"_a.noconvert(), "source_bytes"_a)
        .def("__len__", &WordTable::size)
        .def_prop_ro("total", &WordTable::total)
        .def_ro("source_bytes", &WordTable::source_bytes)
        .def_prop_ro(
            "data", [](nb::handle self) { return view_of(self, table_of(self).bytes); }, nb::rv_policy::automatic)
        .def_prop_ro(
            "offsets", [](nb::handle self) { return view_of(self, table_of(self).offsets); }, nb::rv_policy::automatic)
        .def_prop_ro(
            "counts", [](nb::handle self) { return view_of(self, table_of(self).counts); }, nb::rv_policy::automatic)
        .def_prop_ro(
            "firsts", [](nb::handle self) { return view_of(self, table_of(self).firsts); }, nb::rv_policy::automatic)
        .def("joined", &join_word_tables, "other"_a, nb::call_guard<GilReleased>())
        .def("at_least", &words_at_least, "min_frequency"_a, nb::call_guard<GilReleased>());
}

}  // namespace gristmill::bindings
