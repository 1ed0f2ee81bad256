// Seeds and hash functions shared by the hash tables.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>

namespace gristmill {

// Multipliers of the hashes. They are random per process, so that no text can force collisions; no result depends on
// them.
struct HashSeed {
    std::uint64_t a, b;
    static HashSeed random();
};

#if defined(GRISTMILL_FUZZ)
// A failing input must fail again, and drawing a random seed takes longer than most fuzz targets. The targets set this
// for every input.
inline std::atomic<std::uint64_t> next_hash_seed{0};

inline HashSeed HashSeed::random() {
    // SplitMix64: consecutive states give unrelated values.
    auto draw = [state = next_hash_seed.fetch_add(1)](std::uint64_t half) {
        std::uint64_t x = (2 * state + half + 1) * 0x9E3779B97F4A7C15;
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
        x = (x ^ x >> 27) * 0x94D049BB133111EB;
        return x ^ x >> 31;
    };
    return {draw(0) | 1, draw(1) | 1};
}
#else
inline HashSeed HashSeed::random() {
    std::random_device device;
    auto draw = [&] { return static_cast<std::uint64_t>(device()) << 32 | device(); };
    return {draw() | 1, draw() | 1};
}
#endif

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

// For standard-library hash tables with keys from a file or a text. Without a seed, crafted keys could all fall into
// one bucket: std::hash of an integer is the integer itself, and that of a string uses a fixed, public seed.
class SeededHash {
  public:
    using is_transparent = void;  // lets a string_view find a string

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
