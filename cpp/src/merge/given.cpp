// Extends an existing tokenizer: applies its merges with the same step as the loops, separately in every strip.
#include "merge/loops.hpp"
#include "merge/pair_scan.hpp"
#include "merge/pair_table.hpp"
#include "merge/step.hpp"

namespace gristmill::merge {
namespace {

// The pairs to merge, with their rank as count. If a pair is given twice, the second merge can never apply.
PairTable rank_pairs(const std::vector<Merge>& given, HashSeed seed) {
    PairTable ranks(seed);
    for (std::size_t rank = 0; rank < given.size(); ++rank)
        if (const auto [left, right] = given[rank]; ranks.find(left, right) == kNoPair) ranks.insert(left, right, rank);
    return ranks;
}

template <class Symbol>
class Replay {
  public:
    Replay(const PairTable& ranks, const Tokens& tokens, SymbolArray<Symbol>& array, Monitor& monitor)
        : ranks_(ranks), tokens_(tokens), monitor_(monitor), step_(array, tokens, array.sentinel) {
        store_.lists.resize(ranks.size());
    }

    // Applying merges in rank order is equivalent to BPE by rank: a merge never creates a pair of an earlier rank,
    // because every pair it creates contains its new symbol.
    void run(const SymbolArray<Symbol>& array, const typename SymbolArray<Symbol>::Strip& strip) {
        post_bytes(array, strip);
        for (std::uint32_t pair = 0; pair < ranks_.size(); ++pair) {
            monitor_.check();
            if (store_.lists[pair].num) apply(pair);
        }
    }

  private:
    void post_bytes(const SymbolArray<Symbol>& array, const typename SymbolArray<Symbol>::Strip& strip) {
        const auto one_byte = [](Id) { return 1u; };
        std::vector<Position> cursors(ranks_.size());
        for_each_adjacent(array, strip, one_byte, monitor_, [&](Id left, Id right, Position, std::uint64_t) {
            if (const std::uint32_t pair = ranks_.find(left, right); pair != kNoPair) ++store_.lists[pair].num;
        });
        for (std::uint32_t pair = 0; pair < ranks_.size(); ++pair)
            if (store_.lists[pair].num) store_.make(pair, store_.lists[pair].num);
        for_each_adjacent(array, strip, one_byte, monitor_, [&](Id left, Id right, Position p, std::uint64_t) {
            if (const std::uint32_t pair = ranks_.find(left, right); pair != kNoPair)
                store_.lists[pair].data[cursors[pair]++] = p;
        });
    }

    void apply(std::uint32_t pair) {
        const auto& [a, b, rank, next] = ranks_[pair];
        const Id c = static_cast<Id>(256 + rank);
        step_.forget();
        const OccurrenceRange occurrences = step_.merge(store_.lists[pair], a, b, c, monitor_);
        Neighbours &left = step_.left(), &right = step_.right();
        // The sentinel is not a token and has no length, but no given pair contains it either.
        for (const Id x : left.touched())
            left.cursor(x) = cursor_of(x, c, left.tally(x).num, x < tokens_.size() ? tokens_.length(x) : 0);
        for (const Id y : right.touched()) right.cursor(y) = cursor_of(c, y, right.tally(y).num, 0);
        step_.post(occurrences, c);
        step_.clear_tallies();
        store_.drop(pair);
    }

    PostingCursor cursor_of(Id left, Id right, std::uint32_t num, std::uint32_t offset) {
        const std::uint32_t pair = ranks_.find(left, right);
        return pair == kNoPair ? step_.nowhere() : PostingCursor::into(store_.make(pair, num), offset);
    }

    const PairTable& ranks_;
    const Tokens& tokens_;
    Monitor& monitor_;
    MergeStep<Symbol> step_;
    PostingStore store_;
};

}  // namespace

template <class Symbol>
void apply_given(const std::vector<Merge>& given, HashSeed seed, Tokens& tokens, SymbolArray<Symbol>& array, Crew& crew,
                 Monitor& monitor) {
    if (given.empty()) return;
    tokens.add_given(given);
    const PairTable ranks = rank_pairs(given, seed);
    crew.run("apply given merges",
             [&](unsigned t) { Replay<Symbol>(ranks, tokens, array, monitor).run(array, array.strips[t]); });
}

template void apply_given(const std::vector<Merge>&, HashSeed, Tokens&, SymbolArray<std::uint16_t>&, Crew&, Monitor&);
template void apply_given(const std::vector<Merge>&, HashSeed, Tokens&, SymbolArray<std::uint32_t>&, Crew&, Monitor&);

}  // namespace gristmill::merge
