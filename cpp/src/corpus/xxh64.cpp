#include <bit>

#include "gristmill/spans.hpp"
#include "hash.hpp"

namespace gristmill {
namespace {

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F, kPrime3 = 0x165667B19E3779F9,
                        kPrime4 = 0x85EBCA77C2B2AE63, kPrime5 = 0x27D4EB2F165667C5;

std::uint64_t round(std::uint64_t lane, std::uint64_t input) { return std::rotl(lane + input * kPrime2, 31) * kPrime1; }

std::uint64_t merge_lane(std::uint64_t hash, std::uint64_t lane) { return (hash ^ round(0, lane)) * kPrime1 + kPrime4; }

std::uint64_t load_4(const std::uint8_t* p) {
    return std::uint64_t{p[0]} | std::uint64_t{p[1]} << 8 | std::uint64_t{p[2]} << 16 | std::uint64_t{p[3]} << 24;
}

}  // namespace

std::uint64_t xxh64(std::string_view data, std::uint64_t seed) {
    const auto* at = reinterpret_cast<const std::uint8_t*>(data.data());
    const std::uint8_t* const end = at + data.size();
    std::uint64_t hash = seed + kPrime5;
    if (data.size() >= 32) {
        std::uint64_t lanes[] = {seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1};
        for (; end - at >= 32; at += 32) {
            for (int lane = 0; lane < 4; ++lane) lanes[lane] = round(lanes[lane], load_8(at + 8 * lane));
        }
        hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
        for (const std::uint64_t lane : lanes) hash = merge_lane(hash, lane);
    }
    hash += data.size();
    for (; end - at >= 8; at += 8) hash = std::rotl(hash ^ round(0, load_8(at)), 27) * kPrime1 + kPrime4;
    if (end - at >= 4) {
        hash = std::rotl(hash ^ load_4(at) * kPrime1, 23) * kPrime2 + kPrime3;
        at += 4;
    }
    for (; at < end; ++at) hash = std::rotl(hash ^ *at * kPrime5, 11) * kPrime1;
    hash = (hash ^ hash >> 33) * kPrime2;
    hash = (hash ^ hash >> 29) * kPrime3;
    return hash ^ hash >> 32;
}

}  // namespace gristmill
