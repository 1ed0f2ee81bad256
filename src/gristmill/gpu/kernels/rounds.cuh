// The rounds of a merge run, in one cooperative launch.
//
// A round, with a barrier of the grid after 3 and after 5:
//   1. choose   the best pairs in order, until an earlier one interferes; every block does this by itself
//   2. scan     the cells of the block for these pairs, and list the words that contain one
//   3. count    in these words, every new pair at the moment when its merge makes it; nothing is changed
//   4. cut      the batch before the first merge that a new pair would have overtaken (rare)
//   5. commit   subtract the pairs that are gone, and rewrite the words
// cpp/src/merge/rounds.cpp explains why the merges are those of the sequential loop.
#pragma once

#include "selection.cuh"

namespace gristmill::gpu {

// Words of a buffer.
template <class Symbol>
struct BufferedWords {
    const WordArrays& words;
    const Symbol* cells;
    u64 first;

    __device__ u32 num_symbols(u32 w) const { return words.lengths[first + w]; }
    __device__ Symbol symbol(u32 w, u32 i) const { return cells[words.starts[first + w] + i]; }
    __device__ u64 weight(u32 w) const { return words.weights[first + w]; }
    __device__ u32 origin(u32 w) const { return words.origins[first + w]; }
};

template <class Symbol, TieBreak kTieBreak>
class Rounds {
  public:
    __device__ Rounds(MergeState& g, BlockState& s, u32* hit_bits)
        : g_(g),
          s_(s),
          hit_bits_(hit_bits),
          region_(s.region),
          table_(g.table, g.table_mask, g.hash_multiplier),
          set_(s),
          hot_(g, s),
          barrier_(reinterpret_cast<u32*>(&g.barrier)) {}

    __device__ void run(u32 most_rounds) {
        if (threadIdx.x == 0) region_ = g_.regions[blockIdx.x];
        __syncthreads();
        read_totals();
        read_num_live();
        num_merges_ = static_cast<u32>(g_.num_merges);
        threshold_ = g_.threshold;
        num_rounds_ = static_cast<u32>(g_.round);
        if (threadIdx.x == 0) s_.num_bytes = g_.num_bytes;
        __syncthreads();
        has_hot_pairs_ = g_.is_log_valid && hot_.read_again(s_.num_logged, threshold_);
        // A block that starts its first round changes what slower blocks still read here.
        barrier_.wait();
        Outcome outcome = Outcome::running;
        const u32 end = num_rounds_ + most_rounds;
        while (num_rounds_ != end && outcome == Outcome::running) outcome = make_round();
        __syncthreads();
        if (threadIdx.x == 0) g_.regions[blockIdx.x] = region_;
        if (blockIdx.x == 0 && threadIdx.x == 0) {
            g_.outcome = static_cast<u64>(outcome);
            g_.threshold = threshold_;
            g_.num_merges = num_merges_;
            g_.round = num_rounds_;
            g_.num_bytes = s_.num_bytes;
            g_.is_log_valid = has_hot_pairs_;
        }
    }

  private:
    __device__ Outcome make_round() {
        const Outcome outcome = choose_batch();
        if (outcome != Outcome::running) return outcome;
        move_words_together();
        find_words();
        visit_words<false>();
        barrier_.wait();
        if (is_table_full()) return Outcome::table_full;
        const u32 num_kept = count_kept();
        if (num_kept < s_.num_in_batch) {
            undo_new_pairs();
            __syncthreads();
            if (threadIdx.x == 0) s_.num_in_batch = num_kept;
            if (threadIdx.x == 0 && blockIdx.x == 0) ++g_.num_cuts;
            barrier_.wait();
            fill_set();
            visit_words<false>();
            barrier_.wait();
            if (is_table_full()) return Outcome::table_full;
        }
        read_totals();
        commit_batch();
        visit_words<true>();
        if (threadIdx.x == 0) s_.num_bytes += s_.batch_ends[s_.num_in_batch - 1];
        ++num_rounds_;
        num_merges_ += s_.num_in_batch;
        barrier_.arrive();
        clear_set();
        barrier_.await();
        read_num_live();
        return Outcome::running;
    }

