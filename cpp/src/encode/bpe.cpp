#include "encode/bpe.hpp"

#include <algorithm>
#include <stdexcept>

#include "gristmill/large_memory.hpp"

namespace gristmill {
namespace {

constexpr std::uint32_t kEnd = static_cast<std::uint32_t>(-1);
constexpr Id kGone = static_cast<Id>(-1);
// Sweeps number positions and nodes, at most two per byte, in 32 bits.
constexpr std::size_t kMaxSweepsPiece = 0x7fffffff;

// The symbols of a piece as a linked list in arrays.
class SymbolList {
  public:
    SymbolList(std::string_view piece, const PairRanks& ranks, const Poll& poll) : ranks_(ranks) {
        if (piece.size() >= kEnd) throw std::length_error("pieces of 4 GiB or more cannot be encoded");
        const auto size = static_cast<std::uint32_t>(piece.size());
        symbols_.resize(size);
        next_.resize(size);
        previous_.resize(size);
        for (std::uint32_t i = 0; i < size; ++i) {
            poll();
            symbols_[i] = ranks.id_of_byte(static_cast<std::uint8_t>(piece[i]));
            next_[i] = i + 1 < size ? i + 1 : kEnd;
            previous_[i] = i ? i - 1 : kEnd;
        }
    }

    std::uint32_t size() const { return static_cast<std::uint32_t>(symbols_.size()); }
    std::uint32_t previous(std::uint32_t at) const { return previous_[at]; }
    // The rank of merging the symbol at `at` with its neighbour on the right.
    Rank rank(std::uint32_t at) const {
        if (symbols_[at] == kGone || next_[at] == kEnd) return kNoRank;
        return ranks_.of(symbols_[at], symbols_[next_[at]]);
    }
    void merge(std::uint32_t at, Rank rank) {
        const std::uint32_t gone = next_[at];
        symbols_[at] = ranks_.made(rank);
        symbols_[gone] = kGone;
        next_[at] = next_[gone];
        if (next_[at] != kEnd) previous_[next_[at]] = at;
    }
    std::size_t copy_to(Id* ids, const Poll& poll) const {
        std::size_t num_ids = 0;
        for (std::uint32_t at = 0; at != kEnd; at = next_[at]) {
            poll();
            ids[num_ids++] = symbols_[at];
        }
        return num_ids;
    }

  private:
    const PairRanks& ranks_;
    LargeVector<Id> symbols_;
    LargeVector<std::uint32_t> next_, previous_;
};

// Candidate merges by (rank, position): the lowest rank first, then the leftmost. A candidate is stale once its pair is
// gone.
class CandidateHeap {
  public:
    struct Candidate {
        Rank rank;
        std::uint32_t at;
    };

    CandidateHeap(const SymbolList& symbols, const Poll& poll) {
        heap_.reserve(symbols.size());
        for (std::uint32_t at = 0; at < symbols.size(); ++at) {
            poll();
            const Rank rank = symbols.rank(at);
            if (rank != kNoRank) heap_.push_back(pack({rank, at}));
        }
        std::make_heap(heap_.begin(), heap_.end(), [&poll](std::uint64_t a, std::uint64_t b) {
            poll();
            return a > b;
        });
    }
    bool empty() const { return heap_.empty(); }
    void push(Candidate candidate) {
        if (candidate.rank == kNoRank) return;
        heap_.push_back(pack(candidate));
        std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    }
    Candidate pop() {
        std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
        const std::uint64_t packed = heap_.back();
        heap_.pop_back();
        return {static_cast<Rank>(packed >> 32), static_cast<std::uint32_t>(packed)};
    }

