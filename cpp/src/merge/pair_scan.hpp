// Counts all pairs of the symbol array in one pass, and makes posting lists for the pairs worth keeping.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "crew.hpp"
#include "gristmill/monitor.hpp"
#include "merge/pair_table.hpp"
#include "merge/postings.hpp"
#include "merge/symbols.hpp"
#include "merge/tokens.hpp"

namespace gristmill::merge {

// Calls visit(left, right, position of left, weight) for every adjacent pair of the strip, in order. length_of(id) is
// the size of its token in bytes.
template <class Symbol, class LengthOf, class Visit>
void for_each_adjacent(const SymbolArray<Symbol>& array, const typename SymbolArray<Symbol>::Strip& strip,
                       LengthOf length_of, Monitor& monitor, Visit visit) {
    const Symbol* cells = array.cells.data();
    std::uint64_t next_check = strip.begin;
    for (std::uint64_t p = strip.begin; p < strip.end;) {
        if (cells[p] == array.sentinel) {
            ++p;
            continue;
        }
        if (p >= next_check) {
            monitor.check();
            next_check = p + 65536;
        }
        const std::uint64_t weight = array.weight(static_cast<Position>(p));
        for (Symbol left = cells[p];;) {
            const std::uint64_t next = p + length_of(left);
            const Symbol right = cells[next];
            if (right == array.sentinel) {
                p = next + 1;
                break;
            }
            visit(left, right, static_cast<Position>(p), weight);
            left = right;
            p = next;
        }
    }
}

// The posting lists of one or all strips, indexed by the number of the pair in the PairTable.
struct PostingStore {
    PostingPool pool;
    std::vector<PostingList> lists;

    PostingList list(std::uint32_t pair) const { return pair < lists.size() ? lists[pair] : PostingList{}; }
    Position* make(std::uint32_t pair, std::uint32_t num) {
        if (pair >= lists.size()) lists.resize(pair + 1);
        lists[pair] = {pool.allocate(num), num};
        return lists[pair].data;
    }
    void drop(std::uint32_t pair) {
        if (pair >= lists.size() || !lists[pair].data) return;
        pool.recycle(lists[pair].data, lists[pair].num);
        lists[pair] = {};
    }
    void clear() {
        pool.clear();
        lists.clear();
    }
};

// The first occurrence of a pair among the postings of one list; UINT64_MAX if it does not occur.
template <class Symbol>
std::uint64_t first_occurrence(const SymbolArray<Symbol>& array, const Tokens& tokens, const PairTable::Pair& pair,
                               const PostingList& list) {
    const std::uint32_t length = tokens.length(pair.left);
    std::uint64_t first = UINT64_MAX;
    for (const Position p : std::span(list.data, list.num))
        if (array.cells[p] == pair.left && array.cells[p + length] == pair.right)
            first = std::min(first, array.origin(p));
    return first;
}

// The conditions for a pair to enter the table.
struct Admission {
    std::uint64_t threshold = 1;        // minimum count
    std::uint32_t max_token_bytes = 0;  // 0: no limit

    bool admits(std::uint64_t count, std::uint64_t token_bytes) const {
        return count >= threshold && (!max_token_bytes || token_bytes <= max_token_bytes);
    }
};

// Fills the empty `table` with every admitted pair, and the empty stores with their postings in ascending order. There
// is either one store for all strips or one per strip. Throws std::overflow_error when the count of a pair exceeds 2^63
// - 1.
template <class Symbol>
void scan_pairs(const SymbolArray<Symbol>& array, const Tokens& tokens, const Admission& admission, HashSeed seed,
                PairTable& table, std::span<PostingStore> stores, Crew& crew, Monitor& monitor);

}  // namespace gristmill::merge
