// Finds the characters of a block that begin a piece, 64 at a time. One struct per family of patterns:
//   kFiller        the byte after the end of the text, chosen so that the end needs no special rule;
//   BlockType      the class masks that the family needs: Block or CasedBlock;
//   kContractions  which of 's, 'll and so on are separate pieces;
//   begins()       the mask of characters that begin a piece, apart from contractions, and the carry to the next block.
// specification.hpp defines the result. Bits after the last character are undefined in every mask here.
#pragma once

#include "pretokenize/bit_packing.hpp"
#include "pretokenize/block_scan.hpp"
#include "pretokenize/unicode.hpp"

namespace gristmill {
namespace {

template <class Family>
struct BlockRules;

enum class Contractions { none, exact_case, any_case };

// Bit i: the mask holds for the character before i. (A sum instead of an or: one instruction.)
inline Mask after(Mask mask, Mask carry) { return mask + mask + carry; }
inline Mask last_bit(Mask mask, const Block& block) { return mask >> (block.num_chars - 1) & 1; }
// Bit i: the mask holds for the character after i, which may be in the next block. Bits after the last character must
// be 0.
inline Mask before(Mask mask, Mask next_mask, const Block& block) {
    return mask >> 1 | (next_mask & 1) << (block.num_chars - 1);
}

inline const std::uint8_t* block_bytes(const BlockScan& scan, std::size_t position) {
    return position < scan.tail_begin ? scan.text + position : scan.tail + (position - scan.tail_begin);
}

// The size in bytes of the contraction at p, or 0; three bytes after p are readable.
template <bool kIgnoreCase>
inline unsigned contraction_at(const std::uint8_t* p) {
    constexpr std::uint32_t kSingle = 1u << ('s' - 'a') | 1u << ('d' - 'a') | 1u << ('m' - 'a') | 1u << ('t' - 'a');
    const unsigned exact = p[1] | p[2] << 8;
    const unsigned pair = kIgnoreCase ? exact | 0x2020 : exact;  // changes only capitals to small letters
    const unsigned letter = (pair & 0xFF) - 'a';
    const unsigned single = letter < 26 ? kSingle >> letter & 1 : 0;
    const bool twin = pair == ('l' | 'l' << 8) || pair == ('v' | 'e' << 8) || pair == ('r' | 'e' << 8) ||
                      (kIgnoreCase && exact == 0xBFC5);  // U+017F, long s
    return single ? 2 : twin ? 3 : 0;
}

// \s+(?!\S)|\s: a run of white space begins a piece, and so does its last character. Filler white space after the end
// of the text extends the run, so that it is not split there.
inline Mask space_begins(const Block& block, const Block& next, Carry& carry) {
    const Mask inside = after(block.space, carry.space) & before(block.space, next.space, block);
    carry.space = last_bit(block.space, block);
    return block.space & ~inside;
}

template <>
struct BlockRules<Gpt2> {
    static constexpr std::uint8_t kFiller = ' ';
    using BlockType = Block;
    static constexpr Contractions kContractions = Contractions::exact_case;

    [[gnu::always_inline]] static Mask begins(const BlockScan&, const Block& block, const Block& next, Carry& carry) {
        const Mask other = ~(block.letter | block.number | block.space);
        const Mask same = (block.letter & after(block.letter, carry.letter)) |
                          (block.number & after(block.number, carry.number)) | (other & after(other, carry.other));
        const Mask visible = ~(block.space | same | after(block.blank, carry.blank));
        carry.letter = last_bit(block.letter, block);
        carry.number = last_bit(block.number, block);
        carry.other = last_bit(other, block);
        carry.blank = last_bit(block.blank, block);
        return visible | space_begins(block, next, carry);
    }
};

template <>
struct BlockRules<Whitespace> {
    static constexpr std::uint8_t kFiller = ' ';
    using BlockType = Block;
    static constexpr Contractions kContractions = Contractions::none;

