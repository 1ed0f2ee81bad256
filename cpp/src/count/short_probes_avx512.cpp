// Makes the keys of eight pieces at a time.
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about the deliberately undefined operands of its own intrinsics (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "count/short_probes.hpp"

namespace gristmill {

void make_short_probes_avx512(const std::uint8_t* base, const std::uint16_t* ends, std::size_t num_pieces,
                              std::uint64_t multiplier, unsigned slot_shift, ShortProbes& probes) {
    // Eight plain loads and stores take half the time of a gather. The stores have left the store buffer before the
    // words are read again as vectors.
    alignas(64) std::uint64_t words[kCountGroup + 8];
    for (std::size_t i = 0; i < num_pieces; ++i) __builtin_memcpy(&words[i], base + ends[i], 8);

    const __m512i factor = _mm512_set1_epi64(static_cast<long long>(multiplier));
    const __m512i ones = _mm512_set1_epi64(-1);
    const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(slot_shift));
    const __m128i eight = _mm_set1_epi16(8);
    __m128i numbers = _mm_set_epi16(7, 6, 5, 4, 3, 2, 1, 0);
    std::size_t num_shorts = 0, num_others = 0;
    for (std::size_t i = 0; i < num_pieces; i += 8) {
        const std::size_t left = num_pieces - i;
        const auto wanted = static_cast<__mmask8>(left < 8 ? (1u << left) - 1 : 0xff);
        const __m128i begins = _mm_loadu_si128(reinterpret_cast<const __m128i*>(ends + i));
        const __m128i sizes = _mm_sub_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(ends + i + 1)), begins);
        const __mmask8 is_short =
            _mm_mask_cmple_epu16_mask(wanted, sizes, _mm_set1_epi16(static_cast<short>(kShortBytes)));
        const __m512i wide_sizes = _mm512_cvtepu16_epi64(sizes);
        const __m512i word = _mm512_load_si512(words + i);
        const __m512i bytes = _mm512_andnot_si512(_mm512_sllv_epi64(ones, _mm512_slli_epi64(wide_sizes, 3)), word);
        const __m512i key = _mm512_or_si512(bytes, _mm512_slli_epi64(wide_sizes, 56));
        const __m256i slots = _mm512_cvtepi64_epi32(_mm512_srl_epi64(_mm512_mullo_epi64(key, factor), shift));
        _mm512_storeu_si512(probes.keys + num_shorts, _mm512_maskz_compress_epi64(is_short, key));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(probes.slots + num_shorts),
                            _mm256_maskz_compress_epi32(is_short, slots));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(probes.starts + num_shorts),
                            _mm256_maskz_compress_epi32(is_short, _mm256_cvtepu16_epi32(begins)));
        const auto is_other = static_cast<__mmask8>(wanted & ~is_short);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(probes.others + num_others),
                         _mm_maskz_compress_epi16(is_other, numbers));
        num_shorts += static_cast<std::size_t>(__builtin_popcount(is_short));
        num_others += static_cast<std::size_t>(__builtin_popcount(is_other));
        numbers = _mm_add_epi16(numbers, eight);
    }
    probes.num_shorts = num_shorts;
    probes.num_others = num_others;
}

}  // namespace gristmill
