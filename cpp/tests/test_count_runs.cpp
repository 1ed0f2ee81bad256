// Runs of words: written by partition, merged in any number of passes, and refused when they are damaged.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <string>

#include "check.hpp"
#include "count/merging.hpp"
#include "gristmill/count.hpp"
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
    std::string write(const std::string& name, std::string_view data) {
        files.push_back(path + "/" + name);
        std::ofstream(files.back(), std::ios::binary | std::ios::trunc) << data;
        return files.back();
    }
    std::string path;
    std::vector<std::string> files;
};

// Texts of random words, short, medium and long.
std::vector<std::string> random_texts(std::size_t num_texts) {
    std::mt19937 random(7);
    std::vector<std::string> texts(num_texts);
    for (std::string& text : texts) {
        for (int i = 0; i < 300; ++i) {
            const std::size_t size = 1 + random() % 30;
            text += ' ' + std::string(size, static_cast<char>('a' + random() % 20));
        }
    }
    return texts;
}

WordTable count_together(const std::vector<std::string>& texts, std::uint64_t min_frequency) {
    Monitor monitor;
    CountOptions options;
    options.min_frequency = min_frequency;
    options.smaller_tables = kSmallerTables;
    Counter counter(options, monitor);
    ViewTexts views({texts.begin(), texts.end()});
    counter.add(views);
    CountStats stats;
    return counter.finish(stats);
}

struct Part {
    std::string data;
    std::vector<RunEntry> runs;
    std::uint64_t source_bytes;
};

Part count_part(const std::string& text, std::size_t num_partitions, unsigned num_threads) {
    Monitor monitor;
    CountOptions options;
    options.num_partitions = num_partitions;
    options.num_threads = num_threads;
    options.block_bytes = 256;
    options.smaller_tables = kSmallerTables;
    options.spill_folder = "/tmp";
    Counter counter(options, monitor);
    ViewTexts views({text});
    counter.add(views);
    Part part;
    CountStats stats;
    part.runs = counter.finish_runs([&](std::string_view data) { part.data += data; }, stats);
    part.source_bytes = stats.source_bytes;
    return part;
}

// Does the same as the tasks of a job, `fan_in` runs at a time.
WordTable join_parts(const std::vector<Part>& parts, std::size_t num_partitions, std::uint64_t min_frequency,
                     std::size_t fan_in, std::uint64_t memory_limit) {
    const Folder folder;
    Folder files;
    Monitor monitor;
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < parts.size(); ++i) paths.push_back(files.write(std::to_string(i), parts[i].data));
    RunMerger joiner(RunOrder::by_first, folder.path, memory_limit, monitor);
    std::uint64_t source_bytes = 0, num_words = 0, num_bytes = 0;
    for (std::size_t p = 0; p < num_partitions; ++p) {
        RunMerger merger(RunOrder::by_word, folder.path, memory_limit, monitor);
        source_bytes = 0;
        for (std::size_t i = 0; i < parts.size(); ++i) {
            const RunEntry& run = parts[i].runs[p];
            merger.add({"part", paths[i], p ? parts[i].runs[p - 1].end : 0, run.end, run.checksum, source_bytes});
            source_bytes += parts[i].source_bytes;
            if (i % fan_in == fan_in - 1) merger.reduce();
        }
        std::string merged;
        std::uint64_t all_words = 0;
        const RunEntry entry =
            merger.write_by_first(min_frequency, [&](std::string_view data) { merged += data; }, all_words);
        CHECK(entry.end == merged.size());
        CHECK(entry.num_words <= all_words);
        num_words += entry.num_words;
        num_bytes += entry.num_bytes;
        joiner.add({"merged", files.write("m" + std::to_string(p), merged), 0, entry.end, entry.checksum});
    }
    return joiner.make_table(num_words, num_bytes, source_bytes);
}

void check_same(const WordTable& a, const WordTable& b) {
    CHECK(a.bytes == b.bytes);
    CHECK(a.offsets == b.offsets);
    CHECK(a.counts == b.counts);
    CHECK(a.firsts == b.firsts);
    CHECK(a.source_bytes == b.source_bytes);
}

void test_parts_joined_are_the_table_of_the_whole() {
    const std::vector<std::string> texts = random_texts(9);
    for (const std::uint64_t min_frequency : {1, 4}) {
        const WordTable expected = count_together(texts, min_frequency);
        for (const std::size_t num_partitions : {1, 3, 64}) {
            for (const unsigned num_threads : {1u, 3u}) {
                std::vector<Part> parts;
                for (const std::string& text : texts) parts.push_back(count_part(text, num_partitions, num_threads));
                check_same(join_parts(parts, num_partitions, min_frequency, 100, 32 << 20), expected);
                check_same(join_parts(parts, num_partitions, min_frequency, 2, 4096), expected);
            }
        }
    }
}

void test_places_sorted_by_bits_are_in_the_order_of_a_stable_sort() {
    std::mt19937_64 random(3);
    Monitor monitor;
    for (const std::size_t size : {0, 1, 5, 5000}) {
        for (const auto& [begin, end] : {std::pair{0u, 64u}, {52u, 64u}, {63u, 64u}, {0u, 30u}, {0u, 0u}}) {
            std::vector<Place> places;
            for (std::size_t i = 0; i < size; ++i) places.push_back({random() & random(), i});
            std::vector<Place> expected = places;
            const std::uint64_t mask = end - begin == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << (end - begin)) - 1;
            std::stable_sort(expected.begin(), expected.end(), [&](const Place& x, const Place& y) {
                return (x.key >> begin & mask) < (y.key >> begin & mask);
            });
            sort_by_bits(places, begin, end, monitor);
            CHECK(std::equal(places.begin(), places.end(), expected.begin(), expected.end(),
                             [](const Place& x, const Place& y) { return x.key == y.key && x.index == y.index; }));
        }
    }
}

