#include "gristmill/encode.hpp"

#include <algorithm>
#include <cstring>

#include "bindings.hpp"

namespace gristmill::bindings {
namespace {

nb::bytes to_bytes(std::string_view bytes) { return nb::bytes(bytes.data(), bytes.size()); }

// The encoder, and its specials for the rules.
class PyEncoder : public Encoder {
  public:
    PyEncoder(const VocabularyParts& parts, std::optional<Pattern> pattern, std::size_t cache_bytes)
        : Encoder(parts, pattern, default_kernel(), cache_bytes), specials_(parts.specials) {}

    std::unique_ptr<SpecialRule> special_rule(const std::vector<Id>& allowed, const std::vector<Id>& disallowed) const {
        return std::make_unique<SpecialRule>(chosen(allowed), chosen(disallowed));
    }

  private:
    std::vector<IdOfBytes> chosen(const std::vector<Id>& ids) const {
        std::vector<Id> wanted = ids;
        std::sort(wanted.begin(), wanted.end());
        std::vector<IdOfBytes> result;
        for (const IdOfBytes& special : specials_) {
            if (std::binary_search(wanted.begin(), wanted.end(), special.id)) result.push_back(special);
        }
        return result;
    }

    std::vector<IdOfBytes> specials_;
};

[[noreturn]] void raise_unknown(long long id) {
    PyErr_SetObject(PyExc_KeyError, nb::int_(id).ptr());
    throw nb::python_error();
}

std::string_view known_token(const PyEncoder& encoder, std::uint64_t id) {
    const std::string_view token = id <= 0xffffffffu ? encoder.token_bytes(static_cast<Id>(id)) : std::string_view();
    if (token.empty()) raise_unknown(static_cast<long long>(id));
    return token;
}

// Ids between two checks of the monitor or of signals.
constexpr std::size_t kIdsPerCheck = 65536;
constexpr char kChangedIds[] = "the array of ids was changed while it was decoded. Pass a copy.";

nb::bytes decode_bytes(const PyEncoder& encoder, const InputArray<std::uint32_t>& ids) {
    Watch watch;
    const auto for_each_token = [&](const auto& visit) {
        for (std::size_t i = 0; i < ids.size(); ++i) {
            if (i % kIdsPerCheck == 0) watch.monitor().check();
            visit(ids.data()[i], encoder.token_bytes(ids.data()[i]));
        }
    };
    std::optional<Id> unknown;
    std::size_t size = 0;
    watch.run([&] {
        for_each_token([&](Id id, std::string_view token) {
            size += token.size();
            if (token.empty() && !unknown) unknown = id;
        });
    });
    if (unknown) raise_unknown(*unknown);
    nb::object bytes = nb::steal(checked(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size))));
    char* out = PyBytes_AS_STRING(bytes.ptr());  // not shared yet: the GIL is not needed
    char* const end = out + size;
    watch.run([&] {
        for_each_token([&](Id, std::string_view token) {
            // Without the GIL, another thread may have changed the array since the sizes were added up.
            if (token.size() > static_cast<std::size_t>(end - out)) throw std::invalid_argument(kChangedIds);
            std::memcpy(out, token.data(), token.size());
            out += token.size();
        });
        if (out != end) throw std::invalid_argument(kChangedIds);
    });
    return nb::borrow<nb::bytes>(bytes);
}

nb::bytes decode_list(const PyEncoder& encoder, const nb::list& ids) {
    std::string bytes;
    bytes.reserve(4 * ids.size());
    std::size_t num_ids = 0;
    for (nb::handle item : ids) {
        if (++num_ids % kIdsPerCheck == 0 && PyErr_CheckSignals() != 0) throw nb::python_error();
        if (!PyLong_CheckExact(item.ptr())) {
            PyErr_Format(PyExc_TypeError, "an id is a %s instead of an int", Py_TYPE(item.ptr())->tp_name);
            throw nb::python_error();
        }
        int overflow = 0;
        const long long id = PyLong_AsLongLongAndOverflow(item.ptr(), &overflow);
        if (overflow || id < 0) {
            PyErr_SetObject(PyExc_KeyError, item.ptr());
            throw nb::python_error();
        }
        bytes += known_token(encoder, static_cast<std::uint64_t>(id));
    }
    return to_bytes(bytes);
}

