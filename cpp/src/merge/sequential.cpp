#include "merge/loops.hpp"
#include "merge/step.hpp"

namespace gristmill::merge {
namespace {

template <class Symbol>
class SequentialLoop {
  public:
    explicit SequentialLoop(Training<Symbol>& training)
        : t_(training),
          ranking_(training.options.tie_break, training.tokens),
          queue_(table_, ranking_, [this](std::uint32_t pair) { return first_occurrence(pair); }),
          step_(training.array, training.tokens, training.array.sentinel) {
        admission_ = {training.threshold, training.options.max_token_bytes};
    }

    void set_up() { rebuild(); }

    void run() {
        t_.run.merges.reserve(t_.options.num_merges);
        t_.run.counts.reserve(t_.options.num_merges);
        Candidate best;
        while (t_.run.merges.size() < t_.options.num_merges) {
            t_.monitor.check();
            if (queue_.pop(best)) {
                merge(best);
            } else {
                if (admission_.threshold == 1) break;
                lower_threshold();
            }
        }
        t_.run.num_pairs += table_.size();
        t_.run.num_rounds = t_.run.merges.size();
    }

  private:
    void merge(const Candidate& best) {
        const Id a = table_[best.pair].left, b = table_[best.pair].right;
        const Id c = t_.tokens.add(a, b);
        table_[best.pair].count = 0;
        step_.forget();
        const OccurrenceRange occurrences = step_.merge(store_.lists[best.pair], a, b, c, t_.monitor);
        store_.drop(best.pair);
        const std::uint32_t first_new = table_.size();
        settle_neighbours(a, b, c);
        step_.post(occurrences, c);
        for (std::uint32_t pair = first_new; pair < table_.size(); ++pair) queue_.push(pair);
        t_.run.merges.emplace_back(a, b);
        t_.run.counts.push_back(best.count);
        t_.monitor.set_done(t_.run.merges.size());
    }

    // For each distinct neighbour: what the old pair loses and the new pair gets.
    void settle_neighbours(Id a, Id b, Id c) {
        const Id sentinel = t_.array.sentinel;
        for (const Id x : step_.left().touched()) table_.prefetch(x, a);
        for (const Id y : step_.right().touched()) table_.prefetch(b, y == c ? a : y);
        for (const Id x : step_.left().touched()) {
            Tally& tally = step_.left()[x];
            if (x == sentinel) {
                tally.drop(step_.nowhere());
                continue;
            }
            decrease(x, a, tally.weight);
            tally.length = t_.tokens.length(x);
            create(tally, x, c);
        }
        for (const Id y : step_.right().touched()) {
            Tally& tally = step_.right()[y];
            if (y == sentinel) {
                tally.drop(step_.nowhere());
                continue;
            }
            decrease(b, y == c ? a : y, tally.weight);
            create(tally, c, y);
        }
    }

    void decrease(Id left, Id right, std::uint64_t weight) {
        const std::uint32_t pair = table_.find(left, right);
        if (pair == kNoPair || table_[pair].count == 0) return;
        table_[pair].count -= weight;
        if (table_[pair].count < admission_.threshold) store_.drop(pair);
    }

    void create(Tally& tally, Id left, Id right) {
        if (!admission_.admits(tally.weight, t_.tokens.length(left) + std::uint64_t{t_.tokens.length(right)}))
            return tally.drop(step_.nowhere());
        const std::uint32_t pair = table_.insert(left, right, tally.weight);
        tally.keep(store_.make(pair, tally.num));
    }

    // Exact, because the queue is dry: every pair left has a count below the old threshold, and none has a list.
    void lower_threshold() {
        t_.run.num_pairs += table_.size();
        ++t_.run.num_rebuilds;
        admission_.threshold = std::max<std::uint64_t>(admission_.threshold / 8, 1);
        rebuild();
    }

    void rebuild() {
        table_.clear();
        store_.clear();
        queue_.clear();
        queue_.set_threshold(admission_.threshold);
        scan_pairs(t_.array, t_.tokens, admission_, table_, {&store_, 1}, t_.crew, t_.monitor);
        for (std::uint32_t pair = 0; pair < table_.size(); ++pair) queue_.push(pair);
    }

    std::uint64_t first_occurrence(std::uint32_t pair) const {
        return merge::first_occurrence(t_.array, t_.tokens, table_[pair], store_.lists[pair]);
    }

    Training<Symbol>& t_;
    Admission admission_;
    PairTable table_;
    Ranking ranking_;
    PairQueue queue_;
    PostingStore store_;
    MergeStep<Symbol> step_;
};

}  // namespace

template <class Symbol>
void learn_sequentially(Training<Symbol>& training) {
    SequentialLoop<Symbol> loop(training);
    loop.set_up();
    training.begin_loop();
    loop.run();
}

template void learn_sequentially(Training<std::uint16_t>&);
template void learn_sequentially(Training<std::uint32_t>&);

}  // namespace gristmill::merge
