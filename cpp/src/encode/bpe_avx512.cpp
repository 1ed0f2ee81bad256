// BPE with all ranks of a piece in AVX-512 registers.
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about the deliberately undefined operands of its own intrinsics (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "encode/bpe_lanes.hpp"

namespace gristmill {
namespace {

template <unsigned kVectors>
class Avx512Lanes {
  public:
    static constexpr unsigned kSize = 16 * kVectors;

    explicit Avx512Lanes(const std::uint32_t* values) {
        for (unsigned i = 0; i < kVectors; ++i) lanes_[i] = _mm512_load_si512(values + 16 * i);
    }
    std::uint32_t least() const {
        __m512i least = lanes_[0];
        for (unsigned i = 1; i < kVectors; ++i) least = _mm512_min_epu32(least, lanes_[i]);
        return _mm512_reduce_min_epu32(least);
    }
    void set(LanePlace place, std::uint32_t value) {
        for (unsigned i = 0; i < kVectors; ++i) {
            const auto mask = static_cast<__mmask16>(place.bit >> 16 * i);
            lanes_[i] = _mm512_mask_set1_epi32(lanes_[i], mask, static_cast<int>(value));
        }
    }

  private:
    __m512i lanes_[kVectors];
};

}  // namespace

std::size_t encode_piece_avx512(const PairRanksView& ranks, const std::uint8_t* piece, std::size_t size,
                                std::uint32_t* ids) {
    if (size <= 16) return encode_piece<Avx512Lanes<1>>(ranks, piece, size, ids);
    if (size <= 32) return encode_piece<Avx512Lanes<2>>(ranks, piece, size, ids);
    return encode_piece<Avx512Lanes<4>>(ranks, piece, size, ids);
}

}  // namespace gristmill