// For shorter texts, Ctrl-C can wait.
constexpr std::size_t kPolledBytes = 1 << 20;
// Releasing the GIL costs more than encoding this many bytes.
constexpr std::size_t kWithGilBytes = 2048;

// Runs `work(monitor)` with the GIL released.
template <class Work>
auto run_encoding(std::size_t num_bytes, nb::object on_progress, const Work& work) {
    if (num_bytes < kPolledBytes && on_progress.is_none()) {
        Monitor unwatched;
        const GilReleased released;
        return work(unwatched);
    }
    Watch watch(std::move(on_progress));
    return watch.run([&] { return work(watch.monitor()); });
}

// A numpy array that takes ownership of `ids`.
nb::object to_numpy(IdBuffer ids) {
    auto* owned = new IdBuffer(std::move(ids));
    nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<IdBuffer*>(p); });
    if (owned->width() == 2) return nb::cast(Array<std::uint16_t>(owned->data(), {owned->size()}, owner));
    return nb::cast(Array<std::uint32_t>(owned->data(), {owned->size()}, owner));
}

template <class Token>
nb::object list_of(const Token* ids, std::size_t size) {
    nb::object list = nb::steal(checked(PyList_New(static_cast<Py_ssize_t>(size))));
    for (std::size_t i = 0; i < size; ++i)
        PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), checked(PyLong_FromLong(static_cast<long>(ids[i]))));
    return list;
}

nb::object encode(const PyEncoder& encoder, nb::handle object, const SpecialRule& rule) {
    const Utf8 text(object);
    if (text.view().size() <= kWithGilBytes) {
        struct Context {
            bool narrow;
            nb::object list;
        } context{encoder.is_narrow(), {}};
        encoder.encode_short(
            text.view(), rule,
            [](void* pointer, const void* ids, std::size_t size) {
                auto& context = *static_cast<Context*>(pointer);
                context.list = context.narrow ? list_of(static_cast<const std::uint16_t*>(ids), size)
                                              : list_of(static_cast<const std::uint32_t*>(ids), size);
            },
            &context);
        return context.list;
    }
    IdBuffer ids = run_encoding(text.view().size(), nb::none(),
                                [&](Monitor& monitor) { return encoder.encode(text.view(), rule, 1, monitor); });
    return ids.width() == 2 ? list_of(ids.data<std::uint16_t>(), ids.size())
                            : list_of(ids.data<std::uint32_t>(), ids.size());
}

nb::object encode_array(const PyEncoder& encoder, nb::handle object, const SpecialRule& rule, int num_threads) {
    const Utf8 text(object);
    return to_numpy(run_encoding(text.view().size(), nb::none(), [&](Monitor& monitor) {
        return encoder.encode(text.view(), rule, parse_threads(num_threads), monitor);
    }));
}

nb::tuple encode_batch(const PyEncoder& encoder, const nb::list& texts, const SpecialRule& rule, int num_threads) {
    std::vector<Utf8> kept;
    std::vector<std::string_view> views;
    std::size_t num_bytes = 0;
    kept.reserve(texts.size());
    views.reserve(texts.size());
    for (nb::handle text : texts) {
        kept.emplace_back(text);
        views.push_back(kept.back().view());
        num_bytes += views.back().size();
    }
    ViewTexts in_memory(std::move(views));
    EncodedTexts encoded = run_encoding(num_bytes, nb::none(), [&](Monitor& monitor) {
        return encoder.encode(in_memory, rule, {}, parse_threads(num_threads), monitor);
    });
    encoded.ends.insert(encoded.ends.begin(), 0);
    return nb::make_tuple(to_numpy(std::move(encoded.ids)), to_array(std::move(encoded.ends)));
}

// Cancels the work of other threads, which check it every few thousand bytes of text.
struct Cancellation {
    Monitor monitor;
};

nb::tuple encode_documents(const PyEncoder& encoder, nb::handle text, const InputArray<std::int64_t>& begins,
                           const InputArray<std::int64_t>& ends, const SpecialRule& rule, std::optional<Id> end_of_text,
                           bool before, bool continued, bool unfinished, Cancellation& cancellation) {
    if (end_of_text && encoder.token_bytes(*end_of_text).empty()) {
        // Otherwise the id would be truncated to the width of the ids, and become the id of another token.
        throw nb::value_error(("end_of_text=" + std::to_string(*end_of_text) + " is not the id of a token").c_str());
    }
    const Bytes bytes(text);
    SpanTexts documents(parse_spans(bytes, begins, ends));
    EncodedTexts encoded = [&] {
        const GilReleased released;
        return encoder.encode(documents, rule, {end_of_text, before, continued, unfinished}, 1, cancellation.monitor);
    }();
    return nb::make_tuple(to_numpy(std::move(encoded.ids)), to_array(std::move(encoded.ends)));
}

