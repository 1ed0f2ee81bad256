#include <algorithm>
#include <bit>
#include <cstring>

#include "bindings.hpp"

namespace gristmill::bindings {
namespace {

const std::uint8_t* begin_of(std::string_view text) { return reinterpret_cast<const std::uint8_t*>(text.data()); }

// The ends of pieces: those of the pattern between special tokens, and the ends of the special tokens.
std::vector<std::uint64_t> piece_ends(std::string_view text, BoundaryScanner& scanner, const SpecialFinder& specials,
                                      const Monitor& monitor) {
    std::vector<std::uint64_t> ends;
    ends.reserve(text.size() / 4 + 1);
    const std::uint8_t* data = begin_of(text);
    SpecialSearch search(specials, data, text.size());
    for (std::size_t at = 0; at < text.size();) {
        const SpecialFinder::Match special =
            specials.empty() ? SpecialFinder::Match{text.size(), SpecialFinder::kNone} : search.next(at, text.size());
        scanner.start(data + at, special.position - at);
        while (scanner.next()) {
            monitor.check();
            const auto base = static_cast<std::uint64_t>(scanner.base() - data);
            const std::size_t size = ends.size();
            ends.resize(size + scanner.size());
            for (std::size_t i = 0; i < scanner.size(); ++i) ends[size + i] = base + scanner.ends()[i];
        }
        if (special.index == SpecialFinder::kNone) break;
        ends.push_back(at = special.position + specials.length(special.index));
    }
    return ends;
}

Array<std::uint64_t> find_pieces(const nb::bytes& text, const std::string& pattern,
                                 const std::optional<std::string>& kernel) {
    const auto scanner = make_scanner(parse_pattern(pattern), parse_kernel(kernel));
    const std::string_view bytes = view(text);
    const SpecialFinder no_specials({});
    Watch watch;
    return to_array(watch.run([&] { return piece_ends(bytes, *scanner, no_specials, watch.monitor()); }));
}

Array<std::uint64_t> find_cuts(const nb::bytes& text, const std::string& pattern) {
    const Pattern parsed = parse_pattern(pattern);
    const std::string_view bytes = view(text);
    std::vector<std::uint64_t> cuts;
    for (std::size_t from = 0; from < bytes.size();) {
        const std::size_t cut = find_cut(parsed, begin_of(bytes), bytes.size(), from);
        if (cut == kNoCut) break;
        cuts.push_back(cut);
        from = cut + 1;
    }
    return to_array(std::move(cuts));
}

// Makes the Python objects of pieces. Text is repetitive: most short pieces were made a moment ago, and reusing the
// object saves time and most of the memory of the list.
class PieceMaker {
  public:
    // Every piece must be a part of `text`.
    PieceMaker(std::string_view text, bool is_str)
        : words_end_(text.data() + text.size() - std::min(text.size(), kMaxRecent)),
          is_str_(is_str),
          recent_(kNumRecent) {}

    // Returns a new reference, or nullptr with a Python error set. The caller must keep it for the lifetime of this
    // object.
    PyObject* make(const char* begin, std::size_t size) {
        if (size > kMaxRecent) return fresh(begin, size);
        const Words words = load(begin, size);
        const std::uint64_t mixed = (words.low ^ words.high * 0x9E3779B97F4A7C15u ^ size) * 0xD6E8FEB86659FD93u;
        Recent& recent = recent_[mixed >> (64 - kRecentBits)];
        if (recent.object && recent.words.low == words.low && recent.words.high == words.high && recent.size == size) {
            Py_INCREF(recent.object);
            return recent.object;
        }
        recent = {words, size, fresh(begin, size)};
        return recent.object;
    }

  private:
    static constexpr std::size_t kMaxRecent = 16;
    static constexpr int kRecentBits = 14;
    static constexpr std::size_t kNumRecent = std::size_t{1} << kRecentBits;

    // The bytes of a short piece, padded with zeros.
    struct Words {
        std::uint64_t low, high;
    };
    struct Recent {
        Words words{0, 0};
        std::size_t size = 0;
        PyObject* object = nullptr;
    };

    Words load(const char* begin, std::size_t size) const {
        Words words{0, 0};
        if (begin >= words_end_) {  // 16 bytes may not be readable
            std::memcpy(&words, begin, size);
            return words;
        }
        std::memcpy(&words, begin, sizeof words);
        const auto mask = [](std::size_t num_bytes) {
            return num_bytes >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * num_bytes) - 1;
        };
        static_assert(std::endian::native == std::endian::little, "the first bytes are the lowest");
        return {words.low & mask(size), size > 8 ? words.high & mask(size - 8) : 0};
    }

    PyObject* fresh(const char* begin, std::size_t size) const {
        const auto length = static_cast<Py_ssize_t>(size);
        return is_str_ ? PyUnicode_DecodeUTF8(begin, length, nullptr) : PyBytes_FromStringAndSize(begin, length);
    }

    const char* words_end_;
    bool is_str_;
    std::vector<Recent> recent_;
};

// Pieces between two checks of signals.
constexpr std::size_t kPiecesPerCheck = 65536;

nb::object cut_pieces(nb::handle object, const std::string& pattern, const nb::sequence& special_tokens) {
    const Utf8 text(object);
    const auto scanner = make_scanner(parse_pattern(pattern), default_kernel());
    const SpecialFinder specials(parse_specials(special_tokens));
    Watch watch;
    const std::vector<std::uint64_t> ends =
        watch.run([&] { return piece_ends(text.view(), *scanner, specials, watch.monitor()); });
    nb::object list = nb::steal(checked(PyList_New(static_cast<Py_ssize_t>(ends.size()))));
    PyObject_GC_UnTrack(list.ptr());  // a signal handler that walks all objects must not see a partial list
    PieceMaker maker(text.view(), PyUnicode_Check(object.ptr()) != 0);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < ends.size(); ++i) {
        if (i % kPiecesPerCheck == kPiecesPerCheck - 1 && PyErr_CheckSignals() != 0) throw nb::python_error();
        PyObject* piece = checked(maker.make(text.view().data() + begin, ends[i] - begin));
        PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), piece);
        begin = ends[i];
    }
    PyObject_GC_Track(list.ptr());
    return list;
}

}  // namespace

void register_pretokenize(nb::module_& m) {
    using namespace nb::literals;
    nb::list patterns;
    for (const Pattern pattern : kAllPatterns) patterns.append(std::string(pattern_name(pattern)));
    m.attr("PATTERNS") = nb::tuple(patterns);
    m.attr("KERNELS") = nb::make_tuple("scalar", "avx2", "avx2-nopext", "avx512", "neon");
    m.attr("UNICODE_VERSION") = std::string(unicode_version());
    m.def("supported_kernels", [] {
        std::vector<std::string> names;
        for (const Kernel kernel : kAllKernels) {
            if (kernel_supported(kernel)) names.emplace_back(kernel_name(kernel));
        }
        return names;
    });
    m.def("default_kernel", [] { return std::string(kernel_name(default_kernel())); });
    m.def("find_pieces", &find_pieces, "text"_a, "pattern"_a, "kernel"_a = nb::none());
    m.def("cut_pieces", &cut_pieces, "text"_a, "pattern"_a, "special_tokens"_a);
    m.def("find_cuts", &find_cuts, "text"_a, "pattern"_a);
    m.def("class_tables", [] {
        const ClassTables tables = class_tables();
        return nb::make_tuple(to_array(std::vector(tables.rows.begin(), tables.rows.end())),
                              to_array(std::vector(tables.classes.begin(), tables.classes.end())));
    });
}

}  // namespace gristmill::bindings
