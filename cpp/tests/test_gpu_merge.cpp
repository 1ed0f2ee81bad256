// The merge kernels of src/gristmill/gpu on the CUDA emulator, against the merge stage of the core.
#include "cuda_emulator.hpp"
//
#include <map>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "gristmill/merge.hpp"
#include "kernels/merge.cu"
#include "merge/tokens.hpp"
#include "word_tables.hpp"

namespace {

namespace gm = gristmill;
namespace gpu = gristmill::gpu;

using gm::table_of;
using Words = std::vector<std::pair<std::string, u64>>;

struct Settings {
    u32 num_merges = 40;
    u32 max_token_bytes = 0;
    std::vector<gm::Merge> given{};
    unsigned num_blocks = 3, num_threads = 64;
    u32 rounds_per_launch = 7;
    u64 table_size = 1 << 12, bytes_capacity = 1 << 16;
};

// What the host does on a GPU, with memory of the host.
template <class Symbol, gpu::TieBreak kTieBreak>
class Run {
  public:
    Run(const gm::WordTable& words, const Settings& settings) : settings_(settings) {
        const u64 num_cells = words.bytes.size() + words.size() + 24 * settings.num_blocks + 64;
        const u64 num_ids = 256 + settings.given.size() + settings.num_merges;
        for (int b = 0; b < 2; ++b) {
            cells_[b].resize(num_cells * sizeof(Symbol) / 16 + 4);
            at_group_[b].resize(num_cells);
            starts_[b].resize(words.size() + 1);
            lengths_[b].resize(words.size() + 1);
            weights_[b].resize(words.size() + 1);
            origins_[b].resize(words.size() + 1);
            state.words[b] = {reinterpret_cast<u64>(cells_[b].data()),
                              at_group_[b].data(),
                              starts_[b].data(),
                              lengths_[b].data(),
                              weights_[b].data(),
                              origins_[b].data()};
        }
        regions_.resize(settings.num_blocks);
        hits_.resize(words.size() + 1);
        table_.resize(settings.table_size);
        hot_log_.resize(gpu::kHotLog);
        bins_.resize(gpu::kBins);
        births_.resize(2 * gpu::kMostInBatch);
        firsts_.assign(2 * gpu::kMostCandidates, ~u64{0});
        merges.resize(2 * (num_ids - 256) + 2);
        counts_.resize(num_ids - 256 + 1);
        prefixes_.resize(num_ids);
        token_lengths_.resize(num_ids);
        offsets_.resize(num_ids);
        bytes_.resize(settings.bytes_capacity);
        const auto huggingface = gm::merge::huggingface_ranks();
        for (u32 b = 0; b < 256; ++b) {
            prefixes_[b] = u64{b} << 56;
            token_lengths_[b] = 1;
            offsets_[b] = b;
            bytes_[b] = static_cast<u8>(b);
            ranks_.push_back(kTieBreak == gpu::TieBreak::huggingface ? huggingface[b] : b);
        }
        for (std::size_t i = 0; i < settings.given.size(); ++i) {
            merges[2 * i] = settings.given[i].first;
            merges[2 * i + 1] = settings.given[i].second;
        }
        state.regions = regions_.data();
        state.hits = hits_.data();
        state.hash_multiplier = 0x9E3779B97F4A7C15u;
        state.hot_log = hot_log_.data();
        state.bins = bins_.data();
        state.greatest_births = births_.data();
        state.firsts = firsts_.data();
        state.merges = merges.data();
        state.counts = counts_.data();
        state.prefixes = prefixes_.data();
        state.lengths = token_lengths_.data();
        state.offsets = offsets_.data();
        state.bytes = bytes_.data();
        state.ranks = ranks_.data();
        state.num_wanted = settings.given.size() + settings.num_merges;
        state.num_given = settings.given.size();
        state.max_token_bytes = settings.max_token_bytes ? settings.max_token_bytes : ~0u;
        state.bytes_capacity = settings.bytes_capacity;
        state.num_bytes = 256;
        state.threshold = 1;
        use_table();
        std::vector<u64> byte_pairs(65536);
        cuda_emulator::launch(settings.num_blocks, settings.num_threads, sizeof(gpu::BlockState), [&] {
            gpu::lay_out_words<Symbol>(state, words.bytes.data(), words.offsets.data(), words.counts.data(),
                                       words.size(), byte_pairs.data(), block_state());
        });
        cuda_emulator::launch(2, 64, 0, [&] { gpu::enter_byte_pairs(state, byte_pairs.data()); });
        check_counts();
    }