nb::object encode_file(const PyEncoder& encoder, nb::handle path, const SpecialRule& rule, int num_threads,
                       nb::object on_progress) {
    const std::string name = file_system_path(path);
    return to_numpy(run_encoding(kPolledBytes, std::move(on_progress), [&](Monitor& monitor) {
        FileTexts file({name});
        return encoder.encode(file, rule, {}, parse_threads(num_threads), monitor).ids;
    }));
}

std::uint64_t count_tokens(const PyEncoder& encoder, nb::handle object, const SpecialRule& rule, int num_threads) {
    const Utf8 text(object);
    return run_encoding(text.view().size(), nb::none(), [&](Monitor& monitor) {
        return encoder.count_tokens(text.view(), rule, parse_threads(num_threads), monitor);
    });
}

// The ids that `work(ids, monitor)` writes for a text of this size.
template <class Work>
std::vector<Id> run_for_ids(std::size_t num_bytes, const Work& work) {
    return run_encoding(num_bytes, nb::none(), [&](Monitor& monitor) {
        std::vector<Id> ids;
        work(ids, monitor);
        return ids;
    });
}

nb::object encode_dropout(const PyEncoder& encoder, nb::handle object, const SpecialRule& rule, double dropout,
                          std::uint64_t seed) {
    const Utf8 text(object);
    return nb::cast(to_array(run_for_ids(text.view().size(), [&](std::vector<Id>& ids, Monitor& monitor) {
        encoder.encode_dropout(text.view(), rule, dropout, seed, ids, monitor);
    })));
}

nb::object encode_piece(const PyEncoder& encoder, const nb::bytes& piece) {
    const std::vector<Id> ids = run_for_ids(
        piece.size(), [&](std::vector<Id>& ids, Monitor& monitor) { encoder.encode_piece(view(piece), ids, monitor); });
    return list_of(ids.data(), ids.size());
}

nb::object encode_piece_dropout(const PyEncoder& encoder, const nb::bytes& piece, double dropout, std::uint64_t seed) {
    const std::vector<Id> ids = run_for_ids(piece.size(), [&](std::vector<Id>& ids, Monitor& monitor) {
        encoder.encode_piece_dropout(view(piece), dropout, seed, ids, monitor);
    });
    return list_of(ids.data(), ids.size());
}

std::size_t last_cut(const PyEncoder& encoder, nb::handle text, std::size_t start, const SpecialRule& rule) {
    const Bytes bytes(text);
    const GilReleased released;
    return encoder.last_cut(bytes.view(), start, rule);
}

nb::object token_lengths(const PyEncoder& encoder) {
    std::vector<std::uint32_t> lengths(encoder.num_ids());
    for (Id id = 0; id < lengths.size(); ++id) lengths[id] = static_cast<std::uint32_t>(encoder.token_bytes(id).size());
    return nb::cast(to_array(std::move(lengths)));
}

nb::dict cache_stats(const PyEncoder& encoder) {
    const CacheStats stats = encoder.cache_stats();
    nb::dict result;
    result["num_caches"] = stats.num_caches;
    result["num_pieces"] = stats.num_pieces;
    result["memory_bytes"] = stats.memory_bytes;
    result["limit_bytes"] = stats.limit_bytes;
    return result;
}

using InputRules = nb::ndarray<const std::uint32_t, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu>;

std::vector<IdOfBytes> parse_tokens(const nb::sequence& tokens, const std::vector<Id>& ids) {
    std::vector<IdOfBytes> result;
    for (nb::handle token : tokens) {
        const std::string_view bytes = view(nb::cast<nb::bytes>(token));
        if (bytes.empty()) throw nb::value_error("a token must not be empty");
        if (result.size() == ids.size()) throw nb::value_error("there are more tokens than ids");
        result.push_back({std::string(bytes), ids[result.size()]});
    }
    if (result.size() != ids.size()) throw nb::value_error("there are more ids than tokens");
    return result;
}

