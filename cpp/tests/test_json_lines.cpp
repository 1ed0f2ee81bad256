// json_lines: accepted and refused input as examples; every kernel against the scalar one. The input of each case is in
// memory of exactly its size, so that a sanitizer detects an excessive read.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "gristmill/corpus.hpp"

using namespace gristmill;
using namespace std::string_literals;

namespace {

struct Found {
    std::vector<std::string> texts;
    std::size_t num_nulls = 0;
    std::string problem;  // "line:byte:kind", empty for none
    friend bool operator==(const Found&, const Found&) = default;
};

Found extract_with(Kernel kernel, const std::string& lines, const std::string& field) {
    const std::vector<char> input(lines.begin(), lines.end());
    const JsonTexts texts = extract_json({input.data(), input.size()}, field, kernel);
    Found found;
    const auto* data = reinterpret_cast<const char*>(texts.data.get());
    std::int64_t end = 0;
    CHECK(texts.begins.size() == texts.ends.size());
    for (std::size_t i = 0; i < texts.begins.size(); ++i) {
        CHECK(texts.begins[i] == end);
        end = texts.ends[i];
        found.texts.emplace_back(data + texts.begins[i], data + end);
    }
    CHECK(static_cast<std::size_t>(end) == texts.size);
    int padding = 0;
    for (std::size_t i = 0; i < kTextPadding; ++i) padding |= data[texts.size + i];
    CHECK(padding == 0);
    found.num_nulls = texts.num_nulls;
    if (texts.problem) {
        found.problem = std::to_string(texts.problem->line) + ':' + std::to_string(texts.problem->byte) + ':' +
                        std::string(json_fault_name(texts.problem->fault));
    }
    return found;
}

// The result of every kernel that this CPU supports.
Found extract(const std::string& lines, const std::string& field = "text") {
    const Found found = extract_with(Kernel::scalar, lines, field);
    for (const Kernel kernel : {Kernel::avx2, Kernel::neon}) {  // other kernels run the same code
        if (kernel_supported(kernel)) CHECK(extract_with(kernel, lines, field) == found);
    }
    return found;
}

std::string problem(const std::string& lines) { return extract(lines).problem; }

// The text of a valid line.
std::string text(const std::string& line) {
    const Found found = extract(line);
    if (!found.problem.empty()) std::fprintf(stderr, "%s: %s\n", line.c_str(), found.problem.c_str());
    CHECK(found.problem.empty() && found.texts.size() == 1);
    return found.texts.size() == 1 ? found.texts[0] : "?";
}

bool accepts(const std::string& line) { return problem(line).empty(); }
std::string with_value(const std::string& value) { return "{\"a\":" + value + ",\"text\":\"x\"}"; }
std::string with_text(const std::string& escaped) { return "{\"text\":\"" + escaped + "\"}"; }

void test_documents_come_in_order_and_blank_lines_count() {
    const Found found =
        extract("{\"text\":\"a\"}\n\n \t\r\n{\"text\":null}\r\n{\"id\":[1,{}],\"text\":\"\"}\n{\"text\":\"bc\"}");
    CHECK((found == Found{{"a", "", "bc"}, 1, ""}));
    CHECK(extract("") == Found{});
    CHECK(extract("\n\n") == Found{});
    CHECK(extract("  ") == Found{});
    CHECK((extract("{\"text\":\"a\"}\n\n{\"text\":\"b\"}\n{\"text\":0}\n{\"text\":\"c\"}") ==
           Found{{"a", "b"}, 0, "3:8:not-string"}));
    CHECK((extract("{\"a\":\"1\",\"b\":\"2\"}", "b") == Found{{"2"}, 0, ""}));
    CHECK((extract("{\"\":\"empty\"}", "") == Found{{"empty"}, 0, ""}));
}

void test_last_of_repeated_members_counts() {
    CHECK(text("{\"text\":\"long one\",\"text\":\"b\"}") == "b");
    CHECK(text("{\"text\":1,\"text\":\"b\"}") == "b");
    CHECK(text("{\"text\":\"b\",\"x\":{\"text\":\"inner\"},\"y\":\"other\"}") == "b");
    CHECK(problem("{\"text\":\"b\",\"text\":[]}") == "0:19:not-string");
    CHECK((extract("{\"text\":\"b\",\"text\":null}") == Found{{}, 1, ""}));
}

void test_keys_may_be_escaped() {
    CHECK(text("{\"\\u0074e\\u0078t\":\"a\"}") == "a");
    CHECK(text("{\"text\\u0000\":1,\"tex\":2,\"textt\":3,\"Text\":4,\"text\":\"a\"}") == "a");
    CHECK((extract("{\"\\\"\\/\\n\\ud83d\\ude00\":\"a\"}", "\"/\n\xF0\x9F\x98\x80") == Found{{"a"}, 0, ""}));
}

void test_every_escape() {
    CHECK(text(with_text("\\\"\\\\\\/\\b\\f\\n\\r\\t")) == "\"\\/\b\f\n\r\t");
    CHECK(text(with_text("\\u0000")) == "\0"s);
    CHECK(text(with_text("\\u007f\\u0080\\u07FF\\u0800\\uFfFf")) == "\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xEF\xBF\xBF");
    CHECK(text(with_text("\\ud800\\udc00\\uDBFF\\uDFFF")) == "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF");
    CHECK(text(with_text("\\ud7ff\\ue000")) == "\xED\x9F\xBF\xEE\x80\x80");
    CHECK(problem(with_text("ab\\x")) == "0:12:syntax");
    CHECK(problem(with_text("\\U0041")) == "0:10:syntax");
    CHECK(problem(with_text("\\u00g0")) == "0:13:syntax");
    CHECK(problem(with_text("\\u004")) == "0:14:syntax");
    for (const char* lone :
         {"\\ud800", "\\udc00", "\\udc00\\ud800", "\\ud800\\u0041", "\\ud800x", "\\ud800\\n", "\\udbff\\ud800"})
        CHECK(problem(with_text(lone)) == "0:9:surrogate");
    CHECK(problem("{\"\\ud800\":1,\"text\":\"\"}") == "0:2:surrogate");
}

void test_strings_of_every_length_around_a_block() {
    for (std::size_t size = 0; size < 140; ++size) {
        for (const std::string& piece : {"\\n"s, "\xC3\xA9"s, "\xE4\xB8\xAD"s, "\xF0\x9F\x98\x80"s, "\\u4e2d"s, ""s}) {
            const std::string a(size, 'a'), b(67, 'b');
            const std::string plain = piece == "\\n" ? "\n" : piece == "\\u4e2d" ? "\xE4\xB8\xAD" : piece;
            CHECK(text(with_text(a + piece)) == a + plain);
            CHECK(text(with_text(a + piece + b)) == a + plain + b);
            CHECK(text(with_text(a + piece + piece + b + piece)) == a + plain + plain + b + plain);
        }
        const std::string a(size, 'a');
        CHECK(problem(with_text(a + '\x1F')) == "0:" + std::to_string(9 + size) + ":control");
        CHECK(problem(with_text(a + '\xFF')) == "0:" + std::to_string(9 + size) + ":utf8");
        CHECK(problem(with_text("\xC3\xA9" + a + "\xE4\xB8")) == "0:" + std::to_string(11 + size) + ":utf8");
    }
}

void test_a_line_cut_at_every_byte_is_refused() {
    const std::string line =
        " {\"a\" : [1, -2.5e+3, true, false, null, {\"b\":{}}, []],\"text\":\"x\\u00e9\\ud83d\\ude00\xE4\xB8\xAD\\n\","
        "\"z\":\"0123456789012345678901234567890123456789\"}";
    CHECK(text(line) == "x\xC3\xA9\xF0\x9F\x98\x80\xE4\xB8\xAD\n");
    for (std::size_t size = 2; size < line.size(); ++size) {
        CHECK(!accepts(line.substr(0, size)));
        const Found found = extract(line.substr(0, size) + "\n" + line);  // the next line does not help
        CHECK(!found.problem.empty() && found.texts.empty() && found.problem.substr(0, 2) == "0:");
    }
}

void test_numbers() {
    for (const char* good :
         {"0", "-0", "1", "10", "-12.50", "0.0", "1e5", "1E+5", "1e-5", "-0.0e-0", "1e00000000000000000000308"})
        CHECK(accepts(with_value(good)));
    // The grammar has no range: numbers beyond doubles and 64-bit integers are valid.
    for (const char* large : {"18446744073709551616", "1.7976931348623159e308", "1e309", "-1e309", "1E+400", "1e-400",
                              "0e999", "1e99999999999999999999", "1e-99999999999999999999", "0.00001e314"})
        CHECK(accepts(with_value(large)));
    for (const std::size_t size : {309, 4301, 100'000}) {
        CHECK(accepts(with_value(std::string(size, '7'))));
        CHECK(accepts(with_value("-0." + std::string(size, '0') + "1e" + std::string(size, '9'))));
    }
    for (const char* bad :
         {"01", "-", "-01", "1.", "1.e5", "1e", "1e+", ".5", "+1", "NaN", "Infinity", "-Infinity", "-NaN"})
        CHECK(problem(with_value(bad)) == "0:5:number");
    for (const char* bad : {"0x10", "1_000", "1,", "nan", "1a", "--1", "1e400.5", "1e400e4"})
        CHECK(!accepts(with_value(bad)));
}

void test_grammar() {
    for (const char* good : {"true", "false", "null", "[]", "{}", "[ ]", "{ }", "[1,[2],{\"a\":[]}]", "[[],[]]", "\"\"",
                             " 1\t\r", "{\"a\" :1 , \"b\": \"}\"}"})
        CHECK(accepts(with_value(good)));
    for (const char* bad : {"[1,]",  "[,1]",  "[1 2]",     "{\"a\":1,}", "{,}",  "{\"a\"}", "{\"a\":}",  "{a:1}",
                            "{1:2}", "[1}",   "{\"a\":1]", "tru",        "True", "nul",     "undefined", "'a'",
                            "",      "/**/1", "1//",       "]",          "[",    "{",       "\v1",       "\xC2\xA0"})
        CHECK(problem(with_value(bad)).ends_with(":syntax"));
    CHECK(problem("{\"text\":\"a\"} x") == "0:13:syntax");
    CHECK(problem("{\"text\":\"a\"}{}") == "0:12:syntax");
    CHECK(problem("{\"text\":\"a\"}\0"s) == "0:12:syntax");
    CHECK(problem("{\"text\":\"a\"},\n") == "0:12:syntax");
    CHECK(problem("hello") == "0:0:syntax");
    CHECK(problem("{\"text\":\"a\"}\xFF") == "0:12:utf8");
    CHECK(problem("\xFF") == "0:0:utf8");
    CHECK(problem("{\"text\":\"a\nb\"}") == "0:10:syntax");
    CHECK(problem("{\"text\":\"a\rb\"}") == "0:10:control");
}

void test_other_faults_say_where() {
    CHECK(problem("\xEF\xBB\xBF{\"text\":\"a\"}") == "0:0:bom");
    CHECK(problem("\n\xEF\xBB\xBF{\"text\":\"a\"}") == "1:0:bom");
    for (const char* other : {"1", "\"text\"", "null", "[{\"text\":\"a\"}]", "true"})
        CHECK(problem(" "s + other) == "0:1:not-object");
    CHECK(problem("[1,]") == "0:3:syntax");
    CHECK(problem(" {}") == "0:1:missing");
    CHECK(problem("{\"a\":{\"text\":\"b\"}}") == "0:0:missing");
    for (const char* other : {"1", "true", "[\"a\"]", "{}"})
        CHECK(problem("{\"text\": "s + other + "}") == "0:9:not-string");
    CHECK(problem("{\"text\": nul}") == "0:9:syntax");
}

void test_depth() {
    const auto nested = [](std::size_t depth, const std::string& open, const std::string& close) {
        std::string value;
        for (std::size_t i = 1; i < depth; ++i) value += open;
        value += open == "[" ? "" : "1";
        for (std::size_t i = 1; i < depth; ++i) value += close;
        return with_value(value);
    };
    CHECK(accepts(nested(1024, "[", "]")));
    CHECK(accepts(nested(1024, "{\"a\":", "}")));
    CHECK(problem(nested(1025, "[", "]")) == "0:1028:depth");
    CHECK(problem(nested(1025, "{\"a\":", "}")).ends_with(":depth"));
    CHECK(problem(std::string(100'000, '[')) == "0:1024:depth");
}

// Every pair of bytes, with the bytes that decide its validity after, before and across the end of a block.
void test_utf8_as_the_reference_has_it() {
    const std::string ends[] = {"", "\x80", "\x8F\x80", "\xBF\xBF", "\x80\x80\x80", "\xC2\x80", "a"};
    for (int first = 0x80; first < 256; ++first) {
        for (int second = 0x20; second < 256; ++second) {
            for (const std::string& end : ends) {
                const std::string bytes = {static_cast<char>(first), static_cast<char>(second)};
                for (const std::size_t before : {0, 29, 30, 31}) {
                    extract(
                        with_text("\xC3\xA9" + std::string(before, 'a') + bytes + end + "\\n" + std::string(40, 'b')));
                }
            }
        }
    }
    for (const char* good : {"\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xEF\xBF\xBF",
                             "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
        CHECK(text(with_text(good)) == good);
    for (const char* bad :
         {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
          "\xF5\x80\x80\x80", "\xFF", "\xC2", "\xE4\xB8", "\xF0\x9F\x98", "\xC2\xC2\x80", "\xE4\xB8\xAD\xAD"})
        CHECK(problem(with_text("a"s + bad)).ends_with(":utf8"));
}

// Kernels agree on lines with any kind of damage.
void test_every_kernel_agrees_with_scalar() {
    std::mt19937 random(1);
    const std::string seeds[] = {
        "{\"id\":12,\"text\":\"It's a \\\"test\\\"\\n\\nof \xE4\xB8\xAD\xE6\x96\x87 and "
        "\xD0\x9C\xD0\xBE\xD1\x81\xD0\xBA\xD0\xB2\xD0\xB0 \\ud83d\\ude00!\",\"meta\":{\"a\":[1,2.5e3,null]}}",
        "{\"text\":\"0123456789012345678901234567890123456789012345678901234567890123456789\"}"};
    const std::string interesting = "\"\\\n\x80\xC3\xE4\xED\xF0\xFF{}[]:,u0d8 \x1F"s;
    for (int i = 0; i < 20'000; ++i) {
        std::string line = seeds[i % 2];
        for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
            const std::size_t at = random() % line.size();
            const char byte = random() % 2 ? interesting[random() % interesting.size()] : static_cast<char>(random());
            if (random() % 3 == 0) {
                line.erase(at, 1 + random() % 4);
            } else if (random() % 2) {
                line.insert(at, 1, byte);
            } else {
                line[at] = byte;
            }
        }
        extract(line + "\n" + seeds[0]);
    }
}

}  // namespace

int main() {
    test_documents_come_in_order_and_blank_lines_count();
    test_last_of_repeated_members_counts();
    test_keys_may_be_escaped();
    test_every_escape();
    test_strings_of_every_length_around_a_block();
    test_a_line_cut_at_every_byte_is_refused();
    test_numbers();
    test_grammar();
    test_other_faults_say_where();
    test_depth();
    test_utf8_as_the_reference_has_it();
    test_every_kernel_agrees_with_scalar();
    return test_result();
}
