// What can be wrong with a line of JSON. Alone in its header: SIMD kernels include nothing that brings in functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gristmill {

// Containers that may be open at once, the object of the line included.
inline constexpr std::size_t kMaxJsonDepth = 1024;

enum class JsonFault : std::uint8_t {
    bom,         // a byte order mark before the object
    syntax,      // anything that the others do not name; also a line that ends too early
    utf8,        // a byte that is not part of a valid UTF-8 sequence
    surrogate,   // \uD800 to \uDFFF that is no half of a pair
    control,     // a character below 0x20 in a string that is not escaped
    number,      // NaN, Infinity, 01, 1. and the like; the size of a number does not matter
    depth,       // more than kMaxJsonDepth containers
    not_object,  // valid JSON of another kind
    missing,     // an object without the field
    not_string,  // the field is neither a string nor null
};
}  // namespace gristmill
