// AVX2 as a `Simd` for block_classes.hpp, with either bit packing.
#pragma once

#include <immintrin.h>

#include "pretokenize/bit_indices.hpp"
#include "pretokenize/block_classes.hpp"

namespace gristmill {
namespace {

template <class PackingType>
struct Avx2 {
    using Packing = PackingType;
    struct Bytes {
        __m256i low, high;
    };

    static Bytes load(const void* p) {
        const auto* vectors = static_cast<const __m256i*>(p);
        return {_mm256_loadu_si256(vectors), _mm256_loadu_si256(vectors + 1)};
    }
    static bool any_high(Bytes bytes) { return _mm256_movemask_epi8(_mm256_or_si256(bytes.low, bytes.high)) != 0; }
    static Mask high(Bytes bytes) {
        return mask(bytes, [](__m256i v) { return v; });
    }
    static Mask continuation(Bytes bytes) {
        return mask(bytes, [](__m256i v) { return _mm256_cmpgt_epi8(splat(0xC0), v); });
    }
    static Mask below(Bytes bytes, std::uint8_t n) {
        const __m256i most = splat(n - 1);
        return mask(bytes, [=](__m256i v) { return _mm256_cmpeq_epi8(_mm256_min_epu8(v, most), v); });
    }
    static Mask equal(Bytes bytes, std::uint8_t n) {
        return mask(bytes, [=](__m256i v) { return _mm256_cmpeq_epi8(v, splat(n)); });
    }

    static ClassMasks ascii(Bytes bytes) {
        const Mask blank = equal(bytes, ' ');
        return {.letter = mask(bytes, [](__m256i v) { return between(_mm256_or_si256(v, splat(0x20)), 'a', 'z'); }),
                .number = mask(bytes, [](__m256i v) { return between(v, '0', '9'); }),
                .space = blank | mask(bytes, [](__m256i v) { return between(v, '\t', '\r'); }),
                .blank = blank,
                .newline = equal(bytes, '\n') | equal(bytes, '\r'),
                .apostrophe = equal(bytes, '\''),
                .upper = mask(bytes, [](__m256i v) { return between(v, 'A', 'Z'); }),
                .lower = mask(bytes, [](__m256i v) { return between(v, 'a', 'z'); }),
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

    static std::uint16_t* write(Mask mask, std::uint16_t offset, std::uint16_t* out) {
        for (int i = 0; i < 8; ++i, mask >>= 8) {
            const auto* row = reinterpret_cast<const __m128i*>(kBitIndices.rows[mask & 0xFF]);
            const __m128i base = _mm_set1_epi16(static_cast<short>(offset + 8 * i));
            const __m128i indices = _mm_cvtepu8_epi16(_mm_loadl_epi64(row));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_add_epi16(base, indices));
            out += __builtin_popcountll(mask & 0xFF);
        }
        return out;
    }

  private:
    static __m256i splat(int n) { return _mm256_set1_epi8(static_cast<char>(n)); }

    // Signed comparison of bytes shifted so that `least` becomes the smallest value.
    static __m256i between(__m256i v, int least, int most) {
        return _mm256_cmpgt_epi8(splat(most - least + 1 - 128), _mm256_sub_epi8(v, splat(least + 128)));
    }

    // Mask of the bytes in a table such as kLetterLeads; bytes < 0xC0 give undefined bits.
    static Mask letters(Bytes bytes, const std::uint8_t* leads) {
        const __m256i rows = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(leads)));
        const __m256i row_bit =
            _mm256_broadcastsi128_si256(_mm_set_epi8(8, 4, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
        return ~mask(bytes, [=](__m256i v) {
            const __m256i low = _mm256_and_si256(v, splat(0x0F));
            const __m256i high = _mm256_and_si256(_mm256_srli_epi16(v, 4), splat(0x0F));
            const __m256i both = _mm256_and_si256(_mm256_shuffle_epi8(rows, low), _mm256_shuffle_epi8(row_bit, high));
            return _mm256_cmpeq_epi8(both, _mm256_setzero_si256());
        });
    }

    // The sign bits of test(v) for the 64 bytes.
    template <class Test>
    static Mask mask(Bytes bytes, Test test) {
        const auto low = static_cast<std::uint32_t>(_mm256_movemask_epi8(test(bytes.low)));
        const auto high = static_cast<std::uint32_t>(_mm256_movemask_epi8(test(bytes.high)));
        return low | Mask{high} << 32;
    }
};

}  // namespace
}  // namespace gristmill
