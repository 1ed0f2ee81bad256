// The grammar of JSON numbers, and which of them no double holds.

#include "corpus/json_line.hpp"

namespace gristmill {
namespace {

// The least number that rounds to infinity: 2^1024 - 2^970, half way between the largest double and 2^1024.
constexpr char kLeastInfinite[] =
    "179769313486231580793728971405303415079934132710037826936173778980444968292764750946649017977587207096330286416692"
    "887910946555547851940402630657488671505820681908902000708383676273854845817711531764475730270069855571366959622842"
    "914819860834936475292719074168444365510704342711559699508093042880177904174497792";
constexpr std::int64_t kLeastInfiniteDigits = sizeof kLeastInfinite - 1;

bool is_digit(std::uint8_t c) { return c >= '0' && c <= '9'; }

const std::uint8_t* skip_digits(const std::uint8_t* at, const std::uint8_t* end) {
    while (at != end && is_digit(*at)) ++at;
    return at;
}

// The parts of a number: [begin, point) are digits, [point, digits_end) the point and the digits of the fraction.
struct Number {
    const std::uint8_t *begin, *point, *digits_end;
    std::int64_t exponent;
};

// Whether a double would have to hold it as infinity. Compared digit by digit: no library's rounding, no locale.
bool is_infinite(const Number& number) {
    const std::uint8_t* at = number.begin;
    while (at != number.digits_end && !(*at >= '1' && *at <= '9')) ++at;
    if (at == number.digits_end) return false;  // zero, whatever its exponent
    // Digits before the point once the exponent is applied.
    const std::int64_t whole = (at < number.point ? number.point - at : number.point + 1 - at) + number.exponent;
    if (whole != kLeastInfiniteDigits) return whole > kLeastInfiniteDigits;
    for (const char* limit = kLeastInfinite; *limit; ++limit) {
        if (at == number.point && at != number.digits_end) ++at;
        const char digit = at < number.digits_end ? static_cast<char>(*at++) : '0';
        if (digit != *limit) return digit > *limit;
    }
    return true;
}

// The exponent at [at, end), all digits. Beyond 10^17 no number of digits that fits in memory can make up for it.
std::int64_t parse_exponent(const std::uint8_t* at, const std::uint8_t* end) {
    std::int64_t value = 0;
    for (; at != end && value < std::int64_t{100'000'000'000'000'000}; ++at) value = value * 10 + (*at - '0');
    return value;
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
    Number number{at, need_digits(at), nullptr, 0};
    if (*at == '0' && number.point - at > 1) throw JsonError{begin, JsonFault::number};
    at = number.digits_end = number.point;
    if (at != end && *at == '.') at = number.digits_end = need_digits(at + 1);
    const bool has_exponent = at != end && (*at == 'e' || *at == 'E');
    if (has_exponent) {
        ++at;
        const bool negative = at != end && *at == '-';
        if (at != end && (*at == '-' || *at == '+')) ++at;
        const std::uint8_t* digits = at;
        at = need_digits(digits);
        number.exponent = parse_exponent(digits, at) * (negative ? -1 : 1);
    }
    const bool may_be_infinite = has_exponent || number.point - number.begin >= kLeastInfiniteDigits;
    if (may_be_infinite && is_infinite(number)) throw JsonError{begin, JsonFault::number};
    return at;
}

}  // namespace gristmill
