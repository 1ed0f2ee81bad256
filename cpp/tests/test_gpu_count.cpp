// The count kernels of src/gristmill/gpu on the CUDA emulator, against the count stage of the core.
#include "cuda_emulator.hpp"
//
#include <map>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "gristmill/count.hpp"
#include "kernels/count.cu"
#include "pretokenize/unicode.hpp"

namespace {

namespace gm = gristmill;
namespace gpu = gristmill::gpu;

using Shape = gpu::TileShape<64, 20>;

// The shapes of src/gristmill/gpu/variants.py fit. A multiprocessor keeps 1 KiB for itself per block.
template <u32 kThreads, u32 kSegment>
constexpr std::size_t kShared = sizeof(gpu::TileState<gpu::TileShape<kThreads, kSegment>>) + (1 << 10);
static_assert(2 * kShared<512, 28> <= 228 << 10);
static_assert(2 * kShared<384, 20> <= 164 << 10);
static_assert(kShared<512, 20> <= 97 << 10);

struct Found {
    u64 count, first;
    bool operator==(const Found&) const = default;
};
using Words = std::map<std::string, Found>;

struct Settings {
    std::vector<std::string> specials{};
    unsigned num_blocks = 2;
    u64 table_size = 1 << 12, arena_capacity = 1 << 16;
    u64 warm_tiles = 2;
    u64 hash_seed = 0x9E3779B97F4A7C15u, hash_multiplier = 0xD6E8FEB86659FD93u;
};

Words count_on_cpu(gm::Pattern pattern, const std::vector<std::string>& texts,
                   const std::vector<std::string>& specials) {
    gm::CountOptions options;
    options.pattern = pattern;
    options.specials = specials;
    gm::Monitor monitor;
    gm::Counter counter(options, monitor);
    gm::ViewTexts views({texts.begin(), texts.end()});
    counter.add(views);
    gm::CountStats stats;
    const gm::WordTable table = counter.finish(stats);
    Words words;
    for (std::size_t i = 0; i < table.size(); ++i)
        words[std::string(table.word(i))] = {table.counts[i], table.firsts[i]};
    return words;
}

// What the host does on a GPU, with memory of the host. The texts are one chunk.
template <class Pattern>
class Run {
  public:
    Run(gm::Pattern pattern, const std::vector<std::string>& texts, const Settings& settings)
        : pattern_(pattern), settings_(settings) {
        for (const std::string& text : texts) {
            text_ += text;
            gaps_.push_back(static_cast<u32>(text_.size()));
            text_ += '\xFF';
        }
        const std::size_t size = text_.size();
        copy_.resize(size / 16 + 8, uint4{0x41414141, 0x41414141, 0x41414141, 0x41414141});  // old text after the end
        std::memcpy(copy_.data(), text_.data(), size);
        const u64 num_tiles = size / Shape::kBytes + 1;
        class_rows_.assign(gm::kClassRow, gm::kClassRow + 17408);
        u32 num_rows = 0;
        for (const u16 row : class_rows_) num_rows = std::max<u32>(num_rows, row + 1);
        classes_.assign(gm::kClasses[0], gm::kClasses[0] + num_rows * 64);
        table_.resize(settings.table_size);
        arena_.resize(settings.arena_capacity / 8);
        cache_.resize(gpu::kCacheLines);
        spans_.resize(num_tiles);
        first_starts_.resize(num_tiles);
        no_text_.resize(size / 32 + 2);
        state.text = reinterpret_cast<u8*>(copy_.data());
        state.size = size;
        state.position = 0;
        state.gaps = gaps_.data();
        state.num_gaps = gaps_.size();
        state.no_text = no_text_.data();
        state.first_starts = first_starts_.data();
        state.class_rows = class_rows_.data();
        state.classes = classes_.data();
        state.hash_seed = settings.hash_seed;
        state.hash_multiplier = settings.hash_multiplier;
        state.cache = cache_.data();
        state.spans = spans_.data();
        state.num_tiles = num_tiles;
        use_table();
        use_arena();
        cuda_emulator::launch(1, 64, 0, [&] { gpu::convert_class_table(classes_.data(), classes_.size()); });
        mark_boundaries();
        count_to(std::min(settings.warm_tiles, num_tiles));
        cuda_emulator::launch(2, 64, 0, [&] { gpu::choose_cached_words(state); });
        count_to(num_tiles);
        if (state.specials_overlap) {
            std::fill(table_.begin(), table_.end(), gpu::Word{});
            state.num_words = state.num_pieces = 0;
            add_from_cpu({{0, static_cast<u32>(size)}});
        } else {
            add_spans();
        }
    }

