// The patterns: the end of the piece that starts at a position, from the classes of the bytes in shared memory.
// cpp/src/pretokenize/specification.hpp has the regular expressions; these functions agree with it on every input.
#pragma once

#include "count_state.cuh"

namespace gristmill::gpu {

// Bytes of a text and their classes in shared memory. Positions are offsets in both.
struct LoadedText {
    const u8* bytes;
    const u8* classes;

    __device__ u32 after(u32 p) const {
        do ++p;
        while (classes[p] == kInside);
        return p;
    }
};

constexpr u32 kNotInReach = ~0u;  // the piece or what follows it is not loaded

// The end of a run of characters of some classes that includes the one at p.
__device__ __forceinline__ u32 run_end(const LoadedText& text, u32 p, u8 kinds) {
    do ++p;
    while (text.classes[p] & kinds);
    return p;
}

__device__ __forceinline__ u32 if_loaded(const LoadedText& text, u32 end) {
    return text.classes[end] == kNotLoaded ? kNotInReach : end;
}

// '(?:[sdmt]|ll|ve|re): its size in bytes, 0 if there is none, or kNotInReach. If case is ignored, U+017F is an s.
template <bool kIgnoreCase>
__device__ inline u32 contraction_size(const LoadedText& text, u32 p) {
    if (text.bytes[p] != '\'' || text.classes[p] == kNoText) return 0;
    const u8 first_class = text.classes[p + 1];
    if (first_class == kNotLoaded) return kNotInReach;
    if (!(first_class & kLetter) || first_class == kInside) return 0;
    const u8 fold = kIgnoreCase ? 0x20 : 0;
    const u8 byte = text.bytes[p + 1];
    if (byte >= 0x80) return kIgnoreCase && byte == 0xC5 && text.bytes[p + 2] == 0xBF ? 3 : 0;
    const u8 first = byte | fold;
    if (first == 's' || first == 'd' || first == 'm' || first == 't') return 2;
    if (first != 'l' && first != 'v' && first != 'r') return 0;
    const u8 second_class = text.classes[p + 2];
    if (second_class == kNotLoaded) return kNotInReach;
    if (!(second_class & kLetter) || text.bytes[p + 2] >= 0x80) return 0;
    const u8 second = text.bytes[p + 2] | fold;
    return second == (first == 'l' ? 'l' : 'e') ? 3 : 0;
}

struct SpaceRun {
    u32 end;
    u32 last;           // start of its last character
    u32 after_newline;  // end of its last newline, or its start if it has none
};

__device__ inline SpaceRun space_run(const LoadedText& text, u32 begin) {
    SpaceRun run{begin, begin, begin};
    for (u8 c = text.classes[begin]; c & kSpace; c = text.classes[++run.end]) {
        if (c == kInside) continue;
        run.last = run.end;
        if (c & kNewline) run.after_newline = run.end + 1;
    }
    return run;
}

// \s+(?!\S)|\s
__device__ inline u32 space_end(const LoadedText& text, u32 begin, const SpaceRun& run) {
    return text.classes[run.end] == kNoText || run.last == begin ? run.end : run.last;
}

// Each pattern has piece_end(), and is_start(), which decides from two adjacent characters that a piece starts between
// them, whatever surrounds them. These places are frequent in every text, so that threads can start to look for pieces
// anywhere. It is enough to recognize some of the starts.
template <bool kKeepsWords>
struct Starts {
    __device__ static bool is_start(u8 before, u8 c, u8 byte) {
        if (c == kNoText) return false;
        if (before == kNoText) return true;
        if (c == kBlankSpace) return before & kVisible;
        if (kKeepsWords) return false;
        if (before & kNumber) return !(c & kNumber);
        // Marks and apostrophes may continue a word of o200k.
        return before & kLetter && !(c & (kLetter | kNumber | kCaseless)) && byte != '\'';
    }
};

struct Gpt2 : Starts<false> {
    __device__ static u32 piece_end(const LoadedText& text, u32 begin) {
        if (const u32 size = contraction_size<false>(text, begin)) return size == kNotInReach ? size : begin + size;
        const u32 p = begin + (text.classes[begin] == kBlankSpace);
        if (const u8 kind = text.classes[p] & kVisible) return if_loaded(text, run_end(text, p, kind));
        const SpaceRun run = space_run(text, begin);
        return if_loaded(text, run.end) == kNotInReach ? kNotInReach : space_end(text, begin, run);
    }
};

template <u32 kMaxDigits>
__device__ inline u32 number_end(const LoadedText& text, u32 begin) {
    u32 p = text.after(begin);
    for (u32 i = 1; i < kMaxDigits && text.classes[p] & kNumber; ++i) p = text.after(p);
    return if_loaded(text, p);
}

template <u32 kMaxDigits, bool kSpaceToEnd>
struct Cl100k : Starts<false> {
    __device__ static u32 piece_end(const LoadedText& text, u32 begin) {
        if (const u32 size = contraction_size<true>(text, begin)) return size == kNotInReach ? size : begin + size;
        const u8 c = text.classes[begin];
        if (c & kLetter) return if_loaded(text, run_end(text, begin, kLetter));
        if (c & kNumber) return number_end<kMaxDigits>(text, begin);
        const u32 second = text.after(begin);
        const u8 d = text.classes[second];
        if (d == kNotLoaded) return kNotInReach;
        if (!(c & kNewline) && d & kLetter) return if_loaded(text, run_end(text, second, kLetter));
        if (c & kOther || (c == kBlankSpace && d & kOther)) {
            u32 p = run_end(text, c & kOther ? begin : second, kOther);
            while (text.classes[p] & kNewline) ++p;
            return if_loaded(text, p);
        }
        const SpaceRun run = space_run(text, begin);
        if (if_loaded(text, run.end) == kNotInReach) return kNotInReach;
        if (kSpaceToEnd && text.classes[run.end] == kNoText) return run.end;
        return run.after_newline != begin ? run.after_newline : space_end(text, begin, run);
    }
};

struct O200k : Starts<false> {
    // capitals*smalls+ or else capitals+smalls*: the end of the match, or `begin` if neither matches.
    __device__ static u32 word_end(const LoadedText& text, u32 begin) {
        u32 p = begin, after_caseless = begin;
        u8 c = text.classes[p];
        while (c & kCapital) {
            const bool is_caseless = (c & kCaseless) == kCaseless;
            p = text.after(p);
            if (is_caseless) after_caseless = p;
            c = text.classes[p];
        }
        if (c == kNotLoaded) return kNotInReach;
        if (c & kSmall) return if_loaded(text, run_end(text, p, kSmall));
        // Without a small letter after the capitals, `smalls+` backtracks to the last character of both sets.
        return after_caseless != begin ? after_caseless : p;
    }

