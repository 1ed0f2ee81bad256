// merge: both loops against a naive trainer written directly from the definition.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "gristmill/merge.hpp"
#include "merge/loops.hpp"
#include "word_tables.hpp"

using namespace gristmill;

namespace {

constexpr TieBreak kTieBreaks[] = {TieBreak::greatest_bytes, TieBreak::smallest_ids, TieBreak::huggingface,
                                   TieBreak::first_seen};
constexpr MergeLoop kLoops[] = {MergeLoop::sequential, MergeLoop::rounds, MergeLoop::automatic};

// The definition: count every adjacent pair, take the best, replace it everywhere from left to right, repeat.
class NaiveTrainer {
  public:
    NaiveTrainer(const WordTable& table, const std::vector<Merge>& given, const MergeOptions& options)
        : options_(options) {
        for (unsigned byte = 0; byte < 256; ++byte) tokens_.emplace_back(1, static_cast<char>(byte));
        for (std::size_t i = 0; i < table.size(); ++i) {
            words_.emplace_back();
            for (const char byte : table.word(i)) words_.back().push_back(static_cast<std::uint8_t>(byte));
        }
        counts_.assign(table.counts.begin(), table.counts.end());
        for (const Merge& merge : given) replace(merge);
    }

    MergeRun learn() {
        MergeRun run;
        while (run.merges.size() < options_.num_merges) {
            const std::map<Merge, Seen> pairs = count_pairs();
            const auto best = std::max_element(pairs.begin(), pairs.end(),
                                               [this](const auto& a, const auto& b) { return worse(a, b); });
            if (best == pairs.end()) break;
            run.merges.push_back(best->first);
            run.counts.push_back(best->second.count);
            replace(best->first);
        }
        return run;
    }

  private:
    struct Seen {
        std::uint64_t count = 0;
        std::uint64_t first = 0;  // number of pairs seen before it
    };

    std::map<Merge, Seen> count_pairs() const {
        std::map<Merge, Seen> pairs;
        std::uint64_t position = 0;
        for (std::size_t w = 0; w < words_.size(); ++w)
            for (std::size_t i = 0; i + 1 < words_[w].size(); ++i, ++position) {
                const Merge pair(words_[w][i], words_[w][i + 1]);
                const std::size_t length = tokens_[pair.first].size() + tokens_[pair.second].size();
                if (options_.max_token_bytes && length > options_.max_token_bytes) continue;
                pairs.try_emplace(pair, Seen{0, position}).first->second.count += counts_[w];
            }
        return pairs;
    }

    bool worse(const std::pair<const Merge, Seen>& a, const std::pair<const Merge, Seen>& b) const {
        if (a.second.count != b.second.count) return a.second.count < b.second.count;
        const auto bytes = [this](Merge m) { return std::pair(tokens_[m.first], tokens_[m.second]); };
        const auto ranks = [](Merge m) { return Merge(huggingface_rank(m.first), huggingface_rank(m.second)); };
        switch (options_.tie_break) {
            case TieBreak::greatest_bytes:
                return bytes(a.first) < bytes(b.first);
            case TieBreak::smallest_ids:
                return a.first > b.first;
            case TieBreak::huggingface:
                return ranks(a.first) > ranks(b.first);
            case TieBreak::first_seen:
                return a.second.first > b.second.first;
        }
        return false;
    }

    static Id huggingface_rank(Id id) {
        const auto printable = [](Id b) {
            return (33 <= b && b <= 126) || (161 <= b && b <= 172) || (174 <= b && b <= 255);
        };
        if (id > 255) return id;
        Id rank = 0;
        for (Id b = 0; b < id; ++b) rank += printable(b) == printable(id);
        return printable(id) ? rank : rank + 188;
    }

