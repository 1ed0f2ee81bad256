// What one thread needs to encode: a scanner, a cache of pieces, buffers. One thread at a time uses a worker.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "driver/text_scanner.hpp"
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

    // Ids that encode() may write after those it returns.
    static constexpr std::size_t kSlack = kIdSlack;

    // Forgets what an exception may have left.
    void start() { num_probes_ = 0; }
    // Writes the ids of the pieces to `out`, which has room for one id per byte and kSlack more, and returns their end.
    Token* encode(const PieceBatch& batch, Token* out, const Monitor& monitor);
    // The rest of the way from a text to pieces.
    TextScanner& scanner() { return *scanner_; }

    // A buffer for `size` ids, valid until the next call.
    Token* buffer(std::size_t size);
    // Gives it back if it is large: what one long text needed is not kept for the next.
    void release_large_buffer();
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

    Token* encode_piece(const std::uint8_t* piece, std::size_t size, Token* out, const Monitor& monitor);
    Token* encode_group(const std::uint8_t* base, const std::uint16_t* ends, std::size_t num_pieces, Token* out,
                        const Monitor& monitor);
    Token* add_long(const std::uint8_t* base, std::uint32_t begin, std::uint32_t end, Token* out,
                    const Monitor& monitor);
    void add(PieceKey key, std::uint32_t begin, bool is_part);
    Token* flush(const std::uint8_t* base, std::uint32_t end, Token* out);
    Token* look_up(const std::uint8_t* base, const Probe& probe, std::uint32_t end, Token* out);
    Token* encode_uncached(const std::uint8_t* piece, std::size_t size, bool is_whole, Token* out,
                           const Monitor& monitor);

    const EncodeTables& tables_;
    const std::uint64_t part_tag_;        // in the keys of parts of pieces, where those must not pass for whole ones
    std::optional<TextScanner> scanner_;  // none without a pattern
    PieceCache<Token> cache_;
    std::size_t num_probes_ = 0;
    Probe probes_[kMaxProbes + 1];
    LargeVector<Token> buffer_;
    LargeVector<Id> long_ids_;
    SweepState sweep_state_;
};

extern template class Worker<std::uint16_t>;
extern template class Worker<std::uint32_t>;

// A new cache that knows every token of up to 15 bytes, but for those that the merges encode otherwise than as
// themselves.
template <class Token>
PieceCache<Token> seeded_cache(const EncodeTables& tables, std::size_t limit_bytes);

}  // namespace gristmill