    gpu::Outcome learn() {
        const std::size_t shared = sizeof(gpu::BlockState) + (hits_.size() / 32 + 1) * 4;
        for (;;) {
            state.barrier = 0;
            cuda_emulator::launch(settings_.num_blocks, settings_.num_threads, shared, [&] {
                gpu::BlockState& s = block_state();
                gpu::Rounds<Symbol, kTieBreak>(state, s, reinterpret_cast<u32*>(&s + 1))
                    .run(settings_.rounds_per_launch);
            });
            check_counts();
            const auto outcome = static_cast<gpu::Outcome>(state.outcome);
            if (outcome == gpu::Outcome::table_full)
                grow();
            else if (outcome == gpu::Outcome::bytes_full)
                bytes_.resize(2 * bytes_.size()), state.bytes = bytes_.data(), state.bytes_capacity = bytes_.size();
            else if (outcome != gpu::Outcome::running)
                return outcome;
        }
    }

    gpu::MergeState state{};
    std::vector<u32> merges;

    gm::Merge merge(std::size_t i) const { return {merges[2 * i], merges[2 * i + 1]}; }
    u64 count(std::size_t i) const { return counts_[i]; }

  private:
    static gpu::BlockState& block_state() { return *reinterpret_cast<gpu::BlockState*>(gpu::dynamic_shared()); }

    void use_table() {
        state.table = table_.data();
        state.table_mask = table_.size() - 1;
    }

    void grow() {
        std::vector<gpu::Entry> larger(2 * table_.size());
        table_.swap(larger);
        use_table();
        state.num_entries = 0;
        state.is_table_full = 0;
        state.is_log_valid = 0;
        // The round is made again with other candidates.
        std::fill(firsts_.begin(), firsts_.end(), ~u64{0});
        std::fill(births_.begin(), births_.end(), 0);
        cuda_emulator::launch(2, 64, 0, [&] { gpu::move_pairs(state, larger.data(), larger.size()); });
    }

    // The invariant: between launches, the table has exactly the pairs of the cells.
    void check_counts() {
        std::map<u64, u64> expected;
        for (const gpu::Region& region : regions_) {
            const gpu::WordArrays& words = state.words[region.buffer];
            const Symbol* cells = reinterpret_cast<const Symbol*>(words.cells) + region.first_cell;
            u64 num_live = 0;
            for (u64 w = region.first_word; w < region.first_word + region.num_words; ++w) {
                const Symbol* word = cells + words.starts[w];
                for (u32 i = 0; i + 1 < words.lengths[w]; ++i) {
                    if (token_lengths_[word[i]] + token_lengths_[word[i + 1]] > state.max_token_bytes) continue;
                    expected[gpu::key_of(word[i], word[i + 1])] += words.weights[w];
                }
                num_live += words.lengths[w] + 1;
            }
            CHECK(num_live == region.num_live);
        }
        std::map<u64, u64> found;
        u64 num_entries = 0;
        for (const gpu::Entry& entry : table_) {
            num_entries += entry.key != 0;
            if (entry.count) found[entry.key] = entry.count;
        }
        CHECK(found == expected);
        CHECK(num_entries == state.num_entries);
    }

