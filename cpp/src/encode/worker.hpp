// The state of one encoding thread: a scanner, a piece cache, buffers. One thread at a time uses a worker.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "driver/text_scanner.hpp"
#include "encode/bpe.hpp"
#include "encode/piece_cache.hpp"
#include "encode/probe_kernel.hpp"
#include "encode/seed_table.hpp"
#include "encode/split_table.hpp"
#include "gristmill/encode.hpp"

namespace gristmill {

// Tables that all workers of an encoder share and do not modify.
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
    // `cache_bytes` limits the cache; the minimum is PieceCache::kMinBytes.
    Worker(const EncodeTables& tables, const SeedTable& seeds, std::size_t cache_bytes);

    // Writes the ids of the pieces to `out`, which must have room for one id per byte and kIdSlack more, and returns
    // the end of the ids.
    Token* encode(const PieceBatch& batch, Token* out, const Monitor& monitor);
    // Splits texts into pieces.
    TextScanner& scanner() { return *scanner_; }

    // A buffer for `size` ids, valid until the next call.
    Token* buffer(std::size_t size);
    // Frees the buffer if it is large, so that one long text does not occupy memory for the next.
    void release_large_buffer();
    std::size_t num_pieces() const { return cache_.size(); }
    std::size_t cache_memory_bytes() const { return cache_.memory_bytes(); }

  private:
    Token* encode_piece(const std::uint8_t* piece, std::size_t size, Token* out, const Monitor& monitor);
    Token* encode_group(const std::uint8_t* base, const std::uint16_t* ends, std::size_t num_pieces, Token* out,
                        const Monitor& monitor);
    const std::uint16_t* split_long(const std::uint8_t* base, const std::uint16_t* ends, std::size_t& num_pieces);
    Token* encode_long(const std::uint8_t* piece, std::uint32_t size, Token* out, const Monitor& monitor);
    Token* encode_unsplit(const std::uint8_t* piece, std::size_t size, bool is_part, Token* out,
                          const Monitor& monitor);
    Token* encode_parts(const std::uint8_t* base, const std::uint16_t* ends, std::size_t num_parts, Token* out);
    Written<Token> write(const PieceGroup& group, std::size_t from, std::size_t num_pieces, Token* out) const;
    Token* look_up(const PieceKey& key, std::size_t offset, const std::uint8_t* piece, std::size_t size, bool is_part,
                   Token* out);
    Token* encode_uncached(const std::uint8_t* piece, std::size_t size, bool is_whole, Token* out,
                           const Monitor& monitor);

    const EncodeTables& tables_;
    const std::uint64_t part_tag_;        // in the keys of parts, where these must not be mistaken for whole pieces
    std::optional<TextScanner> scanner_;  // empty without a pattern
    const SeedTable& seeds_;
    const ProbeKernel& kernel_;
    PieceCache<Token> cache_;
    PieceGroup group_{}, parts_{};
    std::uint16_t part_ends_[kMaxGroup + 1 + 64]{};  // of short parts of a long piece; the first is 0
    std::vector<std::uint16_t> bounds_;              // of the pieces of a batch, with long ones split
    LargeVector<Token> buffer_;
    LargeVector<Id> long_ids_;
    SweepState sweep_state_;
};

extern template class Worker<std::uint16_t>;
extern template class Worker<std::uint32_t>;

// Every token of up to 15 bytes that encodes to itself.
SeedTable make_seeds(const EncodeTables& tables, std::size_t limit_bytes);

}  // namespace gristmill
