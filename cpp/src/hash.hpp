// What the hash tables share: seeds and hash functions.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>

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

// For the hash tables of the standard library whose keys come from a file or a text. Crafted keys would otherwise all
// fall into one bucket: std::hash of an integer is the integer itself, and that of a string has a seed known to all.
class SeededHash {
  public:
    using is_transparent = void;  // a string_view finds a string

    std::size_t operator()(std::uint64_t key) const {
        return static_cast<std::size_t>(fold_multiply(key ^ seed_.a, seed_.b));
    }
    std::size_t operator()(std::string_view bytes) const {
        const auto* at = reinterpret_cast<const std::uint8_t*>(bytes.data());
        std::uint64_t hash = seed_.a ^ bytes.size();
        std::size_t left = bytes.size();
        for (; left >= 8; left -= 8, at += 8) hash = fold_multiply(hash ^ load_8(at), seed_.b);
        std::uint8_t last[8] = {};
        if (left) std::memcpy(last, at, left);
        return static_cast<std::size_t>(fold_multiply(hash ^ load_8(last), seed_.b));
    }

  private:
    HashSeed seed_ = HashSeed::random();
};

}  // namespace gristmill
