#include "bindings.hpp"

namespace gristmill::bindings {
namespace {

const std::uint8_t* begin_of(std::string_view text) { return reinterpret_cast<const std::uint8_t*>(text.data()); }

Array<std::uint64_t> find_pieces(const nb::bytes& text, const std::string& pattern,
                                 const std::optional<std::string>& kernel) {
    const auto scanner = make_scanner(parse_pattern(pattern), parse_kernel(kernel));
    const std::string_view bytes = view(text);
    const std::uint8_t* data = begin_of(bytes);
    std::vector<std::uint64_t> ends;
    Watch watch;
    watch.run([&] {
        scanner->start(data, bytes.size());
        while (scanner->next()) {
            watch.monitor().check();
            const auto base = static_cast<std::uint64_t>(scanner->base() - data);
            for (std::size_t i = 0; i < scanner->size(); ++i) ends.push_back(base + scanner->ends()[i]);
        }
    });
    return to_array(std::move(ends));
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

}  // namespace

void register_pretokenize(nb::module_& m) {
    using namespace nb::literals;
    m.attr("PATTERNS") = nb::make_tuple("gpt2", "cl100k", "o200k", "llama3", "qwen2", "whitespace");
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
    m.def("find_cuts", &find_cuts, "text"_a, "pattern"_a);
}

}  // namespace gristmill::bindings
