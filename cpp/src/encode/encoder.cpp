#include <algorithm>
#include <bit>
#include <cstring>
#include <queue>
#include <stdexcept>

#include "gristmill/encode.hpp"

namespace gristmill {
namespace {

constexpr std::uint64_t kMaxTotalTokenBytes = std::uint64_t{1} << 30;
// Up to this many bytes a scan for the best pair is faster than a heap.
constexpr std::size_t kShortPiece = 64;

std::uint64_t pair_key(Id left, Id right) { return static_cast<std::uint64_t>(left) << 32 | right; }

std::size_t hash_pair(std::uint64_t pair, unsigned shift) {
    return static_cast<std::size_t>((pair ^ pair >> 29) * 0x9e3779b97f4a7c15u >> shift);
}

}  // namespace

Encoder::Encoder(const std::vector<Merge>& merges, std::optional<Pattern> pattern, Kernel kernel,
                 const std::vector<std::string>& specials, const std::vector<Id>& special_ids)
    : pattern_(pattern), kernel_(kernel), specials_(specials), special_ids_(special_ids) {
    if (specials.size() != special_ids.size()) throw std::invalid_argument("specials and special_ids differ in number");
    add_tokens(merges);
    add_pairs(merges);
}

void Encoder::add_tokens(const std::vector<Merge>& merges) {
    const std::size_t num_tokens = 256 + merges.size();
    std::vector<std::uint64_t> sizes(num_tokens, 1);
    std::uint64_t total = 256;
    for (std::size_t i = 0; i < merges.size(); ++i) {
        const auto [left, right] = merges[i];
        if (left >= 256 + i || right >= 256 + i) {
            throw std::invalid_argument("merge " + std::to_string(i) + " uses id " +
                                        std::to_string(std::max(left, right)) + ", which is not made before it");
        }
        total += sizes[256 + i] = sizes[left] + sizes[right];
        // Checked before anything is allocated: thirty merges that each double a token would fill the memory.
        if (total > kMaxTotalTokenBytes) throw std::invalid_argument("the tokens add up to more than 1 GiB");
    }
    bytes_.reserve(static_cast<std::size_t>(total));
    offsets_.reserve(num_tokens + 1);
    offsets_.push_back(0);
    for (unsigned byte = 0; byte < 256; ++byte) {
        bytes_.push_back(static_cast<char>(byte));
        offsets_.push_back(byte + 1);
    }
    for (const auto& [left, right] : merges) {
        bytes_.append(bytes_, offsets_[left], offsets_[left + 1] - offsets_[left]);
        bytes_.append(bytes_, offsets_[right], offsets_[right + 1] - offsets_[right]);
        offsets_.push_back(static_cast<std::uint32_t>(bytes_.size()));
    }
}

void Encoder::add_pairs(const std::vector<Merge>& merges) {
    const unsigned bits = static_cast<unsigned>(std::bit_width(std::max<std::size_t>(merges.size(), 4) * 2));
    slots_.assign(std::size_t{1} << bits, {0, kNoId});
    slot_shift_ = 64 - bits;
    for (std::size_t i = 0; i < merges.size(); ++i) {
        const std::uint64_t pair = pair_key(merges[i].first, merges[i].second);
        std::size_t slot = hash_pair(pair, slot_shift_);
        while (slots_[slot].id != kNoId && slots_[slot].pair != pair) slot = (slot + 1) & (slots_.size() - 1);
        if (slots_[slot].id == kNoId) slots_[slot] = {pair, static_cast<Id>(256 + i)};
    }
}

Id Encoder::merged(Id left, Id right) const {
    const std::uint64_t pair = pair_key(left, right);
    for (std::size_t slot = hash_pair(pair, slot_shift_);; slot = (slot + 1) & (slots_.size() - 1)) {
        if (slots_[slot].id == kNoId || slots_[slot].pair == pair) return slots_[slot].id;
    }
}

void Encoder::encode_piece(std::string_view piece, std::vector<Id>& ids) const {
    if (piece.size() <= kShortPiece) {
        encode_short(piece, ids);
    } else {
        encode_long(piece, ids);
    }
}

// Merges the earliest learned pair, leftmost first, until none is left.
void Encoder::encode_short(std::string_view piece, std::vector<Id>& ids) const {
    Id symbols[kShortPiece], made[kShortPiece];  // made[i]: what symbols[i] and symbols[i + 1] merge to
    std::size_t size = piece.size();
    for (std::size_t i = 0; i < size; ++i) symbols[i] = static_cast<std::uint8_t>(piece[i]);
    for (std::size_t i = 0; i + 1 < size; ++i) made[i] = merged(symbols[i], symbols[i + 1]);
    while (size > 1) {
        const std::size_t best = static_cast<std::size_t>(std::min_element(made, made + size - 1) - made);
        if (made[best] == kNoId) break;
        symbols[best] = made[best];
        std::copy(symbols + best + 2, symbols + size, symbols + best + 1);
        std::copy(made + best + 1, made + size - 1, made + best);
        --size;
        if (best + 1 < size) made[best] = merged(symbols[best], symbols[best + 1]);
        if (best > 0) made[best - 1] = merged(symbols[best - 1], symbols[best]);
    }
    ids.insert(ids.end(), symbols, symbols + size);
}

// The same by a linked list and a heap of candidate pairs: n log n, also for a piece of many megabytes.
void Encoder::encode_long(std::string_view piece, std::vector<Id>& ids) const {
    constexpr std::uint32_t kEnd = static_cast<std::uint32_t>(-1);
    if (piece.size() >= kEnd) throw std::length_error("a piece of 4 GiB or more cannot be encoded");
    const auto size = static_cast<std::uint32_t>(piece.size());
    std::vector<Id> symbols(size);
    std::vector<std::uint32_t> next(size), previous(size);
    // Ordered by (id, position): the earliest merge, the leftmost place. An entry is stale once its pair is no longer
    // there.
    using Candidate = std::uint64_t;
    std::vector<Candidate> heap;
    const auto consider = [&](std::uint32_t at) {
        if (next[at] == kEnd) return false;
        const Id id = merged(symbols[at], symbols[next[at]]);
        if (id == kNoId) return false;
        heap.push_back(static_cast<Candidate>(id) << 32 | at);
        return true;
    };
    for (std::uint32_t i = 0; i < size; ++i) {
        symbols[i] = static_cast<std::uint8_t>(piece[i]);
        next[i] = i + 1 < size ? i + 1 : kEnd;
        previous[i] = i ? i - 1 : kEnd;
    }
    for (std::uint32_t i = 0; i < size; ++i) consider(i);
    std::make_heap(heap.begin(), heap.end(), std::greater<>());
    while (!heap.empty()) {
        std::pop_heap(heap.begin(), heap.end(), std::greater<>());
        const auto id = static_cast<Id>(heap.back() >> 32);
        const auto at = static_cast<std::uint32_t>(heap.back());
        heap.pop_back();
        if (symbols[at] == kNoId || next[at] == kEnd || merged(symbols[at], symbols[next[at]]) != id) continue;
        const std::uint32_t gone = next[at];
        symbols[at] = id;
        symbols[gone] = kNoId;
        next[at] = next[gone];
        if (next[at] != kEnd) previous[next[at]] = at;
        if (consider(at)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
        if (previous[at] != kEnd && consider(previous[at])) std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
    for (std::uint32_t at = 0; at != kEnd; at = next[at]) ids.push_back(symbols[at]);
}

void Encoder::encode_text(std::string_view text, std::vector<Id>& ids) const {
    if (text.empty()) return;
    std::vector<std::uint8_t> padded(text.size() + kTextPadding);
    std::memcpy(padded.data(), text.data(), text.size());
    const std::unique_ptr<BoundaryScanner> scanner = make_scanner(*pattern_, kernel_);
    const std::uint8_t* begin = padded.data();
    scanner->start(padded.data(), text.size());
    while (scanner->next()) {
        for (std::size_t i = 0; i < scanner->size(); ++i) {
            const std::uint8_t* end = scanner->base() + scanner->ends()[i];
            encode_piece({reinterpret_cast<const char*>(begin), static_cast<std::size_t>(end - begin)}, ids);
            begin = end;
        }
    }
}

SpecialFinder Encoder::finder(const std::vector<Id>& among, std::vector<Id>& ids) const {
    std::vector<std::string> wanted;
    for (std::size_t i = 0; i < specials_.size(); ++i) {
        if (std::find(among.begin(), among.end(), special_ids_[i]) == among.end()) continue;
        wanted.push_back(specials_[i]);
        ids.push_back(special_ids_[i]);
    }
    return SpecialFinder(wanted);
}

void Encoder::encode(std::string_view text, const std::vector<Id>& allowed, std::vector<Id>& ids) const {
    if (!pattern_) throw std::invalid_argument("this encoder has no native pattern: cut the text into pieces first");
    if (allowed.empty()) return encode_text(text, ids);
    std::vector<Id> found_ids;
    const SpecialFinder specials = finder(allowed, found_ids);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
    for (std::size_t at = 0; at < text.size();) {
        const SpecialFinder::Match special = specials.find(bytes, text.size(), at);
        encode_text(text.substr(at, special.position - at), ids);
        at = special.position;
        if (special.index == SpecialFinder::kNone) break;
        ids.push_back(found_ids[special.index]);
        at += specials.length(special.index);
    }
}

std::optional<Encoder::Found> Encoder::find_special(std::string_view text, const std::vector<Id>& among) const {
    std::vector<Id> ids;
    const SpecialFinder specials = finder(among, ids);
    const SpecialFinder::Match match =
        specials.find(reinterpret_cast<const std::uint8_t*>(text.data()), text.size(), 0);
    if (match.index == SpecialFinder::kNone) return std::nullopt;
    return Found{match.position, ids[match.index]};
}

std::string_view Encoder::token_bytes(Id id) const {
    if (id + std::size_t{1} < offsets_.size())
        return std::string_view(bytes_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
    for (std::size_t i = 0; i < specials_.size(); ++i) {
        if (special_ids_[i] == id) return specials_[i];
    }
    return {};
}

}  // namespace gristmill
