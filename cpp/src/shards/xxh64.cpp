#include <algorithm>
#include <bit>
#include <cstring>

#include "gristmill/shards.hpp"
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

Xxh64::Xxh64(std::uint64_t seed)
    : seed_(seed), lanes_{seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1} {}

void Xxh64::take(const std::uint8_t* stripe) {
    for (int lane = 0; lane < kNumLanes; ++lane) lanes_[lane] = round(lanes_[lane], load_8(stripe + 8 * lane));
}

void Xxh64::update(std::string_view data) {
    const auto* at = reinterpret_cast<const std::uint8_t*>(data.data());
    const std::uint8_t* const end = at + data.size();
    const std::size_t num_kept = num_bytes_ % kStripeBytes;
    num_bytes_ += data.size();
    if (num_kept) {
        const std::size_t num_new = std::min(kStripeBytes - num_kept, data.size());
        std::memcpy(rest_ + num_kept, at, num_new);
        at += num_new;
        if (num_kept + num_new < kStripeBytes) return;
        take(rest_);
    }
    for (; static_cast<std::size_t>(end - at) >= kStripeBytes; at += kStripeBytes) take(at);
    if (at != end) std::memcpy(rest_, at, static_cast<std::size_t>(end - at));
}

std::uint64_t Xxh64::digest() const {
    std::uint64_t hash = seed_ + kPrime5;
    if (num_bytes_ >= kStripeBytes) {
        hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) + std::rotl(lanes_[3], 18);
        for (const std::uint64_t lane : lanes_) hash = merge_lane(hash, lane);
    }
    hash += num_bytes_;
    const std::uint8_t* at = rest_;
    const std::uint8_t* const end = rest_ + num_bytes_ % kStripeBytes;
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

std::uint64_t xxh64(std::string_view data, std::uint64_t seed) {
    Xxh64 hash(seed);
    hash.update(data);
    return hash.digest();
}

}  // namespace gristmill
