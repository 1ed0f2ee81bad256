#include "merge/pair_scan.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace gristmill::merge {
namespace {

constexpr std::uint64_t kMaxCount = (std::uint64_t{1} << 63) - 1;

// Saturates at 2^63, one more than the maximum count, instead of wrapping around.
std::uint64_t add_counts(std::uint64_t a, std::uint64_t b) {
    return a > kMaxCount || b > kMaxCount - a ? kMaxCount + 1 : a + b;
}

// Both kinds of tallies have the same interface: tally() creates the tally of a pair if needed; cursor() requires one;
// for_each() visits all pairs with a tally, or one of several parts of them.

// Before the first merge the ids are bytes, and a pair is its own index: 65,536 tallies, of which a text uses a few
// thousand.
class DenseTallies {
  public:
    explicit DenseTallies(HashSeed) {}

    Tally& tally(Id left, Id right) { return tallies_[left << 8 | right]; }
    PostingCursor& cursor(Id left, Id right) { return cursors_[left << 8 | right]; }

    template <class Visit>
    void for_each(Visit visit, unsigned part = 0, unsigned num_parts = 1) const {
        const Id end = (part + 1) * kNumPairs / num_parts;
        for (Id pair = part * kNumPairs / num_parts; pair < end; ++pair)
            if (tallies_[pair].num) visit(pair >> 8, pair & 255, tallies_[pair]);
    }

  private:
    static constexpr Id kNumPairs = 65536;
    ZeroedArray<Tally> tallies_{kNumPairs};
    ZeroedArray<PostingCursor> cursors_{kNumPairs};
};

class HashedTallies {
  public:
    explicit HashedTallies(HashSeed seed) : seed_(seed) {}

    Tally& tally(Id left, Id right) { return at(left, right).tally; }
    PostingCursor& cursor(Id left, Id right) { return at(left, right).cursor; }

    template <class Visit>
    void for_each(Visit visit, unsigned part = 0, unsigned num_parts = 1) const {
        for (const Slot& slot : slots_)
            if (slot.left != kEmpty && pair_hash(seed_, slot.left, slot.right) % num_parts == part)
                visit(slot.left, slot.right, slot.tally);
    }

  private:
    static constexpr Id kEmpty = 0xFFFFFFFF;
    struct Slot {
        Id left = kEmpty, right = 0;
        Tally tally{};
        PostingCursor cursor{};
    };

    std::size_t mask() const { return slots_.size() - 1; }
    std::size_t home(Id left, Id right) const { return pair_hash(seed_, left, right) >> 32 & mask(); }

    Slot& at(Id left, Id right) {
        for (std::size_t i = home(left, right);; i = (i + 1) & mask()) {
            Slot& slot = slots_[i];
            if (slot.left == left && slot.right == right) return slot;
            if (slot.left != kEmpty) continue;
            if (2 * ++size_ > slots_.size()) {
                grow();
                return at(left, right);
            }
            slot.left = left;
            slot.right = right;
            return slot;
        }
    }

    void grow() {
        std::vector<Slot> old(slots_.size() * 2);
        old.swap(slots_);
        for (const Slot& slot : old) {
            if (slot.left == kEmpty) continue;
            std::size_t i = home(slot.left, slot.right);
            while (slots_[i].left != kEmpty) i = (i + 1) & mask();
            slots_[i] = slot;
        }
        --size_;  // at() counts the new one again
    }

