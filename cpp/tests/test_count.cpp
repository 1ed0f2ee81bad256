// Counting gives the same table for every thread count, block size and memory limit: the one of a plain loop.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "check.hpp"
#include "count/piece_table.hpp"
#include "count/spill.hpp"
#include "gristmill/count.hpp"
#include "gristmill/pretokenize.hpp"
#include "word_tables.hpp"

using namespace gristmill;

namespace {

struct Folder {
    Folder() {
        char name[] = "/tmp/gristmill-test-XXXXXX";
        path = mkdtemp(name);
    }
    ~Folder() {
        for (const std::string& file : files) ::unlink(file.c_str());
        ::rmdir(path.c_str());
    }
    std::string write(const std::string& name, std::string_view text) {
        const std::string file = path + "/" + name;
        std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
        files.push_back(file);
        return file;
    }
    std::string path;
    std::vector<std::string> files;
};

// Word, count and first position, directly from the definition.
struct Expected {
    std::string word;
    std::uint64_t count, first;
};

std::vector<std::size_t> piece_ends(std::string_view text, Pattern pattern) {
    std::vector<std::uint8_t> padded(text.begin(), text.end());
    padded.resize(text.size() + kTextPadding);
    const auto scanner = make_scanner(pattern, Kernel::scalar);
    scanner->start(padded.data(), text.size());
    std::vector<std::size_t> ends;
    while (scanner->next()) {
        for (std::size_t i = 0; i < scanner->size(); ++i) {
            ends.push_back(static_cast<std::size_t>(scanner->base() - padded.data()) + scanner->ends()[i]);
        }
    }
    return ends;
}

// The longest special that starts at `at`, or 0.
std::size_t special_at(std::string_view text, std::size_t at, const std::vector<std::string>& specials) {
    std::size_t longest = 0;
    for (const std::string& special : specials) {
        if (text.substr(at, special.size()) == special) longest = std::max(longest, special.size());
    }
    return longest;
}

std::vector<Expected> count_plainly(const std::vector<std::string>& texts, Pattern pattern,
                                    const std::vector<std::string>& specials) {
    std::vector<Expected> words;
    std::map<std::string, std::size_t> place;
    std::uint64_t base = 0;
    for (const std::string& text : texts) {
        for (std::size_t begin = 0, at = 0; begin <= text.size(); ++at) {
            const std::size_t special = at < text.size() ? special_at(text, at, specials) : 0;
            if (at < text.size() && !special) continue;
            const std::string_view part = std::string_view(text).substr(begin, at - begin);
            std::size_t from = 0;
            for (const std::size_t to : piece_ends(part, pattern)) {
                const std::string word(part.substr(from, to - from));
                const auto [found, is_new] = place.emplace(word, words.size());
                if (is_new) words.push_back({word, 0, base + begin + from});
                ++words[found->second].count;
                from = to;
            }
            if (at >= text.size()) break;
            begin = at + special;
            at = begin - 1;
        }
        base += text.size();
    }
    return words;
}

bool equals(const WordTable& table, const std::vector<Expected>& expected, std::uint64_t min_frequency = 1) {
    std::size_t i = 0;
    for (const Expected& word : expected) {
        if (word.count < min_frequency) continue;
        if (i >= table.size() || table.word(i) != word.word || table.counts[i] != word.count ||
            table.firsts[i] != word.first) {
            return false;
        }
        ++i;
    }
    return i == table.size();
}

std::string random_text(std::mt19937& random, std::size_t size) {
    static const std::vector<std::string> parts = {"a",        "b",
                                                   "the",      " ",
                                                   " ",        " ",
                                                   "  ",       "\n",
                                                   "\r\n",     ".",
                                                   "'s",       "12345",
                                                   "é",        "漢字漢字",
                                                   "，",       "\u3000",
                                                   "\u00a0",   "<|e|>",
                                                   "<|e",      "a a",
                                                   "x y z",    "word",
                                                   "…",        "\xff",
                                                   "\xe6\xbc", "superlongwordwithoutend",
                                                   "🙂"};
    std::string text;
    while (text.size() < size) text += parts[random() % parts.size()];
    return text;
}

WordTable count_files(const std::vector<std::string>& paths, const CountOptions& options, CountStats& stats) {
    Monitor monitor;
    Counter counter(options, monitor);
    FileTexts files(paths);
    counter.add(files);
    return counter.finish(stats);
}

void test_same_table_for_every_pattern_thread_count_and_block_size() {
    std::mt19937 random(1);
    const std::vector<std::vector<std::string>> special_sets = {
        {}, {"<|e|>"}, {"a a", "a a a", "<|e|>"}, {" ", "x y"}, {"b", "the", "e", "12", "漢", "<|"}};
    for (int round = 0; round < 40; ++round) {
        Folder folder;
        const std::vector<std::string> texts = {random_text(random, random() % 3000), "",
                                                random_text(random, random() % 300)};
        std::vector<std::string> paths;
        for (std::size_t i = 0; i < texts.size(); ++i) paths.push_back(folder.write(std::to_string(i), texts[i]));
        const auto pattern = static_cast<Pattern>(round % 6);
        const auto& specials = special_sets[random() % special_sets.size()];
        const std::vector<Expected> expected = count_plainly(texts, pattern, specials);
        for (const unsigned threads : {1u, 2u, 5u}) {
            for (const std::uint64_t block : {1u, 7u, 64u, 1000u, 1u << 20}) {
                CountOptions options;
                options.pattern = pattern;
                options.kernel = default_kernel();
                options.specials = specials;
                options.num_threads = threads;
                options.block_bytes = block;
                options.min_frequency = 1 + random() % 3;
                options.smaller_tables = random() % 4 ? 10 : kSmallerTables;
                CountStats stats;
                const WordTable table = count_files(paths, options, stats);
                CHECK(equals(table, expected, options.min_frequency));
                CHECK(stats.num_words == expected.size());
                CHECK(table.source_bytes == texts[0].size() + texts[2].size());
            }
        }
        Monitor monitor;
        CountOptions options;
        options.pattern = pattern;
        options.specials = specials;
        options.num_threads = 3;
        options.smaller_tables = kSmallerTables;
        Counter counter(options, monitor);
        ViewTexts in_memory({texts[0], texts[1]});
        counter.add(in_memory);
        FileTexts file({paths[2]});
        counter.add(file);
        CountStats stats;
        CHECK(equals(counter.finish(stats), expected));
    }
}

void test_a_memory_limit_changes_nothing_but_the_memory() {
    std::mt19937 random(2);
    std::string text;
    for (int i = 0; i < 600000; ++i) {
        for (std::size_t size = 1 + random() % 22; size; --size) text += static_cast<char>('a' + random() % 26);
        text += " common ";
    }
    Folder folder;
    const std::vector<std::string> paths = {folder.write("text", text)};
    CountOptions options;
    options.kernel = default_kernel();
    options.num_threads = 2;
    CountStats unlimited_stats, limited_stats;
    const WordTable unlimited = count_files(paths, options, unlimited_stats);
    options.memory_limit = 40 << 20;
    options.spill_folder = folder.path;
    const WordTable limited = count_files(paths, options, limited_stats);
    CHECK(limited_stats.num_spilled_runs > 1);
    CHECK(limited.bytes == unlimited.bytes);
    CHECK(limited.counts == unlimited.counts);
    CHECK(limited.firsts == unlimited.firsts);
    CHECK(limited_stats.num_words == unlimited_stats.num_words);

    options.memory_limit = 8 << 20;
    bool refused = false;
    try {
        count_files(paths, options, limited_stats);
    } catch (const MemoryLimitExceeded&) {
        refused = true;
    }
    CHECK(refused);
}

// A stretch without a cut is held in memory as a whole. Spilling the table after every batch because of it would make
// thousands of files.
void test_a_stretch_without_a_cut_beyond_the_limit_does_not_spill_every_batch() {
    std::mt19937 random(4);
    std::string digits(12 << 20, '0');
    for (char& digit : digits) digit = static_cast<char>('0' + random() % 10);
    Folder folder;
    CountOptions options;
    options.pattern = Pattern::cl100k;
    options.kernel = default_kernel();
    options.memory_limit = 8 << 20;
    options.spill_folder = folder.path;
    CountStats stats;
    const WordTable table = count_files({folder.write("text", digits)}, options, stats);
    CHECK(stats.num_spilled_runs == 0);
    CHECK(table.size() >= 1000 && table.size() <= 1001);
}

void test_more_runs_than_may_be_open_are_merged_in_passes() {
    Folder folder;
    Monitor monitor;
    std::mt19937 random(4);
    std::vector<std::string> texts;
    Spill spill(folder.path, 64 << 20, 3);
    std::uint64_t position = 0;
    for (int run = 0; run < 20; ++run) {
        texts.push_back(random_text(random, 500));
        PieceTable table(HashSeed{0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu}, default_kernel());
        std::string padded = texts.back() + std::string(kTextPadding, ' ');
        std::size_t from = 0;
        for (const std::size_t to : piece_ends(texts.back(), Pattern::gpt2)) {
            const auto* text = reinterpret_cast<const std::uint8_t*>(padded.data());
            table.count_piece(text + from, to - from, position + from);
            from = to;
        }
        position += texts.back().size();
        spill.write_run(table, monitor);
        CHECK(std::filesystem::is_empty(folder.path));  // a process that is killed now leaves no file
    }
    std::uint64_t num_words = 0;
    const std::vector<Expected> expected = count_plainly(texts, Pattern::gpt2, {});
    CHECK(equals(spill.merge(1, num_words, monitor), expected));
    CHECK(num_words == expected.size());
}

std::size_t num_open_files() {
    std::size_t result = 0;
    for (int descriptor = 0; descriptor < 4096; ++descriptor) result += ::fcntl(descriptor, F_GETFD) != -1;
    return result;
}

// One file per run would exceed the limit of open files, which is 256 on some systems.
void test_hundreds_of_runs_of_two_threads_lie_in_a_few_open_files() {
    Folder folder;
    Monitor monitor;
    Spill spill(folder.path, 64 << 20);
    const std::size_t num_before = num_open_files();
    const std::string text = "word" + std::string(kTextPadding, ' ');
    const auto write_runs = [&] {
        PieceTable table(HashSeed{0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu}, default_kernel());
        for (int run = 0; run < 300; ++run) {
            table.count_piece(reinterpret_cast<const std::uint8_t*>(text.data()), 4, 0);
            spill.write_run(table, monitor);
        }
    };
    std::thread other(write_runs);
    write_runs();
    other.join();
    CHECK(num_open_files() <= num_before + 2);
    std::uint64_t num_words = 0;
    CHECK(equals(spill.merge(1, num_words, monitor), {{"word", 600, 0}}));
    CHECK(num_open_files() == num_before);
}

void test_a_spill_folder_that_cannot_be_written_to_is_an_error_that_names_it() {
    Monitor monitor;
    Spill spill("/nowhere", 64 << 20);
    PieceTable table(HashSeed{0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu}, default_kernel());
    std::string name;
    try {
        spill.write_run(table, monitor);
    } catch (const FileError& error) {
        name = error.path;
    }
    CHECK(name == "/nowhere");
}

void test_a_count_beyond_32_bits_is_carried() {
    PieceTable table(HashSeed{0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu}, default_kernel());
    const std::vector<std::uint8_t> text(64, 'x');
    table.count_piece(text.data(), 3, 0);
    auto& slots = const_cast<Slots<ShortEntry>&>(table.short_part().slots);
    for (std::size_t slot = 0; slot < slots.capacity(); ++slot) {
        if (!is_free(slots[slot])) slots[slot].count = 0xffffffffu;
    }
    table.count_piece(text.data(), 3, 1);
    table.count_piece(text.data(), 3, 2);
    CHECK(table.short_part().counts()[0] == (std::uint64_t{1} << 32) + 1);
}

void test_a_changed_missing_or_wrong_file_is_an_error() {
    Folder folder;
    CountOptions options;
    CountStats stats;
    int code = 0;
    try {
        count_files({folder.path + "/missing"}, options, stats);
    } catch (const FileError& error) {
        code = error.code;
    }
    CHECK(code == ENOENT);
    try {
        count_files({folder.path}, options, stats);
    } catch (const FileError& error) {
        code = error.code;
    }
    CHECK(code == EISDIR);

    const std::string path = folder.write("text", "some words");
    FileTexts texts({path});
    folder.write("text", "some more words");
    for (int attempt = 0; attempt < 2; ++attempt) {
        bool changed = false;
        try {
            std::uint8_t byte;
            texts.read(0, 0, &byte, 1);
        } catch (const InputChanged&) {
            changed = true;
        }
        CHECK(changed);
    }
}

void test_a_cancelled_count_throws() {
    Folder folder;
    Monitor monitor;
    monitor.cancel();
    Counter counter(CountOptions{}, monitor);
    bool cancelled = false;
    try {
        FileTexts file({folder.write("text", "some words")});
        counter.add(file);
    } catch (const Cancelled&) {
        cancelled = true;
    }
    CHECK(cancelled);
}

void test_tables_join_as_if_one_corpus_followed_the_other() {
    std::mt19937 random(3);
    const std::string one = random_text(random, 2000), two = random_text(random, 2000);
    const auto count = [](const std::vector<std::string_view>& texts) {
        Monitor monitor;
        Counter counter(CountOptions{}, monitor);
        ViewTexts in_memory(texts);
        counter.add(in_memory);
        CountStats stats;
        return counter.finish(stats);
    };
    const WordTable joined = join_word_tables(count({one}), count({two}));
    CHECK(equals(joined, count_plainly({one, two}, Pattern::gpt2, {})));
    CHECK(equals(words_at_least(joined, 3), count_plainly({one, two}, Pattern::gpt2, {}), 3));
    CHECK(joined.source_bytes == one.size() + two.size());
}

// Short texts are passed on together, in place or copied; each must still be a separate text.
void test_short_texts_count_as_if_each_stood_alone() {
    std::mt19937 random(5);
    for (int round = 0; round < 60; ++round) {
        const std::vector<std::string> specials =
            round % 3 == 0 ? std::vector<std::string>{} : std::vector<std::string>{"<|e|>", "a a"};
        std::vector<std::string> texts;
        std::string buffer;
        std::vector<std::int64_t> begins, ends;
        for (int i = 0; i < 400; ++i) {
            // Specials across the ends of texts, white space at the ends, texts of every size up to more than one
            // batch.
            std::string text = random_text(random, random() % 5 ? random() % 60 : random() % 200);
            if (random() % 150 == 0) text = random_text(random, random() % 20000);
            if (random() % 20 == 0) text.clear();
            texts.push_back(text);
            if (round % 2 && random() % 10 == 0) buffer += "<|gap|> ";
            begins.push_back(static_cast<std::int64_t>(buffer.size()));
            buffer += text;
            ends.push_back(static_cast<std::int64_t>(buffer.size()));
        }
        buffer.shrink_to_fit();
        const Pattern pattern = round % 4 == 0 ? Pattern::cl100k : Pattern::gpt2;
        const auto expected = count_plainly(texts, pattern, specials);
        for (const unsigned num_threads : {1u, 3u}) {
            CountOptions options;
            options.pattern = pattern;
            options.kernel = default_kernel();
            options.specials = specials;
            options.num_threads = num_threads;
            options.block_bytes = round % 5 == 0 ? 1000 : 0;
            options.smaller_tables = kSmallerTables;
            Monitor monitor;
            CountStats stats;
            Counter in_spans(options, monitor), in_views(options, monitor);
            SpanTexts spans({buffer, begins.data(), ends.data(), begins.size()});
            in_spans.add(spans);
            CHECK(equals(in_spans.finish(stats), expected));
            ViewTexts views(std::vector<std::string_view>(texts.begin(), texts.end()));
            in_views.add(views);
            CHECK(equals(in_views.finish(stats), expected));
        }
    }
}

// Found by fuzzing: the position after 2^64 - 1 became 0, and the joined positions no longer ascended.
void test_joining_after_the_last_position_is_an_overflow_error() {
    const auto one_word = [](char byte, std::uint64_t first, std::uint64_t source_bytes) {
        return make_word_table({static_cast<std::uint8_t>(byte)}, {0, 1}, {1}, {first}, source_bytes);
    };
    const auto overflows = [](const WordTable& first, const WordTable& second) {
        try {
            join_word_tables(first, second);
        } catch (const std::overflow_error&) {
            return true;
        }
        return false;
    };
    const std::uint64_t last = ~std::uint64_t{0};
    CHECK(overflows(one_word('a', last, 1), one_word('b', 0, 1)));
    CHECK(overflows(one_word('a', 0, last), one_word('b', 1, 0)));
    CHECK(overflows(one_word('a', 0, last), one_word('b', 0, 1)));
    CHECK(!overflows(one_word('a', last, 1), WordTable{}));
    CHECK(!overflows(one_word('a', last - 1, 1), one_word('b', 0, 1)));
}

// The size of a corpus of counts saturates at 2^63 - 1. Two such sizes summed to a number that no file may have, and
// three were an overflow although the counts were small.
void test_sizes_of_joined_tables_saturate_and_leave_positions_for_more_tables() {
    constexpr std::uint64_t kMost = ~std::uint64_t{0} >> 1;
    const auto one_word = [](char byte) {
        return make_word_table({static_cast<std::uint8_t>(byte)}, {0, 1}, {1}, {0}, kMost);
    };
    const WordTable pair = join_word_tables(one_word('a'), one_word('b'));
    for (const WordTable& joined : {join_word_tables(pair, one_word('c')), join_word_tables(one_word('c'), pair)}) {
        CHECK(joined.source_bytes == kMost);
        CHECK((joined.firsts == LargeVector<std::uint64_t>{0, 1, 2}));
    }
    const WordTable seven = make_word_table({'d'}, {0, 1}, {1}, {0}, 7);
    CHECK(join_word_tables(seven, one_word('e')).source_bytes == kMost);
    CHECK(join_word_tables(seven, seven).source_bytes == 14);
}

// Found by fuzzing: the joined corpus was smaller than its first part, whose size exceeded 2^63 - 1.
void test_a_joined_corpus_is_not_smaller_than_its_parts() {
    const auto one_word = [](char byte, std::uint64_t source_bytes) {
        return make_word_table({static_cast<std::uint8_t>(byte)}, {0, 1}, {1}, {0}, source_bytes);
    };
    const std::uint64_t large = (std::uint64_t{1} << 63) + 5;
    CHECK(join_word_tables(one_word('a', large), one_word('b', 1)).source_bytes == large);
    CHECK(join_word_tables(one_word('a', 1), one_word('b', large)).source_bytes == large);
}

// Each count is small enough alone, but their sum would wrap around to a small number.
void test_counts_that_together_pass_63_bits_are_an_overflow_error() {
    constexpr std::uint64_t kMost = ~std::uint64_t{0} >> 1;
    const auto overflows = [](const auto& make) {
        try {
            make();
        } catch (const std::overflow_error&) {
            return true;
        }
        return false;
    };
    const auto table = [](LargeVector<std::uint64_t> counts) {
        LargeVector<std::uint8_t> bytes;
        LargeVector<std::uint64_t> offsets = {0}, firsts;
        for (std::size_t i = 0; i < counts.size(); ++i) {
            bytes.push_back(static_cast<std::uint8_t>('a' + i));
            offsets.push_back(i + 1);
            firsts.push_back(i);
        }
        return make_word_table(bytes, offsets, std::move(counts), firsts, 0);
    };
    CHECK(table({kMost - 1, 1}).total() == kMost);
    CHECK(overflows([&] { table({kMost, 1}); }));
    CHECK(overflows([&] { table({kMost, kMost, 3}); }));
    CHECK(join_word_tables(table({1, kMost - 2}), table({1})).total() == kMost);
    CHECK(overflows([&] { join_word_tables(table({1, kMost - 1}), table({1})); }));
    CHECK(overflows([&] { join_word_tables(table({kMost}), table({kMost})); }));
}

void test_nothing_to_count_gives_an_empty_table() {
    Folder folder;
    const std::vector<std::vector<std::string>> nothings = {{}, {folder.write("empty", "")}};
    for (const auto& paths : nothings) {
        CountOptions options;
        options.num_threads = 3;
        CountStats stats;
        const WordTable table = count_files(paths, options, stats);
        CHECK(table.size() == 0 && table.offsets.size() == 1 && stats.num_words == 0);
    }
}

}  // namespace

int main() {
    test_nothing_to_count_gives_an_empty_table();
    test_short_texts_count_as_if_each_stood_alone();
    test_same_table_for_every_pattern_thread_count_and_block_size();
    test_a_memory_limit_changes_nothing_but_the_memory();
    test_a_stretch_without_a_cut_beyond_the_limit_does_not_spill_every_batch();
    test_more_runs_than_may_be_open_are_merged_in_passes();
    test_hundreds_of_runs_of_two_threads_lie_in_a_few_open_files();
    test_a_spill_folder_that_cannot_be_written_to_is_an_error_that_names_it();
    test_a_count_beyond_32_bits_is_carried();
    test_a_changed_missing_or_wrong_file_is_an_error();
    test_a_cancelled_count_throws();
    test_tables_join_as_if_one_corpus_followed_the_other();
    test_joining_after_the_last_position_is_an_overflow_error();
    test_sizes_of_joined_tables_saturate_and_leave_positions_for_more_tables();
    test_a_joined_corpus_is_not_smaller_than_its_parts();
    test_counts_that_together_pass_63_bits_are_an_overflow_error();
    return test_result();
}