    __device__ static u32 piece_end(const LoadedText& text, u32 begin) {
        const u8 c = text.classes[begin];
        const u32 second = text.after(begin);
        const u8 d = text.classes[second];
        // A mark is both a possible prefix and a letter of both sets; both readings end at the same position.
        const bool has_prefix = !(c & (kNewline | kLetter | kNumber | kCaseless));
        const u32 word = has_prefix ? second : begin;
        const u32 end = word_end(text, word);
        if (end == kNotInReach) return end;
        if (end != word) {
            const u32 size = contraction_size<true>(text, end);
            return size == kNotInReach ? size : end + size;
        }
        if (c & kNumber) return number_end<3>(text, begin);
        if (d == kNotLoaded) return kNotInReach;
        if (c & kOther || (c == kBlankSpace && d & kOther)) {
            u32 p = run_end(text, c & kOther ? begin : second, kOther);
            while (text.classes[p] & kNewline || (text.classes[p] & kOther && text.bytes[p] == '/')) ++p;
            return if_loaded(text, p);
        }
        const SpaceRun run = space_run(text, begin);
        if (if_loaded(text, run.end) == kNotInReach) return kNotInReach;
        return run.after_newline != begin ? run.after_newline : space_end(text, begin, run);
    }
};

struct Whitespace : Starts<true> {
    __device__ static u32 piece_end(const LoadedText& text, u32 begin) {
        const u32 p = begin + (text.classes[begin] == kBlankSpace);
        if (text.classes[p] & kVisible) return if_loaded(text, run_end(text, p, kVisible));
        const SpaceRun run = space_run(text, begin);
        return if_loaded(text, run.end) == kNotInReach ? kNotInReach : space_end(text, begin, run);
    }
};

// The names of cpp/include/gristmill/pattern_list.hpp.
namespace pattern {
using gpt2 = Gpt2;
using cl100k = Cl100k<3, true>;
using o200k = O200k;
using llama3 = Cl100k<3, false>;
using nanochat = Cl100k<2, false>;
using qwen2 = Cl100k<1, false>;
using whitespace = Whitespace;
}  // namespace pattern

}  // namespace gristmill::gpu
