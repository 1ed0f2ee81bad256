// Encodes one piece: repeatedly merges the adjacent pair of the lowest rank, leftmost first, until no pair merges.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "encode/bpe_kernel.hpp"
#include "encode/pair_ranks.hpp"
#include "encode/places_by_rank.hpp"
#include "encode/poll.hpp"
#include "encode/token_table.hpp"
#include "gristmill/kernel.hpp"
#include "gristmill/monitor.hpp"
#include "hash.hpp"

namespace gristmill {

// Buffers that encode() keeps from one long piece to the next; one per thread.
struct SweepState {
    LargeVector<Id> symbols;
    PlacesByRank places;

    void clear() {
        places.clear();
        release_large();
    }
    // Frees the memory of a piece of megabytes.
    void release_large() {
        if (symbols.capacity() <= kKeptSymbols) return;
        symbols = LargeVector<Id>();
        places.release_nodes();
    }
    static constexpr std::size_t kKeptSymbols = std::size_t{64} << 10;
};

class Bpe {
  public:
    // `tokens` must outlive the Bpe.
    Bpe(const VocabularyParts& parts, const TokenTable& tokens, Kernel kernel);

    // Up to this size, a scan for the best pair is faster than a heap.
    static constexpr std::size_t kShortPiece = kKernelPieceBytes;
    // From this size on, sweeps are faster than a heap: at any length with a kept state, otherwise once allocation pays
    // off.
    static constexpr std::size_t kSweepsPiece = kShortPiece + 1, kFreshSweepsPiece = 1024;

    // Writes the ids of `piece` to `ids`, at most one per byte, and returns their number. `is_whole`: `piece` is a
    // whole piece, not a part of one. `monitor` can cancel work on a long piece; `state` makes it faster.
    std::size_t encode(std::string_view piece, bool is_whole, Id* ids, const Monitor* monitor = nullptr,
                       SweepState* state = nullptr) const {
        if (is_whole && has_whole_pieces() && find_whole(piece, ids)) return 1;
        if (piece.size() > kShortPiece) return encode_long(piece, ids, monitor, state);
        if (!kernel_ || piece.size() < 2) return encode_short(piece, ids);
        return kernel_(ranks_.view(), reinterpret_cast<const std::uint8_t*>(piece.data()), piece.size(), ids);
    }
    std::size_t encode_dropout(std::string_view piece, double dropout, std::uint64_t& random_state, Id* ids,
                               const Monitor* monitor = nullptr) const;
    bool has_whole_pieces() const { return !whole_pieces_.empty(); }

  private:
    std::size_t encode_short(std::string_view piece, Id* ids) const;
    std::size_t encode_long(std::string_view piece, Id* ids, const Monitor* monitor, SweepState* state) const;
    std::size_t encode_heap(std::string_view piece, Id* ids, const Monitor* monitor) const;
    std::size_t encode_sweeps(std::string_view piece, Id* ids, const Monitor* monitor, SweepState& state) const;
    bool find_whole(std::string_view piece, Id* id) const;

    const TokenTable& tokens_;
    PairRanks ranks_;
    bool is_monotone_;            // every merge has a higher rank than all merges that make its parts
    BpeKernel kernel_ = nullptr;  // nullptr: encode_short() is used
    std::unordered_map<std::string, Id, SeededHash, std::equal_to<>> whole_pieces_;
    std::size_t longest_whole_ = 0;
};

}  // namespace gristmill
