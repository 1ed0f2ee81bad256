// The AVX-512 kernel (VBMI and VBMI2: Ice Lake, Zen 4 and later).
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes its own intrinsics' deliberately undefined operands for mistakes (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "pretokenize/block_kernel.hpp"

namespace gristmill {
namespace {

struct Avx512 {
    using Bytes = __m512i;

    static Bytes load(const void* p) { return _mm512_loadu_si512(p); }
    static bool any_high(Bytes bytes) { return high(bytes) != 0; }
    static Mask high(Bytes bytes) { return _mm512_movepi8_mask(bytes); }
    static Mask below(Bytes bytes, std::uint8_t n) { return _mm512_cmplt_epu8_mask(bytes, splat(n)); }
    static Mask equal(Bytes bytes, std::uint8_t n) { return _mm512_cmpeq_epi8_mask(bytes, splat(n)); }

    // One permutation of the 128 ASCII classes.
    static AsciiMasks ascii(Bytes bytes) {
        const Bytes classes =
            _mm512_permutex2var_epi8(load(kClasses[kClassRow[0]]), bytes, load(kClasses[kClassRow[1]]));
        return {.letter = with_class<kLetter>(classes),
                .number = with_class<kNumber>(classes),
                .space = with_class<kSpace>(classes),
                .blank = with_class<kBlank>(classes),
                .newline = with_class<kNewline>(classes),
                .apostrophe = equal(bytes, '\'')};
    }

    static Mask letter_leads(Bytes bytes) {
        const Bytes rows = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kLetterLeads)));
        const Bytes row_bit = _mm512_broadcast_i32x4(_mm_set_epi8(8, 4, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
        const Bytes low = _mm512_and_si512(bytes, splat(0x0F));
        const Bytes high = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), splat(0x0F));
        return _mm512_test_epi8_mask(_mm512_shuffle_epi8(rows, low), _mm512_shuffle_epi8(row_bit, high));
    }

    // Row by row of 64 code points: the characters of a block come from few, and one permutation by their last byte
    // classifies all that share the bytes before it.
    static WideMasks wide_masks(const std::uint8_t* text, Mask leads) {
        const Bytes first = load(text), second = load(text + 1), third = load(text + 2);
        Bytes classes = _mm512_setzero_si512();
        while (leads != 0) {
            const std::uint8_t* p = text + __builtin_ctzll(leads);
            Mask row = _mm512_mask_cmpeq_epi8_mask(leads, first, splat(p[0]));
            Bytes last = second;
            if (p[0] >= 0xE0) {
                row = _mm512_mask_cmpeq_epi8_mask(row, second, splat(p[1]));
                last = third;
            }
            if (p[0] >= 0xF0) {
                row = _mm512_mask_cmpeq_epi8_mask(row, third, splat(p[2]));
                last = load(text + 3);
            }
            classes = _mm512_mask_permutexvar_epi8(classes, row, last, load(kClasses[kClassRow[decode(p) >> 6]]));
            leads &= ~row;
        }
        return {with_class<kLetter>(classes), with_class<kNumber>(classes), with_class<kSpace>(classes)};
    }

    static std::uint16_t* write(Mask mask, std::uint16_t offset, std::uint16_t* out) {
        // Compressed to a register and stored whole: a compressing store is microcode on Zen 4.
        const Bytes indices = _mm512_maskz_compress_epi8(mask, iota());
        const Bytes base = _mm512_set1_epi16(static_cast<short>(offset));
        const int count = __builtin_popcountll(mask);
        _mm512_storeu_si512(out, _mm512_add_epi16(base, _mm512_cvtepu8_epi16(_mm512_castsi512_si256(indices))));
        if (count > 32) {
            const __m256i upper = _mm512_extracti64x4_epi64(indices, 1);
            _mm512_storeu_si512(out + 32, _mm512_add_epi16(base, _mm512_cvtepu8_epi16(upper)));
        }
        return out + count;
    }

  private:
    template <std::uint8_t kFlag>
    static Mask with_class(Bytes classes) {
        return _mm512_test_epi8_mask(classes, splat(kFlag));
    }
    static Bytes splat(std::uint8_t n) { return _mm512_set1_epi8(static_cast<char>(n)); }
    static Bytes iota() {
        return _mm512_set_epi8(63, 62, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43, 42,
                               41, 40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20,
                               19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    }
};

}  // namespace

const BlockKernel kGpt2Avx512 = block_kernel<Avx512, Gpt2Rules>();
const BlockKernel kCl100kAvx512 = block_kernel<Avx512, Cl100kRules<3, true>>();
const BlockKernel kLlama3Avx512 = block_kernel<Avx512, Cl100kRules<3, false>>();
const BlockKernel kQwen2Avx512 = block_kernel<Avx512, Cl100kRules<1, false>>();
const BlockKernel kWhitespaceAvx512 = block_kernel<Avx512, WhitespaceRules>();

}  // namespace gristmill
