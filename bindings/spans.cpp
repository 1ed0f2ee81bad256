#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "bindings.hpp"
#include "gristmill/corpus.hpp"
#include "gristmill/shards.hpp"

namespace gristmill::bindings {
namespace {

nb::tuple split(nb::handle text, const nb::bytes& separator) {
    const Bytes bytes(text);
    std::vector<std::int64_t> begins, ends;
    {
        const GilReleased released;
        split_spans(bytes.view(), view(separator), begins, ends);
    }
    return nb::make_tuple(to_array(std::move(begins)), to_array(std::move(ends)));
}

std::int64_t last_separator(nb::handle text, const nb::bytes& separator) {
    const Bytes bytes(text);
    const std::size_t found = bytes.view().rfind(view(separator));
    return found == std::string_view::npos ? -1 : static_cast<std::int64_t>(found);
}

std::size_t newlines(nb::handle text) {
    const Bytes bytes(text);
    const GilReleased released;
    return count_newlines(bytes.view());
}

std::uint64_t hash(nb::handle data, std::uint64_t seed) {
    const Bytes bytes(data);
    const GilReleased released;
    return xxh64(bytes.view(), seed);
}

Array<std::uint64_t> hash_spans(nb::handle text, const InputArray<std::int64_t>& begins,
                                const InputArray<std::int64_t>& ends, std::uint64_t seed, std::size_t max_bytes) {
    const Bytes bytes(text);
    const Spans spans = parse_spans(bytes, begins, ends);
    std::vector<std::uint64_t> hashes(spans.size);
    {
        const GilReleased released;
        for (std::size_t i = 0; i < spans.size; ++i) hashes[i] = xxh64(spans[i].substr(0, max_bytes), seed);
    }
    return to_array(std::move(hashes));
}

}  // namespace

Spans parse_spans(const Bytes& text, const InputArray<std::int64_t>& begins, const InputArray<std::int64_t>& ends) {
    if (begins.size() != ends.size()) throw nb::value_error("begins and ends must have the same length");
    const Spans spans{text.view(), begins.data(), ends.data(), begins.size()};
    check_spans(spans);
    return spans;
}

void register_spans(nb::module_& m) {
    using namespace nb::literals;
    m.def("split_spans", &split, "text"_a, "separator"_a);
    m.def("last_separator", &last_separator, "text"_a, "separator"_a);
    m.def("count_newlines", &newlines, "text"_a);
    m.def("xxh64", &hash, "data"_a, "seed"_a = 0);
    nb::class_<Xxh64>(m, "Xxh64")
        .def(nb::init<>())
        .def(
            "update",
            [](Xxh64& self, nb::handle data) {
                const Bytes bytes(data);
                const GilReleased released;
                self.update(bytes.view());
            },
            "data"_a)
        .def("hexdigest", [](const Xxh64& self) {
            char digits[17];
            std::snprintf(digits, sizeof digits, "%016" PRIx64, self.digest());
            return std::string(digits);
        });
    m.def("hash_spans", &hash_spans, "text"_a, "begins"_a.noconvert(), "ends"_a.noconvert(), "seed"_a, "max_bytes"_a);
}

}  // namespace gristmill::bindings
