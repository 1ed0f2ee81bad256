#include "count/join.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace gristmill {
namespace {

// One part of the table of one thread, with its counts by ordinal. For a word that several threads have, the table that
// saw it first gets the sum and the others 0. Ordinals ascend with `first`, so every side is a sorted run. With several
// tables, the counts are first only the overflows: the search for equal words reads every entry and adds its count.
struct Side {
    const LargeVector<WordRecord>* records;
    const std::uint8_t* arena;
    ZeroedArray<std::uint64_t> counts;

    std::size_t size() const { return records->size(); }
    std::uint64_t first(std::size_t ordinal) const { return (*records)[ordinal].first; }
    CountedWord word(std::size_t ordinal) const { return (*records)[ordinal].with_count(counts[ordinal], arena); }
};

using Tables = std::vector<std::unique_ptr<PieceTable>>;

constexpr std::size_t kNumParts = 3;

// Calls visit(part index, part) for the three parts of a table.
template <class Visit>
void visit_parts(const PieceTable& table, const Visit& visit) {
    visit(0, table.short_part());
    visit(1, table.medium_part());
    visit(2, table.long_part());
}

// Finds the words of one narrow range of hashes that are in several tables. The range is narrow enough to stay in the
// L1 cache.
class RangeJoiner {
  public:
    // sides[kNumParts * t + p] is part p of tables[t].
    RangeJoiner(const Tables& tables, std::vector<Side>& sides, unsigned range_bits)
        : tables_(tables), sides_(sides), range_bits_(range_bits), bucket_shift_(64 - range_bits - kBucketBits) {}

    std::uint64_t num_duplicates() const { return num_duplicates_; }

    // Collects the words of the range first, and prefetches the data needed to unite two of them, then completes
    // their counts and looks for equal words.
    void join(std::uint64_t range) {
        seen_.clear();
        for (std::size_t t = 0; t < tables_.size(); ++t) {
            visit_parts(*tables_[t], [&](std::size_t p, const auto& part) {
                const auto side = static_cast<std::uint32_t>(kNumParts * t + p);
                visit_range(*tables_[t], part.slots, range, [&](std::uint64_t hash, const auto& entry) {
                    seen_.push_back({hash, side, entry.ordinal, kEnd, entry.count});
                    __builtin_prefetch(&(*sides_[side].records)[entry.ordinal]);
                    __builtin_prefetch(&sides_[side].counts[entry.ordinal], 1);
                });
            });
        }
        heads_.fill(kEnd);
        for (std::uint32_t at = 0; at < seen_.size(); ++at) enter(at);
    }

  private:
    struct Seen {
        std::uint64_t hash;
        std::uint32_t side, ordinal;
        std::uint32_t next;   // next entry of the same bucket
        std::uint32_t count;  // modulo 2^32
    };
    static constexpr unsigned kBucketBits = 10;
    static constexpr std::uint32_t kEnd = static_cast<std::uint32_t>(-1);

    // Entries with a hash in the range start at its first slot; the last ones may be displaced past its end, up to the
    // next free slot.
    template <class Entry, class Visit>
    void visit_range(const PieceTable& table, const Slots<Entry>& slots, std::uint64_t range, const Visit& visit) {
        const std::size_t num_slots = std::max<std::size_t>(1, slots.capacity() >> range_bits_);
        std::size_t slot = slots.slot_of(range << (64 - range_bits_));
        for (std::size_t seen = 1; seen <= slots.capacity(); ++seen, slot = slots.after(slot)) {
            const Entry& entry = slots[slot];
            if (is_free(entry)) {
                if (seen >= num_slots) return;
                continue;
            }
            const std::uint64_t hash = table.hash(entry);
            if (hash >> (64 - range_bits_) == range) visit(hash, entry);
        }
    }

    void enter(std::uint32_t at) {
        sides_[seen_[at].side].counts[seen_[at].ordinal] += seen_[at].count;
        std::uint32_t& head = heads_[seen_[at].hash >> bucket_shift_ & ((1u << kBucketBits) - 1)];
        for (std::uint32_t known = head; known != kEnd; known = seen_[known].next) {
            if (seen_[known].hash == seen_[at].hash && unite(seen_[known], seen_[at].side, seen_[at].ordinal)) return;
        }
        seen_[at].next = head;
        head = at;
    }

    bool unite(Seen& seen, std::uint32_t side, std::uint32_t ordinal) {
        CountedWord known = sides_[seen.side].word(seen.ordinal);
        const CountedWord other = sides_[side].word(ordinal);
        if (known.compare(other) != 0) return false;
        if (other.first < known.first) {
            std::swap(seen.side, side);
            std::swap(seen.ordinal, ordinal);
        }
        known.add(other);
        sides_[seen.side].counts[seen.ordinal] = known.count;
        sides_[side].counts[ordinal] = 0;
        ++num_duplicates_;
        return true;
    }

