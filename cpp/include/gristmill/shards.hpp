// shards: the checksum of token files. XXH64 as its specification defines it, so that others can compute what we write
// down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gristmill {

class Xxh64 {
  public:
    explicit Xxh64(std::uint64_t seed = 0);
    void update(std::string_view data);
    // Of all data so far; more may follow.
    std::uint64_t digest() const;

  private:
    static constexpr std::size_t kStripeBytes = 32;
    static constexpr int kNumLanes = 4;
    void take(const std::uint8_t* stripe);

    std::uint64_t seed_;
    std::uint64_t lanes_[kNumLanes];
    std::uint64_t num_bytes_ = 0;
    std::uint8_t rest_[kStripeBytes];  // what is too little for a stripe: num_bytes_ % kStripeBytes
};

std::uint64_t xxh64(std::string_view data, std::uint64_t seed);

}  // namespace gristmill
