// BPE with all ranks of a piece in NEON registers.
#include <arm_neon.h>

#include "encode/bpe_lanes.hpp"

namespace gristmill {
namespace {

// Sets a lane by comparing it with the number of every lane. This writes all vectors but avoids memory, where a vector
// load soon after the store of one lane would have to wait.
template <unsigned kVectors>
class NeonLanes {
  public:
    static constexpr unsigned kSize = 4 * kVectors;

    explicit NeonLanes(const std::uint32_t* values) {
        for (unsigned i = 0; i < kVectors; ++i) lanes_[i] = vld1q_u32(values + 4 * i);
    }
    std::uint32_t least() const {
        uint32x4_t least = lanes_[0];
        for (unsigned i = 1; i < kVectors; ++i) least = vminq_u32(least, lanes_[i]);
        return vminvq_u32(least);
    }
    void set(LanePlace place, std::uint32_t value) {
        static constexpr std::uint32_t kNumbers[4] = {0, 1, 2, 3};
        const uint32x4_t values = vdupq_n_u32(value);
        for (unsigned i = 0; i < kVectors; ++i) {
            const uint32x4_t numbers = vaddq_u32(vld1q_u32(kNumbers), vdupq_n_u32(4 * i));
            lanes_[i] = vbslq_u32(vceqq_u32(numbers, vdupq_n_u32(place.index)), values, lanes_[i]);
        }
    }

  private:
    uint32x4_t lanes_[kVectors];
};

}  // namespace

std::size_t encode_piece_neon(const PairRanksView& ranks, const std::uint8_t* piece, std::size_t size,
                              std::uint32_t* ids) {
    if (size <= 16) return encode_piece<NeonLanes<4>>(ranks, piece, size, ids);
    if (size <= 32) return encode_piece<NeonLanes<8>>(ranks, piece, size, ids);
    return encode_piece<NeonLanes<16>>(ranks, piece, size, ids);
}

}  // namespace gristmill
