// The tokens made so far, and the order of pairs with equal counts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gristmill/merge.hpp"
#include "gristmill/tokenizer.hpp"

namespace gristmill::merge {

// Training never makes the same byte string twice, so ids and byte strings are interchangeable. Proof: let t be made
// from (a, b) in step i, and again from a span S, now (a', b'), in a later step. No merge has crossed the ends of S,
// since such a merge would have removed them. So S has always been segmented as if it were alone, just like any span
// that became t in step i. Their bytes are equal, so before step i S was (a, b), and step i made it t. (Foreign `given`
// merges may make a string twice; every rule here then falls back on ids and stays well defined.)
class Tokens {
  public:
    Tokens() {
        for (unsigned byte = 0; byte < 256; ++byte) {
            const char text = static_cast<char>(byte);
            push({&text, 1});
        }
    }

    Id size() const { return static_cast<Id>(lengths_.size()); }
    std::uint32_t length(Id id) const { return lengths_[id]; }
    std::string_view bytes(Id id) const { return {arena_.data() + offsets_[id], lengths_[id]}; }
    // The first eight bytes as a big-endian number, which decides most comparisons of bytes.
    std::uint64_t prefix(Id id) const { return prefixes_[id]; }

    Id add(Id left, Id right) {
        if (left >= size() || right >= size())
            throw std::invalid_argument("given merge (" + std::to_string(left) + ", " + std::to_string(right) +
                                        ") uses an id that no earlier merge made: ids must be below " +
                                        std::to_string(size()) + " here");
        if (arena_.size() + length(left) + length(right) > kMaxVocabularyBytes)
            throw std::length_error("the learned tokens have more than " + std::to_string(kMaxVocabularyBytes) +
                                    " bytes in total. Pass a smaller max_token_bytes or vocab_size.");
        std::string text(bytes(left));
        text += bytes(right);
        push(text);
        return size() - 1;
    }

    // Adds the tokens that `given` make, if their total size is allowed; otherwise adds nothing.
    void add_given(const std::vector<Merge>& given) {
        std::vector<std::uint64_t> lengths(lengths_.begin(), lengths_.end());
        std::uint64_t total = arena_.size();
        for (const auto& [left, right] : given) {
            if (left >= lengths.size() || right >= lengths.size()) break;  // add() reports the error
            lengths.push_back(lengths[left] + lengths[right]);
            total += lengths.back();
            if (total > kMaxVocabularyBytes)
                throw std::invalid_argument("the given merges make tokens of more than " +
                                            std::to_string(kMaxVocabularyBytes) +
                                            " bytes in total, which is the maximum. Check the source of the merges.");
        }
        for (const auto& [left, right] : given) add(left, right);
    }

    // Removes the newest tokens.
    void truncate(Id size) {
        arena_.resize(offsets_[size - 1] + lengths_[size - 1]);
        offsets_.resize(size);
        lengths_.resize(size);
        prefixes_.resize(size);
    }

  private:
    void push(std::string_view text) {
        offsets_.push_back(arena_.size());
        lengths_.push_back(static_cast<std::uint32_t>(text.size()));
        std::uint64_t prefix = 0;
        for (std::size_t i = 0; i < 8; ++i)
            prefix = prefix << 8 | (i < text.size() ? static_cast<std::uint8_t>(text[i]) : 0);
        prefixes_.push_back(prefix);
        arena_.insert(arena_.end(), text.begin(), text.end());
    }

    std::vector<char> arena_;
    std::vector<std::uint64_t> offsets_;
    std::vector<std::uint32_t> lengths_;
    std::vector<std::uint64_t> prefixes_;
};

// Hugging Face numbers the bytes in the order of the characters that represent them in its byte-level alphabet: first
// the printable ones, which represent themselves, then the others.
inline std::array<std::uint8_t, 256> huggingface_ranks() {
    std::array<std::uint8_t, 256> ranks{};
    unsigned next = 0;
    const auto printable = [](unsigned b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
    for (const bool wanted : {true, false})
        for (unsigned byte = 0; byte < 256; ++byte)
            if (printable(byte) == wanted) ranks[byte] = static_cast<std::uint8_t>(next++);
    return ranks;
}

// A pair as it was when it entered the queue. `key` orders equal counts; the greater key comes first.
struct Candidate {
    std::uint64_t count;
    std::uint64_t key;
    std::uint32_t pair;
};

// The tie-break as a number, so that the queue compares numbers. Only greatest_bytes sometimes needs more.
class Ranking {
  public:
    Ranking(TieBreak tie_break, const Tokens& tokens)
        : tie_break_(tie_break), tokens_(tokens), ranks_(huggingface_ranks()) {}

    bool by_first_occurrence() const { return tie_break_ == TieBreak::first_seen; }

    std::uint64_t key(Id left, Id right) const {
        switch (tie_break_) {
            case TieBreak::greatest_bytes:
                return tokens_.prefix(left);
            case TieBreak::huggingface:
                return ~(std::uint64_t{rank(left)} << 32 | rank(right));
            default:
                return ~(std::uint64_t{left} << 32 | right);
        }
    }

    // Decides between pairs with equal counts and equal keys. For equal byte strings, the smaller ids come first.
    bool before(Merge a, Merge b) const {
        if (tie_break_ == TieBreak::greatest_bytes) {
            if (const int order = tokens_.bytes(a.first).compare(tokens_.bytes(b.first))) return order > 0;
            if (const int order = tokens_.bytes(a.second).compare(tokens_.bytes(b.second))) return order > 0;
        }
        return a < b;
    }

  private:
    std::uint32_t rank(Id id) const { return id < 256 ? ranks_[id] : id; }

    TieBreak tie_break_;
    const Tokens& tokens_;
    std::array<std::uint8_t, 256> ranks_;
};

}  // namespace gristmill::merge
