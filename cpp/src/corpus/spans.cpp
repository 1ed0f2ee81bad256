#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "gristmill/corpus.hpp"

namespace gristmill {

void check_spans(const Spans& spans) {
    const auto size = static_cast<std::int64_t>(spans.text.size());
    for (std::size_t i = 0; i < spans.size; ++i) {
        if (spans.begins[i] < 0 || spans.begins[i] > spans.ends[i] || spans.ends[i] > size)
            throw std::invalid_argument("a range is not inside the text");
    }
}

namespace {

// Like text.find(separator, from), but searches with memchr for the last byte of the separator, which is the rarest in
// the usual ones: '>' of <|endoftext|> or '\n'. std::string_view::find searches for the first byte, and '<' is common
// in code and HTML.
std::size_t find(std::string_view text, std::string_view separator, std::size_t from) {
    const std::size_t last = separator.size() - 1;
    for (std::size_t at = from + last; at < text.size(); ++at) {
        const void* found = std::memchr(text.data() + at, separator[last], text.size() - at);
        if (!found) break;
        at = static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
        if (std::memcmp(text.data() + at - last, separator.data(), last) == 0) return at - last;
    }
    return std::string_view::npos;
}

}  // namespace

void split_spans(std::string_view text, std::string_view separator, std::vector<std::int64_t>& begins,
                 std::vector<std::int64_t>& ends) {
    if (separator.empty()) throw std::invalid_argument("a separator must not be empty");
    std::size_t begin = 0;
    for (std::size_t at; (at = find(text, separator, begin)) != std::string_view::npos;) {
        begins.push_back(static_cast<std::int64_t>(begin));
        ends.push_back(static_cast<std::int64_t>(at));
        begin = at + separator.size();
    }
    begins.push_back(static_cast<std::int64_t>(begin));
    ends.push_back(static_cast<std::int64_t>(text.size()));
}

std::size_t count_newlines(std::string_view text) {
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace gristmill
