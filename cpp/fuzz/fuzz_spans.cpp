// corpus, count, shards: splitting at separators, checksums of data in parts, and word tables from parts that may be
// inconsistent.
#include <map>
#include <numeric>
#include <stdexcept>

#include "fuzz.hpp"
#include "gristmill/corpus.hpp"
#include "gristmill/count.hpp"
#include "gristmill/shards.hpp"

using namespace gristmill;
using namespace gristmill::fuzz;

namespace {

void check_split(std::string_view text, std::string_view separator) {
    const ExactText exact(text), exact_separator(separator);
    std::vector<std::int64_t> begins, ends;
    split_spans(exact.view(), exact_separator.view(), begins, ends);
    CHECK(begins.size() == ends.size());
    const Spans spans{exact.view(), begins.data(), ends.data(), begins.size()};
    check_spans(spans);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < spans.size; ++i) {
        const std::size_t found = text.find(separator, begin), end = std::min(found, text.size());
        CHECK(begins[i] == static_cast<std::int64_t>(begin) && ends[i] == static_cast<std::int64_t>(end));
        CHECK((found == std::string_view::npos) == (i + 1 == spans.size));
        CHECK(spans[i] == text.substr(begin, end - begin));
        begin = end + separator.size();
    }
    CHECK(count_newlines(exact.view()) == static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')));
}

void check_hostile_spans(Input& input, std::string_view text) {
    std::vector<std::int64_t> begins, ends;
    for (std::size_t left = input.below(4); left; --left) {
        begins.push_back(static_cast<std::int64_t>(input.number()));
        ends.push_back(static_cast<std::int64_t>(input.number()));
    }
    bool inside = true;
    for (std::size_t i = 0; i < begins.size(); ++i)
        inside &= begins[i] >= 0 && begins[i] <= ends[i] && ends[i] <= static_cast<std::int64_t>(text.size());
    bool accepted = true;
    try {
        check_spans({text, begins.data(), ends.data(), begins.size()});
    } catch (const std::invalid_argument&) {
        accepted = false;
    }
    CHECK(accepted == inside);
}

void check_checksum(Input& input, std::string_view text) {
    const std::uint64_t seed = input.number();
    const ExactText whole(text);
    Xxh64 hash(seed);
    for (std::string_view left = text; !left.empty();) {
        const ExactText part(left.substr(0, input.below(80)));
        hash.update(part.view());
        left.remove_prefix(part.size());
        if (!part.size()) {
            hash.update(left);
            break;
        }
    }
    CHECK(hash.digest() == xxh64(whole.view(), seed));
}

struct Parts {
    LargeVector<std::uint8_t> bytes;
    LargeVector<std::uint64_t> offsets, counts, firsts;
    std::uint64_t source_bytes;
};

// Mostly consistent parts, with an occasional error.
Parts parts_of(Input& input, std::string_view text) {
    Parts parts;
    parts.bytes.assign(text.begin(), text.end());
    parts.source_bytes = input.number();
    parts.offsets.push_back(0);
    std::uint64_t first = 0;
    while (parts.offsets.back() < text.size()) {
        parts.offsets.push_back(std::min<std::uint64_t>(parts.offsets.back() + 1 + input.below(5), text.size()));
        parts.counts.push_back(1 + (input.size() ? input.number() : 0));
        parts.firsts.push_back(first);
        first += 1 + input.below(9);
    }
    auto& any = input.flag() ? parts.offsets : input.flag() ? parts.counts : parts.firsts;
    const std::uint8_t change = input.byte();
    if (change % 4 == 1 && !any.empty()) any[input.below(any.size())] = input.number();
    if (change % 16 == 2 && !any.empty()) any.pop_back();
    if (change % 16 == 3) any.push_back(input.number());
    if (change % 4 == 0) std::reverse(parts.firsts.begin(), parts.firsts.end());
    return parts;
}

bool fit(const Parts& parts) {
    const std::size_t size = parts.counts.size();
    if (parts.offsets.size() != size + 1 || parts.firsts.size() != size) return false;
    if (parts.offsets.front() != 0 || parts.offsets.back() != parts.bytes.size()) return false;
    std::map<std::string, int> words;
    std::map<std::uint64_t, int> firsts;
    for (std::size_t i = 0; i < size; ++i) {
        if (parts.offsets[i] >= parts.offsets[i + 1] || parts.offsets[i + 1] > parts.bytes.size()) return false;
        if (parts.counts[i] == 0 || parts.counts[i] > INT64_MAX) return false;
        const auto begin = parts.bytes.begin();
        const std::string word(begin + static_cast<std::ptrdiff_t>(parts.offsets[i]),
                               begin + static_cast<std::ptrdiff_t>(parts.offsets[i + 1]));
        if (words[word]++ || firsts[parts.firsts[i]]++) return false;
    }
    return true;
}

void check_table(const WordTable& table) {
    CHECK(table.offsets.size() == table.size() + 1 && table.firsts.size() == table.size());
    CHECK(table.offsets.front() == 0 && table.offsets.back() == table.bytes.size());
    for (std::size_t i = 0; i < table.size(); ++i) {
        CHECK(!table.word(i).empty() && table.counts[i] > 0 && table.counts[i] <= INT64_MAX);
        CHECK(i == 0 || table.firsts[i] > table.firsts[i - 1]);
    }
}

template <class Counts>
bool pass_63_bits(const Counts& counts) {
    __extension__ unsigned __int128 total = 0;
    for (const std::uint64_t count : counts) total += count;
    return total > INT64_MAX;
}

bool make(const Parts& parts, WordTable& table) {
    try {
        table = make_word_table(parts.bytes, parts.offsets, parts.counts, parts.firsts, parts.source_bytes);
    } catch (const std::invalid_argument&) {
        CHECK(!fit(parts));
        return false;
    } catch (const std::overflow_error&) {
        CHECK(pass_63_bits(parts.counts));
        return false;
    }
    CHECK(fit(parts) && !pass_63_bits(parts.counts));
    check_table(table);
    CHECK(table.size() == parts.counts.size());
    CHECK(table.total() == std::accumulate(parts.counts.begin(), parts.counts.end(), std::uint64_t{0}));
    return true;
}

using Counts = std::map<std::string, std::uint64_t, std::less<>>;

Counts counts_of(const WordTable& table) {
    Counts counts;
    for (std::size_t i = 0; i < table.size(); ++i) counts.emplace(table.word(i), table.counts[i]);
    return counts;
}

void check_join(const WordTable& first, const WordTable& second) {
    Counts counts = counts_of(first);
    std::vector<std::uint64_t> all(first.counts.begin(), first.counts.end());
    all.insert(all.end(), second.counts.begin(), second.counts.end());
    const bool overflows = pass_63_bits(all);
    for (const auto& [word, count] : counts_of(second)) counts[word] += count;
    try {
        const WordTable joined = join_word_tables(first, second);
        CHECK(!overflows);
        check_table(joined);
        CHECK(counts_of(joined) == counts);
        CHECK(joined.source_bytes >= first.source_bytes);
        for (std::size_t i = 0; i < first.size(); ++i) CHECK(joined.word(i) == first.word(i));
        const std::uint64_t least = counts.empty() ? 1 : counts.begin()->second;
        std::erase_if(counts, [&](const auto& word) { return word.second < least; });
        const WordTable frequent = words_at_least(joined, least);
        check_table(frequent);
        CHECK(counts_of(frequent) == counts);
    } catch (const std::overflow_error&) {
        // Positions may overflow too, but only if the tables have some near 2^64.
        const auto far = [](const WordTable& table) {
            return table.source_bytes >> 62 || (!table.firsts.empty() && table.firsts.back() >> 62);
        };
        CHECK(overflows || far(first) || far(second));
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const std::string_view kSeparators[] = {"\n", "<|endoftext|>", "\n\n", "aa", "aba", " "};
    Input input(data, size);
    const std::uint8_t kind = input.byte();
    if (kind % 2) {
        std::string_view separator = kSeparators[kind / 2 % std::size(kSeparators)];
        if (kind & 128 && input.size() > 4) separator = input.text(1 + input.below(4));
        check_hostile_spans(input, input.text(8));
        const std::string_view text = input.text(input.size() - input.size() / 8);
        check_split(text, separator);
        check_checksum(input, text);
        return 0;
    }
    const std::string_view text = input.text(input.size() / 3);
    const std::size_t half = text.size() / 2;
    WordTable first, second;
    const bool both = make(parts_of(input, text.substr(0, half)), first) &&
                      make(parts_of(input, text.substr(kind & 2 ? 0 : half)), second);
    if (both) check_join(first, second);
    return 0;
}
