// The corpus as the merge loop sees it: one flat array of symbols.
#pragma once

#include <cstdint>
#include <vector>

#include "crew.hpp"
#include "gristmill/count.hpp"
#include "gristmill/large_memory.hpp"
#include "gristmill/monitor.hpp"
#include "merge/postings.hpp"

namespace gristmill::merge {

// Words lie one after another, one cell a byte, at least one sentinel before and after each. A token that covers the
// cells p .. p + length - 1 has its id in its first and its last cell ("boundary tags"), so the left neighbour is read
// at p - 1 and the right one at p + length, without links. Cells between the two are stale, except that the first cell
// of a right part is made a hole: no old posting can take it for a token.
//
// Words with equal counts lie together and no block of 32 cells holds two counts: the weight of a posting is that of
// its block, a posting is four bytes, and counts are 64-bit everywhere at no cost. The padding is at most 31 cells for
// each distinct count.
//
// The array is cut into strips, one a thread: whatever a thread does to its own strip needs no lock.
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

    // Where in the corpus's table of words the cell came from: orders positions by first occurrence. Kept only when
    // asked for.
    std::uint64_t origin(Position p) const {
        std::uint32_t word = block_words[p >> kBlockShift];
        while (word_starts[word + 1] <= p) ++word;
        return word_origins[word] + (p - word_starts[word]);
    }
    ZeroedArray<std::uint32_t> block_words;  // the word in whose cells, or sentinel, the block begins
    ZeroedArray<Position> word_starts;
    ZeroedArray<std::uint64_t> word_origins;
};

struct LayoutOptions {
    std::uint32_t max_ids = 256;  // ids that will ever be in use; max_ids + 1 must fit a Symbol
    std::uint64_t rank = 0;       // whose count is wanted
    bool with_origins = false;
};

template <class Symbol>
struct Layout {
    SymbolArray<Symbol> array;
    std::uint64_t count_at_rank = 0;  // about the count of the rank-th most frequent word; 0 when there are fewer
};

// Lays the words out in crew.size() strips, one symbol a byte. Words of one byte or count 0 hold no pair and are left
// out.
template <class Symbol>
Layout<Symbol> lay_out(const WordTable& words, const LayoutOptions& options, Crew& crew, Monitor& monitor);

}  // namespace gristmill::merge
