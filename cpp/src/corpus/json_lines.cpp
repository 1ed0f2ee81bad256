#include <cstring>

#include "corpus/json_line.hpp"
#include "gristmill/corpus.hpp"

namespace gristmill {

JsonLine parse_json_line_scalar(const std::uint8_t* line, const std::uint8_t* end, JsonField field, std::uint8_t* out) {
    return JsonLineParser<ScalarCopy>(line, end, field, out).parse();
}

namespace {

ParseJsonLine line_parser([[maybe_unused]] Kernel kernel) {
#if defined(__x86_64__)
    if (kernel != Kernel::scalar) return parse_json_line_avx2;
#elif defined(__aarch64__)
    if (kernel == Kernel::neon) return parse_json_line_neon;
#endif
    return parse_json_line_scalar;
}

}  // namespace

std::string_view json_fault_name(JsonFault fault) {
    switch (fault) {
        case JsonFault::bom:
            return "bom";
        case JsonFault::syntax:
            return "syntax";
        case JsonFault::utf8:
            return "utf8";
        case JsonFault::surrogate:
            return "surrogate";
        case JsonFault::control:
            return "control";
        case JsonFault::number:
            return "number";
        case JsonFault::depth:
            return "depth";
        case JsonFault::not_object:
            return "not-object";
        case JsonFault::missing:
            return "missing";
        case JsonFault::not_string:
            return "not-string";
    }
    return "unknown";
}

JsonTexts extract_json(std::string_view lines, std::string_view field, Kernel kernel) {
    JsonTexts texts;
    texts.data = std::make_unique_for_overwrite<std::uint8_t[]>(lines.size() + kTextPadding);
    const ParseJsonLine parse_line = line_parser(kernel);
    const auto* line = reinterpret_cast<const std::uint8_t*>(lines.data());
    const std::uint8_t* const end = line + lines.size();
    std::size_t line_index = 0;
    try {
        for (; line != end; ++line_index) {
            const JsonLine found = parse_line(line, end, {field.data(), field.size()}, texts.data.get() + texts.size);
            if (found.member == JsonMember::text) {
                const auto text_end = static_cast<std::size_t>(found.text_end - texts.data.get());
                texts.begins.push_back(static_cast<std::int64_t>(texts.size));
                texts.ends.push_back(static_cast<std::int64_t>(text_end));
                texts.size = text_end;
            }
            texts.num_nulls += found.member == JsonMember::null;
            line = found.end == end ? end : found.end + 1;
        }
    } catch (const JsonError& error) {
        texts.problem = JsonProblem{line_index, static_cast<std::size_t>(error.at - line), error.fault};
    }
    std::memset(texts.data.get() + texts.size, 0, kTextPadding);
    return texts;
}

}  // namespace gristmill
