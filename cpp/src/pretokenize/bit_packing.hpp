// Converts masks from one bit per byte to one bit per character and back, in three ways with the same result:
//   PlainPacking   bit by bit: the reference for the tests
//   PextPacking    BMI2 instructions, one per mask
//   MovePacking    shifts and masks: for CPUs without BMI2, or where pext is microcode (AMD before Zen 3)
// All have the same members:
//   Packing(where)    where: the bytes that begin a character
//   pack(mask)        moves the bits at `where` together, towards bit 0; drops the others
//   unpack(mask)      moves bit i to the i-th lowest bit of `where`; drops bits beyond the last
//   code_point(p)     the code point of the valid multi-byte sequence at p; 4 bytes are readable
// Included by SIMD kernels: see unicode.hpp.
#pragma once

#if defined(__BMI2__)
#include <immintrin.h>
#endif

#include "pretokenize/unicode.hpp"

namespace gristmill {
namespace {

using Mask = std::uint64_t;

// The sequence at p with its first byte on top; the bytes after the sequence are below.
inline std::uint32_t load_sequence(const std::uint8_t* p) {
    std::uint32_t word;
    __builtin_memcpy(&word, p, sizeof word);
    return __builtin_bswap32(word);
}

struct PlainPacking {
    Mask where;

    Mask pack(Mask mask) const {
        Mask packed = 0;
        unsigned count = 0;
        for (unsigned i = 0; i < 64; ++i) {
            if (where >> i & 1) packed |= (mask >> i & 1) << count++;
        }
        return packed;
    }
    Mask unpack(Mask mask) const {
        Mask unpacked = 0;
        unsigned count = 0;
        for (unsigned i = 0; i < 64; ++i) {
            if (where >> i & 1) unpacked |= (mask >> count++ & 1) << i;
        }
        return unpacked;
    }
    static std::uint32_t code_point(const std::uint8_t* p) { return code_point_of(p, sequence_size(p, 4)); }
};

#if defined(__BMI2__)
struct PextPacking {
    Mask where;

    Mask pack(Mask mask) const { return _pext_u64(mask, where); }
    Mask unpack(Mask mask) const { return _pdep_u64(mask, where); }
    static std::uint32_t code_point(const std::uint8_t* p) {
        static constexpr std::uint32_t kPayload[4] = {0x1F3F0000, 0x1F3F0000, 0x0F3F3F00, 0x073F3F3F};
        return _pext_u32(load_sequence(p), kPayload[*p >> 4 & 3]);
    }
};
#endif

// Every bit moves down by the number of bits that are dropped below it: by 1, 2, 4 and so on up to 32, according to the
// binary digits of that number (Warren, "Hacker's Delight", 7-4 and 7-5). Which bits take which step depends only on
// `where`. This is computed once, in about 130 operations; after that, a mask takes 25.
class MovePacking {
  public:
    [[gnu::always_inline]] explicit MovePacking(Mask where) : where_(where) {
        // Bit i of digits[k]: digit k of the number of bits dropped below i. After `level` rounds it counts those among
        // the 2^level bits below i, and each round adds the count of the same number of bits below these. All 64 sums
        // are computed at once, digit by digit. The digits of one round do not depend on all digits of the previous
        // one, unlike the six consecutive parities in the book.
        Mask digits[6] = {~where << 1};
#pragma GCC unroll 6
        for (unsigned level = 0; level < 6; ++level) {
            Mask carry = 0;
#pragma GCC unroll 6
            for (unsigned k = 0; k <= level; ++k) {
                const Mask other = digits[k] << (1u << level), differ = digits[k] ^ other;
                const Mask next_carry = (digits[k] & other) | (differ & carry);
                digits[k] = differ ^ carry;
                carry = next_carry;
            }
            if (level < 5) digits[level + 1] = carry;
        }
        for (unsigned step = 0; step < 6; ++step) {
            moves_[step] = digits[step] & where;
            where = (where ^ moves_[step]) | moves_[step] >> (1u << step);
        }
    }
    [[gnu::always_inline]] Mask pack(Mask mask) const {
        mask &= where_;
        for (unsigned step = 0; step < 6; ++step) {
            const Mask moving = mask & moves_[step];
            mask = (mask ^ moving) | moving >> (1u << step);
        }
        return mask;
    }
    [[gnu::always_inline]] Mask unpack(Mask mask) const {
        for (unsigned step = 6; step-- > 0;) {
            mask = (mask & ~moves_[step]) | (mask << (1u << step) & moves_[step]);
        }
        return mask & where_;
    }
    static std::uint32_t code_point(const std::uint8_t* p) {
        struct Length {
            std::uint32_t lead_bits;
            unsigned unused_bits;  // of the 24 bits in four bytes
        };
        static constexpr Length kLengths[4] = {{0x1F << 18, 12}, {0x1F << 18, 12}, {0x0F << 18, 6}, {0x07 << 18, 0}};
        const Length length = kLengths[*p >> 4 & 3];
        const std::uint32_t word = load_sequence(p);
        const std::uint32_t bits =
            (word >> 6 & length.lead_bits) | (word >> 4 & 0x3F000) | (word >> 2 & 0xFC0) | (word & 0x3F);
        return bits >> length.unused_bits;
    }

  private:
    Mask where_;
    Mask moves_[6];
};

}  // namespace
}  // namespace gristmill
