// corpus: JSON lines. All kernels agree; lines are independent of each other; extracted text that is written as JSON
// again is extracted unchanged.
#include "fuzz.hpp"
#include "gristmill/corpus.hpp"

using namespace gristmill;
using namespace gristmill::fuzz;

namespace {

struct Extracted {
    std::vector<std::string> texts;
    std::size_t num_nulls = 0;
    bool failed = false;
    JsonProblem problem{};

    friend bool operator==(const Extracted& a, const Extracted& b) {
        return a.texts == b.texts && a.num_nulls == b.num_nulls && a.failed == b.failed &&
               a.problem.line == b.problem.line && a.problem.byte == b.problem.byte &&
               a.problem.fault == b.problem.fault;
    }
};

Extracted extract(std::string_view lines, std::string_view field, Kernel kernel) {
    const ExactText exact(lines), exact_field(field);
    const JsonTexts texts = extract_json(exact.view(), exact_field.view(), kernel);
    Extracted result;
    CHECK(texts.begins.size() == texts.ends.size());
    CHECK(texts.size <= lines.size());
    const auto* data = reinterpret_cast<const char*>(texts.data.get());
    std::int64_t end = 0;
    for (std::size_t i = 0; i < texts.begins.size(); ++i) {
        CHECK(texts.begins[i] == end && texts.ends[i] >= end);
        end = texts.ends[i];
        result.texts.emplace_back(data + texts.begins[i], data + end);
    }
    CHECK(static_cast<std::size_t>(end) == texts.size);
    CHECK(std::all_of(data + texts.size, data + texts.size + kTextPadding, [](char byte) { return byte == 0; }));
    result.num_nulls = texts.num_nulls;
    if (texts.problem) {
        result.failed = true;
        result.problem = *texts.problem;
        CHECK(json_fault_name(result.problem.fault) != "unknown");
    }
    return result;
}

Extracted extract_line_by_line(std::string_view lines, std::string_view field) {
    Extracted result;
    for (std::size_t index = 0; !lines.empty(); ++index) {
        const std::size_t size = std::min(lines.find('\n'), lines.size());
        Extracted line = extract(lines.substr(0, size), field, Kernel::scalar);
        result.num_nulls += line.num_nulls;
        for (std::string& text : line.texts) result.texts.push_back(std::move(text));
        if (line.failed) {
            CHECK(line.problem.byte <= size && line.problem.line == 0);
            result.failed = true;
            result.problem = {index, line.problem.byte, line.problem.fault};
            break;
        }
        lines.remove_prefix(std::min(size + 1, lines.size()));
    }
    return result;
}

// The text as a JSON string in which every other character that may be escaped is.
std::string escaped(std::string_view text) {
    std::string result = "\"";
    for (const char byte : text) {
        const auto value = static_cast<unsigned char>(byte);
        if (value < 0x20 || byte == '"' || byte == '\\' || (value < 0x80 && value % 2)) {
            char code[8];
            std::snprintf(code, sizeof code, "\\u%04x", value);
            result += code;
        } else {
            result += byte;
        }
    }
    return result + '"';
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const std::string_view kFields[] = {"text", "t", "", "a", "\n", "\xC3\xA9", "text", "b"};
    Input input(data, size);
    const std::string_view field = kFields[input.below(std::size(kFields))];
    const bool again = input.flag();
    const std::string_view lines = input.rest();

    // There are two parsers: that of the scalar kernel and that of all others.
    const Kernel fast = kernels().back();
    const Extracted expected = extract(lines, field, Kernel::scalar);
    CHECK(extract(lines, field, fast) == expected);
    if (lines.find('\n') != std::string_view::npos) CHECK(extract_line_by_line(lines, field) == expected);
    if (!again || expected.texts.empty()) return 0;
    std::string rewritten;
    for (const std::string& text : expected.texts) rewritten += "{" + escaped(field) + ":" + escaped(text) + "}\n";
    for (const Kernel kernel : {Kernel::scalar, fast}) {
        const Extracted same = extract(rewritten, field, kernel);
        CHECK(!same.failed && same.texts == expected.texts);
    }
    return 0;
}