    // What other blocks change, read where no block changes it: between the two barriers of a round. One thread reads
    // it for all, which saves registers.
    __device__ void read_totals() {
        if (threadIdx.x != 0) return;
        s_.num_logged = __ldcg(&g_.num_hot);
        s_.num_entries = __ldcg(&g_.num_entries);
        s_.num_cells = __ldcg(&g_.num_cells);
    }

    // A fast block may already move its words in the next round, and change the number again. All threads of a block
    // must see the same number, so one of them reads it. Blocks that see different numbers may move their words in
    // different rounds, which is slower but not wrong.
    __device__ void read_num_live() {
        if (threadIdx.x == 0) s_.num_live = __ldcg(&g_.num_live);
    }

    // Whether a new pair found no room. Then the counts of the round are incomplete, and its new pairs are removed.
    __device__ bool is_table_full() {
        if (!__ldcg(&g_.is_table_full)) return false;
        undo_new_pairs();
        return true;
    }

    // 1. choose
    __device__ Outcome choose_batch() {
        if (num_merges_ == g_.num_wanted) return Outcome::complete;
        if (s_.num_entries * 8 > table_.size() * 5) return Outcome::table_full;
        has_refilled_ = false;
        if (num_merges_ < g_.num_given)
            take_given();
        else if (const Outcome outcome = take_best(); outcome != Outcome::running)
            return outcome;
        describe_batch();
        if (s_.num_bytes + s_.batch_ends[s_.num_in_batch - 1] > g_.bytes_capacity) return Outcome::bytes_full;
        fill_set();
        return Outcome::running;
    }

    __device__ void take_given() {
        const u32 num = static_cast<u32>(min(g_.num_given - num_merges_, u64{kMostInBatch}));
        for (u32 i = threadIdx.x; i < num; i += blockDim.x) {
            s_.left[i] = g_.merges[2 * u64{num_merges_ + i}];
            s_.right[i] = g_.merges[2 * u64{num_merges_ + i} + 1];
        }
        __syncthreads();
        if (threadIdx.x == 0) s_.num_in_batch = num;
        __syncthreads();
        for (u32 k = threadIdx.x; k < num * num; k += blockDim.x) {
            const u32 later = k / num, earlier = k % num;
            if (earlier >= later) continue;
            const bool is_same = s_.left[earlier] == s_.left[later] && s_.right[earlier] == s_.right[later];
            // A merge of the batch may use the token of an earlier one.
            const u32 newest = max(s_.left[later], s_.right[later]);
            if (is_same || newest >= first_id() ||
                interferes(s_.left[earlier], s_.right[earlier], s_.left[later], s_.right[later]))
                atomicMin(&s_.num_in_batch, later);
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < s_.num_in_batch; i += blockDim.x) {
            const u64 entry = table_.find(key_of(s_.left[i], s_.right[i]));
            s_.entry[i] = entry == kNoEntry ? ~0u : static_cast<u32>(entry);
            s_.count[i] = 0;  // nothing overtakes a given merge
        }
        __syncthreads();
    }

    __device__ Outcome take_best() {
        if (!has_hot_pairs_ || !hot_.has_room(s_.num_logged)) {
            if (!refill()) return Outcome::ties;
        } else {
            hot_.refresh(s_.num_logged, threshold_);
        }
        if (hot_.num() < kFewHot && threshold_ > 1 && !has_refilled_ && !refill()) return Outcome::ties;
        if (s_.greatest == 0) return Outcome::no_pair;
        if (!choose_candidates(s_, threshold_)) return Outcome::ties;
        for (u32 i = threadIdx.x; i < s_.num_candidates; i += blockDim.x) {
            Candidate& candidate = s_.candidates[i];
            const u64 key = __ldcg(&table_[candidate.entry].key);
            candidate.left = left_of(key);
            candidate.right = right_of(key);
            candidate.key = tie_key<kTieBreak>(g_, candidate.left, candidate.right);
        }
        __syncthreads();
        sort_candidates<kTieBreak>(g_, s_);
        if (kTieBreak == TieBreak::first_seen) order_by_first_occurrence();
        const u32 num =
            static_cast<u32>(min(static_cast<u64>(min(s_.num_candidates, kMostInBatch)), g_.num_wanted - num_merges_));
        for (u32 i = threadIdx.x; i < num; i += blockDim.x) {
            const Candidate& candidate = s_.candidates[s_.order[i]];
            s_.left[i] = candidate.left;
            s_.right[i] = candidate.right;
            s_.entry[i] = candidate.entry;
            s_.count[i] = candidate.count;
        }
        cut_interfering(s_, num);
        return Outcome::running;
    }

