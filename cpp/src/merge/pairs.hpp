// The pairs that can still be chosen: their counts, posting lists and queue, which are kept consistent.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "merge/loops.hpp"
#include "merge/pair_scan.hpp"
#include "merge/pair_table.hpp"
#include "merge/queue.hpp"
#include "merge/tokens.hpp"

namespace gristmill::merge {

// Contains only pairs with a count of at least the threshold. This is exact, because counts never rise: as long as one
// such pair is left, the best pair is among them.
template <class Symbol>
class Pairs {
  public:
    // There is either one store for all strips or one per strip.
    Pairs(Training<Symbol>& training, std::size_t num_stores)
        : t_(training),
          admission_{training.threshold, training.options.max_token_bytes},
          table_(training.seed),
          ranking_(training.options.tie_break, training.tokens),
          queue_(table_, ranking_, [this](std::uint32_t pair) { return first_occurrence(pair); }),
          stores_(num_stores),
          next_forecast_(std::max<std::size_t>(training.options.num_merges / 64, kMinForecast)) {
        scan();
    }
    Pairs(const Pairs&) = delete;
    Pairs& operator=(const Pairs&) = delete;

    PairTable& table() { return table_; }
    PairQueue& queue() { return queue_; }
    PostingStore& store(std::size_t i) { return stores_[i]; }
    std::uint64_t threshold() const { return admission_.threshold; }

    bool admits(std::uint64_t count, Id left, Id right) const {
        return admission_.admits(count, t_.tokens.length(left) + std::uint64_t{t_.tokens.length(right)});
    }

    // Queues the pairs entered since the table had `first_new` of them. Their lists must be complete, because the queue
    // may look up the first occurrence of a pair.
    void enqueue_from(std::uint32_t first_new) {
        for (std::uint32_t pair = first_new; pair < table_.size(); ++pair) queue_.push(pair);
    }

    // Call this when the queue is empty: every pair of the symbol array then has a count below the threshold. Counts
    // all pairs again with a lower threshold. Returns false if the threshold was 1 already, so that no pair is left.
    bool lower_threshold() {
        if (admission_.threshold == 1) return false;
        ++t_.run.num_rebuilds;
        admission_.threshold = std::max<std::uint64_t>(admission_.threshold / 8, 1);
        scan();
        return true;
    }

    // Call this after every merge or round. Raises the threshold when the counts so far show that the count of the last
    // merge will be well above it, so that fewer pairs are entered and fewer lists written. A threshold that is too
    // high costs a rebuild and nothing else.
    void follow_counts() {
        const std::size_t num_done = t_.run.counts.size();
        if (num_done < next_forecast_) return;
        next_forecast_ = 2 * num_done;
        raise_threshold(forecast_last_count(t_.run.counts, t_.options.num_merges));
    }

    std::uint64_t num_pairs() const { return num_earlier_pairs_ + table_.size(); }

  private:
    // Counts fall with the rank of the merge as rank^-slope, and the slope increases with the rank. The margin of 0.5
    // was chosen on three corpora (English, source code, multilingual; 1,000 to 69,000 merges), where no forecast was
    // too high. A text of 2 MB, merged until counts reached 1, did get a forecast that was too high.
    static std::uint64_t forecast_last_count(const std::vector<std::uint64_t>& counts, std::uint64_t num_merges) {
        const double middle = counts[counts.size() / 2], last = counts.back();
        const double slope = std::log2(middle / last) + 0.5;
        return last * std::pow(static_cast<double>(counts.size()) / num_merges, slope);
    }

    void raise_threshold(std::uint64_t threshold) {
        if (threshold <= admission_.threshold) return;
        admission_.threshold = threshold;
        queue_.set_threshold(threshold);
        // 16 stores with 150,000 pairs each: too many random accesses for one thread.
        const auto drop_fallen = [&](std::size_t store) {
            for (std::uint32_t pair = 0; pair < table_.size(); ++pair)
                if (table_[pair].count < threshold) stores_[store].drop(pair);
        };
        if (stores_.size() == 1) return drop_fallen(0);
        t_.crew.run("drop postings", [&](unsigned t) { drop_fallen(t); });
    }

    void scan() {
        num_earlier_pairs_ += table_.size();
        table_.clear();
        for (PostingStore& store : stores_) store.clear();
        queue_.clear();
        queue_.set_threshold(admission_.threshold);
        scan_pairs(t_.array, t_.tokens, admission_, t_.seed, table_, stores_, t_.crew, t_.monitor);
        enqueue_from(0);
    }

    std::uint64_t first_occurrence(std::uint32_t pair) const {
        std::uint64_t first = UINT64_MAX;
        for (const PostingStore& store : stores_)
            if (pair < store.lists.size())
                first = std::min(first, merge::first_occurrence(t_.array, t_.tokens, table_[pair], store.lists[pair]));
        return first;
    }

    static constexpr std::size_t kMinForecast = 256;  // merges; the first ones are a poor predictor of the slope

    Training<Symbol>& t_;
    Admission admission_;
    PairTable table_;
    Ranking ranking_;
    PairQueue queue_;
    std::vector<PostingStore> stores_;
    std::size_t next_forecast_;
    std::uint64_t num_earlier_pairs_ = 0;  // of the tables before the last scan
};

}  // namespace gristmill::merge
