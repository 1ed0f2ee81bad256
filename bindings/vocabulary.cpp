// Converts merges and tokens to Python objects and back.
#include <charconv>
#include <cstring>

#include "bindings.hpp"
#include "gristmill/tokenizer.hpp"

namespace gristmill::bindings {
namespace {

// These loops are in C++ because in Python they would be noticeable in a training run of a tenth of a second. Garbage
// collection is paused, because it would traverse all live objects several times while tens of thousands of objects
// without cycles are created.
class NoGarbageCollection {
  public:
    NoGarbageCollection() : was_enabled_(PyGC_Disable()) {}
    ~NoGarbageCollection() {
        if (was_enabled_) PyGC_Enable();
    }

  private:
    int was_enabled_;
};

void check_ids(const InputMerges& merges, std::size_t i, std::size_t num_tokens) {
    if (merges(i, 0) >= num_tokens || merges(i, 1) >= num_tokens)
        throw nb::index_error("a merge uses ids that do not exist");
}

PlainMerges plain(const InputMerges& merges) { return {merges.data(), merges.shape(0)}; }

std::size_t merge_past_limit(const InputMerges& merges) {
    for (std::size_t i = 0; i < merges.shape(0); ++i) check_ids(merges, i, 256 + i);
    return find_merge_past_limit(plain(merges));
}

nb::object build_tokens(const InputMerges& merges) {
    const NoGarbageCollection guard;
    const std::size_t num_merges = merges.shape(0);
    if (merge_past_limit(merges) < num_merges)
        throw nb::value_error("the merges make tokens with more than MAX_VOCABULARY_BYTES bytes in total");
    nb::object tokens = nb::steal(checked(PyList_New(static_cast<Py_ssize_t>(256 + num_merges))));
    for (unsigned byte = 0; byte < 256; ++byte) {
        const char single = static_cast<char>(byte);
        PyList_SET_ITEM(tokens.ptr(), byte, checked(PyBytes_FromStringAndSize(&single, 1)));
    }
    for (std::size_t i = 0; i < num_merges; ++i) {
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

nb::object recovered_merges(const nb::list& tokens, const InputArray<std::uint32_t>& ids) {
    std::vector<std::string_view> views;
    views.reserve(tokens.size());
    for (nb::handle token : tokens) views.push_back(view(nb::cast<nb::bytes>(token)));
    if (views.size() != ids.size()) throw nb::value_error("tokens and ids must have the same length");
    Watch watch;
    const std::vector<MergeRule> merges = watch.run(
        [&] { return recover_merges(views, std::vector<Id>(ids.data(), ids.data() + ids.size()), watch.monitor()); });
    std::vector<std::uint32_t> flat;
    flat.reserve(3 * merges.size());
    for (const MergeRule& merge : merges) flat.insert(flat.end(), {merge.left, merge.right, merge.made});
    const nb::object array = nb::cast(to_array(std::move(flat)));
    return array.attr("reshape")(-1, 3);
}

using InputRows = nb::ndarray<const std::uint32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// The rows as JSON, "[1, 2]", one per line: the bulk of a tokenizer file.
nb::str format_rows(const InputRows& rows) {
    std::string text;
    text.reserve(rows.size() * 8);
    char digits[10];
    for (std::size_t i = 0; i < rows.shape(0); ++i) {
        text += i ? ",\n[" : "[";
        for (std::size_t k = 0; k < rows.shape(1); ++k) {
            if (k) text += ", ";
            text.append(digits, std::to_chars(digits, digits + sizeof digits, rows(i, k)).ptr);
        }
        text += ']';
    }
    return nb::str(text.data(), text.size());
}

}  // namespace

void register_vocabulary(nb::module_& m) {
    using namespace nb::literals;
    m.attr("MAX_VOCABULARY_BYTES") = kMaxVocabularyBytes;
    m.def("build_tokens", &build_tokens, "merges"_a.noconvert());
    m.def("build_pairs", &build_pairs, "merges"_a.noconvert(), "tokens"_a);
    m.def(
        "find_wrong_merge", [](const InputMerges& merges) { return find_wrong_merge(plain(merges)); },
        "merges"_a.noconvert());
    m.def("find_merge_past_limit", &merge_past_limit, "merges"_a.noconvert());
    m.def("format_rows", &format_rows, "rows"_a.noconvert());
    m.def("recover_merges", &recovered_merges, "tokens"_a, "ids"_a.noconvert());
}

}  // namespace gristmill::bindings
