// The NEON kernel, for every aarch64 CPU.
#include <arm_neon.h>

#include "pretokenize/bit_indices.hpp"
#include "pretokenize/block_kernel.hpp"

namespace gristmill {
namespace {

struct Neon {
    using Packing = MovePacking;
    struct Bytes {
        uint8x16_t v[4];
    };

    static Bytes load(const std::uint8_t* p) {
        return {vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)};
    }
    static bool any_high(Bytes bytes) {
        const uint8x16_t all = vorrq_u8(vorrq_u8(bytes.v[0], bytes.v[1]), vorrq_u8(bytes.v[2], bytes.v[3]));
        return vmaxvq_u8(all) >= 0x80;
    }
    static Mask high(Bytes bytes) {
        return mask(bytes, [](uint8x16_t v) { return vcgeq_u8(v, splat(0x80)); });
    }
    static Mask continuation(Bytes bytes) {
        return mask(bytes,
                    [](uint8x16_t v) { return vcltq_s8(vreinterpretq_s8_u8(v), vreinterpretq_s8_u8(splat(0xC0))); });
    }
    static Mask below(Bytes bytes, std::uint8_t n) {
        return mask(bytes, [=](uint8x16_t v) { return vcltq_u8(v, splat(n)); });
    }
    static Mask equal(Bytes bytes, std::uint8_t n) {
        return mask(bytes, [=](uint8x16_t v) { return vceqq_u8(v, splat(n)); });
    }

    static ClassMasks ascii(Bytes bytes) {
        const Mask blank = equal(bytes, ' ');
        return {.letter = mask(bytes, [](uint8x16_t v) { return between(vorrq_u8(v, splat(0x20)), 'a', 'z'); }),
                .number = mask(bytes, [](uint8x16_t v) { return between(v, '0', '9'); }),
                .space = blank | mask(bytes, [](uint8x16_t v) { return between(v, '\t', '\r'); }),
                .blank = blank,
                .newline = mask(
                    bytes, [](uint8x16_t v) { return vorrq_u8(vceqq_u8(v, splat('\n')), vceqq_u8(v, splat('\r'))); }),
                .apostrophe = equal(bytes, '\''),
                .upper = mask(bytes, [](uint8x16_t v) { return between(v, 'A', 'Z'); }),
                .lower = mask(bytes, [](uint8x16_t v) { return between(v, 'a', 'z'); }),
                .mark = 0,
                .slash = equal(bytes, '/')};
    }

    template <bool kCases>
    static ClassMasks wide(const std::uint8_t* text, Bytes bytes, Mask /*high*/, Mask leads) {
        ClassMasks found = ascii(bytes);  // comparisons, so bytes >= 0x80 give 0 bits
        const Mask letter_leads = leads & letters(bytes, kCases ? kCaselessLeads : kLetterLeads);
        found.letter |= letter_leads;
        add_one_by_one<Packing, kCases>(text, leads & ~letter_leads, found);
        return found;
    }

    // Computes where each byte of the mask is written before writing the first one: popcount uses vector registers,
    // which is slow for one byte after another.
    static std::uint16_t* write(Mask mask, std::uint16_t offset, std::uint16_t* out) {
        const std::uint64_t counts = vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(vcreate_u8(mask))), 0);
        const std::uint64_t totals = counts * 0x0101010101010101u;  // byte i: the bits in bytes 0 to i of the mask
        std::uint16_t* to = out;
        for (unsigned i = 0; i < 8; ++i) {
            const uint16x8_t indices = vmovl_u8(vld1_u8(kBitIndices.rows[mask >> 8 * i & 0xFF]));
            vst1q_u16(to, vaddq_u16(vdupq_n_u16(static_cast<std::uint16_t>(offset + 8 * i)), indices));
            to = out + (totals >> 8 * i & 0xFF);
        }
        return to;
    }

  private:
    static uint8x16_t splat(std::uint8_t n) { return vdupq_n_u8(n); }

    static uint8x16_t between(uint8x16_t v, std::uint8_t least, std::uint8_t most) {
        return vcleq_u8(vsubq_u8(v, splat(least)), splat(static_cast<std::uint8_t>(most - least)));
    }

    // Mask of the bytes in a table such as kLetterLeads; bytes < 0xC0 give undefined bits.
    static Mask letters(Bytes bytes, const std::uint8_t* leads) {
        static constexpr std::uint8_t kRowBit[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 8};
        const uint8x16_t rows = vld1q_u8(leads), row_bit = vld1q_u8(kRowBit);
        return mask(bytes, [=](uint8x16_t v) {
            return vtstq_u8(vqtbl1q_u8(rows, vandq_u8(v, splat(0x0F))), vqtbl1q_u8(row_bit, vshrq_n_u8(v, 4)));
        });
    }

    // One bit per byte of test(v), whose bits are all equal: each byte keeps the bit of its position among eight, and
    // three rounds of adding neighbours combine eight bytes.
    template <class Test>
    static Mask mask(Bytes bytes, Test test) {
        static constexpr std::uint8_t kBits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
        const uint8x16_t bits = vld1q_u8(kBits);
        const auto placed = [&](int i) { return vandq_u8(test(bytes.v[i]), bits); };
        const uint8x16_t twos = vpaddq_u8(placed(0), placed(1)), more_twos = vpaddq_u8(placed(2), placed(3));
        const uint8x16_t fours = vpaddq_u8(twos, more_twos);
        return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(fours, fours)), 0);
    }
};

}  // namespace

constinit const BlockKernels kNeonKernels = block_kernels<Neon>();

}  // namespace gristmill