    Words words() {
        std::vector<u64> totals(4);
        cuda_emulator::launch(2, 64, 0, [&] { gpu::measure_words(state, 1, totals.data()); });
        CHECK(totals[0] == state.num_words);
        std::vector<u8> bytes(totals[1]);
        std::vector<u64> offsets(totals[0] + 1), counts(totals[0]), firsts(totals[0]);
        offsets.back() = totals[1];
        cuda_emulator::launch(2, 64, 1 << 10, [&] {
            u64* base = reinterpret_cast<u64*>(gpu::dynamic_shared());
            gpu::list_words(state, 1, {bytes.data(), offsets.data(), counts.data(), firsts.data()},
                            reinterpret_cast<u32*>(base + 1), base);
        });
        Words words;
        u64 longest = 0, num_pieces = 0;
        for (std::size_t i = 0; i < totals[0]; ++i) {
            CHECK(offsets[i] < offsets[i + 1]);
            words[{bytes.begin() + offsets[i], bytes.begin() + offsets[i + 1]}] = {counts[i], firsts[i]};
            longest = std::max(longest, offsets[i + 1] - offsets[i]);
            num_pieces += counts[i];
        }
        CHECK(words.size() == totals[0]);
        CHECK(longest == totals[2]);
        CHECK(num_pieces == state.num_pieces + num_cpu_pieces_);
        return words;
    }

    gpu::CountState state{};
    u64 num_host_spans = 0, num_growths = 0;

  private:
    void use_table() {
        state.table = table_.data();
        state.table_mask = table_.size() - 1;
        const u64 in_flight = settings_.num_blocks * (Shape::kBytes + Shape::kAfter);
        state.most_words = table_.size() > in_flight + 64 ? table_.size() - in_flight - 64 : 0;
    }
    void use_arena() {
        state.arena = reinterpret_cast<u8*>(arena_.data());
        state.arena_capacity = arena_.size() * 8;
        const u64 in_flight = settings_.num_blocks * 2 * (Shape::kBytes + Shape::kAfter);
        state.most_arena = state.arena_capacity > in_flight ? state.arena_capacity - in_flight : 0;
    }