    HashSeed seed_;
    std::vector<Slot> slots_ = std::vector<Slot>(first_size(4096, 16));
    std::size_t size_ = 0;
};

struct Kept {
    Id left, right;
    std::uint64_t count;
};

// The admitted pairs. Each member adds up its share of them.
template <class Tallies>
std::vector<Kept> combine(const std::vector<Tallies>& strips, const Tokens& tokens, const Admission& admission,
                          HashSeed seed, Crew& crew) {
    std::vector<std::vector<Kept>> parts(crew.size());
    crew.run("combine pairs", [&](unsigned member) {
        Tallies sums(seed);
        for (const Tallies& strip : strips)
            strip.for_each(
                [&](Id left, Id right, const Tally& tally) {
                    Tally& sum = sums.tally(left, right);
                    sum.weight = add_counts(sum.weight, tally.weight);
                    sum.num = 1;
                },
                member, crew.size());
        sums.for_each([&](Id left, Id right, const Tally& sum) {
            if (sum.weight > kMaxCount)
                throw std::overflow_error(
                    "the pair (" + std::to_string(left) + ", " + std::to_string(right) +
                    ") occurs more than 2^63 - 1 times. Divide the counts of the words by a common factor.");
            if (admission.admits(sum.weight, tokens.length(left) + std::uint64_t{tokens.length(right)}))
                parts[member].push_back({left, right, sum.weight});
        });
    });
    std::vector<Kept> kept;
    for (const auto& part : parts) kept.insert(kept.end(), part.begin(), part.end());
    return kept;
}

// Receives a strip's postings of dropped pairs; one cache line each.
struct alignas(64) Nowhere {
    Position position;
};

// Allocates the lists of one store and sets the cursors. Its strips write to the same lists, one after another.
template <class Tallies>
void reserve(const PairTable& table, PostingStore& store, std::span<Tallies> strips, Nowhere* nowhere) {
    store.lists.resize(table.size());
    for (Tallies& strip : strips)
        strip.for_each([&](Id left, Id right, const Tally& tally) {
            if (const std::uint32_t pair = table.find(left, right); pair != kNoPair) store.lists[pair].num += tally.num;
        });
    std::vector<Position*> ends(table.size());  // end of the postings that the strips so far will write
    for (std::size_t pair = 0; pair < ends.size(); ++pair)
        if (PostingList& list = store.lists[pair]; list.num) ends[pair] = list.data = store.pool.allocate(list.num);
    for (Tallies& strip : strips) {
        strip.for_each([&](Id left, Id right, const Tally& tally) {
            const std::uint32_t pair = table.find(left, right);
            PostingCursor& cursor = strip.cursor(left, right);
            if (pair == kNoPair) {
                cursor = PostingCursor::nowhere(&nowhere->position);
            } else {
                cursor = PostingCursor::into(ends[pair]);
                ends[pair] += tally.num;
            }
        });
        ++nowhere;
    }
}

template <class Tallies, class Symbol, class LengthOf>
void scan_with(LengthOf length_of, const SymbolArray<Symbol>& array, const Tokens& tokens, const Admission& admission,
               HashSeed seed, PairTable& table, std::span<PostingStore> stores, Crew& crew, Monitor& monitor) {
    std::vector<Tallies> strips;
    for (std::size_t t = 0; t < array.strips.size(); ++t) strips.emplace_back(seed);
    crew.run("count pairs", [&](unsigned t) {
        for_each_adjacent(array, array.strips[t], length_of, monitor,
                          [&](Id left, Id right, Position, std::uint64_t weight) {
                              Tally& tally = strips[t].tally(left, right);
                              tally.weight = add_counts(tally.weight, weight);
                              ++tally.num;
                          });
    });
    for (const Kept& pair : combine(strips, tokens, admission, seed, crew))
        table.insert(pair.left, pair.right, pair.count);

    std::vector<Nowhere> nowhere(array.strips.size());
    if (stores.size() == 1)
        reserve(table, stores[0], std::span(strips), nowhere.data());
    else
        crew.run("reserve postings",
                 [&](unsigned t) { reserve(table, stores[t], std::span(&strips[t], 1), &nowhere[t]); });
    crew.run("write postings", [&](unsigned t) {
        for_each_adjacent(
            array, array.strips[t], length_of, monitor,
            [&](Id left, Id right, Position p, std::uint64_t) { strips[t].cursor(left, right).place(p); });
    });
}

}  // namespace

template <class Symbol>
void scan_pairs(const SymbolArray<Symbol>& array, const Tokens& tokens, const Admission& admission, HashSeed seed,
                PairTable& table, std::span<PostingStore> stores, Crew& crew, Monitor& monitor) {
    // Clearing two megabytes per member pays off when there are about as many symbols as tallies.
    if (tokens.size() == 256 && array.num_symbols >= 65536)
        scan_with<DenseTallies>([](Id) { return 1u; }, array, tokens, admission, seed, table, stores, crew, monitor);
    else
        scan_with<HashedTallies>([&](Id id) { return tokens.length(id); }, array, tokens, admission, seed, table,
                                 stores, crew, monitor);
}

template void scan_pairs(const SymbolArray<std::uint16_t>&, const Tokens&, const Admission&, HashSeed, PairTable&,
                         std::span<PostingStore>, Crew&, Monitor&);
template void scan_pairs(const SymbolArray<std::uint32_t>&, const Tokens&, const Admission&, HashSeed, PairTable&,
                         std::span<PostingStore>, Crew&, Monitor&);

}  // namespace gristmill::merge
