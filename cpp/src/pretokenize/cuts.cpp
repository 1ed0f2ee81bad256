// Finds positions where a text may be cut in two without changing a piece.
//
// All patterns: after a visible character, before ASCII white space other than \r and \n. A piece of visible characters
// never contains or ends with white space, so a piece ends at the cut. No look-ahead crosses it, because the only one,
// (?!\S), and the end of the text affect only white space, and the left part does not end in white space.
//
// Before \r or \n, the patterns cl100k, o200k, llama3, nanochat and qwen2 need one more condition, because `[\r\n]*`
// lets punctuation (and in o200k marks, as part of it) take newlines along: the character before must be a letter or a
// number.
#include <cstring>

#include "gristmill/pretokenize.hpp"
#include "pretokenize/unicode.hpp"

namespace gristmill {
namespace {

// The classes of the character that ends at text + p. Looking back needs no context, because the lead byte of a valid
// sequence cannot be part of another one.
std::uint8_t classes_before(const std::uint8_t* text, std::size_t p) {
    for (std::size_t size = 1; size <= 4 && size <= p; ++size) {
        const std::uint8_t* lead = text + p - size;
        if (is_continuation(*lead)) continue;
        const Character c = character_at(lead, size);
        return c.size == size ? c.classes : 0;
    }
    return 0;
}

#define GRISTMILL_PATTERN(name, ...) __VA_ARGS__::kNewlineNeedsWord,
constexpr bool kNewlineNeedsWord[] = {GRISTMILL_PATTERNS(GRISTMILL_PATTERN)};
#undef GRISTMILL_PATTERN

bool is_ascii_space(std::uint8_t byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }

bool may_cut(bool newline_needs_word, const std::uint8_t* text, std::size_t p) {
    if (!is_ascii_space(text[p]) || is_ascii_space(text[p - 1])) return false;
    const std::uint8_t before = classes_before(text, p);
    const bool newline = text[p] == '\r' || text[p] == '\n';
    return newline && newline_needs_word ? before & (kLetter | kNumber) : !(before & kSpace);
}

// Whether any of 8 bytes is below 0x21; a cut is always before such a byte.
bool has_low_byte(const std::uint8_t* p) {
    std::uint64_t word;
    std::memcpy(&word, p, sizeof word);
    return (word - 0x2121212121212121u) & ~word & 0x8080808080808080u;
}

}  // namespace

std::size_t find_cut(Pattern pattern, const std::uint8_t* text, std::size_t size, std::size_t from) {
    const bool newline_needs_word = kNewlineNeedsWord[static_cast<std::size_t>(pattern)];
    std::size_t p = from > 0 ? from : 1;
    while (p < size) {
        if (p + 8 <= size && !has_low_byte(text + p)) {
            p += 8;
            continue;
        }
        const std::size_t stop = size - p < 8 ? size : p + 8;
        for (; p < stop; ++p) {
            if (may_cut(newline_needs_word, text, p)) return p;
        }
    }
    return kNoCut;
}

std::size_t Cutter::first(const std::uint8_t* text, std::size_t size, std::size_t from, std::size_t to) const {
    SpecialSpans spans(specials_);
    return first(spans, text, size, from, to);
}

std::size_t Cutter::first(SpecialSpans& spans, const std::uint8_t* text, std::size_t size, std::size_t from,
                          std::size_t to) const {
    while (from < to && (from = find_cut(pattern_, text, to, from)) != kNoCut) {
        if (!spans.cover(text, size, from)) return from;
        ++from;
    }
    return kNoCut;
}

std::size_t Cutter::last(std::string_view text, std::size_t start) const {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
    // A special may begin in the last bytes and end after them, or be longer than the part in this text: nothing from
    // there on is certain, and neither is a look back across it.
    const std::size_t unsure = specials_.longest() ? specials_.longest() - 1 : 0;
    if (text.size() <= unsure || start >= text.size()) return 0;
    const std::size_t size = text.size() - unsure;
    SpecialSpans spans(specials_);
    // Search near the end first, then twice as far back each time: real text has a cut within a few bytes.
    for (std::size_t reach = 64, to = size;; reach *= 2) {
        const std::size_t from = std::max(start + 1, size > reach ? size - reach : 1);
        std::size_t last = 0;
        for (std::size_t at = from; (at = first(spans, bytes, text.size(), at, to)) != kNoCut; ++at) last = at;
        if (last) return last;
        if (from <= start + 1) return 0;
        to = from;
    }
}

}  // namespace gristmill