    void replace(const Merge& merge) {
        const Id id = static_cast<Id>(tokens_.size());
        tokens_.push_back(tokens_[merge.first] + tokens_[merge.second]);
        for (std::vector<Id>& word : words_) {
            std::vector<Id> merged;
            for (std::size_t i = 0; i < word.size(); ++i) {
                const bool here = i + 1 < word.size() && Merge(word[i], word[i + 1]) == merge;
                merged.push_back(here ? id : word[i]);
                i += here;
            }
            word = std::move(merged);
        }
    }

    MergeOptions options_;
    std::vector<std::string> tokens_;
    std::vector<std::vector<Id>> words_;
    std::vector<std::uint64_t> counts_;
};

MergeRun learn(const WordTable& words, const std::vector<Merge>& given, const MergeOptions& options,
               const merge::Tuning& tuning = {}) {
    Monitor monitor;
    return merge::learn_merges(words, given, options, tuning, monitor);
}

bool same(const MergeRun& a, const MergeRun& b) { return a.merges == b.merges && a.counts == b.counts; }

using Random = std::mt19937;

std::uint64_t below(Random& random, std::uint64_t bound) { return random() % bound; }

WordTable random_table(Random& random) {
    const std::string alphabets[] = {"ab", "abc", "abcdefgh", std::string("\0\x20!a\xad\xff", 6)};
    const std::string& alphabet = alphabets[below(random, 4)];
    const std::uint64_t max_length = 1 + below(random, 24), max_count = 1 + below(random, 2) * below(random, 100000);
    std::map<std::string, std::uint64_t> distinct;
    std::vector<std::pair<std::string, std::uint64_t>> words;
    for (std::uint64_t i = below(random, 150); i > 0; --i) {
        std::string word;
        for (std::uint64_t length = below(random, max_length + 1); length > 0; --length)
            word += alphabet[below(random, 3) ? below(random, alphabet.size()) : 0];
        if (distinct.emplace(word, 0).second) words.emplace_back(word, 1 + below(random, 1 + below(random, max_count)));
    }
    return table_of(words);
}

void check_against_naive(const WordTable& words, const std::vector<Merge>& given, MergeOptions options,
                         merge::Tuning tuning) {
    const MergeRun expected = NaiveTrainer(words, given, options).learn();
    for (const MergeLoop loop : kLoops)
        for (const unsigned num_threads : {1u, 2u, 5u}) {
            options.loop = loop;
            options.num_threads = num_threads;
            CHECK(same(learn(words, given, options, tuning), expected));
        }
}

void test_random_tables_equal_the_naive_trainer_under_every_tie_break() {
    Random random(20240601);
    for (int trial = 0; trial < 40; ++trial) {
        const WordTable words = random_table(random);
        for (const TieBreak tie_break : kTieBreaks) {
            MergeOptions options;
            options.num_merges = static_cast<std::uint32_t>(below(random, 100));
            options.tie_break = tie_break;
            options.max_token_bytes = below(random, 3) ? 0 : static_cast<std::uint32_t>(1 + below(random, 8));
            const merge::Tuning tuning{.initial_threshold = below(random, 2) ? 0 : 1 + below(random, 5000),
                                       .shared_postings = static_cast<std::uint32_t>(below(random, 20)),
                                       .wide_symbols = below(random, 4) == 0};
            check_against_naive(words, {}, options, tuning);
        }
    }
}

void test_overlapping_pairs_count_every_position_and_merge_left_to_right() {
    const WordTable words = table_of({{"aaa", 1},
                                      {"aaaaaaa", 3},
                                      {"ababab", 2},
                                      {"aabaab", 5},
                                      {"baaaab", 1},
                                      {"abbabba", 4},
                                      {"aaaaaaaaaaaaaaaa", 2},
                                      {"bbbbbbbbb", 7},
                                      {"abababababababa", 3}});
    for (const TieBreak tie_break : kTieBreaks)
        check_against_naive(words, {}, {.num_merges = 60, .tie_break = tie_break}, {});
}

void test_going_on_from_given_merges_equals_one_run() {
    Random random(7);
    for (int trial = 0; trial < 15; ++trial) {
        const WordTable words = random_table(random);
        for (const TieBreak tie_break : kTieBreaks)
            for (const MergeLoop loop : kLoops) {
                MergeOptions options{
                    .num_merges = 80, .tie_break = tie_break, .num_threads = 1 + trial % 3u, .loop = loop};
                const MergeRun whole = learn(words, {}, options);
                const std::size_t first = below(random, whole.merges.size() + 1);
                const std::vector<Merge> given(whole.merges.begin(), whole.merges.begin() + first);
                options.num_merges -= first;
                const MergeRun rest = learn(words, given, options);
                CHECK(std::equal(rest.merges.begin(), rest.merges.end(), whole.merges.begin() + first,
                                 whole.merges.end()));
                CHECK(std::equal(rest.counts.begin(), rest.counts.end(), whole.counts.begin() + first,
                                 whole.counts.end()));
            }
    }
}

// Among them: a repeated pair, one that never occurs, two ways to make the same bytes.
void test_foreign_given_merges_are_applied_in_order() {
    Random random(11);
    for (int trial = 0; trial < 15; ++trial) {
        const WordTable words = random_table(random);
        std::vector<Merge> given;
        for (Id i = 0; i < 12; ++i) {
            const auto any = [&] {
                return below(random, 2) && i ? 256 + Id(below(random, i)) : Id("abc"[below(random, 3)]);
            };
            const Id left = any();
            given.emplace_back(left, any());
        }
        for (const TieBreak tie_break : kTieBreaks)
            check_against_naive(words, given, {.num_merges = 40, .tie_break = tie_break},
                                {.initial_threshold = 1 + below(random, 50)});
    }
}

void test_given_merges_of_ids_that_do_not_exist_are_refused() {
    for (const Merge& merge : {Merge(97, 257), Merge(300, 97)}) {
        bool refused = false;
        try {
            learn(table_of({{"abab", 3}}), {Merge(97, 98), merge}, {.num_merges = 1});
        } catch (const std::invalid_argument&) {
            refused = true;
        }
        CHECK(refused);
    }
}

void test_counts_beyond_32_bits() {
    const std::uint64_t large = (std::uint64_t{1} << 32) + 3;
    const WordTable words =
        table_of({{"abab", large}, {"abc", large}, {"bcbc", large - 1}, {"ca", 2}, {"cab", large << 20}});
    for (const TieBreak tie_break : kTieBreaks)
        check_against_naive(words, {}, {.num_merges = 20, .tie_break = tie_break}, {});
}

void test_a_count_past_63_bits_is_an_overflow_error() {
    const std::uint64_t most = std::numeric_limits<std::int64_t>::max();
    const auto overflows = [](const WordTable& words, const std::vector<Merge>& given, unsigned num_threads) {
        try {
            learn(words, given, {.num_merges = 5, .num_threads = num_threads});
        } catch (const std::overflow_error&) {
            return true;
        }
        return false;
    };
    for (const unsigned num_threads : {1u, 3u}) {
        CHECK(!overflows(table_of({{"ab", most}, {"cd", most}, {"x", most}}), {}, num_threads));
        CHECK(!overflows(table_of({{"ab", most}, {"cab", 0}}), {}, num_threads));
        CHECK(overflows(table_of({{"ab", most}, {"cab", 1}}), {}, num_threads));
        CHECK(overflows(table_of({{"ab", most}, {"cab", most}, {"abd", most}}), {}, num_threads));
        CHECK(overflows(table_of({{"abab", most / 2 + 1}}), {}, num_threads));
        CHECK(overflows(table_of({{"ab", most + 1}}), {}, num_threads));
        CHECK(overflows(table_of({{"abc", most}, {"abcd", 1}}), {{97, 98}}, num_threads));
    }
}

void test_tables_without_a_pair_give_no_merges() {
    const std::vector<WordTable> tables = {table_of({}), table_of({{"", 3}}), table_of({{"a", 3}, {"b", 1}}),
                                           WordTable{}};
    for (const WordTable& words : tables)
        for (const MergeLoop loop : kLoops) {
            const MergeRun run = learn(words, {}, {.num_merges = 10, .num_threads = 2, .loop = loop});
            CHECK(run.merges.empty() && run.counts.empty());
        }
}

void test_training_stops_when_no_pair_is_left() {
    for (const MergeLoop loop : kLoops) {
        const MergeRun run = learn(table_of({{"abcd", 2}}), {}, {.num_merges = 4'000'000'000, .loop = loop});
        CHECK(run.merges.size() == 3);
    }
}

// Occurrences are tallied in chunks of 1024: neighbours must be found across chunk boundaries.
void test_long_runs_equal_the_naive_trainer() {
    std::string pairs, thrice;
    for (int i = 0; i < 3000; ++i) pairs += "ab", thrice += "aab";
    const WordTable words = table_of({{std::string(5000, 'a'), 3}, {pairs, 1}, {thrice, 2}});
    for (const TieBreak tie_break : kTieBreaks)
        check_against_naive(words, {}, {.num_merges = 25, .tie_break = tie_break}, {});
}

void test_long_words_are_not_quadratic() {
    std::string run_of_a(200000, 'a'), mixed;
    Random random(5);
    for (int i = 0; i < 200000; ++i) mixed += static_cast<char>('a' + below(random, 3));
    const WordTable words = table_of({{run_of_a, 1}, {mixed, 2}});
    const MergeRun sequential = learn(words, {}, {.num_merges = 2000, .loop = MergeLoop::sequential});
    CHECK(sequential.merges.size() == 2000);
    CHECK(same(sequential, learn(words, {}, {.num_merges = 2000, .num_threads = 3, .loop = MergeLoop::rounds})));
}

WordTable large_table() {
    Random random(3);
    std::vector<std::pair<std::string, std::uint64_t>> words;
    for (int i = 0; i < 12000; ++i) {
        std::string word = std::to_string(i);
        for (std::uint64_t length = below(random, 12); length > 0; --length)
            word += static_cast<char>('a' + below(random, 20));
        words.emplace_back(word, 1 + below(random, 1000));
    }
    return table_of(words);
}

void test_same_merges_for_both_loops_and_any_number_of_threads() {
    const WordTable words = large_table();
    for (const TieBreak tie_break : kTieBreaks) {
        const MergeRun expected =
            learn(words, {}, {.num_merges = 3000, .tie_break = tie_break, .loop = MergeLoop::sequential});
        CHECK(expected.merges.size() == 3000);
        for (const unsigned num_threads : {1u, 2u, 7u})
            for (const MergeLoop loop : kLoops)
                CHECK(same(expected,
                           learn(words, {},
                                 {.num_merges = 3000, .tie_break = tie_break, .num_threads = num_threads, .loop = loop},
                                 {.initial_threshold = num_threads == 7 ? 100000u : 0u})));
    }
}

// Threads share the long lists of the sequential loop; here every list, or some of them.
void test_shared_lists_give_the_same_merges() {
    const WordTable words = large_table();
    for (const TieBreak tie_break : kTieBreaks) {
        MergeOptions options{.num_merges = 3000, .tie_break = tie_break, .loop = MergeLoop::sequential};
        const MergeRun expected = learn(words, {}, options);
        for (options.num_threads = 2; options.num_threads <= 5; ++options.num_threads)
            for (const std::uint32_t shared_postings : {1u, 40u})
                CHECK(same(expected, learn(words, {}, options, {.shared_postings = shared_postings})));
    }
}

// A threshold that is raised too far only costs a rebuild: here counts drop sharply after the first forecast.
void test_a_forecast_that_is_too_high_changes_no_merge() {
    Random random(23);
    std::vector<std::pair<std::string, std::uint64_t>> words;
    for (int i = 0; i < 200; ++i) {
        std::string word = std::to_string(i) + "-";
        for (int length = 0; length < 6; ++length) word += static_cast<char>('a' + below(random, 26));
        words.emplace_back(word, i < 60 ? 1000000 : 1);
    }
    for (const TieBreak tie_break : kTieBreaks) {
        const MergeOptions options{.num_merges = 900, .tie_break = tie_break};
        CHECK(learn(table_of(words), {}, options, {.initial_threshold = 1}).num_rebuilds > 0);
        check_against_naive(table_of(words), {}, options, {.initial_threshold = 1});
    }
}

// Includes seeds that make poor multipliers: they may cost time but never change a merge.
void test_same_merges_for_any_seed_of_the_hash_tables() {
    const HashSeed seeds[] = {{1, 1}, {3, 5}, {1ull << 63 | 1, 7}, {~0ull, ~0ull}, HashSeed::random()};
    Random random(17);
    for (int trial = 0; trial < 6; ++trial) {
        const WordTable words = random_table(random);
        const std::vector<Merge> given = {{97, 98}, {98, 97}, {256, 97}, {97, 97}, {258, 257}};
        for (const TieBreak tie_break : kTieBreaks)
            for (const HashSeed seed : seeds)
                check_against_naive(words, trial % 2 ? given : std::vector<Merge>{},
                                    {.num_merges = 40, .tie_break = tie_break},
                                    {.initial_threshold = 1 + below(random, 300), .seed = seed});
    }
}

// Small tables count their first pairs in a hash table, large ones in an array.
void test_a_large_table_equals_the_naive_trainer() { check_against_naive(large_table(), {}, {.num_merges = 12}, {}); }

void test_cancelling_stops_a_run() {
    const WordTable words = large_table();
    for (const MergeLoop loop : kLoops)
        for (const bool at_once : {true, false}) {
            Monitor monitor;
            if (at_once) monitor.cancel();
            std::thread other([&] {
                while (!monitor.cancelled() && monitor.stage() != Stage::merge) std::this_thread::yield();
                monitor.cancel();
            });
            bool cancelled = false;
            try {
                learn_merges(words, {}, {.num_merges = 20000, .num_threads = 2, .loop = loop}, monitor);
            } catch (const Cancelled&) {
                cancelled = true;
            }
            other.join();
            CHECK(cancelled);
        }
}

void test_the_monitor_sees_the_stage_and_the_merges_done() {
    for (const MergeLoop loop : kLoops) {
        Monitor monitor;
        const MergeRun run =
            learn_merges(large_table(), {}, {.num_merges = 50, .num_threads = 2, .loop = loop}, monitor);
        CHECK(monitor.stage() == Stage::merge);
        CHECK(monitor.total() == 50);
        CHECK(monitor.done() == run.merges.size());
    }
}

}  // namespace

int main() {
    test_random_tables_equal_the_naive_trainer_under_every_tie_break();
    test_overlapping_pairs_count_every_position_and_merge_left_to_right();
    test_going_on_from_given_merges_equals_one_run();
    test_foreign_given_merges_are_applied_in_order();
    test_given_merges_of_ids_that_do_not_exist_are_refused();
    test_counts_beyond_32_bits();
    test_a_count_past_63_bits_is_an_overflow_error();
    test_tables_without_a_pair_give_no_merges();
    test_training_stops_when_no_pair_is_left();
    test_long_runs_equal_the_naive_trainer();
    test_long_words_are_not_quadratic();
    test_same_merges_for_both_loops_and_any_number_of_threads();
    test_shared_lists_give_the_same_merges();
    test_a_forecast_that_is_too_high_changes_no_merge();
    test_same_merges_for_any_seed_of_the_hash_tables();
    test_a_large_table_equals_the_naive_trainer();
    test_cancelling_stops_a_run();
    test_the_monitor_sees_the_stage_and_the_merges_done();
    return test_result();
}
