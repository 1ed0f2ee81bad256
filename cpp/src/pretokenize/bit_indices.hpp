// A table of the set bits of a byte, for kernels whose instruction set cannot compress a vector.
#pragma once

#include <cstdint>

namespace gristmill {
namespace {

// Row b: the indices of the set bits of b, in order.
struct BitIndices {
    std::uint8_t rows[256][8];

    constexpr BitIndices() : rows{} {
        for (int byte = 0; byte < 256; ++byte) {
            int count = 0;
            for (int bit = 0; bit < 8; ++bit) {
                if (byte >> bit & 1) rows[byte][count++] = static_cast<std::uint8_t>(bit);
            }
        }
    }
};
constexpr BitIndices kBitIndices;

}  // namespace
}  // namespace gristmill
