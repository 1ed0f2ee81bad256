#include "bindings.hpp"
#include "gristmill/corpus.hpp"

namespace gristmill::bindings {
namespace {

// A numpy array that takes ownership of the texts and the padding after them.
Array<std::uint8_t> texts_array(JsonTexts& texts) {
    std::uint8_t* data = texts.data.get();
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<std::uint8_t*>(p); });
    texts.data.release();
    return Array<std::uint8_t>(data, {texts.size}, owner);
}

nb::tuple extract(nb::handle text, const nb::bytes& field, const std::optional<std::string>& kernel) {
    const Bytes bytes(text);
    const Kernel parsed = parse_kernel(kernel);
    JsonTexts texts = [&] {
        const GilReleased released;
        return extract_json(bytes.view(), view(field), parsed);
    }();
    nb::object problem = nb::none();
    if (texts.problem) {
        const std::string_view name = json_fault_name(texts.problem->fault);
        problem = nb::make_tuple(texts.problem->line, texts.problem->byte, nb::str(name.data(), name.size()));
    }
    return nb::make_tuple(texts_array(texts), to_array(std::move(texts.begins)), to_array(std::move(texts.ends)),
                          texts.num_nulls, problem);
}

}  // namespace

void register_json_lines(nb::module_& m) {
    using namespace nb::literals;
    m.def("extract_json", &extract, "text"_a, "field"_a, "kernel"_a = nb::none());
}

}  // namespace gristmill::bindings
