#include "gristmill/encode.hpp"

#include "bindings.hpp"

namespace gristmill::bindings {
namespace {

nb::bytes to_bytes(std::string_view bytes) { return nb::bytes(bytes.data(), bytes.size()); }

std::string_view known_token(const Encoder& encoder, std::uint64_t id) {
    const std::string_view token = id <= 0xffffffffu ? encoder.token_bytes(static_cast<Id>(id)) : std::string_view();
    if (token.empty()) throw nb::key_error(std::to_string(id).c_str());
    return token;
}

nb::bytes decode_bytes(const Encoder& encoder, const InputArray<std::uint32_t>& ids) {
    std::string bytes;
    for (std::size_t i = 0; i < ids.size(); ++i) bytes += known_token(encoder, ids.data()[i]);
    return to_bytes(bytes);
}

// The bytes of every id: the 256 single bytes, then what the merges make. In C++ because a training run of a tenth of a
// second would feel the loop in Python.
nb::list build_tokens(const InputMerges& merges) {
    nb::list tokens;
    for (unsigned byte = 0; byte < 256; ++byte) {
        const char single = static_cast<char>(byte);
        tokens.append(nb::bytes(&single, 1));
    }
    for (std::size_t i = 0; i < merges.shape(0); ++i) {
        if (merges(i, 0) >= tokens.size() || merges(i, 1) >= tokens.size())
            throw nb::index_error("a merge of ids that are not made");
        const std::string_view left = view(nb::borrow<nb::bytes>(tokens[merges(i, 0)]));
        const std::string_view right = view(nb::borrow<nb::bytes>(tokens[merges(i, 1)]));
        PyObject* joined = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(left.size() + right.size()));
        if (!joined) throw nb::python_error();
        left.copy(PyBytes_AS_STRING(joined), left.size());
        right.copy(PyBytes_AS_STRING(joined) + left.size(), right.size());
        tokens.append(nb::steal(joined));
    }
    return tokens;
}

// The merges as pairs of the given tokens.
nb::list build_pairs(const InputMerges& merges, const nb::list& tokens) {
    nb::list pairs;
    for (std::size_t i = 0; i < merges.shape(0); ++i) {
        if (merges(i, 0) >= tokens.size() || merges(i, 1) >= tokens.size())
            throw nb::index_error("a merge of ids without a token");
        pairs.append(nb::make_tuple(tokens[merges(i, 0)], tokens[merges(i, 1)]));
    }
    return pairs;
}

}  // namespace

void register_encode(nb::module_& m) {
    using namespace nb::literals;
    m.def("build_tokens", &build_tokens, "merges"_a);
    m.def("build_pairs", &build_pairs, "merges"_a, "tokens"_a);
    nb::class_<Encoder>(m, "Encoder")
        .def(
            "__init__",
            [](Encoder* self, const InputMerges& merges, const std::optional<std::string>& pattern,
               const nb::sequence& special_tokens, const std::vector<Id>& special_ids) {
                std::optional<Pattern> native;
                if (pattern) native = parse_pattern(*pattern);
                new (self) Encoder(parse_merges(merges), native, default_kernel(), parse_specials(special_tokens),
                                   special_ids);
            },
            "merges"_a, "pattern"_a.none(), "special_tokens"_a = nb::make_tuple(), "special_ids"_a = std::vector<Id>())
        .def(
            "encode",
            [](const Encoder& self, const nb::bytes& text, const std::vector<Id>& allowed_special) {
                std::vector<Id> ids;
                {
                    const nb::gil_scoped_release release;
                    self.encode(view(text), allowed_special, ids);
                }
                return to_array(std::move(ids));
            },
            "text"_a, "allowed_special"_a = std::vector<Id>())
        .def(
            "encode_piece",
            [](const Encoder& self, const nb::bytes& piece) {
                std::vector<Id> ids;
                {
                    const nb::gil_scoped_release release;
                    self.encode_piece(view(piece), ids);
                }
                return to_array(std::move(ids));
            },
            "piece"_a)
        .def(
            "find_special",
            [](const Encoder& self, const nb::bytes& text, const std::vector<Id>& special_ids) -> nb::object {
                const auto found = self.find_special(view(text), special_ids);
                if (!found) return nb::none();
                return nb::make_tuple(found->position, found->id);
            },
            "text"_a, "special_ids"_a)
        .def("decode_bytes", &decode_bytes, "ids"_a)
        .def(
            "token_bytes", [](const Encoder& self, std::uint64_t id) { return to_bytes(known_token(self, id)); },
            "id"_a);
}

}  // namespace gristmill::bindings
