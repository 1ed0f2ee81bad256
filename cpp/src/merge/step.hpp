// One merge in one part of the symbol array: finds its occurrences, tallies their neighbours, posts the new pairs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "gristmill/monitor.hpp"
#include "merge/postings.hpp"
#include "merge/symbols.hpp"
#include "merge/tokens.hpp"

namespace gristmill::merge {

// A merged occurrence, with the symbols to its left and right.
template <class Symbol>
struct Occurrence {
    Position position;
    Symbol left, right;
};

// The neighbours on one side, tallied in an array by id, so that the pair table is accessed once per distinct neighbour
// instead of once per occurrence (350 thousand times instead of 6 million on 100 MB of English).
class Neighbours {
  public:
    explicit Neighbours(std::size_t num_ids) : neighbours_(num_ids), touched_(num_ids + 1) {}

    void add(Id id, const Tally& seen) {
        Tally& tally = neighbours_[id].tally;
        touched_[num_touched_] = id;
        num_touched_ += tally.num == 0;
        tally.weight += seen.weight;
        tally.num += seen.num;
    }
    const Tally& tally(Id id) const { return neighbours_[id].tally; }
    PostingCursor& cursor(Id id) { return neighbours_[id].cursor; }
    std::span<const Id> touched() const { return {touched_.data(), num_touched_}; }

    void clear() {
        for (const Id id : touched()) neighbours_[id].tally = {};
        num_touched_ = 0;
    }

  private:
    // Adjacent, because a tallied neighbour gets a cursor soon after: both are in one cache line.
    struct Neighbour {
        Tally tally;
        PostingCursor cursor;
    };

    ZeroedArray<Neighbour> neighbours_;
    std::vector<Id> touched_;
    std::size_t num_touched_ = 0;
};

// The occurrences of one merge, in the order of its postings.
struct OccurrenceRange {
    std::size_t begin = 0, end = 0;
};

// Keeps occurrences until forget(), so that several merges can be made before the first is posted or undone.
template <class Symbol>
class MergeStep {
  public:
    MergeStep(SymbolArray<Symbol>& array, const Tokens& tokens, std::size_t num_ids)
        : array_(array), tokens_(tokens), left_(num_ids + 1), right_(num_ids + 1) {}

    Neighbours& left() { return left_; }
    Neighbours& right() { return right_; }
    PostingCursor nowhere() { return PostingCursor::nowhere(&nowhere_); }
    void forget() { num_ = 0; }

    // Merges (a, b) into c at every posting that is still valid, and tallies the neighbours. A neighbour that is itself
    // a new c is tallied once, as the right neighbour of the previous occurrence. Word ends are tallied as the
    // sentinel.
    OccurrenceRange merge(const PostingList& postings, Id a, Id b, Id c, Monitor& monitor) {
        const std::size_t begin = num_;
        if (occurrences_.size() < begin + postings.num + 1) occurrences_.resize(2 * begin + postings.num + 1);
        std::size_t tallied = begin;
        for (std::uint64_t i = 0; i < postings.num; i += kChunk) {
            monitor.check();
            if (num_ > begin) {
                tally({tallied, num_ - 1}, static_cast<Symbol>(c));
                tallied = num_ - 1;
            }
            visit(postings, i, std::min<std::uint64_t>(postings.num, i + kChunk), a, b, c);
        }
        occurrences_[num_].left = array_.sentinel;
        tally({tallied, num_}, static_cast<Symbol>(c));
        return {begin, num_};
    }

    // Prefetches the cells of the first postings: most lists are short, and visit() looks ahead only within one list.
    void prefetch(const PostingList& postings) const {
        for (std::uint32_t i = 0; i < std::min<std::uint32_t>(postings.num, kAhead); ++i) {
            __builtin_prefetch(&array_.cells[postings.data[i]], 1);
            __builtin_prefetch(&array_.block_weights[postings.data[i] >> SymbolArray<Symbol>::kBlockShift]);
        }
    }

    // Writes the postings of the pairs that the merge into c created. Requires the cursor of every neighbour.
    void post(OccurrenceRange range, Id c) {
        left_.cursor(c) = nowhere();
        for (const Occurrence<Symbol>& o : occurrences(range)) {
            left_.cursor(o.left).place(o.position);
            right_.cursor(o.right).place(o.position);
        }
    }

    void clear_tallies() {
        left_.clear();
        right_.clear();
    }

    // Undoes the merge of (a, b). Undo the last merge first: an occurrence may be inside that of a later merge.
    void undo(OccurrenceRange range, Id a, Id b) {
        const std::uint32_t length_a = tokens_.length(a), length = length_a + tokens_.length(b);
        for (const Occurrence<Symbol>& o : occurrences(range)) {
            Symbol* cells = &array_.cells[o.position];
            cells[0] = cells[length_a - 1] = static_cast<Symbol>(a);
            cells[length_a] = cells[length - 1] = static_cast<Symbol>(b);
        }
    }

  private:
    static constexpr std::uint64_t kChunk = 1024;  // tallied while its weights are in the cache
    static constexpr std::uint64_t kAhead = 24;

    void visit(const PostingList& postings, std::uint64_t begin, std::uint64_t end, Id a, Id b, Id c) {
        Symbol* cells = array_.cells.data();
        const std::uint32_t length_a = tokens_.length(a), length = length_a + tokens_.length(b);
        const Symbol hole = array_.hole;
        const std::uint64_t last = postings.num - std::uint64_t{1};
        Occurrence<Symbol>* out = occurrences_.data() + num_;
        for (std::uint64_t i = begin; i < end; ++i) {
            const Position ahead = postings.data[std::min(i + kAhead, last)];
            __builtin_prefetch(&cells[ahead], 1);
            __builtin_prefetch(&array_.block_weights[ahead >> SymbolArray<Symbol>::kBlockShift]);
            const Position p = postings.data[i];
            if (cells[p] != a || cells[p + length_a] != b) continue;
            cells[p + length_a] = hole;
            cells[p] = static_cast<Symbol>(c);
            cells[p + length - 1] = static_cast<Symbol>(c);
            *out = {p, cells[p - 1], cells[p + length]};
            ++out;
        }
        num_ = out - occurrences_.data();
    }

    // Subtle: in "abab" the left neighbour of the second occurrence is the c of the first, which saw an `a` on its
    // right. So an occurrence is tallied only when the next one is known.
    void tally(OccurrenceRange range, Symbol c) {
        for (std::size_t i = range.begin; i < range.end; ++i) {
            Occurrence<Symbol>& o = occurrences_[i];
            const std::uint64_t weight = array_.weight(o.position);
            if (occurrences_[i + 1].left == c) o.right = c;
            if (o.left != c) left_.add(o.left, {weight, 1});
            right_.add(o.right, {weight, 1});
        }
    }

    std::span<const Occurrence<Symbol>> occurrences(OccurrenceRange range) const {
        return {occurrences_.data() + range.begin, range.end - range.begin};
    }

    SymbolArray<Symbol>& array_;
    const Tokens& tokens_;
    Neighbours left_, right_;
    std::vector<Occurrence<Symbol>> occurrences_;
    std::size_t num_ = 0;
    Position nowhere_ = 0;
};

}  // namespace gristmill::merge
