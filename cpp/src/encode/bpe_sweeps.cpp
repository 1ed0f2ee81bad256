// BPE of a piece of kilobytes and more: rank by rank, all places of a rank in one sweep from left to right.
//
// Where a merge is always learned after its parts, what merging makes has a higher rank than what is being merged, so
// no place is added to a rank once its turn has come. Every sweep goes forward through memory; a heap of places would
// jump about in it, and take three times as much.
#include <algorithm>
#include <queue>
#include <stdexcept>

#include "encode/bpe.hpp"
#include "gristmill/large_memory.hpp"

namespace gristmill {
namespace {

constexpr Id kInside = static_cast<Id>(-1);
constexpr std::size_t kCheckInterval = 4096;  // places between two looks at the monitor

// Places by rank, the lowest rank first.
class PlacesByRank {
  public:
    explicit PlacesByRank(std::size_t num_ranks) : list_of_(num_ranks) {}

    void add(Rank rank, std::uint32_t place) {
        if (rank == kNoRank) return;
        if (!list_of_[rank]) {
            lists_.emplace_back();
            list_of_[rank] = static_cast<std::uint32_t>(lists_.size());
            ranks_.push(rank);
        }
        lists_[list_of_[rank] - 1].push_back(place);
    }
    bool empty() const { return ranks_.empty(); }
    // The places of the lowest rank, from left to right.
    LargeVector<std::uint32_t> take(Rank& rank) {
        rank = ranks_.top();
        ranks_.pop();
        LargeVector<std::uint32_t> places = std::move(lists_[list_of_[rank] - 1]);
        list_of_[rank] = 0;
        if (!std::is_sorted(places.begin(), places.end())) std::sort(places.begin(), places.end());
        return places;
    }

  private:
    std::vector<std::uint32_t> list_of_;  // by rank: index into lists_ plus one; 0: none
    std::vector<LargeVector<std::uint32_t>> lists_;
    std::priority_queue<Rank, std::vector<Rank>, std::greater<>> ranks_;
};

}  // namespace

// A symbol has its id in the first and in the last cell of those it covers: the left neighbour of a symbol is found in
// the cell before it, the right one behind its length. The first cell of a right part that was merged holds kInside, so
// a place whose pair is gone does not match.
std::size_t Bpe::encode_sweeps(std::string_view piece, Id* ids, const Monitor* monitor) const {
    if (piece.size() > 0xffffffffu) throw std::length_error("a piece of 4 GiB or more cannot be encoded");
    const auto size = static_cast<std::uint32_t>(piece.size());
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(piece.data());
    LargeVector<Id> symbols(size);
    PlacesByRank places(ranks_.size());
    std::size_t step = 0;
    const auto check = [&] {
        if (monitor && ++step % kCheckInterval == 0) monitor->check();
    };
    for (std::uint32_t at = 0; at < size; ++at) {
        check();
        symbols[at] = ranks_.id_of_byte(bytes[at]);
        if (at + 1 < size) places.add(ranks_.of_bytes(bytes[at], bytes[at + 1]), at);
    }
    while (!places.empty()) {
        Rank rank;
        const LargeVector<std::uint32_t> sweep = places.take(rank);
        const auto [left, right, made] = ranks_.merge(rank);
        const std::uint32_t left_size = tokens_.length(left), made_size = left_size + tokens_.length(right);
        for (const std::uint32_t at : sweep) {
            check();
            if (symbols[at] != left || symbols[at + left_size] != right) continue;
            symbols[at + left_size] = kInside;
            symbols[at] = symbols[at + made_size - 1] = made;
            if (at) places.add(ranks_.of(symbols[at - 1], made), at - tokens_.length(symbols[at - 1]));
            if (at + made_size < size) places.add(ranks_.of(made, symbols[at + made_size]), at);
        }
    }
    std::size_t num_ids = 0;
    for (std::uint32_t at = 0; at < size; at += tokens_.length(symbols[at])) ids[num_ids++] = symbols[at];
    return num_ids;
}

}  // namespace gristmill
