// Characters of a text and their classes. SIMD kernels include this header: it uses no standard header with inline
// functions, and everything defined here has internal linkage, so that no code compiled for a newer CPU is linked into
// the baseline.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gristmill {

// Flags; tools/unicode_tables.py writes the same bits. A character without kLetter, kNumber and kSpace is "other".
enum CharClass : std::uint8_t {
    kLetter = 1,    // \p{L}
    kNumber = 2,    // \p{N}
    kSpace = 4,     // \s
    kUpper = 8,     // [\p{Lu}\p{Lt}]
    kLower = 16,    // \p{Ll}
    kMark = 32,     // \p{M}
    kNewline = 64,  // [\r\n]
    kBlank = 128,   // 0x20
};

extern const char kUnicodeVersion[];
// The classes of code point c are kClasses[kClassRow[c >> 6]][c & 63].
extern const std::uint16_t kClassRow[];
extern const std::uint8_t kClasses[][64];
// The first rows again, for speed: most characters are ASCII.
extern const std::uint8_t kAsciiClasses[128];
// Bit r of entry i: every valid sequence that begins with byte 0xC0 + 16 r + i is a letter.
extern const std::uint8_t kLetterLeads[16];
// The same for letters without case (neither kUpper nor kLower).
extern const std::uint8_t kCaselessLeads[16];

namespace {

inline std::uint8_t classes_of(std::uint32_t code_point) {
    return kClasses[kClassRow[code_point >> 6]][code_point & 63];
}

struct Character {
    std::uint8_t classes;
    std::uint8_t size;  // bytes; 0 only after the end of the text
};

inline bool is_continuation(std::uint8_t byte) { return (byte & 0xC0) == 0x80; }

// The size of the valid UTF-8 sequence that begins with p[0], or 0: no overlong form, no surrogate, at most U+10FFFF.
inline std::uint8_t sequence_size(const std::uint8_t* p, std::size_t available) {
    if (p[0] < 0x80) return 1;
    if (p[0] < 0xC2 || p[0] > 0xF4 || available < 2) return 0;
    if (p[0] < 0xE0) return is_continuation(p[1]) ? 2 : 0;
    const std::uint8_t least = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    const std::uint8_t most = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < least || p[1] > most || available < 3 || !is_continuation(p[2])) return 0;
    if (p[0] < 0xF0) return 3;
    return available >= 4 && is_continuation(p[3]) ? 4 : 0;
}

inline std::uint32_t code_point_of(const std::uint8_t* p, std::uint8_t size) {
    if (size == 1) return p[0];
    if (size == 2) return (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
    if (size == 3) return (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    return (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

// The character that begins at p. A byte that does not begin a valid sequence is one character of class "other".
inline Character character_at(const std::uint8_t* p, std::size_t available) {
    if (p[0] < 0x80) return {kAsciiClasses[p[0]], 1};
    const std::uint8_t size = sequence_size(p, available);
    if (size == 0) return {0, 1};
    return {classes_of(code_point_of(p, size)), size};
}

}  // namespace
}  // namespace gristmill
