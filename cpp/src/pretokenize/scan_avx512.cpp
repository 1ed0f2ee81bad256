// The AVX-512 kernel (VBMI and VBMI2: Ice Lake, Zen 4 and later).
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about the deliberately undefined operands of its own intrinsics (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "pretokenize/block_kernel.hpp"

namespace gristmill {
namespace {

struct Avx512 {
    using Packing = PextPacking;
    using Bytes = __m512i;

    static Bytes load(const void* p) { return _mm512_loadu_si512(p); }
    // The first `size` bytes from p, then `filler`; reads no byte after them.
    static Bytes load_part(const void* p, std::size_t size, std::uint8_t filler) {
        return _mm512_mask_loadu_epi8(splat(filler), size < 64 ? _bzhi_u64(~Mask{0}, size) : ~Mask{0}, p);
    }
    static bool any_high(Bytes bytes) { return high(bytes) != 0; }
    static Mask high(Bytes bytes) { return _mm512_movepi8_mask(bytes); }
    static Mask continuation(Bytes bytes) { return _mm512_cmplt_epi8_mask(bytes, splat(0xC0)); }
    static Mask below(Bytes bytes, std::uint8_t n) { return _mm512_cmplt_epu8_mask(bytes, splat(n)); }
    static Mask equal(Bytes bytes, std::uint8_t n) { return _mm512_cmpeq_epi8_mask(bytes, splat(n)); }

    static ClassMasks ascii(Bytes bytes) { return masks(bytes, ascii_classes(bytes)); }

    // Processes one page of 256 code points at a time: the characters of a block come from one or two pages, and a
    // permutation by the low byte of the code point classifies all characters of a page at once.
    template <bool kCases>
    static ClassMasks wide(const std::uint8_t* text, Bytes bytes, Mask high, Mask leads) {
        Bytes classes = _mm512_maskz_mov_epi8(~high, ascii_classes(bytes));
        const Mask letter_leads = leads & letters(bytes, kCases ? kCaselessLeads : kLetterLeads);
        const Mask three = leads & ~below(bytes, 0xE0), four = leads & ~below(bytes, 0xF0);
        Mask rest = leads & ~(letter_leads | four);
        if (rest != 0) {
            const Bytes second = load(text + 1), third = load(text + 2);
            const Bytes before_last = _mm512_mask_blend_epi8(three, bytes, second);
            const Bytes last = _mm512_mask_blend_epi8(three, second, third);
            const Bytes low = joined(_mm512_slli_epi16(before_last, 6), last, 0x3F);
            const Bytes page_low = _mm512_srli_epi16(before_last, 2);
            const Bytes page_of_two = _mm512_and_si512(page_low, splat(0x07));
            const Bytes pages =
                _mm512_mask_blend_epi8(three, page_of_two, joined(_mm512_slli_epi16(bytes, 4), page_low, 0x0F));
            do {
                const std::uint32_t page = Packing::code_point(text + __builtin_ctzll(rest)) >> 8;
                const Mask same = _mm512_mask_cmpeq_epi8_mask(rest, pages, splat(static_cast<std::uint8_t>(page)));
                classes = _mm512_mask_mov_epi8(classes, same, page_classes(page, low));
                rest &= ~same;
            } while (rest != 0);
        }
        ClassMasks found = masks(bytes, classes);
        found.letter |= letter_leads;
        if (four != 0) add_one_by_one<Packing, kCases>(text, four, found);
        return found;
    }

    static std::uint16_t* write(Mask mask, std::uint16_t offset, std::uint16_t* out) {
        // Compress to a register, then store all of it: a compressing store is microcode on Zen 4.
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
    static Bytes splat(std::uint8_t n) { return _mm512_set1_epi8(static_cast<char>(n)); }

    static Bytes ascii_classes(Bytes bytes) {
        return _mm512_permutex2var_epi8(load(kAsciiClasses), bytes, load(kAsciiClasses + 64));
    }
    static ClassMasks masks(Bytes bytes, Bytes classes) {
        return {.letter = with_class<kLetter>(classes),
                .number = with_class<kNumber>(classes),
                .space = with_class<kSpace>(classes),
                .blank = with_class<kBlank>(classes),
                .newline = with_class<kNewline>(classes),
                .apostrophe = equal(bytes, '\''),
                .upper = with_class<kUpper>(classes),
                .lower = with_class<kLower>(classes),
                .mark = with_class<kMark>(classes),
                .slash = equal(bytes, '/')};
    }
    // The classes of the code points page * 256 + low.
    static Bytes page_classes(std::uint32_t page, Bytes low) {
        const std::uint16_t* rows = kClassRow + 4 * page;
        const Bytes lower = _mm512_permutex2var_epi8(load(kClasses[rows[0]]), low, load(kClasses[rows[1]]));
        const Bytes upper = _mm512_permutex2var_epi8(load(kClasses[rows[2]]), low, load(kClasses[rows[3]]));
        return _mm512_mask_blend_epi8(high(low), lower, upper);
    }
    // Mask of the bytes in a table such as kLetterLeads; bytes < 0xC0 give undefined bits.
    static Mask letters(Bytes bytes, const std::uint8_t* leads) {
        const Bytes rows = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(leads)));
        const Bytes row_bit = _mm512_broadcast_i32x4(_mm_set_epi8(8, 4, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
        const Bytes low = _mm512_and_si512(bytes, splat(0x0F));
        const Bytes high = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), splat(0x0F));
        return _mm512_test_epi8_mask(_mm512_shuffle_epi8(rows, low), _mm512_shuffle_epi8(row_bit, high));
    }
    // Bits of `low_bits` where low_mask is set, otherwise bits of `high_bits`.
    static Bytes joined(Bytes high_bits, Bytes low_bits, std::uint8_t low_mask) {
        return _mm512_ternarylogic_epi64(splat(low_mask), low_bits, high_bits, 0xCA);
    }
    template <std::uint8_t kFlag>
    static Mask with_class(Bytes classes) {
        return _mm512_test_epi8_mask(classes, splat(kFlag));
    }
    static Bytes iota() {
        return _mm512_set_epi8(63, 62, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43, 42,
                               41, 40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20,
                               19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    }
};

}  // namespace

constinit const BlockKernels kAvx512Kernels = block_kernels<Avx512>();

}  // namespace gristmill
