// BPE of a piece of up to 64 bytes by a SIMD kernel.
#pragma once

#include "encode/pair_ranks_view.hpp"

namespace gristmill {

inline constexpr std::size_t kKernelPieceBytes = 64;
static_assert(kPackedRankBits + 6 < 32, "a rank and a position share 32 bits");

// Writes the ids of a piece of 2 to kKernelPieceBytes bytes and returns their number.
using BpeKernel = std::size_t (*)(const PairRanksView& ranks, const std::uint8_t* piece, std::size_t size,
                                  std::uint32_t* ids);

#if defined(__x86_64__)
std::size_t encode_piece_avx512(const PairRanksView& ranks, const std::uint8_t* piece, std::size_t size,
                                std::uint32_t* ids);
#elif defined(__aarch64__)
std::size_t encode_piece_neon(const PairRanksView& ranks, const std::uint8_t* piece, std::size_t size,
                              std::uint32_t* ids);
#endif

}  // namespace gristmill