    Settings settings_;
    std::vector<uint4> cells_[2];
    std::vector<u32> at_group_[2], starts_[2], lengths_[2], origins_[2];
    std::vector<u64> weights_[2];
    std::vector<gpu::Region> regions_;
    std::vector<u32> hits_;
    std::vector<gpu::Entry> table_;
    std::vector<u32> hot_log_;
    std::vector<u64> bins_, births_, firsts_, counts_, prefixes_, offsets_;
    std::vector<u32> token_lengths_, ranks_;
    std::vector<u8> bytes_;
};

// Compares the merges and their counts with those of the core, and returns why the run ended.
template <class Symbol, gpu::TieBreak kTieBreak>
gpu::Outcome learn(const Words& words, const Settings& settings) {
    const gm::WordTable table = table_of(words);
    gm::MergeOptions options;
    options.num_merges = settings.num_merges;
    options.tie_break = static_cast<gm::TieBreak>(kTieBreak);
    options.max_token_bytes = settings.max_token_bytes;
    gm::Monitor monitor;
    const gm::MergeRun expected = gm::learn_merges(table, settings.given, options, monitor);
    Run<Symbol, kTieBreak> run(table, settings);
    const gpu::Outcome outcome = run.learn();
    const std::size_t num = run.state.num_merges - settings.given.size();
    CHECK(num == expected.merges.size() || outcome == gpu::Outcome::ties);
    bool is_equal = num <= expected.merges.size();
    for (std::size_t i = 0; i < num && is_equal; ++i)
        is_equal = run.merge(settings.given.size() + i) == expected.merges[i] &&
                   run.count(settings.given.size() + i) == expected.counts[i];
    CHECK(is_equal);
    return outcome;
}

template <class Symbol>
void check_all_tie_breaks(const Words& words, const Settings& settings) {
    CHECK((learn<Symbol, gpu::TieBreak::greatest_bytes>(words, settings) != gpu::Outcome::ties));
    CHECK((learn<Symbol, gpu::TieBreak::smallest_ids>(words, settings) != gpu::Outcome::ties));
    CHECK((learn<Symbol, gpu::TieBreak::huggingface>(words, settings) != gpu::Outcome::ties));
    CHECK((learn<Symbol, gpu::TieBreak::first_seen>(words, settings) != gpu::Outcome::ties));
}

Words random_words(std::mt19937& random, std::size_t num, unsigned alphabet, unsigned longest, u64 most) {
    std::map<std::string, u64> found;
    while (found.size() < num) {
        std::string word(1 + random() % longest, ' ');
        for (char& c : word) c = static_cast<char>('a' + std::min(random() % alphabet, random() % alphabet));
        found.emplace(word, 1 + random() % most);
    }
    Words words(found.begin(), found.end());
    std::shuffle(words.begin(), words.end(), random);
    return words;
}

// A scan sees ends of words after the last cells of a block. This pair of bytes, as symbols of 32 bits, has the place
// of two ends in the filter.
std::pair<char, char> pair_like_two_ends() {
    constexpr u32 kShift = 32 - 9 - 5;  // of the largest filter; a smaller one uses fewer bits of the hash
    constexpr u32 kEnd = gpu::Cells<u32>::kEnd;
    for (u32 pair = 0; pair < 65536; ++pair) {
        const u32 left = pair >> 8, right = pair & 255;
        if (left != right && gpu::bloom_hash(left, right) >> kShift == gpu::bloom_hash(kEnd, kEnd) >> kShift)
            return {static_cast<char>(left), static_cast<char>(right)};
    }
    CHECK(false);
    return {};
}

// The pair is frequent, and many other ones are as frequent, so that it matters where it occurs first.
void check_a_pair_like_two_ends(std::mt19937& random) {
    const auto [left, right] = pair_like_two_ends();
    for (int i = 0; i < 4; ++i) {
        Words words = random_words(random, 300, 20, 9, 2);
        for (auto& [word, count] : words)
            if (random() % 4 == 0) word += {left, right};
        check_all_tie_breaks<u32>(words, {.num_merges = 60});
    }
}

}  // namespace

int main() {
    std::mt19937 random(1);
    check_all_tie_breaks<u16>({{"low", 5}, {"lower", 2}, {"newest", 6}, {"widest", 3}}, {});
    check_all_tie_breaks<u16>({{"aaa", 1}, {"aaaaaaa", 3}, {"baaab", 2}}, {});
    check_all_tie_breaks<u16>({}, {});
    check_all_tie_breaks<u16>({{"a", 9}}, {});
    check_all_tie_breaks<u16>({{std::string(5000, 'a'), 3}, {std::string(333, 'a') + "b", 1}}, {});
    for (int i = 0; i < 6; ++i) {
        const Words words = random_words(random, 200, 2 + i * 4, 12 + 20 * (i % 3), 1 + (random() % 50));
        check_all_tie_breaks<u16>(words, {.num_merges = 200, .rounds_per_launch = 1000});
        check_all_tie_breaks<u32>(words, {.num_merges = 100, .num_blocks = 2, .num_threads = 32});
    }
    // A table and token bytes that have to grow.
    const Words words = random_words(random, 400, 26, 30, 1000);
    check_all_tie_breaks<u16>(words, {.num_merges = 150, .table_size = 1024, .bytes_capacity = 300});
    // Given merges, short tokens.
    gm::Monitor monitor;
    const auto given = gm::learn_merges(table_of(words), {}, {.num_merges = 60}, monitor).merges;
    check_all_tie_breaks<u16>(words, {.num_merges = 60, .given = given});
    check_all_tie_breaks<u16>(
        words, {.num_merges = 60, .given = {{'a', 'b'}, {256, 'c'}, {'a', 'b'}, {'a', 'a'}, {'x', 257}}});
    check_all_tie_breaks<u16>(words, {.num_merges = 100, .max_token_bytes = 3});
    check_all_tie_breaks<u16>(words, {.num_merges = 10, .max_token_bytes = 1});
    check_a_pair_like_two_ends(random);
    // More pairs with the same count than a block can order: the merges before them are right.
    Words ties = {{"zz", 9}, {"yyy", 5}};
    for (int left = 0; left < 90; ++left)
        for (int right = 100; right < 190; ++right)
            ties.push_back({{static_cast<char>(left), static_cast<char>(right)}, 1});
    CHECK((learn<u16, gpu::TieBreak::greatest_bytes>(ties, {.table_size = 1 << 14}) == gpu::Outcome::ties));
    return test_result();
}
