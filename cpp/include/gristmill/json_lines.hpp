// JSON lines -> the texts of one field, unescaped: strictly RFC 8259, one object a line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "gristmill/json_fault.hpp"
#include "gristmill/pretokenize.hpp"

namespace gristmill {

// As Python has it: "bom", "not-object" and so on.
std::string_view json_fault_name(JsonFault fault);

struct JsonProblem {
    std::size_t line;  // from 0, blank lines counted
    std::size_t byte;  // in the line
    JsonFault fault;
};

struct JsonTexts {
    std::unique_ptr<std::uint8_t[]> data;  // the texts end to end, and kTextPadding more bytes that may be read
    std::size_t size = 0;
    std::vector<std::int64_t> begins, ends;
    std::size_t num_nulls = 0;           // objects left out because their field is null
    std::optional<JsonProblem> problem;  // what ended the work; the texts of the lines before it are there
};

// The texts of member `field` of the objects in `lines`, one a line; lines of white space only are passed over. Where
// an object has the member more than once, the last one counts. No byte outside `lines` is read.
//
//   {"id": 1, "text": "a\nb"}  ->  'a' 0x0A 'b'
JsonTexts extract_json(std::string_view lines, std::string_view field, Kernel kernel);

}  // namespace gristmill