    // Blocks have the candidates in different places, but in the same order by ids, which numbers them for all.
    __device__ void order_by_first_occurrence() {
        u64* firsts = g_.firsts + (num_rounds_ & 1) * kMostCandidates;
        start_set();
        for (u32 i = threadIdx.x / 32; i < s_.num_candidates; i += blockDim.x / 32) {
            const Candidate& candidate = s_.candidates[s_.order[i]];
            set_.insert(candidate.left, candidate.right, i);
        }
        __syncthreads();
        const WordArrays& words = g_.words[region_.buffer];
        scan_cells<Symbol>(words, region_, set_, [&](u32 word, u32 cell, u32 index) {
            const u64 place = cell - words.starts[region_.first_word + word];
            const u64 first = static_cast<u64>(words.origins[region_.first_word + word]) << 32 | place;
            if (first < __ldcg(&firsts[index])) atomicMin(&firsts[index], first);
        });
        barrier_.wait();
        for (u32 i = threadIdx.x; i < s_.num_candidates; i += blockDim.x)
            s_.candidates[s_.order[i]].key = ~__ldcg(&firsts[i]);
        __syncthreads();
        sort_candidates<kTieBreak>(g_, s_);
        // The other half is for the next round: all blocks have read it before the barrier above.
        u64* others = g_.firsts + ((num_rounds_ + 1) & 1) * kMostCandidates;
        if (blockIdx.x == 0)
            for (u32 i = threadIdx.x; i < kMostCandidates; i += blockDim.x) others[i] = ~u64{0};
    }

    __device__ u32 first_id() const { return 256 + num_merges_; }

    __device__ u32 length_of(u32 id) const {
        const u32 first = first_id();
        return id >= first ? s_.length[id - first] : __ldcg(&g_.lengths[id]);
    }

    // The lengths of the tokens that the batch makes, and the ends of their bytes.
    __device__ void describe_batch() {
        if (threadIdx.x < 32) {
            u32 end = 0;
            for (u32 base = 0; base < s_.num_in_batch; base += 32) {
                const u32 i = base + threadIdx.x;
                u32 length = 0, total;
                if (i < s_.num_in_batch) length = __ldcg(&g_.lengths[s_.left[i]]) + __ldcg(&g_.lengths[s_.right[i]]);
                const u32 before = sum_before_in_warp(length, total);
                if (i < s_.num_in_batch) {
                    s_.length[i] = length;
                    s_.batch_ends[i] = end + before + length;
                }
                end += total;
            }
        }
        __syncthreads();
    }

    // At the end of a round, while other blocks are still at work. Everything else that writes to the memory of the set
    // makes `is_set_clear_` false.
    __device__ void clear_set() {
        set_.clear();
        is_set_clear_ = true;
    }

    __device__ void start_set() {
        if (!is_set_clear_) clear_set();
        is_set_clear_ = false;
    }

    __device__ void fill_set() {
        start_set();
        for (u32 i = threadIdx.x / 32; i < s_.num_in_batch; i += blockDim.x / 32)
            set_.insert(s_.left[i], s_.right[i], i);
        __syncthreads();
    }

