// The corpus as one flat array of symbols, the data structure of the merge loop.
#pragma once

#include <cstdint>
#include <vector>

#include "crew.hpp"
#include "gristmill/count.hpp"
#include "gristmill/large_memory.hpp"
#include "gristmill/monitor.hpp"
#include "merge/postings.hpp"

namespace gristmill::merge {

// Words are concatenated, one cell per byte, with at least one sentinel before and after each. A token that covers the
// cells p .. p + length - 1 has its id in its first and its last cell ("boundary tags"), so the left neighbour is read
// at p - 1 and the right one at p + length, without links. The cells in between are stale, except that the first cell
// of a right part becomes a hole, so that no old posting mistakes it for a token.
//
// Words with equal counts are adjacent, and no block of 32 cells contains two counts: the weight of a posting is that
// of its block, a posting is four bytes, and 64-bit counts cost nothing. The padding is at most 31 cells per distinct
// count.
//
// The array is divided into strips, one per thread. A thread needs no lock for changes to its own strip.
template <class Symbol>
struct SymbolArray {
    static constexpr unsigned kBlockShift = 5;
    static constexpr Position kBlockCells = 1u << kBlockShift;

    struct Strip {
        std::uint64_t begin = 0, end = 0;  // cells; begin starts a block, and the first block is all sentinels
    };

    ZeroedArray<Symbol> cells;
    ZeroedArray<std::uint64_t> block_weights;
    std::vector<Strip> strips;
    Symbol sentinel = 0;
    Symbol hole = 0;
    std::uint64_t num_symbols = 0;

    std::uint64_t weight(Position p) const { return block_weights[p >> kBlockShift]; }

    // The position of the cell in the corpus's table of words, which orders cells by first occurrence. Available only
    // if requested.
    std::uint64_t origin(Position p) const {
        std::uint32_t word = block_words[p >> kBlockShift];
        while (word_starts[word + 1] <= p) ++word;
        return word_origins[word] + (p - word_starts[word]);
    }
    ZeroedArray<std::uint32_t> block_words;  // the word whose cells or sentinel contain the start of the block
    ZeroedArray<Position> word_starts;
    ZeroedArray<std::uint64_t> word_origins;
};

struct LayoutOptions {
    std::uint32_t max_ids = 256;  // maximum number of ids; max_ids + 1 must fit in a Symbol
    std::uint64_t rank = 0;       // rank for count_at_rank
    bool with_origins = false;
};

template <class Symbol>
struct Layout {
    SymbolArray<Symbol> array;
    std::uint64_t count_at_rank = 0;  // approximate count of the rank-th most frequent word; 0 if there are fewer
};

// Arranges the words in crew.size() strips, one symbol per byte. Skips words of one byte or count 0, which contain no
// pair.
template <class Symbol>
Layout<Symbol> lay_out(const WordTable& words, const LayoutOptions& options, Crew& crew, Monitor& monitor);

}  // namespace gristmill::merge
