// A word outside its table, on its way to the joined result or to a spilled run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace gristmill {

// `low`, `high`: the key of a short word (high == 0) or of a medium one; for a long word `low` is the address of its
// bytes, and `high` is its length with kLongTag. So most words can be compared and ordered without reading their bytes.
struct CountedWord {
    std::uint64_t low, high;
    std::uint64_t count;
    std::uint64_t first;

    static constexpr std::uint64_t kLongTag = std::uint64_t{1} << 63;

    bool is_long() const { return high & kLongTag; }
    std::size_t size() const {
        if (high == 0) return static_cast<std::size_t>(low >> 56);
        return static_cast<std::size_t>(is_long() ? high & ~kLongTag : high >> 56);
    }
    const std::uint8_t* long_bytes() const {
        return reinterpret_cast<const std::uint8_t*>(static_cast<std::uintptr_t>(low));
    }
    void set_long_bytes(const std::uint8_t* bytes) { low = reinterpret_cast<std::uintptr_t>(bytes); }

    static CountedWord from_bytes(std::string_view bytes, std::uint64_t count, std::uint64_t first) {
        const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
        CountedWord word{0, 0, count, first};
        if (bytes.size() > 15) {
            word.high = kLongTag | bytes.size();
            word.set_long_bytes(data);
            return word;
        }
        for (std::size_t i = 0; i < bytes.size(); ++i)
            (i < 8 ? word.low : word.high) |= static_cast<std::uint64_t>(data[i]) << 8 * (i % 8);
        (bytes.size() < 8 ? word.low : word.high) |= static_cast<std::uint64_t>(bytes.size()) << 56;
        return word;
    }

    void copy_bytes(std::uint8_t* to) const {
        if (is_long()) {
            std::memcpy(to, long_bytes(), size());
            return;
        }
        std::uint8_t whole[16];
        for (unsigned i = 0; i < 8; ++i) {
            whole[i] = static_cast<std::uint8_t>(low >> 8 * i);
            whole[8 + i] = static_cast<std::uint8_t>(high >> 8 * i);
        }
        std::memcpy(to, whole, size());
    }
    // Any total order that is the same in every table and run.
    int compare(const CountedWord& other) const {
        if (high != other.high) return high < other.high ? -1 : 1;
        if (is_long()) return std::memcmp(long_bytes(), other.long_bytes(), size());
        return low == other.low ? 0 : low < other.low ? -1 : 1;
    }
    void add(const CountedWord& same) {
        if (__builtin_add_overflow(count, same.count, &count) || count >> 63) {
            throw std::overflow_error("a word occurs more than 2^63 - 1 times. Count a smaller corpus.");
        }
        first = std::min(first, same.first);
    }
};

}  // namespace gristmill