  private:
    static std::uint64_t pack(Candidate candidate) { return std::uint64_t{candidate.rank} << 32 | candidate.at; }
    LargeVector<std::uint64_t> heap_;
};

void merge_and_push(SymbolList& symbols, CandidateHeap& heap, CandidateHeap::Candidate candidate) {
    symbols.merge(candidate.at, candidate.rank);
    heap.push({symbols.rank(candidate.at), candidate.at});
    const std::uint32_t before = symbols.previous(candidate.at);
    if (before != kEnd) heap.push({symbols.rank(before), before});
}

// Uniform in [0, 1), from a scrambled counter (SplitMix64).
double draw(std::uint64_t& state) {
    std::uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return static_cast<double>((z ^ z >> 31) >> 11) * 0x1p-53;
}

// If several merges make one token, all of them must come before any merge that uses it.
bool is_monotone(const VocabularyParts& parts, std::size_t num_ids) {
    std::vector<bool> used(num_ids);
    for (const auto& [left, right, made] : parts.merges) {
        if (used[made] || made == left || made == right) return false;
        used[left] = used[right] = true;
    }
    return true;
}

// The SIMD code of a kernel; nullptr if the kernel has no code for BPE.
BpeKernel bpe_kernel([[maybe_unused]] Kernel kernel) {
#if defined(__x86_64__)
    if (kernel == Kernel::avx512) return encode_piece_avx512;
#elif defined(__aarch64__)
    if (kernel == Kernel::neon) return encode_piece_neon;
#endif
    return nullptr;
}

}  // namespace

Bpe::Bpe(const VocabularyParts& parts, const TokenTable& tokens, Kernel kernel)
    : tokens_(tokens), ranks_(parts), is_monotone_(is_monotone(parts, tokens.num_ids())) {
    if (ranks_.is_packed()) kernel_ = bpe_kernel(kernel);
    if (!parts.whole_pieces) return;
    for (const IdOfBytes& token : parts.others) {
        whole_pieces_.emplace(token.bytes, token.id);
        longest_whole_ = std::max(longest_whole_, token.bytes.size());
    }
}

bool Bpe::find_whole(std::string_view piece, Id* id) const {
    if (piece.size() > longest_whole_) return false;
    const auto found = whole_pieces_.find(piece);
    if (found == whole_pieces_.end()) return false;
    *id = found->second;
    return true;
}

std::size_t Bpe::encode_short(std::string_view piece, Id* ids) const {
    Rank ranks[kShortPiece];  // ranks[i]: rank of merging ids[i] and ids[i + 1]
    std::size_t size = piece.size();
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(piece.data());
    for (std::size_t i = 0; i < size; ++i) ids[i] = ranks_.id_of_byte(bytes[i]);
    for (std::size_t i = 0; i + 1 < size; ++i) ranks[i] = ranks_.of_bytes(bytes[i], bytes[i + 1]);
    while (size > 1) {
        const std::size_t best = static_cast<std::size_t>(std::min_element(ranks, ranks + size - 1) - ranks);
        if (ranks[best] == kNoRank) break;
        ids[best] = ranks_.made(ranks[best]);
        std::copy(ids + best + 2, ids + size, ids + best + 1);
        std::copy(ranks + best + 1, ranks + size - 1, ranks + best);
        --size;
        if (best + 1 < size) ranks[best] = ranks_.of(ids[best], ids[best + 1]);
        if (best > 0) ranks[best - 1] = ranks_.of(ids[best - 1], ids[best]);
    }
    return size;
}

std::size_t Bpe::encode_long(std::string_view piece, Id* ids, const Monitor* monitor, SweepState* state) const {
    const std::size_t least = state ? kSweepsPiece : kFreshSweepsPiece;
    if (!is_monotone_ || piece.size() < least || piece.size() > kMaxSweepsPiece)
        return encode_heap(piece, ids, monitor);
    SweepState own;
    if (!state) state = &own;
    try {
        const std::size_t num_ids = encode_sweeps(piece, ids, monitor, *state);
        state->release_large();
        return num_ids;
    } catch (...) {
        state->clear();
        throw;
    }
}

// Takes n log n time, even for a piece of many megabytes.
std::size_t Bpe::encode_heap(std::string_view piece, Id* ids, const Monitor* monitor) const {
    const Poll poll(monitor);
    SymbolList symbols(piece, ranks_, poll);
    CandidateHeap heap(symbols, poll);
    while (!heap.empty()) {
        poll();
        const CandidateHeap::Candidate best = heap.pop();
        if (symbols.rank(best.at) == best.rank) merge_and_push(symbols, heap, best);
    }
    return symbols.copy_to(ids, poll);
}

// At every step each candidate is skipped with probability `dropout`, and the best of the others is merged. Skipped
// candidates return to the queue after that merge. When all candidates are skipped, the piece is finished.
std::size_t Bpe::encode_dropout(std::string_view piece, double dropout, std::uint64_t& random_state, Id* ids,
                                const Monitor* monitor) const {
    const Poll poll(monitor);
    SymbolList symbols(piece, ranks_, poll);
    CandidateHeap heap(symbols, poll);
    std::vector<CandidateHeap::Candidate> left_out;
    while (!heap.empty()) {
        poll();
        const CandidateHeap::Candidate best = heap.pop();
        if (symbols.rank(best.at) != best.rank) continue;
        if (draw(random_state) < dropout) {
            left_out.push_back(best);
            continue;
        }
        merge_and_push(symbols, heap, best);
        for (const CandidateHeap::Candidate& candidate : left_out) heap.push(candidate);
        left_out.clear();
    }
    return symbols.copy_to(ids, poll);
}

}  // namespace gristmill
