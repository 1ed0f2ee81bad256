#include "gristmill/encode.hpp"

#include <cstring>
#include <unordered_set>

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

// In C++, because a training run of a tenth of a second would feel these loops in Python; and without the garbage
// collector, which would go through everything alive several times while tens of thousands of objects are made that it
// has no business with.
class NoGarbageCollection {
  public:
    NoGarbageCollection() : was_enabled_(PyGC_Disable()) {}
    ~NoGarbageCollection() {
        if (was_enabled_) PyGC_Enable();
    }

  private:
    int was_enabled_;
};

PyObject* checked(PyObject* object) {
    if (!object) throw nb::python_error();
    return object;
}

void check_ids(const InputMerges& merges, std::size_t i, std::size_t num_tokens) {
    if (merges(i, 0) >= num_tokens || merges(i, 1) >= num_tokens)
        throw nb::index_error("a merge of ids that are not made");
}

nb::object build_tokens(const InputMerges& merges) {
    const NoGarbageCollection guard;
    const std::size_t num_merges = merges.shape(0);
    nb::object tokens = nb::steal(checked(PyList_New(static_cast<Py_ssize_t>(256 + num_merges))));
    for (unsigned byte = 0; byte < 256; ++byte) {
        const char single = static_cast<char>(byte);
        PyList_SET_ITEM(tokens.ptr(), byte, checked(PyBytes_FromStringAndSize(&single, 1)));
    }
    for (std::size_t i = 0; i < num_merges; ++i) {
        check_ids(merges, i, 256 + i);
        PyObject* left = PyList_GET_ITEM(tokens.ptr(), merges(i, 0));
        PyObject* right = PyList_GET_ITEM(tokens.ptr(), merges(i, 1));
        const Py_ssize_t left_size = PyBytes_GET_SIZE(left), right_size = PyBytes_GET_SIZE(right);
        PyObject* joined = checked(PyBytes_FromStringAndSize(nullptr, left_size + right_size));
        PyList_SET_ITEM(tokens.ptr(), static_cast<Py_ssize_t>(256 + i), joined);
        std::memcpy(PyBytes_AS_STRING(joined), PyBytes_AS_STRING(left), static_cast<std::size_t>(left_size));
        std::memcpy(PyBytes_AS_STRING(joined) + left_size, PyBytes_AS_STRING(right),
                    static_cast<std::size_t>(right_size));
    }
    return tokens;
}

nb::object build_pairs(const InputMerges& merges, const nb::list& tokens) {
    const NoGarbageCollection guard;
    const std::size_t num_merges = merges.shape(0), num_tokens = tokens.size();
    nb::object pairs = nb::steal(checked(PyList_New(static_cast<Py_ssize_t>(num_merges))));
    for (std::size_t i = 0; i < num_merges; ++i) {
        check_ids(merges, i, num_tokens);
        PyObject* left = PyList_GET_ITEM(tokens.ptr(), merges(i, 0));
        PyObject* right = PyList_GET_ITEM(tokens.ptr(), merges(i, 1));
        PyList_SET_ITEM(pairs.ptr(), static_cast<Py_ssize_t>(i), checked(PyTuple_Pack(2, left, right)));
    }
    return pairs;
}

// The first merge of ids that are not made before it, or of a pair that was merged before; the number of merges if
// there is none.
std::size_t find_wrong_merge(const InputMerges& merges) {
    std::unordered_set<std::uint64_t> seen;
    seen.reserve(merges.shape(0));
    for (std::size_t i = 0; i < merges.shape(0); ++i) {
        const std::uint64_t left = merges(i, 0), right = merges(i, 1);
        if (left >= 256 + i || right >= 256 + i || !seen.insert(left << 32 | right).second) return i;
    }
    return merges.shape(0);
}

}  // namespace

void register_encode(nb::module_& m) {
    using namespace nb::literals;
    m.def("build_tokens", &build_tokens, "merges"_a);
    m.def("build_pairs", &build_pairs, "merges"_a, "tokens"_a);
    m.def("find_wrong_merge", &find_wrong_merge, "merges"_a);
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
