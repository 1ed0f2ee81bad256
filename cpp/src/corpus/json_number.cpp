// The grammar of JSON numbers. There is no range check: users of the number decide what fits in a double.

#include "corpus/json_line.hpp"

namespace gristmill {
namespace {

const std::uint8_t* skip_digits(const std::uint8_t* at, const std::uint8_t* end) {
    while (at != end && *at >= '0' && *at <= '9') ++at;
    return at;
}

}  // namespace

const std::uint8_t* json_number_end(const std::uint8_t* at, const std::uint8_t* end) {
    const std::uint8_t* const begin = at;
    const auto need_digits = [&](const std::uint8_t* from) {
        const std::uint8_t* to = skip_digits(from, end);
        if (to == from) throw JsonError{begin, JsonFault::number};
        return to;
    };
    if (*at == '-') ++at;
    const std::uint8_t* const whole_end = need_digits(at);
    if (*at == '0' && whole_end - at > 1) throw JsonError{begin, JsonFault::number};
    at = whole_end;
    if (at != end && *at == '.') at = need_digits(at + 1);
    if (at != end && (*at == 'e' || *at == 'E')) {
        ++at;
        if (at != end && (*at == '-' || *at == '+')) ++at;
        at = need_digits(at);
    }
    return at;
}

}  // namespace gristmill