void init_encoder(PyEncoder* self, const InputArray<std::uint32_t>& byte_ids, const InputRules& merges,
                  const nb::sequence& other_tokens, const std::vector<Id>& other_ids, bool whole_pieces,
                  const std::optional<std::string>& pattern, const nb::sequence& special_tokens,
                  const std::vector<Id>& special_ids, std::size_t cache_bytes) {
    VocabularyParts parts;
    if (byte_ids.size() != 256) throw nb::value_error("byte_ids must contain 256 ids");
    std::copy(byte_ids.data(), byte_ids.data() + 256, parts.byte_ids.begin());
    parts.merges.reserve(merges.shape(0));
    for (std::size_t i = 0; i < merges.shape(0); ++i)
        parts.merges.push_back({merges(i, 0), merges(i, 1), merges(i, 2)});
    parts.others = parse_tokens(other_tokens, other_ids);
    parts.whole_pieces = whole_pieces;
    parts.specials = parse_tokens(special_tokens, special_ids);
    std::optional<Pattern> native;
    if (pattern) native = parse_pattern(*pattern);
    const GilReleased released;
    new (self) PyEncoder(parts, native, cache_bytes);
}

}  // namespace

void register_encode(nb::module_& m) {
    using namespace nb::literals;
    static PyObject* forged_type = nb::exception<ForgedSpecial>(m, "ForgedSpecial", PyExc_ValueError).release().ptr();
    nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
        try {
            std::rethrow_exception(pointer);
        } catch (const ForgedSpecial& found) {
            PyErr_SetObject(forged_type, nb::make_tuple(found.text, found.position, found.id).ptr());
        }
    });
    nb::class_<SpecialRule>(m, "SpecialRule");
    nb::class_<Cancellation>(m, "Cancellation")
        .def(nb::init<>())
        .def("cancel", [](Cancellation& self) { self.monitor.cancel(); })
        .def_prop_ro("is_cancelled", [](const Cancellation& self) { return self.monitor.cancelled(); });
    nb::class_<PyEncoder>(m, "Encoder")
        .def("__init__", &init_encoder, nb::kw_only(), "byte_ids"_a.noconvert(), "merges"_a.noconvert(),
             "other_tokens"_a = nb::make_tuple(), "other_ids"_a = std::vector<Id>(), "whole_pieces"_a = false,
             "pattern"_a.none(), "special_tokens"_a = nb::make_tuple(), "special_ids"_a = std::vector<Id>(),
             "cache_bytes"_a = 0)
        .def_prop_ro("dtype", [](const PyEncoder& self) { return self.is_narrow() ? "uint16" : "uint32"; })
        .def("special_rule", &PyEncoder::special_rule, "allowed"_a, "disallowed"_a)
        .def("encode", &encode, "text"_a, "rule"_a)
        .def("encode_array", &encode_array, "text"_a, "rule"_a, "num_threads"_a = 1)
        .def("encode_batch", &encode_batch, "texts"_a, "rule"_a, "num_threads"_a = 1)
        .def("encode_documents", &encode_documents, "text"_a, "begins"_a.noconvert(), "ends"_a.noconvert(), "rule"_a,
             nb::kw_only(), "end_of_text"_a.none(), "before"_a, "continued"_a, "unfinished"_a, "cancellation"_a)
        .def("encode_file", &encode_file, "path"_a, "rule"_a, "num_threads"_a = 1, "on_progress"_a = nb::none())
        .def("count_tokens", &count_tokens, "text"_a, "rule"_a, "num_threads"_a = 1)
        .def("encode_dropout", &encode_dropout, "text"_a, "rule"_a, "dropout"_a, "seed"_a)
        .def("encode_piece", &encode_piece, "piece"_a)
        .def("encode_piece_dropout", &encode_piece_dropout, "piece"_a, "dropout"_a, "seed"_a)
        .def("last_cut", &last_cut, "text"_a, "start"_a, "rule"_a)
        .def("decode_bytes", &decode_bytes, "ids"_a.noconvert())
        .def("decode_list", &decode_list, "ids"_a)
        .def_prop_ro("token_lengths", &token_lengths)
        .def_prop_ro("cache_stats", &cache_stats);
}

}  // namespace gristmill::bindings
