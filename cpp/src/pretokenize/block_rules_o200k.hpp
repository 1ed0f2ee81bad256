// o200k for 64 characters at a time: see piece_end in specification.hpp, and block_rules.hpp for the conventions.
#pragma once

#include "pretokenize/block_rules.hpp"

namespace gristmill {
namespace {

// Subtle: a mark is a letter of a word or, inside a piece of punctuation, an "other" like the rest of it; a slash is an
// "other" or taken along with newlines. The first step decides both, and the rest works with disjoint classes.
template <>
struct BlockRules<O200k> {
    static constexpr std::uint8_t kFiller = ' ';
    using BlockType = CasedBlock;
    static constexpr Contractions kContractions =
        Contractions::none;  // they belong to words here, see find_contractions

    [[gnu::always_inline]] static Mask begins(const BlockScan& scan, const CasedBlock& block, const CasedBlock& next,
                                              Carry& carry) {
        const Punctuation punctuation = find_punctuation(block, next, carry);
        Mask word = block.letter | (block.mark & ~punctuation.run);
        Mask single = punctuation.other & ~punctuation.run;
        Mask contracted = carry.contracted;
        carry.contracted = 0;
        if ((block.apostrophes | contracted) != 0) {
            contracted = find_contractions(block_bytes(scan, scan.position), block, word, contracted, carry);
            word &= ~contracted;
            single &= ~contracted;
        }
        const Mask plain = block.space & ~block.newline;
        const Mask run_begins =
            punctuation.run & ~after(punctuation.run, carry.punctuation) & ~after(block.blank, carry.blank);
        const Mask found = words_begin(scan, block, next, word, plain, single, carry) | number_begins<3>(block, carry) |
                           single | run_begins |
                           free_space_begins<false>(scan, block, next, punctuation.taken, plain, carry);
        carry.punctuation = last_bit(punctuation.run, block);
        carry.blank = last_bit(block.blank, block);
        carry.taken = last_bit(punctuation.taken, block);
        carry.takes_newlines = last_bit(punctuation.other | punctuation.run | punctuation.taken, block);
        return found;
    }

  private:
    struct Punctuation {
        Mask other;  // not a letter, number, white space or mark, and not taken
        Mask run;    // pieces of ` ?[^\s\p{L}\p{N}]+` longer than one "other", including their marks
        Mask taken;  // characters after a run that `[\r\n/]*` takes along
    };

    // Fills runs of `mask` from each bit of `from` to the end of its run.
    static Mask fill(Mask mask, Mask from) { return (mask & ~(mask + from)) | from; }

    // A piece of punctuation begins at an "other" with another one after it or 0x20 before it; an "other" before a mark
    // or a letter is the prefix of a word. The taken characters depend on the marks in runs, and runs on the slashes
    // taken, each only on characters to its left: iteration finds the unique solution, in one step if no run contains a
    // mark.
    [[gnu::always_inline]] static Punctuation find_punctuation(const CasedBlock& block, const CasedBlock& next,
                                                               const Carry& carry) {
        const Mask chars = ~Mask{0} >> (64 - block.num_chars);
        const Mask other_or_mark = chars & ~(block.letter | block.number | block.space);
        const Mask other = other_or_mark & ~block.mark;
        const Mask next_other = ~(next.letter | next.number | next.space | next.mark);
        const Mask begins_run = before(other, next_other, block) | after(block.blank, carry.blank);
        const Mask takeable = block.newline | block.slash;
        Punctuation found{other, 0, 0};
        for (Mask marks = 0;;) {
            const Mask from = (block.newline & after(other | marks, carry.takes_newlines)) | (takeable & carry.taken);
            found.taken = fill(takeable, from);
            found.other = other & ~found.taken;
            const Mask free = other_or_mark & ~found.taken;
            found.run = fill(free, (found.other & begins_run) | (free & carry.punctuation));
            if ((block.mark & found.run) == marks) return found;
            marks = block.mark & found.run;
        }
    }

