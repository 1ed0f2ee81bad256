#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <unordered_map>

#include "gristmill/count.hpp"
#include "hash.hpp"

namespace gristmill {
namespace {

void append(WordTable& table, std::string_view word, std::uint64_t count, std::uint64_t first) {
    table.bytes.insert(table.bytes.end(), word.begin(), word.end());
    table.offsets.push_back(table.bytes.size());
    table.counts.push_back(count);
    table.firsts.push_back(first);
}

// Ensures that no sum of counts wraps around.
void check_total(const WordTable& table) {
    std::uint64_t total = 0;
    for (const std::uint64_t count : table.counts) {
        total += count;  // both are below 2^63
        if (total >> 63) {
            throw std::overflow_error("the sum of all counts exceeds 2^63 - 1. Divide the counts by a common factor.");
        }
    }
}

// `Words.from_counts` gives this size to a corpus whose words have at least as many bytes.
constexpr std::uint64_t kSaturatedSize = (std::uint64_t{1} << 63) - 1;

[[noreturn]] void throw_too_many_bytes() {
    throw std::overflow_error(
        "the corpora of the joined tables have more than 2^64 - 1 bytes in total. Join fewer tables.");
}

std::uint64_t sum_of_sizes(std::uint64_t first, std::uint64_t second) {
    std::uint64_t sum;
    if (__builtin_add_overflow(first, second, &sum)) throw_too_many_bytes();
    return std::max({first, second, std::min(sum, kSaturatedSize)});  // a part may exceed the limit; the sum is no less
}

// The position where the corpus of another table starts after that of `first`, if its last word there is at `last`.
std::uint64_t start_after(const WordTable& first, std::uint64_t last) {
    // Only the order of positions matters. A saturated size would use up all positions after two tables.
    std::uint64_t start = first.source_bytes == kSaturatedSize ? 0 : first.source_bytes;
    bool overflows = false;
    // Positions of `first` may exceed its source_bytes when it was made from counts instead of text.
    if (!first.firsts.empty() && first.firsts.back() >= start)
        overflows = __builtin_add_overflow(first.firsts.back(), std::uint64_t{1}, &start);
    if (overflows || start > UINT64_MAX - last) throw_too_many_bytes();
    return start;
}

void check_parts(const WordTable& table) {
    const std::size_t size = table.size();
    if (table.offsets.size() != size + 1 || table.firsts.size() != size) {
        throw std::invalid_argument("words: " + std::to_string(size) + " counts need " + std::to_string(size + 1) +
                                    " offsets and " + std::to_string(size) + " first positions");
    }
    if (table.offsets.front() != 0 || table.offsets.back() != table.bytes.size()) {
        throw std::invalid_argument("words: offsets must run from 0 to the number of bytes");
    }
    for (std::size_t i = 0; i < size; ++i) {
        if (table.offsets[i] >= table.offsets[i + 1]) {
            throw std::invalid_argument("words: word " + std::to_string(i) + " is empty or its offsets descend");
        }
        if (table.counts[i] == 0 || table.counts[i] >> 63) {
            throw std::invalid_argument("words: word " + std::to_string(i) + " has the count " +
                                        std::to_string(table.counts[i]) + "; counts are 1 to 2^63 - 1");
        }
    }
    check_total(table);
}

WordTable sorted_by_first(const WordTable& table) {
    std::vector<std::size_t> order(table.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return table.firsts[a] < table.firsts[b]; });
    WordTable result;
    result.offsets.push_back(0);
    result.source_bytes = table.source_bytes;
    for (const std::size_t i : order) append(result, table.word(i), table.counts[i], table.firsts[i]);
    return result;
}

}  // namespace

std::uint64_t WordTable::total() const { return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}); }

WordTable make_word_table(LargeVector<std::uint8_t> bytes, LargeVector<std::uint64_t> offsets,
                          LargeVector<std::uint64_t> counts, LargeVector<std::uint64_t> firsts,
                          std::uint64_t source_bytes) {
    WordTable table{std::move(bytes), std::move(offsets), std::move(counts), std::move(firsts), source_bytes};
    check_parts(table);
    std::unordered_map<std::string_view, std::size_t, SeededHash> seen;
    seen.reserve(table.size());
    for (std::size_t i = 0; i < table.size(); ++i) {
        const auto [at, is_new] = seen.emplace(table.word(i), i);
        if (!is_new) {
            throw std::invalid_argument("words: words " + std::to_string(at->second) + " and " + std::to_string(i) +
                                        " are the same");
        }
    }
    if (!std::is_sorted(table.firsts.begin(), table.firsts.end())) table = sorted_by_first(table);
    if (std::adjacent_find(table.firsts.begin(), table.firsts.end()) != table.firsts.end()) {
        throw std::invalid_argument("words: two words have the same first position");
    }
    return table;
}

// Words of `first` keep their order; words that are only in `second` follow, since every position there comes later.
WordTable join_word_tables(const WordTable& first, const WordTable& second) {
    WordTable result = first;
    std::unordered_map<std::string_view, std::size_t, SeededHash> place;
    place.reserve(first.size());
    for (std::size_t i = 0; i < first.size(); ++i) place.emplace(first.word(i), i);
    result.source_bytes = sum_of_sizes(first.source_bytes, second.source_bytes);
    const std::uint64_t start = second.firsts.empty() ? 0 : start_after(first, second.firsts.back());
    for (std::size_t i = 0; i < second.size(); ++i) {
        const auto found = place.find(second.word(i));
        if (found == place.end()) {
            append(result, second.word(i), second.counts[i], start + second.firsts[i]);
            continue;
        }
        std::uint64_t& count = result.counts[found->second];
        count += second.counts[i];  // both are below 2^63
        if (count >> 63) {
            throw std::overflow_error(
                "a word of the joined tables occurs more than 2^63 - 1 times. Divide the counts by a common factor.");
        }
    }
    check_total(result);
    return result;
}

WordTable words_at_least(const WordTable& words, std::uint64_t min_frequency) {
    WordTable result;
    result.offsets.push_back(0);
    result.source_bytes = words.source_bytes;
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words.counts[i] >= min_frequency) append(result, words.word(i), words.counts[i], words.firsts[i]);
    }
    return result;
}

}  // namespace gristmill
