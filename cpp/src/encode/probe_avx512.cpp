// Probing with AVX-512, four pieces at a time: one register holds four keys, two rounds of AES hash them, and one
// comparison shows whether all four are found.
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about the deliberately undefined operands of its own intrinsics (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "encode/probe_kernel.hpp"

namespace gristmill {
namespace {

inline __m128i load_16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline __m512i four(const void* a, const void* b, const void* c, const void* d) {
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(a)), load_16(b), 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(c)), load_16(d), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// One round of AES does not mix the four columns; after two rounds, the low bits depend on every byte. A round adds its
// key last, so the seed is also added before the first; otherwise pieces could be crafted that collide for any seed.
std::size_t offset_of(const PieceTableView& table, const PieceKey& key) {
    const __m128i seed = load_16(&table.seed);
    const __m128i hash = _mm_aesenc_si128(_mm_aesenc_si128(_mm_xor_si128(load_16(&key), seed), seed), seed);
    return static_cast<std::size_t>(static_cast<std::uint32_t>(_mm_cvtsi128_si32(hash)) & table.mask);
}

// The lengths of 64 pieces, with kTooLongTag for those that are too long for a key.
inline void write_lengths(const std::uint16_t* ends, std::size_t num_pieces, std::uint8_t* lengths) {
    for (std::size_t i = 0; i < num_pieces; i += 32) {
        const __m512i size = _mm512_sub_epi16(_mm512_loadu_si512(ends + i + 1), _mm512_loadu_si512(ends + i));
        const __mmask32 is_long = _mm512_cmpgt_epu16_mask(size, _mm512_set1_epi16(kMaxKeyBytes));
        const __m512i length = _mm512_mask_mov_epi16(size, is_long, _mm512_set1_epi16(kTooLongTag >> 56));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(lengths + i), _mm512_cvtepi16_epi8(length));
    }
}

void prepare(const PieceTableView& table, const std::uint8_t* base, const std::uint16_t* ends, std::size_t num_pieces,
             std::uint64_t tag, PieceGroup& group) {
    alignas(64) std::uint8_t lengths[kMaxGroup];
    write_lengths(ends, num_pieces, lengths);
    const __m512i seed = _mm512_broadcast_i32x4(load_16(&table.seed));
    const __m512i tags = _mm512_broadcast_i32x4(_mm_set_epi64x(static_cast<long long>(tag), 0));
    const __m512i spread = _mm512_set_epi64(0x0303030303030303, 0x0303030303030303, 0x0202020202020202,
                                            0x0202020202020202, 0x0101010101010101, 0x0101010101010101, 0, 0);
    const __m512i numbers =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 127));
    constexpr __mmask64 kLast = 0x8000800080008000;
    const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m128i mask = _mm_set1_epi32(static_cast<int>(table.mask));
    const std::size_t last = num_pieces - 1;
    for (std::size_t i = 0; i < num_pieces; i += 4) {
        // After the last piece, its own bytes are read again.
        const auto at = [&](std::size_t k) { return base + ends[k < last ? k : last]; };
        const __m512i bytes = i + 4 <= num_pieces
                                  ? four(base + ends[i], base + ends[i + 1], base + ends[i + 2], base + ends[i + 3])
                                  : four(at(i), at(i + 1), at(i + 2), at(i + 3));
        std::uint32_t packed;
        __builtin_memcpy(&packed, lengths + i, sizeof packed);
        const __m512i length = _mm512_shuffle_epi8(_mm512_set1_epi32(static_cast<int>(packed)), spread);
        __m512i key = _mm512_maskz_mov_epi8(_mm512_cmpgt_epu8_mask(length, numbers), bytes);
        key = _mm512_or_si512(_mm512_mask_mov_epi8(key, kLast, length), tags);
        _mm512_store_si512(group.keys + i, key);
        const __m512i hash = _mm512_aesenc_epi128(_mm512_aesenc_epi128(_mm512_xor_si512(key, seed), seed), seed);
        const __m128i offsets = _mm_and_si128(_mm512_castsi512_si128(_mm512_permutexvar_epi32(firsts, hash)), mask);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(group.offsets + i), offsets);
        const auto low = static_cast<std::uint64_t>(_mm_cvtsi128_si64(offsets));
        const auto high = static_cast<std::uint64_t>(_mm_extract_epi64(offsets, 1));
        _mm_prefetch(table.entries + static_cast<std::uint32_t>(low), _MM_HINT_T0);
        _mm_prefetch(table.entries + (low >> 32), _MM_HINT_T0);
        _mm_prefetch(table.entries + static_cast<std::uint32_t>(high), _MM_HINT_T0);
        _mm_prefetch(table.entries + (high >> 32), _MM_HINT_T0);
    }
}

struct Narrow {
    using Token = std::uint16_t;
    static Token* write(const char* entry, Token* out) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out), load_16(entry + 16));
        std::uint16_t number;
        __builtin_memcpy(&number, entry + 30, sizeof number);
        return out + number;
    }
};

struct Wide {
    using Token = std::uint32_t;
    // Spreads the three bytes of each of five ids.
    static Token* write(const char* entry, Token* out) {
        const __m256i spread = _mm256_setr_epi8(0, 1, 2, 15, 3, 4, 5, 15, 6, 7, 8, 15, 9, 10, 11, 15, 12, 13, 14, 15, 0,
                                                0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        const __m256i ids = _mm256_maskz_permutexvar_epi8(0x77777, spread, _mm256_castsi128_si256(load_16(entry + 16)));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), ids);
        return out + static_cast<std::uint8_t>(entry[31]);
    }
};

template <class Width, class Token = typename Width::Token>
Written<Token> write(const PieceTableView& table, const PieceGroup& group, std::size_t from, std::size_t num_pieces,
                     Token* out) {
    std::size_t i = from;
    for (; i < num_pieces; i += 4) {
        const char* a = table.entries + group.offsets[i];
        const char* b = table.entries + group.offsets[i + 1];
        const char* c = table.entries + group.offsets[i + 2];
        const char* d = table.entries + group.offsets[i + 3];
        const __m512i keys = _mm512_loadu_si512(group.keys + i);
        std::uint32_t first = _mm512_cmpeq_epi64_mask(four(a, b, c, d), keys);
        std::uint32_t second = _mm512_cmpeq_epi64_mask(four(a + 32, b + 32, c + 32, d + 32), keys);
        asm("" : "+r"(first), "+r"(second));  // moves the masks to general registers once, not for each use
        first &= first >> 1;
        second &= second >> 1;
        const unsigned found = (first | second) & 0x55;
        a += (second & 1) * 32;
        b += (second & 4) * 8;
        c += (second & 16) * 2;
        d += (second & 64) / 2;
        if (found != 0x55 || i + 4 > num_pieces) [[unlikely]] {
            const std::size_t left = num_pieces - i;
            if (!(found & 1)) return {i, out};
            out = Width::write(a, out);
            if (left == 1 || !(found & 4)) return {i + 1, out};
            out = Width::write(b, out);
            if (left == 2 || !(found & 16)) return {i + 2, out};
            out = Width::write(c, out);
            if (left == 3 || !(found & 64)) return {i + 3, out};
            out = Width::write(d, out);
            continue;
        }
        out = Width::write(a, out);
        out = Width::write(b, out);
        out = Width::write(c, out);
        out = Width::write(d, out);
    }
    return {num_pieces, out};
}

}  // namespace

constinit const ProbeKernel kProbeAvx512 = {offset_of, prepare, write<Narrow>, write<Wide>};

}  // namespace gristmill
