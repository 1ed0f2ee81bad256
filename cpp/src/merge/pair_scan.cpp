#include "merge/pair_scan.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace gristmill::merge {
namespace {

constexpr std::uint64_t kMaxCount = (std::uint64_t{1} << 63) - 1;

// Sticks at 2^63, one past the greatest count, instead of wrapping around.
std::uint64_t add_counts(std::uint64_t a, std::uint64_t b) {
    return a > kMaxCount || b > kMaxCount - a ? kMaxCount + 1 : a + b;
}

// Both kinds of tallies: at() makes a pair's tally where there is none; for_each() visits all, or one of several parts.

// Before the first merge the ids are bytes, and a pair is its own index: 65,536 tallies, of which a text touches a few
// thousand.
class DenseTallies {
  public:
    Tally& at(Id left, Id right) { return tallies_[left << 8 | right]; }

    template <class Visit>
    void for_each(Visit visit, unsigned part = 0, unsigned num_parts = 1) {
        const Id end = (part + 1) * kNumPairs / num_parts;
        for (Id pair = part * kNumPairs / num_parts; pair < end; ++pair)
            if (tallies_[pair].num) visit(pair >> 8, pair & 255, tallies_[pair]);
    }

  private:
    static constexpr Id kNumPairs = 65536;
    ZeroedArray<Tally> tallies_{kNumPairs};
};

class HashedTallies {
  public:
    Tally& at(Id left, Id right) {
        for (std::size_t i = pair_hash(left, right) >> 32 & mask();; i = (i + 1) & mask()) {
            Slot& slot = slots_[i];
            if (slot.left == left && slot.right == right) return slot.tally;
            if (slot.left != kEmpty) continue;
            if (2 * ++size_ > slots_.size()) {
                grow();
                return at(left, right);
            }
            slot.left = left;
            slot.right = right;
            return slot.tally;
        }
    }

    template <class Visit>
    void for_each(Visit visit, unsigned part = 0, unsigned num_parts = 1) {
        for (Slot& slot : slots_)
            if (slot.left != kEmpty && pair_hash(slot.left, slot.right) % num_parts == part)
                visit(slot.left, slot.right, slot.tally);
    }

  private:
    static constexpr Id kEmpty = 0xFFFFFFFF;
    struct Slot {
        Id left = kEmpty, right = 0;
        Tally tally{};
    };

    std::size_t mask() const { return slots_.size() - 1; }

    void grow() {
        std::vector<Slot> old(slots_.size() * 2);
        old.swap(slots_);
        for (const Slot& slot : old) {
            if (slot.left == kEmpty) continue;
            std::size_t i = pair_hash(slot.left, slot.right) >> 32 & mask();
            while (slots_[i].left != kEmpty) i = (i + 1) & mask();
            slots_[i] = slot;
        }
        --size_;  // at() counts the new one again
    }

