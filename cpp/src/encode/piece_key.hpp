// A piece as 16 bytes, the key of the piece tables. Plain data, also for kernel files.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gristmill {

struct alignas(16) PieceKey {
    std::uint64_t low, high;  // bytes in text order from the lowest; the length in the top byte of `high`, so never 0
};

inline constexpr std::size_t kMaxKeyBytes = 15;
inline constexpr std::uint64_t kHashedTag = std::uint64_t{1} << 63;  // in `high`: the key is the hash of a longer piece
// In `high` of an entry: the ids of this short piece are in the arena, so a kernel must not find it.
inline constexpr std::uint64_t kPlacedTag = std::uint64_t{0x20} << 56;

inline constexpr struct KeyMasks {
    struct alignas(16) Row {
        std::uint64_t low, high;  // the bytes of the piece
        std::uint64_t zero, tag;  // its length
    };
    constexpr KeyMasks() : rows() {
        for (std::size_t size = 0; size <= kMaxKeyBytes; ++size) {
            rows[size].low = size >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * size) - 1;
            rows[size].high = size <= 8 ? 0 : (std::uint64_t{1} << 8 * (size - 8)) - 1;
            rows[size].zero = 0;
            rows[size].tag = std::uint64_t{size} << 56;
        }
    }
    Row rows[kMaxKeyBytes + 1];
} kKeyMasks;

}  // namespace gristmill