    // Makes about kRefill pairs hot. Returns false if more than kMostHot pairs share the greatest count.
    __device__ bool refill() {
        has_refilled_ = has_hot_pairs_ = true;
        is_set_clear_ = false;  // the bins have the same memory
        const u64 share = (table_.size() + gridDim.x - 1) / gridDim.x;
        const u64 begin = share * blockIdx.x, end = min(begin + share, table_.size());
        for (u32 i = threadIdx.x; i < kBins; i += blockDim.x) s_.bins[i] = 0;
        __syncthreads();
        for (u64 i = begin + threadIdx.x; i < end; i += blockDim.x)
            if (const u64 count = __ldcg(&table_[i].count)) atomicAdd(&s_.bins[bin_of<kRefillBits>(count)], 1u);
        __syncthreads();
        for (u32 i = threadIdx.x; i < kBins; i += blockDim.x)
            if (s_.bins[i]) atomicAdd(&g_.bins[i], static_cast<u64>(s_.bins[i]));
        if (blockIdx.x == 0 && threadIdx.x == 0) {
            g_.num_hot = 0;
            ++g_.num_refills;
        }
        barrier_.wait();
        const bool fits = choose_threshold();
        if (fits)
            for (u64 i = begin + threadIdx.x; i < end; i += blockDim.x)
                if (__ldcg(&table_[i].count) >= threshold_) {
                    const u64 to = atomicAdd(&g_.num_hot, u64{1});
                    if (to < kHotLog) g_.hot_log[to] = static_cast<u32>(i);
                }
        barrier_.wait();
        if (blockIdx.x == 0)
            for (u32 i = threadIdx.x; i < kBins; i += blockDim.x) g_.bins[i] = 0;
        if (!fits) return false;
        hot_.forget();
        hot_.refresh(s_.num_logged, threshold_);
        return true;
    }

    // The highest threshold with kRefill hot pairs, or as many as fit.
    __device__ bool choose_threshold() {
        for (u32 i = threadIdx.x; i < kBins; i += blockDim.x) {
            const u64 num = __ldcg(&g_.bins[i]);
            s_.bins[i] = num > 0xffffffffu ? 0xffffffffu : static_cast<u32>(num);
        }
        __syncthreads();
        if (threadIdx.x < 32) {
            // From the highest bin down, 32 bins at a time.
            u64 num = 0, num_before = 0;
            u32 chosen = 1, before = 0;
            for (u32 base = kBins; base > 0 && num < kRefill; base -= 32) {
                const u32 mine = s_.bins[base - 1 - lane_of_thread()];
                if (!__any_sync(kAllLanes, mine != 0)) continue;
                for (u32 i = 0; i < 32 && num < kRefill; ++i) {
                    const u32 added = __shfl_sync(kAllLanes, mine, i);
                    const u32 bin = base - 1 - i;
                    if (!added || !bin) continue;
                    before = num ? chosen : 0;
                    num_before = num;
                    num += added;
                    chosen = bin;
                }
            }
            if (num < kRefill) chosen = 1;
            if (num > kMostHot) {
                chosen = before;
                num = num_before;
            }
            if (threadIdx.x == 0) {
                s_.chosen_bin = chosen;
                // Not the length of the log: other blocks may already be at work on the round, and make more pairs hot.
                s_.num_logged = num;
            }
        }
        __syncthreads();
        const u32 chosen = s_.chosen_bin;  // 0: the highest bin does not fit
        threshold_ = chosen ? least_in_bin<kRefillBits>(chosen) : threshold_;
        __syncthreads();
        return chosen != 0;
    }

    // At fixed rounds, because blocks that decided for themselves would wait for each other more often.
    __device__ void move_words_together() {
        const bool is_due = has_refilled_ || (num_rounds_ >= 8 && num_rounds_ <= 256 && __popc(num_rounds_) == 1);
        if (!is_due || s_.num_live * 8 > s_.num_cells * 7) return;
        const WordArrays& from = g_.words[region_.buffer];
        const Symbol* cells = reinterpret_cast<const Symbol*>(from.cells) + region_.first_cell;
        const u64 num_cells = region_.num_cells, num_live = region_.num_live;
        write_words<Symbol>(g_.words[region_.buffer ^ 1], region_, static_cast<u32>(region_.num_words),
                            BufferedWords<Symbol>{from, cells, region_.first_word}, s_.scratch);
        if (threadIdx.x == 0) {
            region_.buffer ^= 1;
            atomicAdd(&g_.num_cells, region_.num_cells - num_cells);
            atomicAdd(&g_.num_live, region_.num_live - num_live);
        }
        __syncthreads();
    }

