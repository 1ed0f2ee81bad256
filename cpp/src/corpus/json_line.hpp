// Parses one line of JSON into the text of one field. SIMD kernels include this header, so, as in unicode.hpp, it uses
// no standard header with inline functions, and everything defined here has internal linkage.
#pragma once

#include <cstddef>
#include <cstdint>

#include "corpus/json_plain.hpp"
#include "gristmill/json_fault.hpp"

namespace gristmill {

// Thrown at the first fault of a line.
struct JsonError {
    const std::uint8_t* at;
    JsonFault fault;
};

enum class JsonMember : std::uint8_t { missing, null, text, other };

struct JsonLine {
    const std::uint8_t* end;  // the newline, or the end of the input
    JsonMember member;        // null or text; missing only for a blank line
    std::uint8_t* text_end;
};

struct JsonField {
    const char* name;
    std::size_t size;
};

// Parses the line that starts at `line` and ends at a newline or at `end`, and writes its text to `out`, which must
// have room for the bytes up to `end` and kTextPadding more.
using ParseJsonLine = JsonLine (*)(const std::uint8_t* line, const std::uint8_t* end, JsonField field,
                                   std::uint8_t* out);
JsonLine parse_json_line_scalar(const std::uint8_t*, const std::uint8_t*, JsonField, std::uint8_t*);
JsonLine parse_json_line_avx2(const std::uint8_t*, const std::uint8_t*, JsonField, std::uint8_t*);
JsonLine parse_json_line_neon(const std::uint8_t*, const std::uint8_t*, JsonField, std::uint8_t*);

// Returns the end of the number at `at`, which is a digit or a minus sign. Throws JsonError for a malformed number.
const std::uint8_t* json_number_end(const std::uint8_t* at, const std::uint8_t* end);

namespace {

struct JsonEscapes {
    std::uint8_t plain[256] = {};  // the character for a backslash and this byte, or 0
    std::uint32_t hex[256] = {};   // the value of a hex digit; for other bytes, a bit above four digits

    constexpr JsonEscapes() {
        plain['"'] = '"';
        plain['\\'] = '\\';
        plain['/'] = '/';
        plain['b'] = '\b';
        plain['f'] = '\f';
        plain['n'] = '\n';
        plain['r'] = '\r';
        plain['t'] = '\t';
        for (int c = 0; c < 256; ++c) hex[c] = kNoHex;
        for (int i = 0; i < 10; ++i) hex['0' + i] = static_cast<std::uint32_t>(i);
        for (int i = 0; i < 6; ++i) hex['a' + i] = hex['A' + i] = static_cast<std::uint32_t>(10 + i);
    }
    static constexpr std::uint32_t kNoHex = 0x10000;
};
constexpr JsonEscapes kJsonEscapes;

inline std::uint8_t* write_utf8(std::uint32_t c, std::uint8_t* out) {
    const auto put = [&](std::uint32_t byte) { *out++ = static_cast<std::uint8_t>(byte); };
    if (c < 0x80) {
        put(c);
        return out;
    }
    if (c < 0x800) {
        put(0xC0 | c >> 6);
    } else {
        if (c < 0x10000) {
            put(0xE0 | c >> 12);
        } else {
            put(0xF0 | c >> 18);
            put(0x80 | (c >> 12 & 0x3F));
        }
        put(0x80 | (c >> 6 & 0x3F));
    }
    put(0x80 | (c & 0x3F));
    return out;
}

// `Copy` copies the plain part of strings. Every string is written to the output, and the next one overwrites it unless
// it is the wanted field. The output is never longer than the input read so far, so it cannot overrun.
template <class Copy>
class JsonLineParser {
  public:
    JsonLineParser(const std::uint8_t* line, const std::uint8_t* end, JsonField field, std::uint8_t* out)
        : at_(line), end_(end), field_(field), text_begin_(out), text_end_(out) {}

    JsonLine parse() {
        check_bom();
        skip_space();
        if (peek() == '\n') return {at_, member_, text_end_};
        const std::uint8_t* object = at_;
        if (peek() == '{') {
            parse_members();
        } else {
            skip_value(0);
        }
        skip_space();
        if (peek() != '\n') fail_here();
        if (*object != '{') fail(JsonFault::not_object, object);
        if (member_ == JsonMember::missing) fail(JsonFault::missing, object);
        if (member_ == JsonMember::other) fail(JsonFault::not_string, value_);
        return {at_, member_, text_end_};
    }

  private:
    [[noreturn]] static void fail(JsonFault fault, const std::uint8_t* at) { throw JsonError{at, fault}; }

    // Reports a byte that is not allowed at this position.
    [[noreturn]] void fail_here() const {
        const bool utf8 = at_ == end_ || sequence_size(at_, static_cast<std::size_t>(end_ - at_));
        fail(utf8 ? JsonFault::syntax : JsonFault::utf8, at_);
    }

    // A line ends at a newline; the end of the input counts as one.
    std::uint8_t peek() const { return at_ != end_ ? *at_ : '\n'; }
    bool starts_with(const char* text, std::ptrdiff_t size) const {
        return end_ - at_ >= size && __builtin_memcmp(at_, text, static_cast<std::size_t>(size)) == 0;
    }
    void skip_space() {
        while (peek() == ' ' || peek() == '\t' || peek() == '\r') ++at_;
    }
    void check_bom() const {
        if (starts_with("\xEF\xBB\xBF", 3)) fail(JsonFault::bom, at_);
    }

