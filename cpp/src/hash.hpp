// What the tables of count and encode share to hash pieces.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>

namespace gristmill {

// Multipliers of the hashes. Random per run, so that no text can be made to collide; no result depends on them.
struct HashSeed {
    std::uint64_t a, b;
    static HashSeed random() {
        std::random_device device;
        auto draw = [&] { return static_cast<std::uint64_t>(device()) << 32 | device(); };
        return {draw() | 1, draw() | 1};
    }
};

// Eight bytes in text order, the first one lowest.
inline std::uint64_t load_8(const std::uint8_t* p) {
    std::uint64_t value;
    std::memcpy(&value, p, sizeof value);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value;
}

inline std::uint64_t fold_multiply(std::uint64_t x, std::uint64_t y) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(x) * y;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace gristmill