    [[gnu::always_inline]] static Mask begins(const BlockScan&, const Block& block, const Block& next, Carry& carry) {
        const Mask visible = ~block.space;
        const Mask first = visible & ~after(visible, carry.other) & ~after(block.blank, carry.blank);
        carry.other = last_bit(visible, block);
        carry.blank = last_bit(block.blank, block);
        return first | space_begins(block, next, carry);
    }
};

// \p{N}{1,kMax}: every kMax-th character of a run of numbers begins a piece.
template <int kMax>
[[gnu::always_inline]] inline Mask number_begins(const Block& block, Carry& carry) {
    static_assert(kMax >= 1 && kMax < 16, "a block has at least 16 characters");
    const Mask number = block.number;
    if constexpr (kMax == 1) return number;
    if (number == 0) {
        carry.digits = 0;
        return 0;
    }
    Mask begins = number & ~after(number, carry.digits != 0);
    if (carry.digits != 0) {
        const Mask up_to_begin = (Mask{2} << (kMax - carry.digits)) - 1;
        if ((number & up_to_begin) == up_to_begin) begins |= Mask{1} << (kMax - carry.digits);
    }
    Mask run = number;  // bit i: this character and the kMax - 1 before it are numbers
    for (int i = 1; i < kMax; ++i) run &= number << i;
    for (Mask group = begins << kMax & run; group != 0; group = group << kMax & run) begins |= group;
    // A run at the end of the block has a beginning in the block, because a block has more than kMax characters.
    carry.digits = last_bit(number, block) ? block.num_chars - (63 - __builtin_clzll(begins)) : 0;
    return begins;
}

// Whether the plain white space that continues from the block into `next` is followed by a newline, or by the end of
// the text where that counts as one. Called once per stretch of white space, at its beginning, so the look-ahead is
// linear.
inline bool stretch_meets_newline(const BlockScan& scan, const Block& next, Mask next_plain, bool at_end) {
    const unsigned length = ~next_plain != 0 ? __builtin_ctzll(~next_plain) : 64;
    if (length < next.num_chars) return next.newline >> length & 1;
    std::size_t p = scan.position + kBlockBytes + 63 - __builtin_clzll(next.starts);
    while (p < scan.size) {
        const Character c = character_at(scan.text + p, scan.size - p);
        if (!(c.classes & kSpace)) return false;
        if (c.classes & kNewline) return true;
        p += c.size;
    }
    return at_end;
}

// Removes from `begins` (plain white space after a newline) those after which the same run has another newline.
[[gnu::always_inline]] inline Mask after_last_newline(const BlockScan& scan, const Block& block, const Block& next,
                                                      Mask plain, Mask begins, bool at_end) {
    // Last characters of stretches of plain white space that are followed by a newline.
    Mask ends = plain & before(block.newline, next.newline, block);
    const Mask next_plain = next.space & ~next.newline;
    if (last_bit(plain, block) && (next_plain & 1)) {
        ends |= Mask{stretch_meets_newline(scan, next, next_plain, at_end)} << (block.num_chars - 1);
    }
    for (; ends != 0; ends &= ends - 1) {
        const Mask gap = ~plain & ((ends & -ends) - 1);  // no plain white space, before the end
        const unsigned begin = gap != 0 ? 64 - __builtin_clzll(gap) : 0;
        begins &= ~(Mask{1} << begin);
    }
    return begins;
}

// \s++$|\s*[\r\n]+|\s+(?!\S)|\s+ (the first only with kSpaceToEnd) for white space that punctuation has not `taken`:
// cut after the last newline of a run, and before its last character if that is not a newline.
template <bool kSpaceToEnd>
[[gnu::always_inline]] inline Mask free_space_begins(const BlockScan& scan, const Block& block, const Block& next,
                                                     Mask taken, Mask plain, Carry& carry) {
    const Mask free = block.space & ~taken;
    const Mask run_begins = free & ~after(free, carry.free_space);
    const Mask last = plain & ~before(block.space, next.space, block);
    const Mask free_newline = block.newline & ~taken;
    Mask after_newline = plain & after(free_newline, carry.free_newline);
    if (after_newline != 0) {
        after_newline = after_last_newline(scan, block, next, plain, after_newline, kSpaceToEnd);
    }
    carry.free_space = last_bit(free, block);
    carry.free_newline = last_bit(free_newline, block);
    return run_begins | last | after_newline;
}

// cl100k, llama3, nanochat and qwen2: see piece_end in specification.hpp.
template <int kMaxDigits, bool kSpaceToEnd>
struct BlockRules<Cl100k<kMaxDigits, kSpaceToEnd>> {
    // With `\s++$` the end of the text acts like a newline: it takes all white space before it.
    static constexpr std::uint8_t kFiller = kSpaceToEnd ? '\n' : ' ';
    using BlockType = Block;
    static constexpr Contractions kContractions = Contractions::any_case;

    [[gnu::always_inline]] static Mask begins(const BlockScan& scan, const Block& block, const Block& next,
                                              Carry& carry) {
        const Mask other = ~(block.letter | block.number | block.space);
        const Mask plain = block.space & ~block.newline;
        const Mask other_begins = other & ~after(other, carry.other) & ~after(block.blank, carry.blank);
        // A letter joins plain white space, or an "other" that begins a piece, before it.
        const Mask letter_begins =
            block.letter & ~(after(block.letter, carry.letter) | after(plain, carry.plain_space) |
                             after(other_begins, carry.other_begins));
        const Mask numbers = number_begins<kMaxDigits>(block, carry);
        carry.letter = last_bit(block.letter, block);
        carry.other = last_bit(other, block);
        carry.blank = last_bit(block.blank, block);
        carry.plain_space = last_bit(plain, block);
        carry.other_begins = last_bit(other_begins, block);
        // `[\r\n]*+` after a piece of others: the sum carries through each run of newlines after one and clears it.
        const Mask taken = block.newline & ~(block.newline + (block.newline & after(other, carry.takes_newlines)));
        carry.takes_newlines = last_bit(other | taken, block);
        return letter_begins | numbers | other_begins |
               free_space_begins<kSpaceToEnd>(scan, block, next, taken, plain, carry);
    }
};

}  // namespace
}  // namespace gristmill
