// count: the word table for any blocks, threads, kernel, specials and memory limit, against a plain loop over the
// pieces of the scalar scanner.

#include <map>

#include "fuzz.hpp"
#include "gristmill/count.hpp"
#include "texts.hpp"

using namespace gristmill;
using namespace gristmill::fuzz;

namespace {

struct CountedPiece {
    std::string word;
    std::uint64_t count, first;
};

std::vector<CountedPiece> count_plainly(const std::vector<std::string_view>& texts, const CountOptions& options) {
    std::vector<CountedPiece> words;
    std::map<std::string, std::size_t, std::less<>> index_of;
    std::uint64_t position = 0;
    for (const std::string_view text : texts) {
        for_each_part(text, options.pattern, options.specials,
                      [&](std::size_t begin, std::size_t end, std::size_t special) {
                          if (special < options.specials.size()) return;
                          const std::string_view word = text.substr(begin, end - begin);
                          const auto [found, is_new] = index_of.emplace(word, words.size());
                          if (is_new) words.push_back({std::string(word), 0, position + begin});
                          ++words[found->second].count;
                      });
        position += text.size();
    }
    return words;
}

void check_counts(const WordTable& table, const CountStats& stats, const std::vector<CountedPiece>& expected,
                  std::uint64_t min_frequency) {
    std::size_t i = 0;
    std::uint64_t num_pieces = 0;
    for (const CountedPiece& word : expected) {
        num_pieces += word.count;
        if (word.count < min_frequency) continue;
        CHECK(i < table.size());
        CHECK(table.word(i) == word.word && table.counts[i] == word.count && table.firsts[i] == word.first);
        ++i;
    }
    CHECK(i == table.size());
    CHECK(stats.num_pieces == num_pieces && stats.num_words == expected.size());
}

WordTable count_fast(const std::vector<std::string_view>& texts, const CountOptions& options, Where where,
                     bool together, CountStats& stats) {
    Monitor monitor;
    Counter counter(options, monitor);
    if (together) {
        PlacedTexts placed(texts, where);
        counter.add(placed.texts());
    } else {
        for (const std::string_view text : texts) {
            PlacedTexts placed({text}, where);
            counter.add(placed.texts());
        }
    }
    WordTable table = counter.finish(stats);
    CHECK(stats.source_bytes == table.source_bytes);
    return table;
}

// Enough distinct words that a limit of one megabyte makes tables spill to disk.
std::string many_words(std::string_view text, std::size_t num_words) {
    std::string result;
    for (std::size_t i = 0; i < num_words; ++i) {
        result += text.substr(i % (text.size() + 1), i % 11);
        result += std::to_string(i % 5 ? i : i / 5);
        result += i % 3 ? ' ' : '\n';
    }
    return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    CountOptions options;
    options.pattern = pattern_of(input);
    options.kernel = kernels()[input.below(kernels().size())];
    options.num_threads = 1 + input.byte() % 3;
    if (!input.one_in(64)) options.num_threads = 1;
    options.block_bytes = input.flag() ? 1 + input.below(100) : 0;
    options.min_frequency = 1 + input.below(256) / 86;
    options.smaller_tables = input.one_in(256) ? 0 : input.one_in(4) ? 8 : 14;  // clearing a table takes long
    const Where where = where_of(input);
    const bool together = input.below(4) > 0, spills = input.byte() % 2 && input.one_in(2048);
    {
        const Input before = input;
        options.specials = specials_of(input, Input(before).rest(), 3);
    }
    Input ahead = input;
    const std::size_t num_decisions = std::min<std::size_t>(16, input.size() / 4);
    const std::string_view whole = ahead.text(input.size() - num_decisions);
    std::vector<std::string_view> texts = texts_of(ahead, whole, 12);

    std::string amplified;
    if (spills) {
        amplified = many_words(texts.back(), 9000);
        texts.back() = amplified;
        options.memory_limit = 1 << 20;
        options.spill_folder = "/tmp";
        options.block_bytes = 0;
    }
    try {
        CountStats stats;
        const WordTable table = count_fast(texts, options, where, together, stats);
        check_counts(table, stats, count_plainly(texts, options), options.min_frequency);
    } catch (const MemoryLimitExceeded&) {
        CHECK(spills);
    }
    return 0;
}