    // The characters of contractions after words, including those that began in the previous block (`contracted`).
    [[gnu::always_inline]] static Mask find_contractions(const std::uint8_t* text, const CasedBlock& block, Mask word,
                                                         Mask contracted, Carry& carry) {
        for (Mask rest = block.apostrophes; rest != 0; rest &= rest - 1) {
            const unsigned i = __builtin_ctzll(rest);
            const unsigned size = contraction_at<true>(text + i);
            const unsigned first = __builtin_popcountll(block.starts & ((Mask{1} << i) - 1));
            if (size == 0 || !(after(word & ~contracted, carry.letter) >> first & 1)) continue;
            const unsigned num_chars = text[i + 1] >= 0x80 ? 2 : size;  // U+017F has two bytes
            for (unsigned c = first; c < first + num_chars; ++c) {
                (c < block.num_chars ? contracted : carry.contracted) |=
                    Mask{1} << (c - (c < block.num_chars ? 0 : block.num_chars));
            }
        }
        return contracted;
    }

    // capitals*smalls+|capitals+smalls*: a word ends before a capital that follows smalls, and before the last capitals
    // of a run without a small letter after it, if a caseless character comes before those.
    [[gnu::always_inline]] static Mask words_begin(const BlockScan& scan, const CasedBlock& block,
                                                   const CasedBlock& next, Mask word, Mask plain, Mask single,
                                                   Carry& carry) {
        const Mask upper = block.upper & word, lower = block.lower & word, caseless = word & ~(upper | lower);
        const Mask first =
            word & ~(after(word, carry.letter) | after(plain, carry.plain_space) | after(single, carry.other_begins));
        // Caseless characters are smalls after a small letter, and capitals otherwise.
        const Mask small = lower | fill(caseless, caseless & after(lower, carry.small));
        const Mask open = caseless & ~small;
        Mask last_capitals = upper & after(open, carry.open);
        if (last_capitals != 0) last_capitals = without_small_after(scan, block, next, upper, last_capitals);
        const Mask new_word = upper & after(small, carry.small);
        carry.letter = last_bit(word, block);
        carry.plain_space = last_bit(plain, block);
        carry.other_begins = last_bit(single, block);
        carry.small = last_bit(small, block);
        carry.open = last_bit(open, block);
        return first | new_word | last_capitals;
    }

    // The bits of `begins` whose run of capitals is not followed by a small or caseless letter.
    [[gnu::always_inline]] static Mask without_small_after(const BlockScan& scan, const CasedBlock& block,
                                                           const CasedBlock& next, Mask upper, Mask begins) {
        Mask kept = 0;
        for (Mask rest = begins; rest != 0; rest &= rest - 1) {
            const Mask begin = rest & -rest;
            const Mask following = (upper + begin) & ~upper & -begin;  // its lowest bit is the first after the run
            const unsigned end = following != 0 ? __builtin_ctzll(following) : 64;
            const bool small =
                end < block.num_chars ? (block.letter | block.mark) >> end & 1 : small_in_next(scan, next);
            if (!small) kept |= begin;
        }
        return kept;
    }

    // Whether the run of capitals that reaches the end of the block is followed by other letters or marks.
    static bool small_in_next(const BlockScan& scan, const CasedBlock& next) {
        const unsigned length = ~next.upper != 0 ? __builtin_ctzll(~next.upper) : 64;
        if (length < next.num_chars) return (next.letter | next.mark) >> length & 1;
        std::size_t p = scan.position + kBlockBytes + 63 - __builtin_clzll(next.starts);
        Character c{kUpper, 0};
        for (; p < scan.size && c.classes & kUpper; p += c.size) c = character_at(scan.text + p, scan.size - p);
        return !(c.classes & kUpper) && c.classes & (kLetter | kMark);
    }
};

}  // namespace
}  // namespace gristmill
