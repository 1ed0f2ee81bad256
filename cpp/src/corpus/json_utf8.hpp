// Tables that detect invalid UTF-8, after Keiser and Lemire, "Validating UTF-8 in less than one instruction per byte"
// (2021). Included by SIMD kernels: see json_line.hpp.
#pragma once

#include <cstdint>

namespace gristmill {
namespace {

// Faults of two consecutive bytes. A fault is present if all three tables below have its bit: for the upper and the
// lower half of the first byte, and for the upper half of the second.
enum Wrong : std::uint8_t {
    kTooShort = 1,         // a lead, then no continuation
    kTooLong = 2,          // ASCII, then a continuation
    kOverlong3 = 4,        // E0, then 80 to 9F
    kTooLarge = 8,         // F4 to FF, then 90 to BF
    kSurrogate = 16,       // ED, then A0 to BF
    kOverlong2 = 32,       // C0 or C1, then a continuation
    kOverlong4 = 64,       // F0, then 80 to 8F
    kFarTooLarge = 64,     // F5 to FF, then 80 to 8F: shares a bit, since no first byte has both
    kContinuations = 128,  // two continuations: valid only after the lead byte of a longer sequence
};

// The faults that each value of four bits can be part of.
struct Nibbles {
    std::uint8_t wrong[16] = {};
    constexpr Nibbles with(int first, int last, int bits) const {
        Nibbles result = *this;
        for (int i = first; i <= last; ++i) result.wrong[i] |= static_cast<std::uint8_t>(bits);
        return result;
    }
};
constexpr Nibbles kFirstHigh = Nibbles()
                                   .with(0x0, 0x7, kTooLong)
                                   .with(0x8, 0xB, kContinuations)
                                   .with(0xC, 0xF, kTooShort)
                                   .with(0xC, 0xC, kOverlong2)
                                   .with(0xE, 0xE, kOverlong3 | kSurrogate)
                                   .with(0xF, 0xF, kOverlong4 | kTooLarge | kFarTooLarge);
constexpr Nibbles kFirstLow = Nibbles()
                                  .with(0x0, 0xF, kTooShort | kTooLong | kContinuations)
                                  .with(0x0, 0x0, kOverlong2 | kOverlong3 | kOverlong4)
                                  .with(0x1, 0x1, kOverlong2)
                                  .with(0x4, 0xF, kTooLarge)
                                  .with(0x5, 0xF, kFarTooLarge)
                                  .with(0xD, 0xD, kSurrogate);
constexpr Nibbles kSecondHigh = Nibbles()
                                    .with(0x0, 0x7, kTooShort)
                                    .with(0x8, 0xB, kTooLong | kOverlong2 | kContinuations)
                                    .with(0x8, 0x8, kOverlong4 | kFarTooLarge)
                                    .with(0x8, 0x9, kOverlong3)
                                    .with(0x9, 0xB, kTooLarge)
                                    .with(0xA, 0xB, kSurrogate)
                                    .with(0xC, 0xF, kTooShort);

}  // namespace
}  // namespace gristmill