    const Tables& tables_;
    std::vector<Side>& sides_;
    unsigned range_bits_;
    unsigned bucket_shift_;
    std::vector<Seen> seen_;
    std::array<std::uint32_t, 1u << kBucketBits> heads_{};
    std::uint64_t num_duplicates_ = 0;
};

// Completes the counts, and leaves each word in only one table. Returns the number of words that were in several.
std::uint64_t unite_duplicates(const Tables& tables, std::vector<Side>& sides, Crew& crew, Monitor& monitor) {
    if (tables.size() <= 1) return 0;
    std::size_t num_words = 0;
    for (const Side& side : sides) num_words += side.size();
    constexpr std::size_t kWordsPerRange = 512;
    const unsigned range_bits = std::clamp(static_cast<unsigned>(std::bit_width(num_words / kWordsPerRange)), 4u, 40u);
    const std::uint64_t num_ranges = std::uint64_t{1} << range_bits;
    const unsigned num_threads = crew.size();
    std::vector<std::uint64_t> duplicates(num_threads);
    crew.run("unite duplicates", [&](unsigned t) {
        RangeJoiner joiner(tables, sides, range_bits);
        for (std::uint64_t range = num_ranges * t / num_threads; range < num_ranges * (t + 1) / num_threads; ++range) {
            if (range % 64 == 0) monitor.check();
            joiner.join(range);
        }
        duplicates[t] = joiner.num_duplicates();
    });
    std::uint64_t total = 0;
    for (const std::uint64_t found : duplicates) total += found;
    return total;
}

// The words first seen in one part of the corpus: a range of ordinals on every side.
struct Slice {
    std::vector<std::size_t> begins, ends;
    std::size_t num_words = 0, num_bytes = 0;
};

// Slices with about the same number of words each. (Slices of equal length would be unbalanced: most words appear
// early.)
std::vector<Slice> cut_slices(const std::vector<Side>& sides, unsigned num_slices) {
    const auto smaller = [](const Side& a, const Side& b) { return a.size() < b.size(); };
    std::vector<Slice> slices(num_slices);
    const Side& largest = *std::max_element(sides.begin(), sides.end(), smaller);
    for (const Side& side : sides) {
        std::size_t begin = 0;
        for (unsigned s = 0; s < num_slices; ++s) {
            std::size_t end = side.size();
            if (s + 1 < num_slices && largest.size()) {
                const std::uint64_t limit = largest.first(largest.size() * (s + 1) / num_slices);
                std::size_t low = begin;
                while (low < end) {
                    const std::size_t middle = low + (end - low) / 2;
                    side.first(middle) < limit ? low = middle + 1 : end = middle;
                }
            }
            slices[s].begins.push_back(begin);
            slices[s].ends.push_back(end);
            begin = end;
        }
    }
    return slices;
}

bool is_kept(std::uint64_t count, std::uint64_t min_frequency) { return count && count >= min_frequency; }

void measure(Slice& slice, const std::vector<Side>& sides, std::uint64_t min_frequency) {
    for (std::size_t s = 0; s < sides.size(); ++s) {
        for (std::size_t i = slice.begins[s]; i < slice.ends[s]; ++i) {
            if (!is_kept(sides[s].counts[i], min_frequency)) continue;
            ++slice.num_words;
            slice.num_bytes += sides[s].word(i).size();
        }
    }
}

// Merges the slices of all sides by first occurrence into the result, starting at the given word and byte.
void write_slice(const Slice& slice, const std::vector<Side>& sides, std::uint64_t min_frequency, WordTable& result,
                 std::size_t word_at, std::size_t byte_at) {
    constexpr std::uint64_t kExhausted = std::numeric_limits<std::uint64_t>::max();
    std::vector<std::size_t> at = slice.begins;
    std::vector<std::uint64_t> heads(sides.size());
    const auto advance = [&](std::size_t s) {
        while (at[s] < slice.ends[s] && !is_kept(sides[s].counts[at[s]], min_frequency)) ++at[s];
        heads[s] = at[s] < slice.ends[s] ? sides[s].first(at[s]) : kExhausted;
    };
    for (std::size_t s = 0; s < sides.size(); ++s) advance(s);
    for (;;) {
        const auto s = static_cast<std::size_t>(std::min_element(heads.begin(), heads.end()) - heads.begin());
        if (heads[s] == kExhausted) return;
        const CountedWord word = sides[s].word(at[s]);
        result.counts[word_at] = word.count;
        result.firsts[word_at] = word.first;
        result.offsets[word_at++] = byte_at;
        word.copy_bytes(result.bytes.data() + byte_at);
        byte_at += word.size();
        ++at[s];
        advance(s);
    }
}

}  // namespace

WordTable join_tables(std::vector<std::unique_ptr<PieceTable>> tables, std::uint64_t min_frequency, Crew& crew,
                      std::uint64_t& num_words, Monitor& monitor) {
    num_words = 0;
    if (tables.empty()) {
        WordTable nothing;
        nothing.offsets.push_back(0);
        return nothing;
    }
    std::vector<Side> sides(kNumParts * tables.size());
    for (std::size_t t = 0; t < tables.size(); ++t) {
        visit_parts(*tables[t], [&](std::size_t p, const auto& part) {
            sides[kNumParts * t + p] = {&part.records, tables[t]->arena(),
                                        tables.size() == 1 ? part.counts() : part.overflows()};
        });
    }
    for (const Side& side : sides) num_words += side.size();
    num_words -= unite_duplicates(tables, sides, crew, monitor);

    std::vector<Slice> slices = cut_slices(sides, crew.size());
    crew.run("measure words", [&](unsigned t) { measure(slices[t], sides, min_frequency); });
    std::vector<std::size_t> word_starts{0}, byte_starts{0};
    for (const Slice& slice : slices) {
        word_starts.push_back(word_starts.back() + slice.num_words);
        byte_starts.push_back(byte_starts.back() + slice.num_bytes);
    }
    WordTable result;
    result.counts.resize(word_starts.back());
    result.firsts.resize(word_starts.back());
    result.offsets.resize(word_starts.back() + 1);
    result.bytes.resize(byte_starts.back());
    result.offsets.back() = byte_starts.back();
    crew.run("write words",
             [&](unsigned t) { write_slice(slices[t], sides, min_frequency, result, word_starts[t], byte_starts[t]); });
    return result;
}

}  // namespace gristmill
