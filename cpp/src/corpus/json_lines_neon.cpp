// The NEON kernel for JSON lines: processes 16 bytes of a string at a time. Not yet measured on ARM hardware.
#include <arm_neon.h>

#include "corpus/json_line.hpp"
#include "corpus/json_utf8.hpp"

namespace gristmill {
namespace {

// Like ScalarCopy, but may write up to 15 bytes more.
struct NeonCopy {
    static Copied plain(const std::uint8_t* in, const std::uint8_t* end, std::uint8_t* out) {
        const Copied begin{in, out};
        for (uint8x16_t before = vdupq_n_u8(0);;) {
            const uint8x16_t bytes = load(in, end);
            vst1q_u8(out, bytes);
            const std::uint64_t found = mask(stops(bytes));
            const uint8x16_t errors_found = errors(bytes, before);
            const std::uint64_t wrong = mask(vtstq_u8(errors_found, errors_found));
            // A sequence that a stop cuts short is detected at the stop; bytes after the stop do not matter yet. The
            // scalar kernel finds the exact position, once per call.
            if (wrong & (found ^ (found - 1))) return ScalarCopy::plain(begin.in, end, begin.out);
            if (found) {
                const unsigned size = static_cast<unsigned>(__builtin_ctzll(found)) / 4;
                return {in + size, out + size};
            }
            in += 16;
            out += 16;
            before = bytes;
        }
    }

  private:
    // The next 16 bytes, padded with stops after the end of the input.
    static uint8x16_t load(const std::uint8_t* in, const std::uint8_t* end) {
        if (__builtin_expect(end - in >= 16, 1)) return vld1q_u8(in);
        std::uint8_t tail[16] = {};
        __builtin_memcpy(tail, in, static_cast<std::size_t>(end - in));
        return vld1q_u8(tail);
    }
    // Four bits per byte of v. All bits of a byte of v must be equal.
    static std::uint64_t mask(uint8x16_t v) {
        return vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(v), 4)), 0);
    }

    static uint8x16_t stops(uint8x16_t v) {
        const uint8x16_t quote = vceqq_u8(v, vdupq_n_u8('"')), backslash = vceqq_u8(v, vdupq_n_u8('\\'));
        return vorrq_u8(vorrq_u8(quote, backslash), vcltq_u8(v, vdupq_n_u8(0x20)));
    }

    // Nonzero at each byte that shows that it, or a byte before it, is not UTF-8. An error shows up at most one byte
    // after its sequence.
    static uint8x16_t errors(uint8x16_t v, uint8x16_t before) {
        const uint8x16_t back1 = vextq_u8(before, v, 15);
        const uint8x16_t back2 = vextq_u8(before, v, 14);
        const uint8x16_t back3 = vextq_u8(before, v, 13);
        const uint8x16_t pair = vandq_u8(
            vandq_u8(lookup(kFirstHigh, vshrq_n_u8(back1, 4)), lookup(kFirstLow, vandq_u8(back1, vdupq_n_u8(0x0F)))),
            lookup(kSecondHigh, vshrq_n_u8(v, 4)));
        // The top bit: the third byte of three, or the third or fourth of four.
        const uint8x16_t third = vqsubq_u8(back2, vdupq_n_u8(0xE0 - 0x80));
        const uint8x16_t fourth = vqsubq_u8(back3, vdupq_n_u8(0xF0 - 0x80));
        return veorq_u8(pair, vandq_u8(vorrq_u8(third, fourth), vdupq_n_u8(0x80)));
    }
    static uint8x16_t lookup(const Nibbles& table, uint8x16_t index) {
        return vqtbl1q_u8(vld1q_u8(table.wrong), index);
    }
};

}  // namespace

JsonLine parse_json_line_neon(const std::uint8_t* line, const std::uint8_t* end, JsonField field, std::uint8_t* out) {
    return JsonLineParser<NeonCopy>(line, end, field, out).parse();
}

}  // namespace gristmill
