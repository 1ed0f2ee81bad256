// Faults of a JSON line. In a separate header because SIMD kernels must not include headers that define functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gristmill {

// Maximum nesting depth, including the object of the line.
inline constexpr std::size_t kMaxJsonDepth = 1024;

enum class JsonFault : std::uint8_t {
    bom,         // a byte order mark before the object
    syntax,      // any fault without a name below; also a line that ends too early
    utf8,        // a byte that is not part of a valid UTF-8 sequence
    surrogate,   // \uD800 to \uDFFF that is not half of a pair
    control,     // an unescaped character below 0x20 in a string
    number,      // NaN, Infinity, 01, 1. and similar; numbers of any size are accepted
    depth,       // more than kMaxJsonDepth containers
    not_object,  // valid JSON that is not an object
    missing,     // an object without the field
    not_string,  // the field is neither a string nor null
};
}  // namespace gristmill