    // 2. scan
    __device__ void find_words() {
        const u32 num_bit_words = static_cast<u32>((region_.num_words + 31) / 32);
        for (u32 i = threadIdx.x; i < num_bit_words; i += blockDim.x) hit_bits_[i] = 0;
        if (threadIdx.x == 0) s_.num_hits = 0;
        __syncthreads();
        u32* hits = g_.hits + region_.first_word;
        scan_cells<Symbol>(g_.words[region_.buffer], region_, set_, [&](u32 word, u32, u32) {
            const u32 bit = 1u << (word & 31);
            if (!(atomicOr(&hit_bits_[word / 32], bit) & bit)) hits[atomicAdd(&s_.num_hits, 1u)] = word;
        });
        if (threadIdx.x == 0) s_.num_new_entries = s_.num_removed = 0;
        __syncthreads();
    }

    // 3. count, or 5. commit: half a warp per word, because few words have more symbols than it has lanes, and because
    // twice as many words are then in flight while the table is slow to answer.
    template <bool kCommits>
    __device__ void visit_words() {
        const u32* hits = g_.hits + region_.first_word;
        const u32 half = threadIdx.x / kGroup, num_halves = blockDim.x / kGroup;
        for (u32 base = 0; base < s_.num_hits; base += num_halves) {
            const bool has_word = base + half < s_.num_hits;
            visit_word<kCommits>(has_word ? hits[base + half] : 0, has_word);
        }
        __syncthreads();
        if (threadIdx.x != 0) return;
        if (kCommits) {
            region_.num_live -= s_.num_removed;
            atomicAdd(&g_.num_live, static_cast<u64>(0) - s_.num_removed);
        } else if (s_.num_new_entries) {
            atomicAdd(&g_.num_entries, static_cast<u64>(s_.num_new_entries));
            s_.num_new_entries = 0;
        }
    }

    // Windows of kWindow cells, with two cells before them and three after them. Lane e of the half has the cell
    // start - 2 + e. A match is the left cell of a merge; its lane handles the pair on its left, and the next lane the
    // pair on its right. Both halves of a warp make the same steps, a half without a word as if its word were empty.
    template <bool kCommits>
    __device__ void visit_word(u32 word, bool has_word) {
        const WordArrays& words = g_.words[region_.buffer];
        const u64 w = region_.first_word + word;
        Symbol* cells = reinterpret_cast<Symbol*>(words.cells) + region_.first_cell;
        u32 length = 0;
        u64 weight = 0;
        if (has_word) {
            cells += words.starts[w];
            length = words.lengths[w];
            weight = words.weights[w];
        }
        const u32 lane = threadIdx.x % kGroup, base = threadIdx.x & 31 & ~(kGroup - 1);
        const auto lanes_with = [base](bool is) { return __ballot_sync(kAllLanes, is) >> base & kGroupLanes; };
        u32 carried = kEnd;      // of lanes 0 and 1: as the word was before it was rewritten
        u32 carried_parity = 0;  // of lane 0
        u32 num_written = 0;
        for (u32 start = 0; __any_sync(kAllLanes, start < length); start += kWindow) {
            const u32 place = start + lane - 2;  // wraps around before the word
            const u32 symbol = lane < 2 ? carried : place < length ? cells[place] : kEnd;
            const u32 previous = __shfl_up_sync(kAllLanes, symbol, 1, kGroup);
            const u32 next = __shfl_down_sync(kAllLanes, symbol, 1, kGroup);
            // Of a run of equal symbols, every second one starts a pair.
            const u32 continues = lanes_with(lane > 0 && symbol == previous);
            const u32 run_start = 31 - __clz(~continues & (0xffffffffu >> (31 - lane)));
            const u32 parity = (lane - run_start + (run_start == 0 ? carried_parity : 0)) & 1;
            int match = -1;
            if (lane < kGroup - 1 && symbol < kPad && next < kPad && !(symbol == next && parity))
                match = set_.find(static_cast<Symbol>(symbol), static_cast<Symbol>(next));
            const int match_before = __shfl_up_sync(kAllLanes, match, 1, kGroup);
            const int match_two_before = __shfl_up_sync(kAllLanes, match, 2, kGroup);
            const int match_after = __shfl_down_sync(kAllLanes, match, 1, kGroup);
            const bool is_right = lane >= 1 && match_before >= 0;
            if (match >= 0 && lane >= 2 && lane < kWindow + 2 && place > 0)
                visit_left<kCommits>(previous, symbol, next, match, match_two_before, weight);
            else if (is_right && lane >= 3 && lane < kWindow + 3 && place + 1 < length)
                visit_right<kCommits>(previous, symbol, next, match_before, match_after, weight);
            if (kCommits) {
                const bool is_kept = lane >= 2 && lane < kWindow + 2 && place < length && !is_right;
                const u32 kept = lanes_with(is_kept);
                if (is_kept)
                    cells[num_written + __popc(kept & ((1u << lane) - 1))] =
                        static_cast<Symbol>(match >= 0 ? first_id() + match : symbol);
                num_written += __popc(kept);
            }
            carried = __shfl_sync(kAllLanes, symbol, (kWindow + lane) % kGroup, kGroup);
            carried_parity = __shfl_sync(kAllLanes, parity, kWindow, kGroup);
        }
        if constexpr (kCommits) {
            for (u32 i = num_written + lane; i < length; i += kGroup) cells[i] = static_cast<Symbol>(kPad);
            if (lane == 0 && has_word) {
                words.lengths[w] = num_written;
                atomicAdd(&s_.num_removed, length - num_written);
            }
        }
    }

