#include "merge/symbols.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "table_size.hpp"

namespace gristmill::merge {
namespace {

// Words are distributed to the strips in groups of 64: every strip gets a share of the frequent words, which come first
// in the table, and reads its part of the table in order.
constexpr std::size_t kHand = 64;

constexpr std::uint64_t kBlockCells = SymbolArray<std::uint16_t>::kBlockCells;

// Counts of this size or more share one bucket of the counting sort and are sorted by comparison.
constexpr std::uint64_t kLargeCount = first_size(65535, 100);

// The words of one strip, most frequent first.
struct StripPlan {
    std::vector<std::uint32_t> words;
    std::uint64_t num_symbols = 0;
    std::uint64_t max_cells = 0;
};

bool has_pairs(const WordTable& words, std::size_t i) {
    return words.counts[i] > 0 && words.offsets[i + 1] - words.offsets[i] > 1;
}

template <class Visit>
void for_each_dealt_word(const WordTable& words, unsigned strip, unsigned num_strips, Monitor& monitor, Visit visit) {
    for (std::size_t hand = strip * kHand; hand < words.size(); hand += num_strips * kHand) {
        monitor.check();
        const std::size_t end = std::min(hand + kHand, words.size());
        for (std::size_t i = hand; i < end; ++i)
            if (has_pairs(words, i)) visit(static_cast<std::uint32_t>(i));
    }
}

// Counting sort by descending count; equal counts stay in table order.
StripPlan plan_strip(const WordTable& words, unsigned strip, unsigned num_strips, Monitor& monitor) {
    StripPlan plan;
    std::vector<std::uint32_t> ends(kLargeCount + 2, 0);
    const auto bucket = [&](std::uint32_t i) { return kLargeCount - std::min(words.counts[i], kLargeCount); };
    std::size_t num_words = 0;
    for_each_dealt_word(words, strip, num_strips, monitor, [&](std::uint32_t i) {
        ++ends[bucket(i) + 1];
        ++num_words;
        plan.num_symbols += words.offsets[i + 1] - words.offsets[i];
    });
    std::uint64_t num_counts = ends[1];
    for (std::size_t b = 1; b < ends.size(); ++b) {
        if (b > 1) num_counts += ends[b] != 0;
        ends[b] += ends[b - 1];
    }
    plan.words.resize(num_words);
    for_each_dealt_word(words, strip, num_strips, monitor, [&](std::uint32_t i) { plan.words[ends[bucket(i)]++] = i; });
    std::stable_sort(plan.words.begin(), plan.words.begin() + ends[0],
                     [&](std::uint32_t i, std::uint32_t j) { return words.counts[i] > words.counts[j]; });
    plan.max_cells = plan.num_symbols + num_words + (num_counts + 2) * kBlockCells;
    plan.max_cells = (plan.max_cells + kBlockCells - 1) / kBlockCells * kBlockCells;
    return plan;
}

template <class Symbol>
class StripWriter {
  public:
    StripWriter(const WordTable& words, SymbolArray<Symbol>& array, std::uint64_t begin, std::size_t first_word)
        : words_(words), array_(array), cell_(begin), word_(first_word) {
        pad(begin + 1);
        pad_to_block();
    }

    void write(const StripPlan& plan, bool with_origins, Monitor& monitor) {
        for (std::size_t i = 0; i < plan.words.size();) {
            const std::uint64_t count = words_.counts[plan.words[i]];
            const std::uint64_t begin = cell_;
            for (; i < plan.words.size() && words_.counts[plan.words[i]] == count; ++i) {
                if (i % kCheckEvery == 0) monitor.check();
                if (with_origins) note_origin(plan.words[i]);
                write_word(plan.words[i]);
            }
            for (std::uint64_t block = begin >> kShift; block <= (cell_ - 1) >> kShift; ++block)
                array_.block_weights[block] = count;
            pad_to_block();
            monitor.advance(cell_ - begin);
        }
        if (with_origins) array_.word_starts[word_] = UINT32_MAX;
    }

    std::uint64_t end() const { return cell_; }

  private:
    static constexpr unsigned kShift = SymbolArray<Symbol>::kBlockShift;
    static constexpr std::size_t kCheckEvery = 8192;

