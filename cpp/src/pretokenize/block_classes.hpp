// From 64 bytes to class masks. `Simd` is a kernel's instruction set:
//   Bytes                  64 bytes of text
//   load(p)
//   high(bytes)            mask of those >= 0x80;  any_high(bytes): whether there is one
//   continuation(bytes)    mask of those in 0x80..0xBF
//   below(bytes, n), equal(bytes, n)            masks, unsigned
//   ascii(bytes)           class masks; bytes >= 0x80 give undefined bits
//   wide(text, bytes, high, leads)              class masks of ASCII bytes and of the valid sequences with these leads
//   write(mask, offset, out)                    writes offset + i for each bit i and up to 64 values of no meaning
#pragma once

#include "pretokenize/block_rules.hpp"

namespace gristmill {
namespace {

struct ClassMasks {
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
    const Mask below_e0 = Simd::below(bytes, 0xE0), below_f0 = Simd::below(bytes, 0xF0);
    const Mask two = below_e0 & ~Simd::below(bytes, 0xC2);
    Mask three = below_f0 & ~below_e0;
    Mask four = high & ~below_f0;
    // Leads that do not go with every second byte, against overlong forms, surrogates and what is above U+10FFFF.
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
    const Mask behind = fourth >> 61;  // continuation bytes among the 3 behind the block
    const Mask second = continuation >> 1 | behind << 63;
    const Mask third = continuation >> 2 | behind << 62;
    const Mask valid_four = four & second & third & fourth;
    const Mask past_two = (three & second & third) | valid_four;
    const Mask leads = (two & second) | past_two;
    return {leads, covered | leads << 1 | past_two << 2 | valid_four << 3,
            leads >> 63 | past_two >> 62 | valid_four >> 61};
}

// The code point of a valid multi-byte sequence, without a branch on its length.
inline std::uint32_t decode(const std::uint8_t* p) {
    static constexpr std::uint32_t kPayload[4] = {0x1F3F0000, 0x1F3F0000, 0x0F3F3F00, 0x073F3F3F};
    std::uint32_t word;
    __builtin_memcpy(&word, p, sizeof word);
    return _pext_u32(__builtin_bswap32(word), kPayload[*p >> 4 & 3]);
}

// Character by character. Most are letters or "other".
inline void add_one_by_one(const std::uint8_t* text, Mask leads, ClassMasks& masks) {
    for (; leads != 0; leads &= leads - 1) {
        const unsigned i = __builtin_ctzll(leads);
        const std::uint8_t classes = classes_of(decode(text + i));
        masks.letter |= static_cast<Mask>(classes & kLetter) << i;
        if (classes & (kNumber | kSpace)) [[unlikely]] {
            (classes & kNumber ? masks.number : masks.space) |= Mask{1} << i;
        }
    }
}

// `covered`: bytes at the begin of this block that belong to a character of the block before; then those of the next.
template <class Simd>
[[gnu::noinline]] Block classify_wide(const std::uint8_t* text, std::uint64_t& covered) {
    const auto bytes = Simd::load(text);
    const Mask high = Simd::high(bytes);
    const Sequences sequences = find_sequences<Simd>(text, bytes, high, covered);
    covered = sequences.covered_in_next;

    const ClassMasks masks = Simd::wide(text, bytes, high, sequences.leads);
    const Mask starts = ~sequences.covered;
    return {.starts = starts,
            .apostrophes = masks.apostrophe,
            .letter = _pext_u64(masks.letter, starts),
            .number = _pext_u64(masks.number, starts),
            .space = _pext_u64(masks.space, starts),
            .blank = _pext_u64(masks.blank, starts),
            .newline = _pext_u64(masks.newline, starts),
            .num_chars = static_cast<unsigned>(__builtin_popcountll(starts))};
}

template <class Simd>
inline Block classify(const std::uint8_t* text, std::uint64_t& covered) {
    const auto bytes = Simd::load(text);
    if (Simd::any_high(bytes) || covered != 0) [[unlikely]]
        return classify_wide<Simd>(text, covered);
    const ClassMasks ascii = Simd::ascii(bytes);
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
