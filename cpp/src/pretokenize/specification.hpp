// The specification: for every family of patterns a function that returns the end of the piece that starts at `begin`,
// written in the order of its regular expression. Kernels must agree with it on every input.
//
// Each function takes time linear in the text, although the expressions, taken literally, backtrack: a function that
// reads past the piece it returns has read a run that the next one or two pieces consume.
#pragma once

#include "gristmill/pattern_list.hpp"
#include "pretokenize/unicode.hpp"

namespace gristmill {
namespace {

struct Text {
    const std::uint8_t* data;
    std::size_t size;

    Character at(std::size_t p) const { return p < size ? character_at(data + p, size - p) : Character{0, 0}; }
};

inline bool is_letter(Character c) { return c.classes & kLetter; }
inline bool is_number(Character c) { return c.classes & kNumber; }
inline bool is_space(Character c) { return c.classes & kSpace; }
inline bool is_newline(Character c) { return c.classes & kNewline; }
inline bool is_blank(Character c) { return c.classes & kBlank; }
inline bool is_other(Character c) { return c.size != 0 && !(c.classes & (kLetter | kNumber | kSpace)); }
inline bool is_visible(Character c) { return c.size != 0 && !is_space(c); }
// [^\r\n\p{L}\p{N}]: the optional character before a word in cl100k and related patterns.
inline bool is_word_prefix(Character c) { return c.size != 0 && !(c.classes & (kNewline | kLetter | kNumber)); }

template <bool (*kIs)(Character)>
std::size_t skip(const Text& text, std::size_t p) {
    Character c = text.at(p);
    while (kIs(c)) c = text.at(p += c.size);
    return p;
}

// '(?:[sdmt]|ll|ve|re): its size in bytes, or 0. If case is ignored, U+017F (long s) counts as an s.
template <bool kIgnoreCase>
std::size_t contraction_size(const Text& text, std::size_t p) {
    const auto byte = [&](std::size_t i) -> std::uint8_t { return p + i < text.size ? text.data[p + i] : 0; };
    const auto letter = [&](std::size_t i) -> std::uint8_t {
        return kIgnoreCase && byte(i) < 0x80 ? byte(i) | 0x20 : byte(i);
    };
    if (byte(0) != '\'') return 0;
    const std::uint8_t first = letter(1), second = letter(2);
    if (first == 's' || first == 'd' || first == 'm' || first == 't') return 2;
    if (first == 'l' && second == 'l') return 3;
    if ((first == 'v' || first == 'r') && second == 'e') return 3;
    if (kIgnoreCase && byte(1) == 0xC5 && byte(2) == 0xBF) return 3;
    return 0;
}

struct SpaceRun {
    std::size_t end;
    std::size_t last;           // start of its last character
    std::size_t after_newline;  // end of its last newline, or its start if it has none
};

inline SpaceRun space_run(const Text& text, std::size_t begin) {
    SpaceRun run{begin, begin, begin};
    for (Character c = text.at(begin); is_space(c); c = text.at(run.end)) {
        run.last = run.end;
        run.end += c.size;
        if (is_newline(c)) run.after_newline = run.end;
    }
    return run;
}

// \s+(?!\S)|\s: all but the last character of the run, which may belong to the next word; all of it at the end of text.
inline std::size_t space_end(const Text& text, std::size_t begin, const SpaceRun& run) {
    return run.end == text.size || run.last == begin ? run.end : run.last;
}

// '(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s
inline std::size_t piece_end(Gpt2, const Text& text, std::size_t begin) {
    if (const std::size_t size = contraction_size<false>(text, begin)) return begin + size;
    const std::size_t p = begin + is_blank(text.at(begin));
    const Character c = text.at(p);
    if (is_letter(c)) return skip<is_letter>(text, p);
    if (is_number(c)) return skip<is_number>(text, p);
    if (is_other(c)) return skip<is_other>(text, p);
    return space_end(text, begin, space_run(text, begin));
}

// cl100k, llama3, nanochat and qwen2 differ only in the length of a number and in `\s++$`, which cl100k alone has:
//   '(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|
//   ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s
//   (?i:'s|'t|…)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
template <int kMaxDigits, bool kSpaceToEnd>
std::size_t piece_end(Cl100k<kMaxDigits, kSpaceToEnd>, const Text& text, std::size_t begin) {
    if (const std::size_t size = contraction_size<true>(text, begin)) return begin + size;
    const Character c = text.at(begin);
    const std::size_t second = begin + c.size;
    if (is_letter(c) || (is_word_prefix(c) && is_letter(text.at(second)))) return skip<is_letter>(text, second);
    if (is_number(c)) {
        std::size_t p = second;
        for (int i = 1; i < kMaxDigits && is_number(text.at(p)); ++i) p += text.at(p).size;
        return p;
    }
    if (is_other(c) || (is_blank(c) && is_other(text.at(second)))) {
        return skip<is_newline>(text, skip<is_other>(text, second));
    }
    const SpaceRun run = space_run(text, begin);
    if (kSpaceToEnd && run.end == text.size) return run.end;
    if (run.after_newline != begin) return run.after_newline;
    return space_end(text, begin, run);
}

// o200k's two overlapping letter sets: capitals [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and smalls [\p{Ll}\p{Lm}\p{Lo}\p{M}].
inline bool is_caseless(Character c) { return c.classes & kMark || (is_letter(c) && !(c.classes & (kUpper | kLower))); }
inline bool is_small(Character c) { return c.classes & kLower || is_caseless(c); }
inline bool is_newline_or_slash(const Text& text, std::size_t p) {
    return p < text.size && (text.data[p] == '\r' || text.data[p] == '\n' || text.data[p] == '/');
}

// capitals*smalls+ or else capitals+smalls*: the end of the match, or `begin` if neither matches.
inline std::size_t o200k_word_end(const Text& text, std::size_t begin) {
    std::size_t p = begin, after_caseless = begin;
    Character c = text.at(p);
    for (; c.classes & kUpper || is_caseless(c); c = text.at(p)) {
        p += c.size;
        if (is_caseless(c)) after_caseless = p;
    }
    if (c.classes & kLower) return skip<is_small>(text, p);
    // Subtle: without a small letter after the capitals, `smalls+` backtracks to the last character of both sets, and
    // the capitals after it begin a new word. If no character is in both sets, the second alternative takes them all.
    return after_caseless != begin ? after_caseless : p;
}

// [^\r\n\p{L}\p{N}]?capitals*smalls+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?capitals+smalls*(?i:'s|…)?
//   |\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
inline std::size_t piece_end(O200k, const Text& text, std::size_t begin) {
    const Character c = text.at(begin);
    const std::size_t second = begin + c.size;
    // A mark is both a possible prefix and a letter of both sets; both readings end at the same position.
    const bool has_prefix = is_word_prefix(c) && !(c.classes & kMark);
    const std::size_t word = has_prefix ? second : begin;
    const std::size_t word_end = o200k_word_end(text, word);
    if (word_end != word) return word_end + contraction_size<true>(text, word_end);
    if (is_number(c)) {
        std::size_t p = second;
        for (int i = 1; i < 3 && is_number(text.at(p)); ++i) p += text.at(p).size;
        return p;
    }
    if (is_other(c) || (is_blank(c) && is_other(text.at(second)))) {
        std::size_t p = skip<is_other>(text, second);
        while (is_newline_or_slash(text, p)) ++p;
        return p;
    }
    const SpaceRun run = space_run(text, begin);
    return run.after_newline != begin ? run.after_newline : space_end(text, begin, run);
}

//  ?\S+|\s+(?!\S)|\s+
inline std::size_t piece_end(Whitespace, const Text& text, std::size_t begin) {
    const std::size_t p = begin + is_blank(text.at(begin));
    if (is_visible(text.at(p))) return skip<is_visible>(text, p);
    return space_end(text, begin, space_run(text, begin));
}

}  // namespace
}  // namespace gristmill
