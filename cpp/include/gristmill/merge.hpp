// merge: words -> ordered merges, exactly the sequence of the naive algorithm with the given tie-break.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "gristmill/count.hpp"
#include "gristmill/ids.hpp"
#include "gristmill/monitor.hpp"

namespace gristmill {

using Merge = std::pair<Id, Id>;

// Which pair wins among equal counts.
enum class TieBreak : std::uint8_t {
    greatest_bytes,  // the greater (left bytes, right bytes)
    smallest_ids,    // the smaller (left id, right id)
    huggingface,     // the smaller ids, the bytes numbered as Hugging Face's byte-level alphabet orders them
    first_seen,      // the pair whose first occurrence in the corpus, as merged so far, comes first
};

enum class MergeLoop : std::uint8_t {
    automatic,   // whichever of the two is expected to be faster
    sequential,  // one merge at a time over posting lists; one thread
    rounds,      // exact batched rounds on all threads
};

struct MergeOptions {
    std::uint32_t num_merges = 0;  // new merges, not counting `given`
    TieBreak tie_break = TieBreak::greatest_bytes;
    std::uint32_t max_token_bytes = 0;  // longer tokens are never made; 0: no limit
    unsigned num_threads = 1;
    MergeLoop loop = MergeLoop::automatic;
};

struct MergeRun {
    std::vector<Merge> merges;          // only the new ones; fewer than requested when no pair is left
    std::vector<std::uint64_t> counts;  // the count of each pair when it was chosen
    std::uint64_t num_symbols = 0;      // total size of the words with at least two bytes, where the loop starts
    std::uint64_t num_pairs = 0;        // pairs that had a posting list at any time
    std::uint64_t num_rounds = 0;       // rounds of the batched loop, or merges of the sequential one
    std::uint64_t num_rebuilds = 0;
    double setup_seconds = 0;
    double loop_seconds = 0;
};

// `given` merges, such as those of an existing tokenizer, are applied to the words first and are not part of the
// result. Throws Cancelled, std::bad_alloc, std::overflow_error when the count of a pair would exceed 2^63 - 1,
// std::length_error when the words have 2^32 bytes or more, or std::invalid_argument when a given merge uses an id that
// no earlier merge makes.
MergeRun learn_merges(const WordTable& words, const std::vector<Merge>& given, const MergeOptions& options,
                      Monitor& monitor);

}  // namespace gristmill
