// count: the files of runs that parts of a corpus are counted into. Any bytes are either read as the words that they
// spell or refused as damaged; words that are written are read again; merged runs have the counts of a plain sum.
#include <map>
#include <optional>
#include <stdexcept>

#include "count/merging.hpp"
#include "fuzz.hpp"
#include "gristmill/count.hpp"

using namespace gristmill;
using namespace gristmill::fuzz;

namespace {

// A file in memory of exactly its size, which delivers a few bytes per read.
class MemoryFile final : public RunFile {
  public:
    MemoryFile(std::string_view bytes, std::size_t most) : bytes_(bytes), most_(most) {}
    std::size_t read(std::uint8_t* to, std::size_t size, std::uint64_t offset) const override {
        if (offset >= bytes_.size()) return 0;
        const std::size_t got = std::min({size, most_, bytes_.size() - static_cast<std::size_t>(offset)});
        std::memcpy(to, bytes_.bytes() + offset, got);
        return got;
    }

  private:
    ExactText bytes_;
    std::size_t most_;
};

struct Word {
    std::string bytes;
    std::uint64_t count, first;
    friend bool operator==(const Word&, const Word&) = default;
};

std::uint64_t number_at(std::string_view bytes, std::size_t at) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < 8; ++i) value |= std::uint64_t{static_cast<std::uint8_t>(bytes[at + i])} << 8 * i;
    return value;
}

// The format as count.hpp describes it; nothing for bytes that are not a sequence of records.
std::optional<std::vector<Word>> words_of(std::string_view bytes, std::uint64_t base) {
    std::vector<Word> words;
    while (!bytes.empty()) {
        if (bytes.size() < 32) return std::nullopt;
        const std::uint64_t low = number_at(bytes, 0), high = number_at(bytes, 8);
        const bool is_long = high >> 63;
        const std::uint64_t size = is_long ? high ^ std::uint64_t{1} << 63 : (high ? high : low) >> 56;
        if (high == 0 ? size < 1 || size > 7 : size < 8 || (!is_long && size > 15)) return std::nullopt;
        if (is_long && bytes.size() - 32 < size) return std::nullopt;
        const std::string_view in_place = is_long ? bytes.substr(32, size) : bytes.substr(0, size);
        words.push_back({std::string(in_place), number_at(bytes, 16), number_at(bytes, 24) + base});
        bytes.remove_prefix(32 + (is_long ? size : 0));
    }
    return words;
}

Word to_word(const CountedWord& word) {
    Word result{std::string(word.size(), '\0'), word.count, word.first};
    word.copy_bytes(reinterpret_cast<std::uint8_t*>(result.bytes.data()));
    return result;
}

// Expects these words, or DamagedRun at the latest at the end.
void check_reader(const Run& run, std::size_t buffer_bytes, const std::optional<std::vector<Word>>& expected,
                  bool is_damaged) {
    RunReader reader(run, buffer_bytes);
    std::vector<Word> found;
    try {
        while (reader.next()) found.push_back(to_word(reader.word()));
    } catch (const DamagedRun& damaged) {
        CHECK(damaged.name == run.name && (is_damaged || !expected));
        return;
    }
    CHECK(!is_damaged && expected && found == *expected);
}

void check_hostile_run(Input& input) {
    const std::uint8_t how = input.byte();
    const std::size_t buffer_bytes = 1 + input.below(80), most = 1 + input.below(50);
    const std::uint64_t base = how & 1 ? input.number() : 0;
    std::string bytes;
    // Records that are mostly well-formed; random bytes would nearly always fail at the first length.
    for (std::size_t left = input.below(6); left; --left) {
        const std::uint8_t kind = input.byte();
        const std::size_t size = kind < 128 ? kind % 16 : kind % 40;
        const std::string text(input.text(size));
        CountedWord word = CountedWord::from_bytes(text, input.number(), input.number());
        std::uint64_t head[] = {word.is_long() ? 0 : word.low, word.high, word.count, word.first};
        const std::uint8_t change = input.byte();
        if (change < 2) head[change] = input.number();
        if (change == 2) head[1] ^= std::uint64_t{input.byte()} << 56;
        bytes.append(reinterpret_cast<const char*>(head), sizeof head);
        if (word.is_long()) bytes += text;
    }
    bytes += how & 2 ? input.rest() : std::string_view();
    if (how & 4) bytes.resize(bytes.size() - std::min<std::size_t>(bytes.size(), input.below(40)));

    // A range of the file that may end before or after it.
    std::uint64_t begin = 0, end = bytes.size();
    if (how & 8) begin = std::min<std::uint64_t>(input.below(64), end);
    bool is_damaged = false;
    if ((how & 0x30) == 0x30) {
        end += 1 + input.below(100);
        is_damaged = true;
    }
    const std::string_view range = std::string_view(bytes).substr(begin);
    std::uint64_t checksum = xxh64(range, 0);
    if (how >= 0xf0) {
        checksum ^= 1 + input.byte();
        is_damaged = true;
    }
    const Run run{std::make_shared<MemoryFile>(bytes, most), begin, end, base, "some run", checksum};
    check_reader(run, buffer_bytes, words_of(range, base), is_damaged);
}

