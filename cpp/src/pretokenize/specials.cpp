// Finds special tokens in text. A search for the first two bytes of the specials, at memory speed, finds candidates,
// and the text there is compared with the specials. Ordinary text needs no more. Where comparisons become too slow,
// because the text shares long prefixes with specials, the automaton takes over for a while.
#include <algorithm>
#include <bit>

#include "gristmill/pretokenize.hpp"
#include "pretokenize/special_automaton.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace gristmill {
namespace {

constexpr std::size_t kMaxRegisterPrefixes = 3;
// The cost of comparisons at which the automaton takes over: this many steps, plus this many per byte of text. The
// automaton takes a few nanoseconds per byte, and a step not much less.
constexpr std::size_t kFreeSteps = 4096, kStepsPerByte = 8;
// Bytes that the automaton reads at a time. At least the length of the longest special, so that reading past the
// window, for specials that end there, at most doubles the work.
constexpr std::size_t kWindowBytes = 16 << 10;

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::uint16_t prefix_at(const std::uint8_t* p) { return static_cast<std::uint16_t>(p[0] | p[1] << 8); }

}  // namespace

SpecialFinder::SpecialFinder(const std::vector<std::string>& specials)
    : specials_(specials), starts_with_(65536, false), automaton_(std::make_shared<SpecialAutomaton>(specials)) {
    for (std::uint32_t index = 0; index < specials_.size(); ++index) {
        const std::string& special = specials_[index];
        sorted_.push_back(index);
        longest_ = std::max(longest_, special.size());
        // A cut is always before ASCII white space, so a special with none after its first byte never covers a cut.
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

// The first position in [from, to) whose two bytes begin some special, or `to`. A special of one byte may also be in
// the last position, which has no second byte to compare.
std::size_t SpecialFinder::next_candidate(const std::uint8_t* text, std::size_t size, std::size_t from,
                                          std::size_t to) const {
    std::size_t at = from;
#if defined(__SSE2__)
    // Two bytes instead of one: '<' alone is frequent in code and markup, "<|" is not. This runs at memory speed.
    if (!has_single_byte_ && prefixes_.size() <= kMaxRegisterPrefixes) {
        __m128i first[kMaxRegisterPrefixes], second[kMaxRegisterPrefixes];
        for (std::size_t i = 0; i < prefixes_.size(); ++i) {
            first[i] = _mm_set1_epi8(static_cast<char>(prefixes_[i] & 0xff));
            second[i] = _mm_set1_epi8(static_cast<char>(prefixes_[i] >> 8));
        }
        for (; at < to && at + 33 <= size; at += 32) {
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
            if (hits) return std::min(to, at + static_cast<std::size_t>(__builtin_ctz(hits)));
        }
    }
#endif
    for (; at < to && at + 1 < size; ++at) {
        if (starts_with_[prefix_at(text + at)]) return at;
    }
    return has_single_byte_ && at < to ? at : to;
}

// Compares byte by byte: the specials that match so far are always a range of the sorted ones, and one that ends here
// is the first of the range. Adds the cost to `num_steps`, in comparisons of bytes.
std::uint32_t SpecialFinder::longest_at(const std::uint8_t* text, std::size_t size, std::size_t at,
                                        std::size_t& num_steps) const {
    std::uint32_t longest = kNone;
    auto low = sorted_.begin(), high = sorted_.end();
    for (std::size_t depth = 0; low != high; ++depth) {
        num_steps += static_cast<std::size_t>(std::bit_width(static_cast<std::size_t>(high - low)));
        while (low != high && specials_[*low].size() == depth) longest = *low++;
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
    to = std::min(to, size);
    return SpecialSearch(*this, text, size, to).next(from, to);
}

bool SpecialFinder::may_span(const std::uint8_t* text, std::size_t size, std::size_t at) const {
    return SpecialSpans(*this).cover(text, size, at);
}

SpecialFinder::Match SpecialSearch::next(std::size_t from, std::size_t to) {
    to = std::min(to, size_);
    if (finder_.empty()) return {to, SpecialFinder::kNone};
    for (std::size_t at = from; at < to;) {
        if (at < window_end_) {
            const std::uint32_t index = window_[at - window_begin_];
            if (index != SpecialFinder::kNone) return {at, index};
            ++at;
            continue;
        }
        at = finder_.next_candidate(text_, size_, at, to);
        if (at == to) break;
        if (is_too_slow(at)) {
            fill_window(at);
            continue;
        }
        const std::uint32_t index = finder_.longest_at(text_, size_, at, num_steps_);
        if (index != SpecialFinder::kNone) return {at, index};
        ++at;
    }
    return {to, SpecialFinder::kNone};
}

bool SpecialSearch::is_too_slow(std::size_t at) const {
    return num_steps_ > kFreeSteps && (num_steps_ - kFreeSteps) / kStepsPerByte > at - std::min(at, steps_begin_);
}

void SpecialSearch::fill_window(std::size_t begin) {
    const SpecialAutomaton& automaton = *finder_.automaton_;
    window_begin_ = begin;
    window_end_ = std::min(limit_, begin + std::max(kWindowBytes, finder_.longest_));
    window_.resize(window_end_ - window_begin_);
    SpecialAutomaton::State state = SpecialAutomaton::kStart;
    std::size_t at = std::min(size_, window_end_ + finder_.longest_ - 1);
    while (at > window_end_) state = automaton.next(state, text_[--at]);
    while (at > window_begin_) {
        state = automaton.next(state, text_[--at]);
        window_[at - window_begin_] = automaton.longest(state);
    }
    num_steps_ = kFreeSteps;  // the following text is probably no better
    steps_begin_ = window_end_;
}

bool SpecialSpans::cover(const std::uint8_t* text, std::size_t size, std::size_t at, bool is_complete) {
    const std::size_t reach = finder_.span_reach_;
    if (!reach || at >= size) return false;
    if (at < window_begin_ || at >= window_end_) {
        // Usually no special starts near the position, and this is all.
        const std::size_t first = at > reach ? at - reach + 1 : 0;
        if (first < clear_begin_ || first > clear_end_) clear_begin_ = clear_end_ = first;
        if (clear_end_ < at) clear_end_ = finder_.next_candidate(text, size, clear_end_, at);
        if (clear_end_ >= at) return false;
        // Twice as many positions each time, up to the number that one search reads anyway.
        const std::size_t width = std::min(2 * (window_end_ - window_begin_) + 1, std::max(kWindowBytes, reach));
        std::size_t end = std::min(size, at + width);
        if (!is_complete) end = std::max(at + 1, std::min(end, size - std::min(size, reach) + 1));
        fill_window(text, size, at, end);
    }
    return window_[at - window_begin_] > 0;
}

void SpecialSpans::fill_window(const std::uint8_t* text, std::size_t size, std::size_t begin, std::size_t end) {
    const SpecialAutomaton& automaton = *finder_.automaton_;
    const std::size_t reach = finder_.span_reach_;
    window_begin_ = begin;
    window_end_ = end;
    window_.assign(end - begin, 0);  // at first: difference from the previous position
    const std::size_t first = begin > reach ? begin - reach + 1 : 0;
    SpecialAutomaton::State state = SpecialAutomaton::kStart;
    for (std::size_t start = std::min(size, end - 1 + reach); start-- > first;) {
        state = automaton.next(state, text[start]);
        const std::uint32_t longest = automaton.longest(state);
        if (longest == SpecialFinder::kNone) continue;
        const std::size_t from = std::max(begin, start + 1), to = start + finder_.length(longest);
        if (from >= to || from >= end) continue;
        ++window_[from - begin];
        if (to < end) --window_[to - begin];
    }
    for (std::size_t i = 1; i < window_.size(); ++i) window_[i] += window_[i - 1];
}

}  // namespace gristmill
