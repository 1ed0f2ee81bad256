#include <cstring>

#include "bindings.hpp"

namespace gristmill::bindings {
namespace {

std::vector<std::uint8_t> padded(std::string_view text) {
    std::vector<std::uint8_t> copy(text.size() + kTextPadding);
    std::memcpy(copy.data(), text.data(), text.size());
    return copy;
}

Array<std::uint64_t> find_pieces(const nb::bytes& text, const std::string& pattern,
                                 const std::optional<std::string>& kernel) {
    const auto scanner = make_scanner(parse_pattern(pattern), parse_kernel(kernel));
    const std::vector<std::uint8_t> copy = padded(view(text));
    std::vector<std::uint64_t> ends;
    {
        const nb::gil_scoped_release release;
        scanner->start(copy.data(), copy.size() - kTextPadding);
        while (scanner->next()) {
            const auto base = static_cast<std::uint64_t>(scanner->base() - copy.data());
            for (std::size_t i = 0; i < scanner->size(); ++i) ends.push_back(base + scanner->ends()[i]);
        }
    }
    return to_array(std::move(ends));
}

Array<std::uint64_t> find_cuts(const nb::bytes& text, const std::string& pattern) {
    const Pattern parsed = parse_pattern(pattern);
    const std::vector<std::uint8_t> copy = padded(view(text));
    const std::size_t size = copy.size() - kTextPadding;
    std::vector<std::uint64_t> cuts;
    for (std::size_t from = 0; from < size;) {
        const std::size_t cut = find_cut(parsed, copy.data(), size, from);
        if (cut == kNoCut) break;
        cuts.push_back(cut);
        from = cut + 1;
    }
    return to_array(std::move(cuts));
}

}  // namespace

void register_pretokenize(nb::module_& m) {
    using namespace nb::literals;
    m.attr("PATTERNS") = nb::make_tuple("gpt2", "cl100k", "o200k", "llama3", "qwen2", "whitespace");
    m.attr("KERNELS") = nb::make_tuple("scalar", "avx2", "avx512");
    m.attr("UNICODE_VERSION") = std::string(unicode_version());
    m.def("supported_kernels", [] {
        std::vector<std::string> names;
        for (const Kernel kernel : {Kernel::scalar, Kernel::avx2, Kernel::avx512}) {
            if (kernel_supported(kernel)) names.emplace_back(kernel_name(kernel));
        }
        return names;
    });
    m.def("default_kernel", [] { return std::string(kernel_name(default_kernel())); });
    m.def("find_pieces", &find_pieces, "text"_a, "pattern"_a, "kernel"_a = nb::none());
    m.def("find_cuts", &find_cuts, "text"_a, "pattern"_a);
}

}  // namespace gristmill::bindings
