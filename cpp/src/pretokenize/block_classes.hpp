// From 64 bytes to class masks. `Simd` is a kernel's instruction set:
//   Bytes               64 bytes of text
//   load(p)
//   any_high(bytes)     whether one is >= 0x80;  high(bytes): the mask of those
//   below(bytes, n), equal(bytes, n)              masks, unsigned
//   ascii(bytes)        class masks; bytes >= 0x80 give undefined bits
//   letter_leads(bytes) bytes whose every valid sequence is a letter; bytes < 0x80 give undefined bits
//   wide_masks(text, leads)  class masks of the valid sequences with these leads
//   write(mask, offset, out)                      writes offset + i for each bit i, 64 or fewer values more
#pragma once

#include "pretokenize/block_rules.hpp"

namespace gristmill {
namespace {

struct AsciiMasks {
    Mask letter, number, space, blank, newline, apostrophe;
};

// Valid multi-byte sequences. They may reach into the next block.
struct Sequences {
    Mask leads;            // those that begin in this block
    Mask covered;          // bytes of this block behind a lead
    Mask covered_in_next;  // bytes of the next block behind a lead of this one
};

// Strict UTF-8 by mask algebra: the same rule as sequence_size() in unicode.hpp. Reads 3 bytes behind the block.
template <class Simd>
Sequences find_sequences(const std::uint8_t* text, typename Simd::Bytes bytes, Mask high, Mask covered) {
    const auto second_bytes = Simd::load(text + 1);
    const auto fourth_bytes = Simd::load(text + 3);
    const Mask below_c0 = Simd::below(bytes, 0xC0), below_e0 = Simd::below(bytes, 0xE0);
    const Mask below_f0 = Simd::below(bytes, 0xF0);
    const Mask two = below_e0 & ~Simd::below(bytes, 0xC2);
    const Mask three = below_f0 & ~below_e0;
    const Mask four = Simd::below(bytes, 0xF5) & ~below_f0;

    const Mask continuation = high & below_c0;
    const Mask fourth = Simd::high(fourth_bytes) & Simd::below(fourth_bytes, 0xC0);
    const Mask behind = fourth >> 61;  // continuation bytes among the 3 behind the block
    const Mask second = continuation >> 1 | behind << 63;
    const Mask third = continuation >> 2 | behind << 62;

    const Mask below_a0 = Simd::below(second_bytes, 0xA0), below_90 = Simd::below(second_bytes, 0x90);
    const Mask bad_three = (Simd::equal(bytes, 0xE0) & below_a0) | (Simd::equal(bytes, 0xED) & ~below_a0);
    const Mask bad_four = (Simd::equal(bytes, 0xF0) & below_90) | (Simd::equal(bytes, 0xF4) & ~below_90);
    const Mask valid_two = two & second;
    const Mask valid_three = three & second & third & ~bad_three;
    const Mask valid_four = four & second & third & fourth & ~bad_four;
    const Mask past_two = valid_three | valid_four;
    const Mask leads = valid_two | past_two;
    return {leads, covered | leads << 1 | past_two << 2 | valid_four << 3,
            leads >> 63 | past_two >> 62 | valid_four >> 61};
}

struct WideMasks {
    Mask letter, number, space;
};

// The code point of a valid multi-byte sequence, without a branch on its length.
inline std::uint32_t decode(const std::uint8_t* p) {
    static constexpr std::uint32_t kPayload[4] = {0x1F3F0000, 0x1F3F0000, 0x0F3F3F00, 0x073F3F3F};
    std::uint32_t word;
    __builtin_memcpy(&word, p, sizeof word);
    return _pext_u32(__builtin_bswap32(word), kPayload[*p >> 4 & 3]);
}

// `covered`: bytes at the begin of this block that belong to a character of the block before; then those of the next.
template <class Simd>
[[gnu::noinline]] Block classify_wide(const std::uint8_t* text, std::uint64_t& covered) {
    const auto bytes = Simd::load(text);
    const Mask high = Simd::high(bytes);
    const Sequences sequences = find_sequences<Simd>(text, bytes, high, covered);
    covered = sequences.covered_in_next;

    const AsciiMasks ascii = Simd::ascii(bytes);
    const Mask letter_leads = sequences.leads & Simd::letter_leads(bytes);
    const WideMasks wide = Simd::wide_masks(text, sequences.leads & ~letter_leads);
    const Mask letter = (ascii.letter & ~high) | letter_leads | wide.letter;
    const Mask number = (ascii.number & ~high) | wide.number;
    const Mask space = (ascii.space & ~high) | wide.space;
    const Mask starts = ~sequences.covered;
    return {.starts = starts,
            .apostrophes = ascii.apostrophe & ~high,
            .letter = _pext_u64(letter, starts),
            .number = _pext_u64(number, starts),
            .space = _pext_u64(space, starts),
            .blank = _pext_u64(ascii.blank & ~high, starts),
            .newline = _pext_u64(ascii.newline & ~high, starts),
            .num_chars = static_cast<unsigned>(__builtin_popcountll(starts))};
}

template <class Simd>
inline Block classify(const std::uint8_t* text, std::uint64_t& covered) {
    const auto bytes = Simd::load(text);
    if (Simd::any_high(bytes) || covered != 0) [[unlikely]]
        return classify_wide<Simd>(text, covered);
    const AsciiMasks ascii = Simd::ascii(bytes);
    return {.starts = ~Mask{0},
            .apostrophes = ascii.apostrophe,
            .letter = ascii.letter,
            .number = ascii.number,
            .space = ascii.space,
            .blank = ascii.blank,
            .newline = ascii.newline,
            .num_chars = 64};
}

}  // namespace
}  // namespace gristmill
