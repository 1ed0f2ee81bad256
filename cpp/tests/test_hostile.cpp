// Vocabularies and texts that are crafted to be slow or to fill memory cost no more than others of their size.
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "check.hpp"
#include "encode/pair_ranks.hpp"
#include "encode/token_table.hpp"
#include "encode_judge.hpp"
#include "merge/tokens.hpp"
#include "pretokenize/special_automaton.hpp"

using namespace gristmill;
using namespace gristmill::test;

// The peak of allocated memory since the last reset.
static std::size_t g_allocated = 0, g_peak = 0;

void* operator new(std::size_t size) {
    constexpr std::size_t kHeader = alignof(std::max_align_t);
    auto* memory = static_cast<unsigned char*>(std::malloc(size + kHeader));
    if (!memory) throw std::bad_alloc();
    std::memcpy(memory, &size, sizeof size);
    g_peak = std::max(g_peak, g_allocated += size);
    return memory + kHeader;
}
void operator delete(void* memory) noexcept {
    if (!memory) return;
    auto* begin = static_cast<unsigned char*>(memory) - alignof(std::max_align_t);
    std::size_t size;
    std::memcpy(&size, begin, sizeof size);
    g_allocated -= size;
    std::free(begin);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

namespace {

std::size_t peak_of(const std::function<void()>& work) {
    const std::size_t before = g_peak = g_allocated;
    work();
    return g_peak - before;
}

template <class Error>
bool throws(const std::function<void()>& work) {
    try {
        work();
    } catch (const Error&) {
        return true;
    }
    return false;
}

constexpr std::size_t kMiB = std::size_t{1} << 20;

VocabularyParts parts_of(std::vector<MergeRule> merges) {
    VocabularyParts parts;
    for (unsigned byte = 0; byte < 256; ++byte) parts.byte_ids[byte] = byte;
    parts.merges = std::move(merges);
    return parts;
}

// The q for which q * multiplier mod 2^64, as a signed number, is closest to 0, among those of about `limit`: the
// denominators of the continued fraction of multiplier / 2^64.
std::uint64_t nearly_neutral(std::uint64_t multiplier, std::uint64_t limit) {
    __extension__ using Wide = unsigned __int128;
    Wide a = Wide{1} << 64, b = multiplier;
    std::uint64_t before = 0, q = 1;
    while (q < limit) {
        const auto quotient = static_cast<std::uint64_t>(a / b);
        before = std::exchange(q, quotient * q + before);
        a = std::exchange(b, a % b);
    }
    return before;
}

// Merges crafted against a table whose hashes are h = (pair ^ pair >> 23) * a and h * b: a hundred pairs that share ten
// buckets by the first hash and ten by the second, until there are tens of millions of buckets.
std::vector<MergeRule> crowded_merges() {
    constexpr std::uint64_t kFirst = 0x9e3779b97f4a7c15u, kSecond = kFirst * 0xd6e8feb86659fd93u;
    const std::uint64_t down = nearly_neutral(kFirst, 1 << 27), across = nearly_neutral(kSecond, 1 << 27);
    std::vector<MergeRule> merges;
    for (std::uint64_t i = 0; i < 10; ++i)
        for (std::uint64_t j = 0; j < 10; ++j) {
            const std::uint64_t mixed = (std::uint64_t{1} << 36) + i * down + j * across, pair = mixed ^ mixed >> 23;
            const auto made = static_cast<Id>(256 + merges.size());
            merges.push_back({static_cast<Id>(pair >> 20), static_cast<Id>(pair & 0xfffff), made});
        }
    return merges;
}

void test_merges_made_to_share_buckets_take_a_table_of_the_usual_size() {
    const std::vector<MergeRule> merges = crowded_merges();
    const std::size_t peak = peak_of([&] {
        const PairRanks ranks(parts_of(merges));
        CHECK(ranks.is_packed());
        for (Rank rank = 0; rank < merges.size(); ++rank)
            CHECK(ranks.of(merges[rank].left, merges[rank].right) == rank);
        CHECK(ranks.of(merges[0].right, merges[0].left) == kNoRank);
    });
    CHECK(peak < kMiB);  // mostly the table of byte pairs
}

HashSeed useless_seed() { return {0, 0}; }  // all pairs in one bucket

void test_a_table_that_cannot_be_filled_gives_way_to_a_map_with_the_same_ranks() {
    Random random(1);
    std::vector<MergeRule> merges;
    for (Id i = 0; i < 5000; ++i) merges.push_back({Id(random() % (256 + i)), Id(random() % (256 + i)), 256 + i});
    const VocabularyParts parts = parts_of(merges);
    const PairRanks packed(parts), mapped(parts, useless_seed);
    CHECK(packed.is_packed() && !mapped.is_packed());
    CHECK(mapped.table_bytes() == 0);
    for (const MergeRule& merge : merges) {
        CHECK(packed.of(merge.left, merge.right) != kNoRank);
        CHECK(packed.of(merge.left, merge.right) == mapped.of(merge.left, merge.right));
    }
    for (int i = 0; i < 10000; ++i) {
        const Id left = random() % 6000, right = random() % 6000;
        CHECK(packed.of(left, right) == mapped.of(left, right));
    }
}

// Half of the merges are numbers that are 0 modulo the number of buckets of a standard hash table of that size.
void test_merges_made_against_the_standard_hash_are_checked_in_linear_time() {
    constexpr std::size_t kMerges = 400'000;
    std::unordered_set<std::uint64_t> standard;
    standard.reserve(kMerges);
    const std::uint64_t modulus = standard.bucket_count();
    std::vector<Id> pairs;
    std::vector<MergeRule> merges;
    for (Id i = 0; i < kMerges / 2; ++i) pairs.insert(pairs.end(), {i, i});
    for (Id left = 1; pairs.size() < 2 * kMerges; ++left) {
        const std::uint64_t right = (modulus - (std::uint64_t{left} << 32) % modulus) % modulus;
        if (left < 256 + kMerges / 2 && right < 256 + kMerges / 2 && left != right)
            pairs.insert(pairs.end(), {left, static_cast<Id>(right)});
        if (left >= 256 + kMerges / 2) break;
    }
    CHECK(find_wrong_merge({pairs.data(), pairs.size() / 2}) == pairs.size() / 2);
    for (std::size_t i = 0; i < pairs.size() / 2; ++i)
        merges.push_back({pairs[2 * i], pairs[2 * i + 1], static_cast<Id>((Id{1} << 20) + i)});  // not packed
    const PairRanks ranks(parts_of(merges));
    CHECK(!ranks.is_packed());
    CHECK(ranks.of(merges.back().left, merges.back().right) == merges.size() - 1);
    pairs.insert(pairs.end(), {pairs[pairs.size() - 2], pairs[pairs.size() - 1]});
    CHECK(find_wrong_merge({pairs.data(), pairs.size() / 2}) == pairs.size() / 2 - 1);
}

void test_tokens_that_double_are_refused_before_they_are_built() {
    for (const Id num_merges : {30u, 60u, 100u}) {
        std::vector<MergeRule> rules{{97, 97, 256}};
        std::vector<Merge> given{{97, 97}};
        std::vector<Id> pairs{97, 97};
        for (Id i = 256; i < 255 + num_merges; ++i) {
            rules.push_back({i, i, i + 1});
            given.push_back({i, i});
            pairs.insert(pairs.end(), {i, i});
        }
        std::vector<MergeRule> backwards(rules.rbegin(), rules.rend());  // every merge waits for the next one
        const std::size_t peak = peak_of([&] {
            CHECK(throws<std::invalid_argument>([&] { TokenTable table(parts_of(rules)); }));
            CHECK(throws<std::invalid_argument>([&] { TokenTable table(parts_of(backwards)); }));
            CHECK(throws<std::invalid_argument>([&] { merge::Tokens().add_given(given); }));
            CHECK(find_merge_past_limit({pairs.data(), pairs.size() / 2}) == 26);  // 2^28 - 2 bytes and 256 more
        });
        CHECK(peak < kMiB);
    }
}

// A long token that many merges make is built for each of them.
void test_a_long_token_is_counted_for_every_merge_that_makes_it() {
    std::vector<MergeRule> rules{{97, 97, 256}};
    for (Id i = 256; i < 280; ++i) rules.push_back({i, i, i + 1});  // 2^25 bytes
    for (int again = 0; again < 8; ++again) rules.push_back({279, 279, 280});
    CHECK(peak_of([&] { CHECK(throws<std::invalid_argument>([&] { TokenTable table(parts_of(rules)); })); }) < kMiB);
}

void test_special_tokens_together_are_bounded() {
    VocabularyParts parts = parts_of({});
    parts.specials = {{std::string(kMaxSpecialBytes, 'x'), 300}, {"y", 301}};
    CHECK(throws<std::invalid_argument>([&] { TokenTable table(parts); }));
    parts.specials.pop_back();
    CHECK(TokenTable(parts).length(300) == kMaxSpecialBytes);
}

// Specials by the plain definition.
SpecialFinder::Match plain_find(const std::vector<std::string>& specials, std::string_view text, std::size_t from,
                                std::size_t to) {
    to = std::min(to, text.size());
    for (std::size_t at = from; at < to; ++at) {
        std::uint32_t longest = SpecialFinder::kNone;
        for (std::uint32_t i = 0; i < specials.size(); ++i)
            if (text.substr(at).starts_with(specials[i]) &&
                (longest == SpecialFinder::kNone || specials[i].size() > specials[longest].size()))
                longest = i;
        if (longest != SpecialFinder::kNone) return {at, longest};
    }
    return {to, SpecialFinder::kNone};
}

bool plain_span(const std::vector<std::string>& specials, std::string_view text, std::size_t at) {
    for (std::size_t start = 0; start < at; ++start)
        for (const std::string& special : specials)
            if (text.substr(start).starts_with(special) && start + special.size() > at) return true;
    return false;
}

const std::uint8_t* bytes_of(std::string_view text) { return reinterpret_cast<const std::uint8_t*>(text.data()); }

bool operator==(const SpecialFinder::Match& a, const SpecialFinder::Match& b) {
    return a.position == b.position && a.index == b.index;
}

std::vector<std::string> random_specials(Random& random, const std::vector<std::string>& units, std::size_t longest) {
    std::set<std::string> specials;
    for (std::size_t i = 1 + random() % 6; i; --i) {
        std::string special = joined(random, units, 1 + random() % longest);
        if (random() % 2) specials.insert(special + special);  // its own prefix and suffix
        if (random() % 2 && special.size() > 1) specials.insert(special.substr(1));
        specials.insert(std::move(special));
    }
    return {specials.begin(), specials.end()};
}

void test_specials_are_found_as_the_plain_definition_says_at_every_cut() {
    Random random(2);
    for (int round = 0; round < 400; ++round) {
        const std::vector<std::string> units =
            round % 2 ? std::vector<std::string>{"a", "b"} : std::vector<std::string>{"a", " ", "ab"};
        const std::vector<std::string> specials = random_specials(random, units, 1 + random() % 5);
        const SpecialFinder finder(specials);
        const std::string text = joined(random, units, random() % 60);
        for (std::size_t from = 0; from <= text.size(); ++from)
            for (std::size_t to = from; to <= text.size() + 1; ++to)
                CHECK(finder.find(bytes_of(text), text.size(), from, to) == plain_find(specials, text, from, to));
        for (std::size_t at = 0; at < text.size(); ++at)
            if (text[at] == ' ')
                CHECK(finder.may_span(bytes_of(text), text.size(), at) == plain_span(specials, text, at));
    }
}

// Long enough that the automaton takes over, hands back, and takes over again.
void test_a_search_through_a_long_text_finds_the_same_by_comparing_and_by_the_automaton() {
    Random random(3);
    for (int round = 0; round < 12; ++round) {
        const std::vector<std::string> units{"a", "a", "a", round % 2 ? "b" : " "};
        std::vector<std::string> specials = random_specials(random, units, 4);
        std::string almost = joined(random, {"a"}, 40 + random() % 3000);
        if (round % 3) almost[almost.size() / 2] = ' ';
        for (const std::string& extra : {almost + "x", almost + "y ", std::string("a") + almost})
            if (std::find(specials.begin(), specials.end(), extra) == specials.end()) specials.push_back(extra);
        const SpecialFinder finder(specials);
        std::string text;
        while (text.size() < 60'000) {
            text += random() % 3 ? joined(random, {"a"}, random() % 4000) : joined(random, units, random() % 100);
            if (random() % 4 == 0) text += any_of(random, specials);
            if (random() % 3 == 0) text += std::string(random() % 9000, 'z');
        }
        // By comparisons alone: one short search after another.
        const auto* bytes = bytes_of(text);
        SpecialSearch search(finder, bytes, text.size()), sliced(finder, bytes, text.size());
        for (std::size_t at = 0; at < text.size();) {
            SpecialFinder::Match expected{at, SpecialFinder::kNone};
            while (expected.index == SpecialFinder::kNone && expected.position < text.size())
                expected = finder.find(bytes, text.size(), expected.position, expected.position + 1);
            CHECK(search.next(at, text.size()) == expected);
            SpecialFinder::Match found{at, SpecialFinder::kNone};
            while (found.index == SpecialFinder::kNone && found.position < text.size())
                found = sliced.next(found.position, found.position + 1 + random() % 3000);
            CHECK(found == expected);
            if (expected.index == SpecialFinder::kNone) break;
            at = expected.position + finder.length(expected.index);
        }
        SpecialSpans spans(finder), growing(finder);
        for (std::size_t at = 1; at < text.size(); ++at) {
            if (text[at] != ' ') continue;
            const bool expected = finder.may_span(bytes, text.size(), at);
            CHECK(spans.cover(bytes, text.size(), at) == expected);
            const std::size_t known = std::min(text.size(), at + finder.span_reach() + random() % 2000);
            CHECK(growing.cover(bytes, known, at, known == text.size()) == expected);
        }
    }
}

// A text of 32 MB in which every position starts with all of a special's 2,000 bytes but the last.
void test_a_text_full_of_beginnings_of_a_long_special_is_searched_in_linear_time() {
    const std::string text(32 * kMiB, 'a');
    const auto* bytes = bytes_of(text);
    const SpecialFinder finder({std::string(2000, 'a') + "b"});
    CHECK(finder.find(bytes, text.size(), 0).index == SpecialFinder::kNone);
    // Another special is found at every position, where the long one is tried first.
    const SpecialFinder two({std::string(2000, 'a') + "b", "a"});
    SpecialSearch search(two, bytes, text.size());
    std::size_t num_found = 0;
    for (std::size_t at = 0; at < text.size(); ++at) num_found += search.next(at, text.size()).index == 1;
    CHECK(num_found == text.size());
    // Every special is a prefix of the next.
    std::vector<std::string> nested;
    for (std::size_t length = 2; length < 2000; ++length) nested.push_back(std::string(length, 'a') + "b");
    CHECK(SpecialFinder(nested).find(bytes, text.size(), 0).index == SpecialFinder::kNone);
}

void test_a_text_whose_cuts_are_all_covered_is_cut_in_linear_time() {
    std::string text, long_special;
    while (text.size() < 4 * kMiB) text += "ab ";
    const auto* bytes = bytes_of(text);
    const SpecialFinder finder({text.substr(0, kMiB) + "x", "b a"});
    SpecialSpans spans(finder), growing(finder);
    std::size_t num_covered = 0, num_places = 0;
    for (std::size_t at = 2; at + 3 < text.size(); at += 3, ++num_places)
        num_covered += spans.cover(bytes, text.size(), at);
    CHECK(num_covered == num_places);
}

void test_specials_may_be_given_twice() {
    const SpecialFinder finder({"ab", "abc", "ab", "abc"});
    const std::string text = "xababcab";
    const auto found = finder.find(bytes_of(text), text.size(), 0);
    CHECK(found.position == 1 && finder.length(found.index) == 2);
    CHECK(finder.length(finder.find(bytes_of(text), text.size(), 2).index) == 3);
}

void test_many_specials_take_memory_in_proportion_to_their_bytes() {
    std::vector<std::string> specials;
    std::size_t num_bytes = 0;
    for (int i = 0; i < 100'000; ++i) {
        specials.push_back("<|reserved_special_token_" + std::to_string(i) + "|>");
        num_bytes += specials.back().size();
    }
    CHECK(SpecialAutomaton(specials).memory_bytes() <= 13 * num_bytes + 64);
    const SpecialFinder finder(specials);
    const std::string text = "<|reserved_special_token_" + specials[4711];
    CHECK((finder.find(bytes_of(text), text.size(), 0) == SpecialFinder::Match{25, 4711}));
}

}  // namespace

int main() {
    // Linear algorithms take a second; others would take many minutes and are stopped.
    const rlimit limit{120, 120};
    setrlimit(RLIMIT_CPU, &limit);
    test_merges_made_to_share_buckets_take_a_table_of_the_usual_size();
    test_a_table_that_cannot_be_filled_gives_way_to_a_map_with_the_same_ranks();
    test_merges_made_against_the_standard_hash_are_checked_in_linear_time();
    test_tokens_that_double_are_refused_before_they_are_built();
    test_a_long_token_is_counted_for_every_merge_that_makes_it();
    test_special_tokens_together_are_bounded();
    test_specials_are_found_as_the_plain_definition_says_at_every_cut();
    test_a_search_through_a_long_text_finds_the_same_by_comparing_and_by_the_automaton();
    test_a_text_full_of_beginnings_of_a_long_special_is_searched_in_linear_time();
    test_a_text_whose_cuts_are_all_covered_is_cut_in_linear_time();
    test_specials_may_be_given_twice();
    test_many_specials_take_memory_in_proportion_to_their_bytes();
    return test_result();
}
