// The parsers of single characters and numbers, which every other parser uses: UTF-8 with the classes of its
// characters, and JSON numbers, against the plain rules.
#include "corpus/json_line.hpp"
#include "fuzz.hpp"
#include "pretokenize/unicode.hpp"

using namespace gristmill;
using namespace gristmill::fuzz;

namespace {

// The size of the valid character at the start of `text`, by the ranges of its code point; 0 if that is not a
// character.
std::size_t character_size(std::string_view text, std::uint32_t& code_point) {
    const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<std::uint8_t>(text[i])); };
    const std::uint32_t lead = byte(0);
    const std::size_t size = lead < 0x80   ? 1
                             : lead < 0xC0 ? 0
                             : lead < 0xE0 ? 2
                             : lead < 0xF0 ? 3
                             : lead < 0xF8 ? 4
                                           : 0;
    if (size == 0 || size > text.size()) return 0;
    code_point = size == 1 ? lead : lead & ((1u << (7 - size)) - 1);
    for (std::size_t i = 1; i < size; ++i) {
        if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
        code_point = code_point * 64 + (byte(i) - 0x80);
    }
    constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    const bool is_surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
    return code_point < kLeast[size] || code_point > 0x10FFFF || is_surrogate ? 0 : size;
}

void check_classes(const std::uint8_t* p, std::size_t size, std::uint32_t code_point, std::uint8_t classes) {
    CHECK(classes == classes_of(code_point));
    CHECK(((classes & kLetter) != 0) + ((classes & kNumber) != 0) + ((classes & kSpace) != 0) <= 1);
    if (classes & (kUpper | kLower)) CHECK(classes & kLetter);
    CHECK(((classes & kBlank) != 0) == (code_point == 0x20));
    CHECK(((classes & kNewline) != 0) == (code_point == '\n' || code_point == '\r'));
    if (size == 1) return;
    // What the kernels conclude from a lead byte alone.
    const unsigned row = (p[0] - 0xC0u) / 16, column = p[0] % 16;
    if (kLetterLeads[column] >> row & 1) CHECK(classes & kLetter);
    if (kCaselessLeads[column] >> row & 1) CHECK((classes & kLetter) && !(classes & (kUpper | kLower)));
}

void check_characters(const std::uint8_t* p, std::size_t available) {
    for (; available; ++p, --available) {
        std::uint32_t code_point = 0;
        const std::size_t size = character_size({reinterpret_cast<const char*>(p), available}, code_point);
        CHECK(sequence_size(p, available) == size);
        const Character character = character_at(p, available);
        if (size == 0) {
            CHECK(character.size == 1 && character.classes == 0);
            continue;
        }
        CHECK(character.size == size && code_point_of(p, character.size) == code_point);
        std::uint8_t written[4];
        CHECK(write_utf8(code_point, written) == written + size && std::memcmp(written, p, size) == 0);
        check_classes(p, size, code_point, character.classes);
    }
}

// -? (0 | [1-9][0-9]*) (\.[0-9]+)? ([eE][-+]?[0-9]+)?, as long as possible. Returns 0 for a number that is malformed: a
// leading zero, or a part without digits.
std::size_t number_size(std::string_view text) {
    std::size_t at = 0;
    const auto is_at = [&](const char* any) { return at < text.size() && text[at] && std::strchr(any, text[at]); };
    const auto skip_digits = [&] {
        const std::size_t begin = at;
        while (is_at("0123456789")) ++at;
        return at - begin;
    };
    if (is_at("-")) ++at;
    const bool has_zero = is_at("0");
    const std::size_t num_digits = skip_digits();
    if (num_digits == 0 || (has_zero && num_digits > 1)) return 0;
    if (is_at(".")) {
        ++at;
        if (!skip_digits()) return 0;
    }
    if (is_at("eE")) {
        ++at;
        if (is_at("+-")) ++at;
        if (!skip_digits()) return 0;
    }
    return at;
}

void check_number(const std::uint8_t* text, std::size_t size) {
    if (size == 0 || (*text != '-' && (*text < '0' || *text > '9'))) return;
    const std::size_t expected = number_size({reinterpret_cast<const char*>(text), size});
    try {
        CHECK(json_number_end(text, text + size) == text + expected);
        CHECK(expected > 0);
    } catch (const JsonError& error) {
        CHECK(expected == 0 && error.at == text && error.fault == JsonFault::number);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    // libFuzzer's copy of the input has exactly its size, so AddressSanitizer detects a read outside it.
    check_characters(data, size);
    check_number(data, size);
    return 0;
}