    void write_word(std::uint32_t word) {
        const std::uint64_t offset = words_.offsets[word];
        const std::uint64_t length = words_.offsets[word + 1] - offset;
        const std::uint8_t* bytes = words_.bytes.data() + offset;
        Symbol* cells = array_.cells.data() + cell_;
        for (std::uint64_t i = 0; i < length; ++i) cells[i] = bytes[i];
        cells[length] = array_.sentinel;
        cell_ += length + 1;
    }

    // A block that begins inside a word, or at its sentinel, counts as part of that word.
    void note_origin(std::uint32_t word) {
        const std::uint64_t end = cell_ + (words_.offsets[word + 1] - words_.offsets[word]);
        for (std::uint64_t block = (cell_ + (1u << kShift) - 1) >> kShift; block <= end >> kShift; ++block)
            array_.block_words[block] = static_cast<std::uint32_t>(word_);
        array_.word_starts[word_] = static_cast<Position>(cell_);
        array_.word_origins[word_] = words_.offsets[word];
        ++word_;
    }

    void pad(std::uint64_t end) {
        while (cell_ < end) array_.cells[cell_++] = array_.sentinel;
    }
    void pad_to_block() { pad(((cell_ - 1) | ((1u << kShift) - 1)) + 1); }

    const WordTable& words_;
    SymbolArray<Symbol>& array_;
    std::uint64_t cell_;
    std::size_t word_;
};

std::uint64_t count_at_rank(const WordTable& words, const std::vector<StripPlan>& plans, std::uint64_t rank) {
    std::uint64_t least = UINT64_MAX;
    for (const StripPlan& plan : plans) {
        if (rank / plans.size() >= plan.words.size()) return 0;
        least = std::min(least, words.counts[plan.words[rank / plans.size()]]);
    }
    return least;
}

// Reserves the arrays, and returns the first word of each strip in the numbering of word_starts.
template <class Symbol>
std::vector<std::size_t> reserve(const std::vector<StripPlan>& plans, bool with_origins, SymbolArray<Symbol>& array) {
    std::vector<std::size_t> first_words;
    std::uint64_t num_cells = 0;
    std::size_t num_words = 0;
    for (const StripPlan& plan : plans) {
        array.strips.push_back({num_cells, num_cells});
        array.num_symbols += plan.num_symbols;
        first_words.push_back(num_words);
        num_cells += plan.max_cells;
        num_words += plan.words.size() + 1;
    }
    if (num_cells >= UINT32_MAX)
        throw std::length_error(std::to_string(num_cells) +
                                " bytes of distinct words are too many: the merge stage supports fewer than 2^32. "
                                "Raise min_frequency.");
    array.cells = ZeroedArray<Symbol>(num_cells + 1);
    array.block_weights = ZeroedArray<std::uint64_t>((num_cells >> SymbolArray<Symbol>::kBlockShift) + 1);
    if (with_origins) {
        array.block_words = ZeroedArray<std::uint32_t>(array.block_weights.size());
        array.word_starts = ZeroedArray<Position>(num_words);
        array.word_origins = ZeroedArray<std::uint64_t>(num_words);
    }
    return first_words;
}

}  // namespace

template <class Symbol>
Layout<Symbol> lay_out(const WordTable& words, const LayoutOptions& options, Crew& crew, Monitor& monitor) {
    if (words.size() >= UINT32_MAX)
        throw std::length_error(
            std::to_string(words.size()) +
            " words are too many: the merge stage supports fewer than 2^32 - 1. Raise min_frequency.");
    std::vector<StripPlan> plans(crew.size());
    crew.run("plan symbols", [&](unsigned t) { plans[t] = plan_strip(words, t, crew.size(), monitor); });

    Layout<Symbol> layout;
    SymbolArray<Symbol>& array = layout.array;
    layout.count_at_rank = count_at_rank(words, plans, options.rank);
    array.sentinel = static_cast<Symbol>(options.max_ids);
    array.hole = static_cast<Symbol>(options.max_ids + 1);
    const std::vector<std::size_t> first_words = reserve(plans, options.with_origins, array);
    crew.run("write symbols", [&](unsigned t) {
        StripWriter<Symbol> writer(words, array, array.strips[t].begin, first_words[t]);
        writer.write(plans[t], options.with_origins, monitor);
        array.strips[t].end = writer.end();
    });
    return layout;
}

template Layout<std::uint16_t> lay_out(const WordTable&, const LayoutOptions&, Crew&, Monitor&);
template Layout<std::uint32_t> lay_out(const WordTable&, const LayoutOptions&, Crew&, Monitor&);

}  // namespace gristmill::merge
