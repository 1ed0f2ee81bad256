// The sequential loop: one merge at a time.
#include "merge/loops.hpp"
#include "merge/pairs.hpp"
#include "merge/step.hpp"

namespace gristmill::merge {
namespace {

template <class Symbol>
class SequentialLoop {
  public:
    explicit SequentialLoop(Training<Symbol>& training)
        : t_(training), pairs_(training, 1), table_(pairs_.table()), store_(pairs_.store(0)) {
        for (unsigned m = 0; m < t_.crew.size(); ++m) members_.emplace_back(training);
        if (t_.crew.size() == 1)
            shared_postings_ = UINT32_MAX;
        else if (t_.tuning.shared_postings)
            shared_postings_ = t_.tuning.shared_postings;
    }

    void run() {
        t_.run.merges.reserve(t_.options.num_merges);
        t_.run.counts.reserve(t_.options.num_merges);
        TraceLaps laps(t_.monitor.trace(), "merges", "merges");
        Candidate best;
        while (t_.run.merges.size() < t_.options.num_merges) {
            t_.monitor.check();
            if (pairs_.queue().pop(best)) {
                merge(best);
                laps.step();
            } else if (!pairs_.lower_threshold()) {
                break;
            }
        }
        t_.run.num_pairs = pairs_.num_pairs();
        t_.run.num_rounds = t_.run.merges.size();
    }

  private:
    struct alignas(64) Member {
        explicit Member(Training<Symbol>& training) : step(training.array, training.tokens, training.array.sentinel) {}

        MergeStep<Symbol> step;
        OccurrenceRange occurrences;
    };

    void merge(const Candidate& best) {
        const Id a = table_[best.pair].left, b = table_[best.pair].right;
        const Id c = t_.tokens.add(a, b);
        table_[best.pair].count = 0;
        const std::uint32_t next = pairs_.queue().peek();
        if (next != kNoPair) __builtin_prefetch(&store_.lists[next]);
        const std::uint32_t first_new = table_.size();
        if (store_.lists[best.pair].num < shared_postings_)
            merge_alone(best.pair, next, a, b, c);
        else
            merge_together(best.pair, a, b, c);
        pairs_.enqueue_from(first_new);
        t_.run.merges.emplace_back(a, b);
        t_.run.counts.push_back(best.count);
        pairs_.follow_counts();
        t_.monitor.set_done(t_.run.merges.size());
    }

    // Also prefetches, in steps, the data that the merge of `next` reads first.
    void merge_alone(std::uint32_t pair, std::uint32_t next, Id a, Id b, Id c) {
        MergeStep<Symbol>& step = members_[0].step;
        step.forget();
        const OccurrenceRange occurrences = step.merge(store_.lists[pair], a, b, c, t_.monitor);
        store_.drop(pair);
        if (next != kNoPair) {
            // A pair below the threshold has no list any more.
            if (const Position* list = store_.lists[next].data) {
                __builtin_prefetch(list);
                __builtin_prefetch(list + 64 / sizeof(Position));
            }
            __builtin_prefetch(&table_[next]);
        }
        settle_neighbours(step.left(), step.right(), a, b, c);
        if (next != kNoPair) step.prefetch(store_.lists[next]);
        step.post(occurrences, c);
        step.clear_tallies();
    }

    // Postings ascend and strips contain whole words, so every member takes the part of the list that is in its strip.
    // The new lists are identical to those of merge_alone().
    void merge_together(std::uint32_t pair, Id a, Id b, Id c) {
        const PostingList list = store_.lists[pair];
        t_.crew.run("merge together", [&](unsigned m) {
            const auto position_before = [](Position p, std::uint64_t end) { return p < end; };
            Position* begin =
                std::lower_bound(list.data, list.data + list.num, t_.array.strips[m].begin, position_before);
            Position* end = std::lower_bound(begin, list.data + list.num, t_.array.strips[m].end, position_before);
            members_[m].step.forget();
            members_[m].occurrences =
                members_[m].step.merge({begin, static_cast<std::uint32_t>(end - begin)}, a, b, c, t_.monitor);
        });
        store_.drop(pair);
        for (Member& member : members_) {
            for (const Id x : member.step.left().touched()) all_left_.add(x, member.step.left().tally(x));
            for (const Id y : member.step.right().touched()) all_right_.add(y, member.step.right().tally(y));
        }
        settle_neighbours(all_left_, all_right_, a, b, c);
        for (Member& member : members_) {
            share_cursors(all_left_, member.step.left(), member.step.nowhere());
            share_cursors(all_right_, member.step.right(), member.step.nowhere());
        }
        all_left_.clear();
        all_right_.clear();
        t_.crew.run("write postings", [&](unsigned m) {
            members_[m].step.post(members_[m].occurrences, c);
            members_[m].step.clear_tallies();
        });
    }

    // A member's postings come after those of the previous members. Each member has its own cell for dropped postings,
    // because members must not write to the same cache line.
    static void share_cursors(Neighbours& all, Neighbours& own, PostingCursor nowhere) {
        for (const Id id : own.touched()) {
            PostingCursor& cursor = all.cursor(id);
            own.cursor(id) = cursor.step ? cursor : nowhere;
            cursor.next += std::size_t{cursor.step} * own.tally(id).num;
        }
    }

    // For each distinct neighbour, updates the count of the old pair and enters the new pair.
    void settle_neighbours(Neighbours& left, Neighbours& right, Id a, Id b, Id c) {
        const Id sentinel = t_.array.sentinel;
        for (const Id x : left.touched()) table_.prefetch(x, a);
        for (const Id y : right.touched()) table_.prefetch(b, y == c ? a : y);
        for (const Id x : left.touched()) {
            left.cursor(x) = PostingCursor::nowhere(&nowhere_);
            if (x == sentinel) continue;
            decrease(x, a, left.tally(x).weight);
            create(x, c, left.tally(x), t_.tokens.length(x), left.cursor(x));
        }
        for (const Id y : right.touched()) {
            right.cursor(y) = PostingCursor::nowhere(&nowhere_);
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
    std::vector<Member> members_;
    Neighbours all_left_{t_.array.sentinel + std::size_t{1}}, all_right_{t_.array.sentinel + std::size_t{1}};
    Position nowhere_ = 0;
    std::uint32_t shared_postings_ = 32768;  // shorter lists are not worth synchronizing the crew twice
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
