// Radix sort: for many numbers several times as fast as sorting by comparison.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "gristmill/monitor.hpp"

namespace gristmill {

// A sort key, and the index of the element that has it.
struct Place {
    std::uint64_t key;
    std::size_t index;
};

// Sorts places by bits `begin` to `end` of their keys. The sort is stable.
inline void sort_by_bits(std::vector<Place>& places, unsigned begin, unsigned end, const Monitor& monitor) {
    // One output stream per digit value; the caches of a CPU support about this many streams.
    constexpr unsigned kDigitBits = 11;
    constexpr std::uint64_t kDigitMask = (1u << kDigitBits) - 1;
    std::vector<Place> sorted(places.size());
    std::vector<std::size_t> begins(kDigitMask + 2);
    for (; begin < end; begin += kDigitBits) {
        monitor.check();
        const std::uint64_t mask = end - begin < kDigitBits ? (1u << (end - begin)) - 1 : kDigitMask;
        std::fill(begins.begin(), begins.end(), 0);
        for (const Place& place : places) ++begins[(place.key >> begin & mask) + 1];
        for (std::size_t digit = 0; digit < mask; ++digit) begins[digit + 1] += begins[digit];
        for (const Place& place : places) sorted[begins[place.key >> begin & mask]++] = place;
        std::swap(places, sorted);
    }
}

}  // namespace gristmill
