// Documents as stretches of one buffer, which is how readers hand them on: no object a document.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

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

}  // namespace gristmill