    // Parses the members of the object of the line.
    void parse_members() {
        ++at_;
        skip_space();
        if (peek() == '}') {
            ++at_;
            return;
        }
        for (;;) {
            if (parse_key()) {
                take_value();
            } else {
                skip_value(1);
            }
            skip_space();
            const std::uint8_t c = peek();
            if (c != ',' && c != '}') fail_here();
            ++at_;
            if (c == '}') return;
            skip_space();
        }
    }

    void take_value() {
        value_ = at_;
        if (peek() == '"') {
            text_end_ = unescape(text_begin_);
            member_ = JsonMember::text;
            return;
        }
        text_end_ = text_begin_;
        member_ = peek() == 'n' ? JsonMember::null : JsonMember::other;
        skip_value(1);
    }

    // Moves from the quote of a key to the value. Returns whether the key is the field.
    bool parse_key() {
        if (peek() != '"') fail_here();
        const std::uint8_t* key_end = unescape(text_end_);
        skip_space();
        if (peek() != ':') fail_here();
        ++at_;
        skip_space();
        return static_cast<std::size_t>(key_end - text_end_) == field_.size &&
               __builtin_memcmp(text_end_, field_.name, field_.size) == 0;
    }

    // Moves past the value that starts here, inside `depth` containers. Not recursive, because the input decides the
    // depth.
    void skip_value(const std::size_t outer_depth) {
        char closers[kMaxJsonDepth + 1];
        std::size_t depth = outer_depth;
        for (;;) {
            const std::uint8_t c = peek();
            bool closed = true;
            if (c == '{' || c == '[') {
                if (depth == kMaxJsonDepth) fail(JsonFault::depth, at_);
                closers[++depth] = c == '{' ? '}' : ']';
                ++at_;
                skip_space();
                closed = peek() == closers[depth];
                if (!closed && c == '{') parse_key();
            } else {
                skip_scalar(c);
            }
            // After a value, or before the end of an empty container: close the containers that end here.
            while (closed) {
                if (depth == outer_depth) return;
                skip_space();
                const std::uint8_t next = peek();
                if (next == closers[depth]) {
                    ++at_;
                    --depth;
                    continue;
                }
                if (next != ',') fail_here();
                ++at_;
                skip_space();
                if (closers[depth] == '}') parse_key();
                closed = false;
            }
        }
    }

    void skip_scalar(std::uint8_t c) {
        if (c == '"') {
            unescape(text_end_);
        } else if (c == '-' || (c >= '0' && c <= '9')) {
            at_ = json_number_end(at_, end_);
        } else if (starts_with("true", 4) || starts_with("null", 4)) {
            at_ += 4;
        } else if (starts_with("false", 5)) {
            at_ += 5;
        } else {
            const bool number = c == '+' || c == '.' || starts_with("NaN", 3) || starts_with("Infinity", 8);
            if (number) fail(JsonFault::number, at_);
            fail_here();
        }
    }

    // Writes the string that starts at this quote to `out`, moves past it, and returns the end of the output.
    std::uint8_t* unescape(std::uint8_t* out) {
        ++at_;
        for (;;) {
            const Copied copied = Copy::plain(at_, end_, out);
            at_ = copied.in;
            out = copied.out;
            if (peek() != '\\') break;
            // Escapes come in runs, such as \n\n or a text of \uXXXX only; an empty copy between them would halve the
            // speed.
            do {
                out = unescape_one(out);
            } while (peek() == '\\');
        }
        if (peek() < 0x20 && peek() != '\n') fail(JsonFault::control, at_);
        if (peek() != '"') fail_here();
        ++at_;
        return out;
    }

    std::uint8_t* unescape_one(std::uint8_t* out) {
        const std::uint8_t* backslash = at_++;
        const std::uint8_t c = peek();
        if (const std::uint8_t plain = kJsonEscapes.plain[c]) {
            ++at_;
            *out = plain;
            return out + 1;
        }
        if (c != 'u') fail_here();
        ++at_;
        std::uint32_t unit = parse_hex();
        if (unit >= 0xD800 && unit < 0xE000) {
            if (unit >= 0xDC00 || !starts_with("\\u", 2)) fail(JsonFault::surrogate, backslash);
            at_ += 2;
            const std::uint32_t low = parse_hex();
            if (low < 0xDC00 || low >= 0xE000) fail(JsonFault::surrogate, backslash);
            unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
        }
        return write_utf8(unit, out);
    }

    std::uint32_t parse_hex() {
        std::uint32_t value = 0;
        if (end_ - at_ >= 4) {
            for (int i = 0; i < 4; ++i) value = value << 4 | kJsonEscapes.hex[at_[i]];
        }
        if (end_ - at_ < 4 || value > 0xFFFF) fail_in_hex();
        at_ += 4;
        return value;
    }
    [[noreturn]] void fail_in_hex() {
        while (kJsonEscapes.hex[peek()] != JsonEscapes::kNoHex) ++at_;
        fail_here();
    }

    const std::uint8_t* at_;
    const std::uint8_t* const end_;
    const JsonField field_;
    std::uint8_t* const text_begin_;
    std::uint8_t* text_end_;
    JsonMember member_ = JsonMember::missing;
    const std::uint8_t* value_ = nullptr;  // value of the last member named `field`
};

}  // namespace
}  // namespace gristmill