    // The pair on the left of a match. A neighbour is already a new token if its merge comes earlier in the batch.
    template <bool kCommits>
    __device__ void visit_left(u32 previous, u32 symbol, u32 next, int match, int match_on_left, u64 weight) {
        if (kCommits) {
            if (!(previous == symbol && symbol == next)) subtract(previous, symbol, weight);
        } else {
            const bool is_new = match_on_left >= 0 && match_on_left <= match;
            add(is_new ? first_id() + match_on_left : previous, first_id() + match, match, weight);
        }
    }

    // The pair on the right of a match, which is at the lane before. Two neighbouring matches share a pair: the right
    // one has subtracted the old pair, and the merge that comes first has made a pair that the other one has removed.
    template <bool kCommits>
    __device__ void visit_right(u32 previous, u32 symbol, u32 next, int match, int match_on_right, u64 weight) {
        const u32 made = first_id() + match;
        if (kCommits) {
            if (match_on_right < 0) {
                if (!(previous == symbol && symbol == next)) subtract(symbol, next, weight);
            } else if (match < match_on_right) {
                subtract(made, next, weight);
            } else if (match_on_right < match) {
                subtract(symbol, first_id() + match_on_right, weight);
            }
        } else if (match_on_right != match) {
            const bool is_new = match_on_right >= 0 && match_on_right < match;
            add(made, is_new ? first_id() + match_on_right : next, match, weight);
        }
    }

    __device__ bool is_too_long(u32 left, u32 right) const {
        return g_.max_token_bytes != kNoLimit && length_of(left) + length_of(right) > g_.max_token_bytes;
    }

    __device__ void add(u32 left, u32 right, int match, u64 weight) {
        if (is_too_long(left, right)) return;
        bool is_new = false;
        const u64 entry = table_.find_or_insert(key_of(left, right), is_new);
        if (entry == kNoEntry) {
            g_.is_table_full = 1;
            return;
        }
        if (is_new) atomicAdd(&s_.num_new_entries, 1u);
        const u64 before = atomicAdd(&table_[entry].count, weight), now = before + weight;
        if (before < threshold_ && now >= threshold_) {
            const u64 to = atomicAdd(&g_.num_hot, u64{1});
            if (to < kHotLog) g_.hot_log[to] = static_cast<u32>(entry);
        }
        if (now >= s_.count[s_.num_in_batch - 1]) atomicMax(&births()[match], now);
    }

    // A pair that is too long may have an entry: in a batch that was cut, a shorter token had its id.
    __device__ void subtract(u32 left, u32 right, u64 weight) {
        if (is_too_long(left, right)) return;
        const u64 entry = table_.find(key_of(left, right));
        if (entry != kNoEntry) atomicAdd(&table_[entry].count, static_cast<u64>(0) - weight);
    }

    __device__ u64* births() const { return g_.greatest_births + (num_rounds_ & 1) * kMostInBatch; }

