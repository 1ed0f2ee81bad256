// Going on from an existing tokenizer: its merges are replayed with the loop's own step, on every strip by itself.
#include "merge/loops.hpp"
#include "merge/step.hpp"

namespace gristmill::merge {
namespace {

// The wanted pairs; a pair's count is its rank. Of a pair given twice the second can never occur.
PairTable rank_pairs(const std::vector<Merge>& given) {
    PairTable ranks;
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

    // Merges in order of rank are what BPE by rank does: a merge makes no pair of an earlier rank, because every pair
    // it makes contains its new symbol.
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
        for (const Id x : step_.left().touched()) settle(step_.left()[x], x, c);
        for (const Id y : step_.right().touched()) settle(step_.right()[y], c, y);
        step_.post(occurrences, c);
        store_.drop(pair);
    }

    void settle(Tally& tally, Id left, Id right) {
        const std::uint32_t pair = ranks_.find(left, right);
        if (pair == kNoPair) return tally.drop(step_.nowhere());
        if (left < tokens_.size()) tally.length = tokens_.length(left);
        tally.keep(store_.make(pair, tally.num));
    }

    const PairTable& ranks_;
    const Tokens& tokens_;
    Monitor& monitor_;
    MergeStep<Symbol> step_;
    PostingStore store_;
};

}  // namespace

template <class Symbol>
void apply_given(const std::vector<Merge>& given, Tokens& tokens, SymbolArray<Symbol>& array, Crew& crew,
                 Monitor& monitor) {
    if (given.empty()) return;
    tokens.add_given(given);
    const PairTable ranks = rank_pairs(given);
    crew.run([&](unsigned t) { Replay<Symbol>(ranks, tokens, array, monitor).run(array, array.strips[t]); });
}

template void apply_given(const std::vector<Merge>&, Tokens&, SymbolArray<std::uint16_t>&, Crew&, Monitor&);
template void apply_given(const std::vector<Merge>&, Tokens&, SymbolArray<std::uint32_t>&, Crew&, Monitor&);

}  // namespace gristmill::merge
