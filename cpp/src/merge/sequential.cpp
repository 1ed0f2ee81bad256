// One merge at a time.
#include "merge/loops.hpp"
#include "merge/pairs.hpp"
#include "merge/step.hpp"

namespace gristmill::merge {
namespace {

template <class Symbol>
class SequentialLoop {
  public:
    explicit SequentialLoop(Training<Symbol>& training)
        : t_(training),
          pairs_(training, 1),
          table_(pairs_.table()),
          store_(pairs_.store(0)),
          step_(training.array, training.tokens, training.array.sentinel) {}

    void run() {
        t_.run.merges.reserve(t_.options.num_merges);
        t_.run.counts.reserve(t_.options.num_merges);
        Candidate best;
        while (t_.run.merges.size() < t_.options.num_merges) {
            t_.monitor.check();
            if (pairs_.queue().pop(best))
                merge(best);
            else if (!pairs_.lower_threshold())
                break;
        }
        t_.run.num_pairs = pairs_.num_pairs();
        t_.run.num_rounds = t_.run.merges.size();
    }

  private:
    void merge(const Candidate& best) {
        const Id a = table_[best.pair].left, b = table_[best.pair].right;
        const Id c = t_.tokens.add(a, b);
        table_[best.pair].count = 0;
        const std::uint32_t next = pairs_.queue().peek();
        if (next != kNoPair) __builtin_prefetch(&store_.lists[next]);
        step_.forget();
        const OccurrenceRange occurrences = step_.merge(store_.lists[best.pair], a, b, c, t_.monitor);
        store_.drop(best.pair);
        const std::uint32_t first_new = table_.size();
        if (next != kNoPair) {
            __builtin_prefetch(store_.lists[next].data);
            __builtin_prefetch(store_.lists[next].data + 16);
            __builtin_prefetch(&table_[next]);
        }
        settle_neighbours(a, b, c);
        if (next != kNoPair) step_.prefetch(store_.lists[next]);
        step_.post(occurrences, c);
        step_.clear_tallies();
        pairs_.enqueue_from(first_new);
        t_.run.merges.emplace_back(a, b);
        t_.run.counts.push_back(best.count);
        pairs_.follow_counts();
        t_.monitor.set_done(t_.run.merges.size());
    }

    // For each distinct neighbour: what the old pair loses and the new pair gets.
    void settle_neighbours(Id a, Id b, Id c) {
        Neighbours &left = step_.left(), &right = step_.right();
        const Id sentinel = t_.array.sentinel;
        for (const Id x : left.touched()) table_.prefetch(x, a);
        for (const Id y : right.touched()) table_.prefetch(b, y == c ? a : y);
        for (const Id x : left.touched()) {
            left.cursor(x) = step_.nowhere();
            if (x == sentinel) continue;
            decrease(x, a, left.tally(x).weight);
            create(x, c, left.tally(x), t_.tokens.length(x), left.cursor(x));
        }
        for (const Id y : right.touched()) {
            right.cursor(y) = step_.nowhere();
            if (y == sentinel) continue;
            decrease(b, y == c ? a : y, right.tally(y).weight);
            create(c, y, right.tally(y), 0, right.cursor(y));
        }
    }

    void decrease(Id left, Id right, std::uint64_t weight) {
        const std::uint32_t pair = table_.find(left, right);
        if (pair == kNoPair || table_[pair].count == 0) return;
        table_[pair].count -= weight;
        if (table_[pair].count < pairs_.threshold()) store_.drop(pair);
    }

    void create(Id left, Id right, const Tally& tally, std::uint32_t offset, PostingCursor& cursor) {
        if (!pairs_.admits(tally.weight, left, right)) return;
        const std::uint32_t pair = table_.insert(left, right, tally.weight);
        cursor = PostingCursor::into(store_.make(pair, tally.num), offset);
    }

    Training<Symbol>& t_;
    Pairs<Symbol> pairs_;
    PairTable& table_;
    PostingStore& store_;
    MergeStep<Symbol> step_;
};

}  // namespace

template <class Symbol>
void learn_sequentially(Training<Symbol>& training) {
    SequentialLoop<Symbol> loop(training);
    training.begin_loop();
    loop.run();
}

template void learn_sequentially(Training<std::uint16_t>&);
template void learn_sequentially(Training<std::uint32_t>&);

}  // namespace gristmill::merge
