// shards: the checksum of token files. It is standard XXH64, so that other tools can verify the recorded values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gristmill {

class Xxh64 {
  public:
    explicit Xxh64(std::uint64_t seed = 0);
    void update(std::string_view data);
    // The checksum of all data so far; more data may follow.
    std::uint64_t digest() const;

  private:
    static constexpr std::size_t kStripeBytes = 32;
    static constexpr int kNumLanes = 4;
    void take(const std::uint8_t* stripe);

    std::uint64_t seed_;
    std::uint64_t lanes_[kNumLanes];
    std::uint64_t num_bytes_ = 0;
    std::uint8_t rest_[kStripeBytes];  // bytes of an incomplete stripe: num_bytes_ % kStripeBytes
};

std::uint64_t xxh64(std::string_view data, std::uint64_t seed);

}  // namespace gristmill
