// The word table: what `count` gives and `merge` takes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "gristmill/large_memory.hpp"

namespace gristmill {

// Distinct pieces with their counts, in the order of their first occurrence in the corpus: the same table for every
// thread count, chunk size and kernel.
struct WordTable {
    LargeVector<std::uint8_t> bytes;     // all words, end to end
    LargeVector<std::uint64_t> offsets;  // word i is bytes[offsets[i], offsets[i + 1]); size() + 1 entries
    LargeVector<std::uint64_t> counts;   // 64-bit: a common word in a terabyte passes 2^32
    LargeVector<std::uint64_t> firsts;   // corpus byte position of the first occurrence, strictly ascending
    std::uint64_t source_bytes = 0;      // bytes of corpus behind the table

    std::size_t size() const { return counts.size(); }
    std::uint64_t total() const;  // pieces counted, wrapping beyond 2^64
    std::string_view word(std::size_t i) const {
        return {reinterpret_cast<const char*>(bytes.data()) + offsets[i],
                static_cast<std::size_t>(offsets[i + 1] - offsets[i])};
    }
};

// A table from its parts, in any order. Throws std::invalid_argument when they do not fit together: offsets that do not
// ascend from 0 to the size of the bytes, an empty or repeated word, a count of 0 or over 2^63 - 1, a repeated first
// position.
WordTable make_word_table(LargeVector<std::uint8_t> bytes, LargeVector<std::uint64_t> offsets,
                          LargeVector<std::uint64_t> counts, LargeVector<std::uint64_t> firsts,
                          std::uint64_t source_bytes);
// The table of both corpora, `second` read after `first`. Throws std::overflow_error when a count would pass 2^63 - 1.
WordTable join_word_tables(const WordTable& first, const WordTable& second);
// The table without words counted fewer than `min_frequency` times.
WordTable words_at_least(const WordTable& words, std::uint64_t min_frequency);

}  // namespace gristmill