    // 4. cut
    __device__ u32 count_kept() {
        const u32 num = s_.num_in_batch;
        if (num_merges_ < g_.num_given) return num;
        bool is_any = false;
        for (u32 i = threadIdx.x; i < num; i += blockDim.x) {
            const u64 greatest = __ldcg(&births()[i]);
            s_.hot_counts[i] = greatest;  // they are read again before they are used
            is_any |= greatest != 0;
        }
        if (!__syncthreads_or(is_any)) return num;
        if (threadIdx.x == 0) {
            u64 greatest = 0;
            u32 i = 0;
            while (i < num && (i == 0 || greatest < s_.count[i])) greatest = max(greatest, s_.hot_counts[i++]);
            s_.num_chosen = i;
        }
        __syncthreads();
        return s_.num_chosen;
    }

    __device__ void undo_new_pairs() {
        const u64 share = (table_.size() + gridDim.x - 1) / gridDim.x;
        const u64 begin = share * blockIdx.x, end = min(begin + share, table_.size());
        for (u64 i = begin + threadIdx.x; i < end; i += blockDim.x) {
            const u64 key = __ldcg(&table_[i].key);
            if (key && max(left_of(key), right_of(key)) >= first_id()) table_[i].count = 0;
        }
        if (blockIdx.x == 0 && threadIdx.x == 0) g_.num_hot = s_.num_logged;
    }

    // 5. commit, except for the words. The blocks share the tokens, one warp per token.
    __device__ void commit_batch() {
        // The last warps, because the first ones have words to rewrite.
        const u32 warp = (blockDim.x - 1 - threadIdx.x) / 32, num = s_.num_in_batch;
        for (u32 i = blockIdx.x + gridDim.x * warp; i < num; i += gridDim.x * (blockDim.x / 32)) write_token(i);
        if (blockIdx.x != 0) return;
        u64* others = g_.greatest_births + ((num_rounds_ + 1) & 1) * kMostInBatch;
        for (u32 i = threadIdx.x; i < kMostInBatch; i += blockDim.x) others[i] = 0;
    }

    __device__ void write_token(u32 i) {
        const u32 left = s_.left[i], right = s_.right[i], id = first_id() + i;
        const u64 offset = s_.num_bytes + s_.batch_ends[i] - s_.length[i];
        const u32 left_length = __ldcg(&g_.lengths[left]), right_length = __ldcg(&g_.lengths[right]);
        const u8 *left_bytes = g_.bytes + __ldcg(&g_.offsets[left]),
                 *right_bytes = g_.bytes + __ldcg(&g_.offsets[right]);
        for (u32 k = lane_of_thread(); k < left_length + right_length; k += 32)
            g_.bytes[offset + k] = __ldcg(k < left_length ? left_bytes + k : right_bytes + (k - left_length));
        if (lane_of_thread() != 0) return;
        g_.merges[2 * u64{num_merges_ + i}] = left;
        g_.merges[2 * u64{num_merges_ + i} + 1] = right;
        g_.counts[num_merges_ + i] = s_.count[i];
        if (s_.entry[i] != ~0u) table_[s_.entry[i]].count = 0;
        const u64 prefix = __ldcg(&g_.prefixes[left]);
        g_.prefixes[id] = left_length >= 8 ? prefix : prefix | __ldcg(&g_.prefixes[right]) >> (8 * left_length);
        g_.lengths[id] = left_length + right_length;
        g_.offsets[id] = offset;
    }

    static constexpr u32 kGroup = 16, kGroupLanes = (1u << kGroup) - 1, kWindow = kGroup - 5;
    static constexpr u32 kEnd = Cells<Symbol>::kEnd, kPad = Cells<Symbol>::kPad;

    MergeState& g_;
    BlockState& s_;
    u32* hit_bits_;  // by word of the region
    Region& region_;
    PairTable table_;
    PairSet<Symbol> set_;
    HotPairs hot_;
    GridBarrier barrier_;
    u64 threshold_ = 1;
    u32 num_merges_ = 0, num_rounds_ = 0;
    bool has_hot_pairs_ = false;  // the log has all hot pairs, those of earlier launches included
    bool has_refilled_ = false;   // in this round
    bool is_set_clear_ = false;   // the set is empty; the same in all threads
};

}  // namespace gristmill::gpu
