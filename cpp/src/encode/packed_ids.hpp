// The ids of a piece in 16 bytes, or the position of a longer list of ids.
//
// Writing stores the whole register and advances by the number of ids, so that no branch depends on that number; the
// next piece overwrites the excess.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gristmill/ids.hpp"

namespace gristmill {

template <class Token>
struct PackedIds;

template <>
struct PackedIds<std::uint16_t> {
    static constexpr std::size_t kMax = 7;
    static constexpr std::uint16_t kPlace = 0xffff;
    std::uint16_t ids[kMax];
    std::uint16_t number;

    static bool fits(const Id*, std::size_t num_ids) { return num_ids <= kMax; }
    void set(const Id* from, std::size_t num_ids) {
        for (std::size_t i = 0; i < num_ids; ++i) ids[i] = static_cast<std::uint16_t>(from[i]);
        number = static_cast<std::uint16_t>(num_ids);
    }
    bool is_place() const { return number == kPlace; }
    std::uint32_t place() const {
        std::uint32_t place;
        std::memcpy(&place, ids, sizeof place);
        return place;
    }
    void set_place(std::uint32_t place) {
        std::memcpy(ids, &place, sizeof place);
        number = kPlace;
    }
    std::uint16_t* write(std::uint16_t* out) const {
        std::memcpy(out, this, sizeof *this);
        return out + number;
    }
    std::size_t num_ids() const { return number; }
};

// 5 ids of 24 bits, the number in the last byte.
template <>
struct PackedIds<std::uint32_t> {
    static constexpr std::size_t kMax = 5;
    static constexpr std::uint64_t kPlace = 0xff, kMask = 0xffffff;
    std::uint64_t low, high;  // bits 0-23, 24-47, 48-71, 72-95, 96-119; 120-127

    static bool fits(const Id* ids, std::size_t num_ids) {
        if (num_ids > kMax) return false;
        for (std::size_t i = 0; i < num_ids; ++i) {
            if (ids[i] > kMask) return false;
        }
        return true;
    }
    void set(const Id* from, std::size_t num_ids) {
        std::uint64_t id[kMax] = {};
        for (std::size_t i = 0; i < num_ids; ++i) id[i] = from[i];
        low = id[0] | id[1] << 24 | id[2] << 48;
        high = id[2] >> 16 | id[3] << 8 | id[4] << 32 | static_cast<std::uint64_t>(num_ids) << 56;
    }
    bool is_place() const { return high >> 56 == kPlace; }
    std::uint32_t place() const { return static_cast<std::uint32_t>(low); }
    void set_place(std::uint32_t place) {
        low = place;
        high = kPlace << 56;
    }
    std::uint32_t* write(std::uint32_t* out) const {
        out[0] = static_cast<std::uint32_t>(low & kMask);
        out[1] = static_cast<std::uint32_t>(low >> 24 & kMask);
        if (num_ids() > 2) {  // here a branch is cheaper than unpacking ids that are rarely present
            out[2] = static_cast<std::uint32_t>((low >> 48 | high << 16) & kMask);
            out[3] = static_cast<std::uint32_t>(high >> 8 & kMask);
            out[4] = static_cast<std::uint32_t>(high >> 32 & kMask);
        }
        return out + num_ids();
    }
    std::size_t num_ids() const { return static_cast<std::size_t>(high >> 56); }
};

// Maximum number of excess ids that writing may store after those of a piece.
inline constexpr std::size_t kIdSlack = 8;

}  // namespace gristmill