void test_many_words_are_sorted_by_their_hash() {
    Monitor monitor;
    std::vector<std::string> words;
    for (int i = 0; i < 50'000; ++i) words.push_back("w" + std::to_string(i));
    SortedWords sorted(words.size());
    for (const std::string& word : words) sorted.add(CountedWord::from_bytes(word, 1, 0));
    sorted.sort(monitor);
    std::sort(words.begin(), words.end(),
              [](const std::string& a, const std::string& b) { return xxh64(a, 0) < xxh64(b, 0); });
    std::size_t at = 0;
    sorted.visit(monitor, [&](const CountedWord& word, std::uint64_t order) {
        CHECK(order == xxh64(words[at], 0));
        CHECK(word.compare(CountedWord::from_bytes(words[at++], 1, 0)) == 0);
    });
    CHECK(at == words.size());
}

void test_runs_of_a_table_are_those_of_the_counter() {
    const std::string text = random_texts(1).front();
    const Part part = count_part(text, 5, 1);
    Monitor monitor;
    std::string data;
    write_runs(count_together({text}, 1), 5, [&](std::string_view some) { data += some; }, monitor);
    CHECK(data == part.data);
}

// Whichever byte changes, and wherever a run ends, the result is an error that names the run.
void test_every_damage_is_noticed() {
    const Part part = count_part(random_texts(1).front(), 1, 1);
    const Folder folder;
    Monitor monitor;
    const auto is_refused = [&](const std::string& data) {
        Folder files;
        RunMerger merger(RunOrder::by_word, folder.path, 1 << 20, monitor);
        const RunEntry& run = part.runs[0];
        merger.add({"part", files.write("run", data), 0, run.end, run.checksum});
        std::uint64_t num_words = 0;
        try {
            merger.write_by_first(1, [](std::string_view) {}, num_words);
        } catch (const DamagedRun& damage) {
            return damage.name == "part";
        }
        return false;
    };
    CHECK(!is_refused(part.data));
    std::mt19937 random(1);
    for (int i = 0; i < 300; ++i) {
        std::string changed = part.data;
        changed[random() % changed.size()] ^= static_cast<char>(1 + random() % 255);
        CHECK(is_refused(changed));
        CHECK(is_refused(part.data.substr(0, random() % part.data.size())));
    }
}

void test_counts_beyond_63_bits_are_an_overflow() {
    const Folder folder;
    Folder files;
    Monitor monitor;
    const WordTable table = make_word_table({'a'}, {0, 1}, {std::uint64_t{1} << 62}, {0}, 1);
    std::string data;
    const RunEntry run = write_runs(table, 1, [&](std::string_view some) { data += some; }, monitor).front();
    RunMerger merger(RunOrder::by_word, folder.path, 1 << 20, monitor);
    const std::string path = files.write("run", data);
    for (int i = 0; i < 2; ++i) merger.add({"part", path, 0, run.end, run.checksum});
    bool is_noticed = false;
    try {
        std::uint64_t num_words = 0;
        merger.write_by_first(1, [](std::string_view) {}, num_words);
    } catch (const std::overflow_error&) {
        is_noticed = true;
    }
    CHECK(is_noticed);
}

void test_a_stretch_of_a_file_is_a_text_and_a_changed_file_is_refused() {
    Folder files;
    const std::string path = files.write("text", "low lower lowest");
    std::int64_t modified = 0;
    const auto count = [&](std::uint64_t begin, std::uint64_t end, std::uint64_t size) {
        Monitor monitor;
        Counter counter({}, monitor);
        FileTexts texts(std::vector<FileRange>{{path, begin, end, size, modified}});
        counter.add(texts);
        CountStats stats;
        return counter.finish(stats);
    };
    struct stat status;
    CHECK(::stat(path.c_str(), &status) == 0);
#if defined(__APPLE__)
    const timespec time = status.st_mtimespec;
#else
    const timespec time = status.st_mtim;
#endif
    modified = static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
    const WordTable table = count(3, 9, 16);
    CHECK(table.size() == 1 && table.word(0) == " lower" && table.source_bytes == 6);
    const auto changes = [&](std::uint64_t size, std::int64_t by) {
        modified += by;
        try {
            count(3, 9, size);
        } catch (const InputChanged&) {
            modified -= by;
            return true;
        }
        modified -= by;
        return false;
    };
    CHECK(!changes(16, 0));
    CHECK(changes(15, 0));
    CHECK(changes(16, 1));
}

}  // namespace

int main() {
    test_parts_joined_are_the_table_of_the_whole();
    test_places_sorted_by_bits_are_in_the_order_of_a_stable_sort();
    test_many_words_are_sorted_by_their_hash();
    test_runs_of_a_table_are_those_of_the_counter();
    test_every_damage_is_noticed();
    test_counts_beyond_63_bits_are_an_overflow();
    test_a_stretch_of_a_file_is_a_text_and_a_changed_file_is_refused();
    return test_result();
}
