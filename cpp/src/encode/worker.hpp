// What one thread needs to encode: a scanner, a cache of pieces, buffers. One thread at a time uses a worker.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "corpus/source.hpp"
#include "encode/bpe.hpp"
#include "encode/piece_cache.hpp"
#include "encode/split_table.hpp"
#include "gristmill/encode.hpp"

namespace gristmill {

// What all workers of an encoder read and none writes.
struct EncodeTables {
    EncodeTables(const VocabularyParts& parts, std::optional<Pattern> encoder_pattern, Kernel encoder_kernel)
        : tokens(parts),
          bpe(parts, tokens, encoder_kernel),
          splits(parts, tokens),
          pattern(encoder_pattern),
          kernel(encoder_kernel) {}
    TokenTable tokens;
    Bpe bpe;
    SplitTable splits;
    std::optional<Pattern> pattern;
    Kernel kernel;
};

template <class Token>
class Worker {
  public:
    // `seeded`: the cache to start from.
    Worker(const EncodeTables& tables, const PieceCache<Token>& seeded);

    // Ids that encode() may write behind those it returns.
    static constexpr std::size_t kSlack = kIdSlack;

    // Writes the ids of a text with its specials to `out`, which has room for size + kSlack of them, and returns their
    // end. kTextPadding bytes behind the text are readable.
    Token* encode(const std::uint8_t* text, std::size_t size, const SpecialRule& rule, Token* out, Monitor& monitor);
    // Likewise for a text of which nothing behind its end is readable.
    Token* encode_unpadded(std::string_view text, const SpecialRule& rule, Token* out, Monitor& monitor);
    // `piece` is one piece, whatever the pattern; kTextPadding bytes behind it are readable.
    Token* encode_piece(const std::uint8_t* piece, std::size_t size, Token* out, Monitor& monitor);

    // A buffer for `size` ids, valid until the next call.
    Token* buffer(std::size_t size);
    // Gives it back if it is large: what one long text needed is not kept for the next.
    void release_large_buffer();
    Window& window() { return window_; }
    const PieceCache<Token>& cache() const { return cache_; }

  private:
    // Pieces are looked up in groups: keys first, with a prefetch of each place, then the look-ups, so that the misses
    // of the CPU's cache overlap.
    static constexpr std::size_t kGroup = 64;
    static constexpr std::size_t kMaxProbes = 2 * kGroup;
    struct Probe {
        PieceKey key;
        std::uint32_t slot;
        std::uint32_t begin;  // from base; the piece ends where the next begins; kPartBit: a part of a piece
    };
    static constexpr std::uint32_t kPartBit = std::uint32_t{1} << 31;

    Token* encode_plain(const std::uint8_t* text, std::size_t size, Token* out, Monitor& monitor);
    Token* encode_group(const std::uint8_t* base, const std::uint16_t* ends, std::size_t num_pieces, Token* out,
                        Monitor& monitor);
    Token* add_long(const std::uint8_t* base, std::uint32_t begin, std::uint32_t end, Token* out, Monitor& monitor);
    void add(const std::uint8_t* base, std::uint32_t begin, std::uint32_t size, bool is_part);
    Token* flush(const std::uint8_t* base, std::uint32_t end, Token* out);
    Token* look_up(const std::uint8_t* base, const Probe& probe, std::uint32_t end, Token* out);
    Token* encode_uncached(const std::uint8_t* piece, std::size_t size, bool is_whole, Token* out, Monitor& monitor);

    const EncodeTables& tables_;
    const std::uint64_t part_tag_;  // in the keys of parts of pieces, where those must not pass for whole ones
    std::unique_ptr<BoundaryScanner> scanner_;
    PieceCache<Token> cache_;
    std::size_t num_probes_ = 0;
    Probe probes_[kMaxProbes + 1];
    std::vector<std::uint8_t> padded_;
    LargeVector<Token> buffer_;
    std::vector<Id> long_ids_;
    Window window_;
};

extern template class Worker<std::uint16_t>;
extern template class Worker<std::uint32_t>;

// A new cache that knows every token of up to 15 bytes, but for those that the merges encode otherwise than as
// themselves.
template <class Token>
PieceCache<Token> seeded_cache(const EncodeTables& tables, std::size_t limit_bytes);

}  // namespace gristmill
