// Converts 64 bytes to class masks. `Simd` is the instruction set of a kernel:
//   Packing                how it packs bits: see bit_packing.hpp
//   Bytes                  64 bytes of text
//   load(p);  load_part(p, size, filler), which some instruction sets lack
//   high(bytes)            mask of bytes >= 0x80;  any_high(bytes): whether there are any
//   continuation(bytes)    mask of bytes in 0x80..0xBF
//   below(bytes, n), equal(bytes, n)            masks, unsigned
//   ascii(bytes)           class masks; bytes >= 0x80 give undefined bits
//   wide<kCases>(text, bytes, high, leads)      class masks of ASCII bytes and of the valid sequences with these leads
//   write(mask, offset, out)                    writes offset + i for each bit i, and up to 64 meaningless values
#pragma once

#include "pretokenize/block_rules.hpp"

namespace gristmill {
namespace {

struct ClassMasks {
    Mask letter, number, space, blank, newline, apostrophe;
    Mask upper, lower, mark, slash;
};

// Valid multi-byte sequences. They may extend into the next block.
struct Sequences {
    Mask leads;            // leads in this block
    Mask covered;          // bytes of this block after a lead
    Mask covered_in_next;  // bytes of the next block after a lead of this one
};

// Strict UTF-8 by mask algebra, with the same rule as sequence_size() in unicode.hpp. Reads 3 bytes after the block.
template <class Simd>
[[gnu::always_inline]] inline Sequences find_sequences(const std::uint8_t* text, typename Simd::Bytes bytes, Mask high,
                                                       Mask covered) {
    const Mask below_e0 = Simd::below(bytes, 0xE0), below_f0 = Simd::below(bytes, 0xF0);
    const Mask two = below_e0 & ~Simd::below(bytes, 0xC2);
    Mask three = below_f0 & ~below_e0;
    Mask four = high & ~below_f0;
    // Leads that exclude some second bytes: overlong forms, surrogates, and code points above U+10FFFF.
    const Mask e0 = Simd::equal(bytes, 0xE0), ed = Simd::equal(bytes, 0xED);
    if ((e0 | ed | four) != 0) {
        const auto second_bytes = Simd::load(text + 1);
        const Mask below_a0 = Simd::below(second_bytes, 0xA0), below_90 = Simd::below(second_bytes, 0x90);
        three &= ~((e0 & below_a0) | (ed & ~below_a0));
        four &= Simd::below(bytes, 0xF5);
        four &= ~((Simd::equal(bytes, 0xF0) & below_90) | (Simd::equal(bytes, 0xF4) & ~below_90));
    }
    const Mask continuation = Simd::continuation(bytes);
    const Mask fourth = Simd::continuation(Simd::load(text + 3));
    const Mask following = fourth >> 61;  // continuation bytes among the 3 after the block
    const Mask second = continuation >> 1 | following << 63;
    const Mask third = continuation >> 2 | following << 62;
    const Mask valid_four = four & second & third & fourth;
    const Mask past_two = (three & second & third) | valid_four;
    const Mask leads = (two & second) | past_two;
    return {leads, covered | leads << 1 | past_two << 2 | valid_four << 3,
            leads >> 63 | past_two >> 62 | valid_four >> 61};
}

// Adds characters one by one. Most are letters or "other".
template <class Packing, bool kCases>
[[gnu::always_inline]] inline void add_one_by_one(const std::uint8_t* text, Mask leads, ClassMasks& masks) {
    const auto bit = [](std::uint8_t classes, CharClass flag) { return static_cast<Mask>(classes / flag & 1); };
    for (; leads != 0; leads &= leads - 1) {
        const unsigned i = __builtin_ctzll(leads);
        const std::uint8_t classes = classes_of(Packing::code_point(text + i));
        masks.letter |= bit(classes, kLetter) << i;
        if (kCases) {
            masks.upper |= bit(classes, kUpper) << i;
            masks.lower |= bit(classes, kLower) << i;
            masks.mark |= bit(classes, kMark) << i;
        }
        if (classes & (kNumber | kSpace)) [[unlikely]] {
            masks.number |= bit(classes, kNumber) << i;
            masks.space |= bit(classes, kSpace) << i;
        }
    }
}

template <class BlockType>
constexpr bool kHasCases = false;
template <>
constexpr bool kHasCases<CasedBlock> = true;

template <class BlockType>
inline BlockType ascii_block(const ClassMasks& masks) {
    BlockType block;
    block.starts = ~Mask{0};
    block.apostrophes = masks.apostrophe;
    block.letter = masks.letter;
    block.number = masks.number;
    block.space = masks.space;
    block.blank = masks.blank;
    block.newline = masks.newline;
    block.num_chars = 64;
    if constexpr (kHasCases<BlockType>) {
        block.upper = masks.upper;
        block.lower = masks.lower;
        block.mark = 0;
        block.slash = masks.slash;
    }
    return block;
}

// Converts from one bit per byte to one bit per character.
template <class Packing, class BlockType>
inline BlockType wide_block(const ClassMasks& masks, Mask starts) {
    const Packing packing{starts};
    BlockType block;
    block.starts = starts;
    block.apostrophes = masks.apostrophe;
    block.letter = packing.pack(masks.letter);
    block.number = packing.pack(masks.number);
    block.space = packing.pack(masks.space);
    block.blank = packing.pack(masks.blank);
    block.newline = packing.pack(masks.newline);
    block.num_chars = static_cast<unsigned>(__builtin_popcountll(starts));
    if constexpr (kHasCases<BlockType>) {
        block.upper = packing.pack(masks.upper);
        block.lower = packing.pack(masks.lower);
        block.mark = packing.pack(masks.mark);
        block.slash = packing.pack(masks.slash);
    }
    return block;
}

// `covered`: on entry, the bytes of this block that belong to a character of the previous one; on return, of the next.
template <class Simd, class BlockType>
[[gnu::noinline]] BlockType classify_wide(const std::uint8_t* text, std::uint64_t& covered) {
    const auto bytes = Simd::load(text);
    const Mask high = Simd::high(bytes);
    const Sequences sequences = find_sequences<Simd>(text, bytes, high, covered);
    covered = sequences.covered_in_next;
    const ClassMasks masks = Simd::template wide<kHasCases<BlockType>>(text, bytes, high, sequences.leads);
    return wide_block<typename Simd::Packing, BlockType>(masks, ~sequences.covered);
}

template <class Simd, class BlockType>
inline BlockType classify(const std::uint8_t* text, std::uint64_t& covered) {
    const auto bytes = Simd::load(text);
    if (Simd::any_high(bytes) || covered != 0) [[unlikely]] {
        return classify_wide<Simd, BlockType>(text, covered);
    }
    return ascii_block<BlockType>(Simd::ascii(bytes));
}

}  // namespace
}  // namespace gristmill