    void mark_boundaries() {
        std::vector<std::string> specials = settings_.specials;
        std::sort(specials.begin(), specials.end(),
                  [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
        std::string bytes;
        std::vector<u32> offsets{0}, first_bytes(8);
        for (const std::string& special : specials) {
            bytes += special;
            offsets.push_back(static_cast<u32>(bytes.size()));
            const u8 first = static_cast<u8>(special[0]);
            first_bytes[first / 32] |= 1u << first % 32;
        }
        cuda_emulator::launch(2, 64, 0, [&] {
            gpu::mark_all_specials(state, {reinterpret_cast<const u8*>(bytes.data()), offsets.data(),
                                           first_bytes.data(), static_cast<u32>(specials.size())});
        });
        cuda_emulator::launch(1, 64, 0, [&] { gpu::mark_all_gaps(state); });
    }

    void count_to(u64 tile) {
        state.stop_tile = tile;
        while (state.next_tile < tile) {
            const u64 before = state.next_tile;
            cuda_emulator::launch(settings_.num_blocks, Shape::kThreads, sizeof(gpu::TileState<Shape>), [&] {
                gpu::Tiles<Pattern, Shape>(state, *reinterpret_cast<gpu::TileState<Shape>*>(gpu::dynamic_shared()))
                    .run();
            });
            state.next_tile = std::min(state.next_tile, tile);
            if (state.next_tile < tile) grow();
            CHECK(state.next_tile > before || num_growths < 40);
        }
    }

    void grow() {
        ++num_growths;
        std::vector<gpu::Word> larger(2 * table_.size());
        table_.swap(larger);
        use_table();
        cuda_emulator::launch(2, 64, 0, [&] { gpu::move_all_words(state, larger.data(), larger.size()); });
        arena_.resize(arena_.size() * 2);
        use_arena();
        std::fill(cache_.begin(), cache_.end(), 0);
    }

    void add_spans() {
        std::vector<std::pair<u32, u32>> spans;
        for (u64 i = 0; i < state.num_spans; ++i) {
            u32 end = static_cast<u32>(text_.size());
            for (u64 tile = spans_[i].tile + 1; tile < state.num_tiles; ++tile)
                if (first_starts_[tile] != ~0u) {
                    end = first_starts_[tile];
                    break;
                }
            spans.emplace_back(spans_[i].begin, end);
        }
        num_host_spans = spans.size();
        add_from_cpu(spans);
    }

    // Splits the spans at gaps, counts them with the core, and adds their words to the table.
    void add_from_cpu(const std::vector<std::pair<u32, u32>>& spans) {
        for (auto [begin, end] : spans)
            while (begin < end) {
                const auto gap = std::lower_bound(gaps_.begin(), gaps_.end(), begin);
                const u32 stop = gap == gaps_.end() ? end : std::min(end, *gap);
                const u64 position = begin - (gap - gaps_.begin());
                std::string bytes;
                std::vector<u64> offsets{0}, counts, firsts;
                for (const auto& [word, found] :
                     count_on_cpu(pattern_, {text_.substr(begin, stop - begin)}, settings_.specials)) {
                    bytes += word;
                    offsets.push_back(bytes.size());
                    counts.push_back(found.count);
                    firsts.push_back(position + found.first);
                    num_cpu_pieces_ += found.count;
                }
                while (state.table_mask < 2 * (state.num_words + counts.size())) grow();
                while (state.arena_capacity < 2 * (state.arena_used + bytes.size() + 16 * counts.size() + 64)) grow();
                cuda_emulator::launch(1, 64, 0, [&] {
                    gpu::add_listed_words(
                        state, {reinterpret_cast<u8*>(bytes.data()), offsets.data(), counts.data(), firsts.data()},
                        counts.size());
                });
                begin = stop + 1;
            }
    }

    gm::Pattern pattern_;
    Settings settings_;
    std::string text_;
    std::vector<u32> gaps_, first_starts_, no_text_;
    std::vector<uint4> copy_;
    std::vector<u16> class_rows_;
    std::vector<u8> classes_;
    std::vector<gpu::Word> table_;
    std::vector<u64> arena_, cache_;
    std::vector<gpu::Span> spans_;
    u64 num_cpu_pieces_ = 0;
};

template <class Pattern>
u64 check_pattern(gm::Pattern pattern, const std::vector<std::string>& texts, const Settings& settings) {
    Run<Pattern> run(pattern, texts, settings);
    const Words found = run.words(), expected = count_on_cpu(pattern, texts, settings.specials);
    CHECK(found == expected);
    if (found != expected) {
        int shown = 0;
        for (const auto& [word, w] : expected)
            if ((!found.count(word) || !(found.at(word) == w)) && shown++ < 5)
                std::fprintf(stderr, "%s: '%s' x %llu at %llu\n", std::string(gm::pattern_name(pattern)).c_str(),
                             word.c_str(), (unsigned long long)w.count, (unsigned long long)w.first);
        for (const auto& [word, w] : found)
            if ((!expected.count(word) || !(expected.at(word) == w)) && shown++ < 10)
                std::fprintf(stderr, "  found '%s' x %llu at %llu\n", word.c_str(), (unsigned long long)w.count,
                             (unsigned long long)w.first);
    }
    return run.num_host_spans;
}

u64 check_all(const std::vector<std::string>& texts, const Settings& settings = {}) {
    u64 num_spans = 0;
#define GRISTMILL_PATTERN(name, ...) num_spans += check_pattern<gpu::pattern::name>(gm::Pattern::name, texts, settings);
    GRISTMILL_PATTERNS(GRISTMILL_PATTERN)
#undef GRISTMILL_PATTERN
    return num_spans;
}

// Parts that meet in all the ways that the patterns distinguish.
const std::vector<std::string> kParts = {
    "a",
    "B",
    "the",
    "The",
    " ",
    " ",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\n\n",
    "\t",
    "'",
    "'s",
    "'S",
    "'ll",
    "'re",
    "'LL",
    "'x",
    "1",
    "23",
    "4567",
    ".",
    ",",
    "!?",
    "/",
    "//",
    "-",
    "(",
    "\xC2\xA0",
    "\xE3\x80\x80",
    "\xC5\xBF",
    "'\xC5\xBF",
    "\xC3\xA9",
    "\xC3\x89",
    "e\xCC\x81",
    "\xCC\x81",
    "\xE4\xB8\xAD\xE6\x96\x87",
    "\xE3\x80\x82",
    "\xF0\x9F\x98\x80",
    "\xD9\xA3",
    "\xC7\x85",
    "\xCA\xB0",
    "\xFF",
    "\xC0\x80",
    "\xE4\xB8",
    "\xF0\x9F",
    "\x80",
    "\xED\xA0\x80",
    std::string(1, '\0'),
    "word",
    " word",
    " another",
    "internationalization",
    "\xC2\x85",
    "\x1C",
    "HTTPServer",
    "camelCase",
    "\xF4\x90\x80\x80",
};

std::string random_text(std::mt19937& random, std::size_t size, unsigned num_parts) {
    std::vector<std::string> parts;
    for (unsigned i = 0; i < num_parts; ++i) parts.push_back(kParts[random() % kParts.size()]);
    std::string text;
    while (text.size() < size) {
        const std::string& part = parts[random() % parts.size()];
        for (unsigned i = random() % 8 ? 1 : random() % 40; i--;) text += part;
    }
    return text;
}

}  // namespace

int main() {
    std::mt19937 random(7);
    check_all({});
    check_all({""});
    check_all({"a"});
    check_all({"low low lower lowest \n\n 12345 it's IT'S", " the end", "\n"});
    for (int i = 0; i < 12; ++i) check_all({random_text(random, 200 + 1700 * (i % 4), 4 + 5 * (i % 6))});
    for (int i = 0; i < 6; ++i) {
        std::vector<std::string> texts;
        for (int k = 0; k < 30; ++k) texts.push_back(random_text(random, random() % 120, 20));
        check_all(texts, {.specials = {"<|end|>", "<|end|>x", "the", "\xE3\x80\x82"}});
    }
    // Specials that overlap, and specials beside each other.
    check_all({"aaaaa<|a|><|a|>b <|a|", "x<|a|>"}, {.specials = {"aa", "<|a|>"}});
    check_all({"one<|a|><|a|> two<|a|>", "x<|a|>"}, {.specials = {"<|a|>"}});
    // Pieces that reach beyond what a block loads.
    u64 num_spans = 0;
    num_spans +=
        check_all({std::string(5000, 'a') + " b " + std::string(1300, ' ') + "c" + std::string(3000, '\n') + "d"});
    num_spans += check_all({std::string(2000, '1') + std::string(2000, '!') + "'s", std::string(1500, '\r') + "z"});
    num_spans += check_all({"x " + std::string(1270, 'q') + "'s and " + std::string(1500, 'Q') + "q"});
    CHECK(num_spans > 0);
    // A table and an arena that have to grow.
    std::string many;
    for (int i = 0; i < 4000; ++i) many += " " + std::to_string(i) + (i % 3 ? "x" : std::string(20 + i % 9, 'y'));
    check_all({many}, {.table_size = 1 << 12, .arena_capacity = 1 << 13});
    // The hash of a word of less than 8 or more than 15 bytes is then 0.
    check_all({many.substr(0, 5000)}, {.hash_seed = 0, .hash_multiplier = 0});
    // Words of 8 to 15 bytes that begin with zero bytes.
    check_all({std::string(9, '\0') + "a " + std::string(8, '\0') + " " + std::string(12, '\0') + std::string(8, '\0') +
               "b"});
    return test_result();
}
