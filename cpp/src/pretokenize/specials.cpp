#include <algorithm>
#include <cstring>

#include "gristmill/pretokenize.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace gristmill {
namespace {

constexpr std::size_t kMaxRegisterPrefixes = 3;

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::uint16_t prefix_at(const std::uint8_t* p) { return static_cast<std::uint16_t>(p[0] | p[1] << 8); }

}  // namespace

SpecialFinder::SpecialFinder(const std::vector<std::string>& specials)
    : specials_(specials), starts_with_(65536, false) {
    for (std::uint32_t index = 0; index < specials_.size(); ++index) {
        const std::string& special = specials_[index];
        sorted_.push_back(index);
        longest_ = std::max(longest_, special.size());
        // A cut always stands before ASCII white space, so a special without any behind its first byte never covers
        // one.
        if (std::any_of(special.begin() + 1, special.end(), is_ascii_space)) {
            span_reach_ = std::max(span_reach_, special.size());
        }
        if (special.size() == 1) {
            has_single_byte_ = true;
            for (unsigned second = 0; second < 256; ++second) {
                starts_with_[static_cast<std::uint8_t>(special[0]) | second << 8] = true;
            }
        } else {
            const std::uint16_t prefix = prefix_at(reinterpret_cast<const std::uint8_t*>(special.data()));
            starts_with_[prefix] = true;
            prefixes_.push_back(prefix);
        }
    }
    std::sort(sorted_.begin(), sorted_.end(),
              [this](std::uint32_t a, std::uint32_t b) { return specials_[a] < specials_[b]; });
    std::sort(prefixes_.begin(), prefixes_.end());
    prefixes_.erase(std::unique(prefixes_.begin(), prefixes_.end()), prefixes_.end());
}

// The first position at or behind `from` whose two bytes begin some special; `size` if there is none. A special of one
// byte may also stand in the very last place, where no second byte is left to compare.
std::size_t SpecialFinder::next_candidate(const std::uint8_t* text, std::size_t size, std::size_t from) const {
    std::size_t at = from;
#if defined(__SSE2__)
    // Two anchors, not one: '<' alone is frequent in code and markup, "<|" is not. This runs at the speed of memory.
    if (!has_single_byte_ && prefixes_.size() <= kMaxRegisterPrefixes) {
        __m128i first[kMaxRegisterPrefixes], second[kMaxRegisterPrefixes];
        for (std::size_t i = 0; i < prefixes_.size(); ++i) {
            first[i] = _mm_set1_epi8(static_cast<char>(prefixes_[i] & 0xff));
            second[i] = _mm_set1_epi8(static_cast<char>(prefixes_[i] >> 8));
        }
        for (; at + 33 <= size; at += 32) {
            const auto* here = reinterpret_cast<const __m128i*>(text + at);
            const __m128i low = _mm_loadu_si128(here), high = _mm_loadu_si128(here + 1);
            const auto* after = reinterpret_cast<const __m128i*>(text + at + 1);
            const __m128i low_next = _mm_loadu_si128(after), high_next = _mm_loadu_si128(after + 1);
            __m128i low_hits = _mm_setzero_si128(), high_hits = _mm_setzero_si128();
            for (std::size_t i = 0; i < prefixes_.size(); ++i) {
                low_hits = _mm_or_si128(
                    low_hits, _mm_and_si128(_mm_cmpeq_epi8(low, first[i]), _mm_cmpeq_epi8(low_next, second[i])));
                high_hits = _mm_or_si128(
                    high_hits, _mm_and_si128(_mm_cmpeq_epi8(high, first[i]), _mm_cmpeq_epi8(high_next, second[i])));
            }
            const auto hits = static_cast<std::uint32_t>(_mm_movemask_epi8(low_hits)) |
                              static_cast<std::uint32_t>(_mm_movemask_epi8(high_hits)) << 16;
            if (hits) return at + static_cast<std::size_t>(__builtin_ctz(hits));
        }
    }
#endif
    for (; at + 1 < size; ++at) {
        if (starts_with_[prefix_at(text + at)]) return at;
    }
    return has_single_byte_ && at < size ? at : size;
}

// Byte by byte: those that begin as the text does are always a range of the sorted ones, and one that ends here is its
// first. However many there are, this looks no further than the longest of them.
std::uint32_t SpecialFinder::longest_at(const std::uint8_t* text, std::size_t size, std::size_t at) const {
    std::uint32_t longest = kNone;
    auto low = sorted_.begin(), high = sorted_.end();
    for (std::size_t depth = 0; low != high; ++depth) {
        if (specials_[*low].size() == depth) longest = *low++;
        if (at + depth == size) break;
        const std::uint8_t next = text[at + depth];
        const auto byte_of = [this, depth](std::uint32_t index) {
            return static_cast<std::uint8_t>(specials_[index][depth]);
        };
        low = std::partition_point(low, high, [&](std::uint32_t index) { return byte_of(index) < next; });
        high = std::partition_point(low, high, [&](std::uint32_t index) { return byte_of(index) == next; });
    }
    return longest;
}

SpecialFinder::Match SpecialFinder::find(const std::uint8_t* text, std::size_t size, std::size_t from,
                                         std::size_t to) const {
    if (empty()) return {to, kNone};
    // A special that starts before `to` has its first two bytes before to + 1.
    const std::size_t seen = std::min(size, to + 1);
    for (std::size_t at = from; at < to && (at = next_candidate(text, seen, at)) < to; ++at) {
        const std::uint32_t index = longest_at(text, size, at);
        if (index != kNone) return {at, index};
    }
    return {to, kNone};
}

bool SpecialFinder::may_span(const std::uint8_t* text, std::size_t size, std::size_t at) const {
    for (std::size_t start = at > span_reach_ ? at - span_reach_ + 1 : 0; start < at && span_reach_; ++start) {
        if (start + 1 >= size || !starts_with_[prefix_at(text + start)]) continue;
        const std::uint32_t longest = longest_at(text, size, start);
        if (longest != kNone && specials_[longest].size() > at - start) return true;
    }
    return false;
}

}  // namespace gristmill
