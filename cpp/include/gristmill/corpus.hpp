// corpus: what readers hand on. Documents are stretches of one buffer, never an object each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "gristmill/json_fault.hpp"
#include "gristmill/kernel.hpp"

namespace gristmill {

// Document i is text[begins[i], ends[i]).
struct Spans {
    std::string_view text;
    const std::int64_t* begins;
    const std::int64_t* ends;
    std::size_t size;

    std::string_view operator[](std::size_t i) const {
        return text.substr(static_cast<std::size_t>(begins[i]), static_cast<std::size_t>(ends[i] - begins[i]));
    }
};

// Throws std::invalid_argument unless every stretch lies inside the text.
void check_spans(const Spans& spans);

// The stretches between separators, the one behind the last included: always one more than there are separators.
void split_spans(std::string_view text, std::string_view separator, std::vector<std::int64_t>& begins,
                 std::vector<std::int64_t>& ends);
std::size_t count_newlines(std::string_view text);

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