    std::vector<Slot> slots_ = std::vector<Slot>(4096);
    std::size_t size_ = 0;
};

struct Kept {
    Id left, right;
    std::uint64_t count;
};

// The admitted pairs; each member adds up its part of them.
template <class Tallies>
std::vector<Kept> combine(std::vector<Tallies>& strips, const Tokens& tokens, const Admission& admission, Crew& crew) {
    std::vector<std::vector<Kept>> parts(crew.size());
    crew.run([&](unsigned member) {
        Tallies sums;
        for (Tallies& strip : strips)
            strip.for_each(
                [&](Id left, Id right, const Tally& tally) {
                    Tally& sum = sums.at(left, right);
                    sum.weight = add_counts(sum.weight, tally.weight);
                    sum.num = 1;
                },
                member, crew.size());
        sums.for_each([&](Id left, Id right, const Tally& sum) {
            if (sum.weight > kMaxCount)
                throw std::overflow_error(
                    "the pair (" + std::to_string(left) + ", " + std::to_string(right) +
                    ") occurs more than 2^63 - 1 times: divide the word counts by a common factor");
            if (admission.admits(sum.weight, tokens.length(left) + std::uint64_t{tokens.length(right)}))
                parts[member].push_back({left, right, sum.weight});
        });
    });
    std::vector<Kept> kept;
    for (const auto& part : parts) kept.insert(kept.end(), part.begin(), part.end());
    return kept;
}

// Where a strip's postings of dropped pairs go; a cache line each.
struct alignas(64) Nowhere {
    Position position;
};

// From tallies to cursors: the strips of one store write one after another into the same lists.
template <class Tallies>
void reserve(const PairTable& table, PostingStore& store, std::span<Tallies> strips, Nowhere* nowhere) {
    store.lists.resize(table.size());
    for (Tallies& strip : strips)
        strip.for_each([&](Id left, Id right, const Tally& tally) {
            if (const std::uint32_t pair = table.find(left, right); pair != kNoPair) store.lists[pair].num += tally.num;
        });
    std::vector<Position*> cursors(table.size());
    for (std::size_t pair = 0; pair < cursors.size(); ++pair)
        if (PostingList& list = store.lists[pair]; list.num) cursors[pair] = list.data = store.pool.allocate(list.num);
    for (Tallies& strip : strips) {
        strip.for_each([&](Id left, Id right, Tally& tally) {
            const std::uint32_t pair = table.find(left, right);
            if (pair == kNoPair) return tally.drop(&nowhere->position);
            const std::uint32_t num = tally.num;
            tally.keep(cursors[pair]);
            cursors[pair] += num;
        });
        ++nowhere;
    }
}

template <class Tallies, class Symbol, class LengthOf>
void scan_with(LengthOf length_of, const SymbolArray<Symbol>& array, const Tokens& tokens, const Admission& admission,
               PairTable& table, std::span<PostingStore> stores, Crew& crew, Monitor& monitor) {
    std::vector<Tallies> strips(array.strips.size());
    crew.run([&](unsigned t) {
        for_each_adjacent(array, array.strips[t], length_of, monitor,
                          [&](Id left, Id right, Position, std::uint64_t weight) {
                              Tally& tally = strips[t].at(left, right);
                              tally.weight = add_counts(tally.weight, weight);
                              ++tally.num;
                          });
    });
    for (const Kept& pair : combine(strips, tokens, admission, crew)) table.insert(pair.left, pair.right, pair.count);

    std::vector<Nowhere> nowhere(array.strips.size());
    if (stores.size() == 1)
        reserve(table, stores[0], std::span(strips), nowhere.data());
    else
        crew.run([&](unsigned t) { reserve(table, stores[t], std::span(&strips[t], 1), &nowhere[t]); });
    crew.run([&](unsigned t) {
        for_each_adjacent(array, array.strips[t], length_of, monitor,
                          [&](Id left, Id right, Position p, std::uint64_t) { strips[t].at(left, right).place(p); });
    });
}

}  // namespace

template <class Symbol>
void scan_pairs(const SymbolArray<Symbol>& array, const Tokens& tokens, const Admission& admission, PairTable& table,
                std::span<PostingStore> stores, Crew& crew, Monitor& monitor) {
    // Clearing a megabyte for every member is worth it from about as many symbols as there are tallies.
    if (tokens.size() == 256 && array.num_symbols >= 65536)
        scan_with<DenseTallies>([](Id) { return 1u; }, array, tokens, admission, table, stores, crew, monitor);
    else
        scan_with<HashedTallies>([&](Id id) { return tokens.length(id); }, array, tokens, admission, table, stores,
                                 crew, monitor);
}

template void scan_pairs(const SymbolArray<std::uint16_t>&, const Tokens&, const Admission&, PairTable&,
                         std::span<PostingStore>, Crew&, Monitor&);
template void scan_pairs(const SymbolArray<std::uint32_t>&, const Tokens&, const Admission&, PairTable&,
                         std::span<PostingStore>, Crew&, Monitor&);

}  // namespace gristmill::merge
