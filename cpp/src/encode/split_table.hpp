// Finds positions where a long piece splits into parts that are encoded independently.
//
// A merge across a position needs a token that spans it. So where no token of the vocabulary, aligned with the text,
// could cover the position, the ids of the piece are those of its two parts. Text without spaces (Chinese, Japanese,
// Thai, base64) is one piece of hundreds of bytes that does not repeat; its parts are a few characters and repeat
// often, so the cache contains them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "encode/token_table.hpp"

namespace gristmill {

class SplitTable {
  public:
    // Built from every token that a merge makes or that a whole piece can be.
    SplitTable(const VocabularyParts& parts, const TokenTable& tokens);

    // Whether piece[0, at) and piece[at, size) are encoded independently; 0 < at < size.
    bool may_split(const std::uint8_t* piece, std::size_t size, std::size_t at) const {
        const std::size_t pair = std::size_t{piece[at - 1]} << 8 | piece[at];
        if (!test(inside_, pair)) return true;
        // A token that covers `at` is exactly these two bytes, or contains one more byte on the left or on the right.
        if (test(tokens_of_two_, pair)) return false;
        return !(at > 1 && test(inside_of_three_, hash_three(piece + at - 2))) &&
               !(at + 1 < size && test(inside_of_three_, hash_three(piece + at - 1)));
    }

  private:
    static constexpr unsigned kHashBits = 20;
    static std::size_t hash_three(const std::uint8_t* p) {
        const std::uint32_t three = p[0] | std::uint32_t{p[1]} << 8 | std::uint32_t{p[2]} << 16;
        return three * 0x9e3779b1u >> (32 - kHashBits);
    }
    static bool test(const std::vector<std::uint64_t>& bits, std::size_t i) { return bits[i >> 6] >> (i & 63) & 1; }
    static void set(std::vector<std::uint64_t>& bits, std::size_t i) { bits[i >> 6] |= std::uint64_t{1} << (i & 63); }
    void add(std::string_view token);

    std::vector<std::uint64_t> inside_;           // pairs of bytes that occur in some token
    std::vector<std::uint64_t> tokens_of_two_;    // pairs that are a token
    std::vector<std::uint64_t> inside_of_three_;  // hashes of three bytes that occur in some token
};

}  // namespace gristmill