__extension__ using Wide = unsigned __int128;
using Counts = std::map<std::string, Word>;

// Distinct words of the text with counts and positions, as a table.
WordTable table_of(Input& input, std::string_view text) {
    Counts seen;
    WordTable table;
    table.offsets.push_back(0);
    std::uint64_t first = input.below(8);
    const bool large = input.byte() == 1;
    while (!text.empty()) {
        const std::string word(text.substr(0, 1 + input.below(256) % 24));
        text.remove_prefix(word.size());
        first += 1 + input.below(5);
        if (!seen.emplace(word, Word{}).second) continue;
        table.bytes.insert(table.bytes.end(), word.begin(), word.end());
        table.offsets.push_back(table.bytes.size());
        table.counts.push_back(large ? std::min(input.number(), ~std::uint64_t{0} >> 1) : 1 + input.below(4));
        table.firsts.push_back(first);
    }
    return table;
}

void check_merge(Input& input) {
    const std::size_t num_partitions = 1 + input.below(4), num_tables = 1 + input.below(4);
    Monitor monitor;
    std::vector<std::vector<Run>> runs(num_partitions);
    Counts expected;
    bool overflows = false;
    for (std::size_t t = 0; t < num_tables; ++t) {
        const WordTable table = table_of(input, input.text(input.size() / (2 * (num_tables - t))));
        const std::uint64_t base = 1000 * t;
        for (std::size_t i = 0; i < table.size(); ++i) {
            Word& word = expected.emplace(table.word(i), Word{"", 0, ~std::uint64_t{0}}).first->second;
            word.count += table.counts[i];
            overflows |= word.count >> 63;
            if (word.count >> 63) word.count = 0;
            word.first = std::min(word.first, table.firsts[i] + base);
        }
        std::string bytes;
        const auto entries = write_runs(table, num_partitions, [&](std::string_view data) { bytes += data; }, monitor);
        CHECK(entries.size() == num_partitions && entries.back().end == bytes.size());
        const auto file = std::make_shared<MemoryFile>(bytes, 1 + input.below(100));
        std::uint64_t begin = 0, num_words = 0, num_bytes = 0;
        for (std::size_t p = 0; p < num_partitions; ++p) {
            runs[p].push_back({file, begin, entries[p].end, base, "a run", entries[p].checksum});
            begin = entries[p].end;
            num_words += entries[p].num_words;
            num_bytes += entries[p].num_bytes;
        }
        CHECK(num_words == table.size() && num_bytes == table.bytes.size());
    }
    std::size_t num_found = 0;
    try {
        for (std::size_t p = 0; p < num_partitions; ++p) {
            std::uint64_t last = 0;
            merge_and_sum(runs[p], monitor, [&](const CountedWord& counted, std::uint64_t key) {
                const Word word = to_word(counted);
                CHECK(key >= last && key == xxh64(word.bytes, 0));
                CHECK(static_cast<std::size_t>((static_cast<Wide>(key) * num_partitions) >> 64) == p);
                last = key;
                const auto found = expected.find(word.bytes);
                CHECK(found != expected.end());
                CHECK(overflows || (word.count == found->second.count && word.first == found->second.first));
                ++num_found;
            });
        }
    } catch (const std::overflow_error&) {
        CHECK(overflows);
        return;
    }
    CHECK(!overflows && num_found == expected.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    if (input.byte() % 2) {
        check_hostile_run(input);
    } else {
        check_merge(input);
    }
    return 0;
}
