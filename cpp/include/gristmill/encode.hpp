// encode: text -> ids under a vocabulary, and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gristmill/corpus.hpp"
#include "gristmill/errors.hpp"
#include "gristmill/ids.hpp"
#include "gristmill/monitor.hpp"
#include "gristmill/pretokenize.hpp"
#include "gristmill/tokenizer.hpp"

namespace gristmill {

// A text contains a special token that is not allowed.
struct ForgedSpecial : std::invalid_argument {
    ForgedSpecial(std::uint64_t text, std::uint64_t position, Id id)
        : std::invalid_argument("the text contains a special token that is not allowed"),
          text(text),
          position(position),
          id(id) {}
    std::uint64_t text, position;
    Id id;
};

// Which specials become ids, and which are an error.
class SpecialRule {
  public:
    SpecialRule(const std::vector<IdOfBytes>& allowed, const std::vector<IdOfBytes>& disallowed);

    const SpecialFinder& allowed() const { return allowed_; }
    Id allowed_id(std::uint32_t index) const { return allowed_ids_[index]; }
    const SpecialFinder& disallowed() const { return disallowed_; }
    Id disallowed_id(std::uint32_t index) const { return disallowed_ids_[index]; }
    // Allowed and disallowed specials: no text may be cut where one of them could span the cut.
    const SpecialFinder& all() const { return all_; }

  private:
    SpecialFinder allowed_, disallowed_, all_;
    std::vector<Id> allowed_ids_, disallowed_ids_;
};

// The end-of-text id. A first or last text that continues in the neighbouring call gets no mark at that end.
struct TextMarks {
    std::optional<Id> end_of_text;
    bool before = false;  // put the id before each text instead of after it
    bool continued = false, unfinished = false;
};

struct EncodedTexts {
    IdBuffer ids;                    // of all texts, concatenated
    std::vector<std::int64_t> ends;  // end of each text in `ids`, including its mark
};

// memory_bytes and num_pieces cover the token table and all caches that no thread is using at the moment.
struct CacheStats {
    std::uint64_t num_caches = 0, num_pieces = 0, memory_bytes = 0, limit_bytes = 0;
};

// Logically immutable: any number of threads may use one encoder. Internally it keeps one bounded piece cache per
// active thread; ids never depend on the contents of a cache.
class Encoder {
  public:
    // Without a pattern only pieces can be encoded. Throws std::invalid_argument for merges of tokens that do not
    // exist, tokens with two spellings, or more than kMaxVocabularyBytes of tokens. `cache_bytes` limits the cache of
    // each thread, and separately the token table that all threads share; 0 means kDefaultCacheBytes, and the minimum
    // is 64 KiB.
    Encoder(const VocabularyParts& parts, std::optional<Pattern> pattern, Kernel kernel, std::size_t cache_bytes = 0);
    ~Encoder();
    Encoder(const Encoder&) = delete;
    Encoder& operator=(const Encoder&) = delete;

    static constexpr std::size_t kDefaultCacheBytes = std::size_t{64} << 20;

    // Whether all ids fit in 16 bits. Ids are then returned as 16-bit values, otherwise as 32-bit values.
    bool is_narrow() const;

    EncodedTexts encode(Texts& texts, const SpecialRule& rule, const TextMarks& marks, unsigned num_threads,
                        Monitor& monitor) const;
    // The ids of one text.
    IdBuffer encode(std::string_view text, const SpecialRule& rule, unsigned num_threads, Monitor& monitor) const;
    std::uint64_t count_tokens(std::string_view text, const SpecialRule& rule, unsigned num_threads,
                               Monitor& monitor) const;
    // For short texts: runs on the calling thread and does not copy the ids. Calls `use` once.
    using UseIds = void (*)(void* context, const void* ids, std::size_t num_ids);
    void encode_short(std::string_view text, const SpecialRule& rule, UseIds use, void* context) const;

    void encode_piece(std::string_view piece, std::vector<Id>& ids, const Monitor& monitor = {}) const;
    // BPE-dropout: at every step each possible merge is skipped with probability `dropout`. The same seed gives the
    // same ids.
    void encode_dropout(std::string_view text, const SpecialRule& rule, double dropout, std::uint64_t seed,
                        std::vector<Id>& ids, const Monitor& monitor = {}) const;
    void encode_piece_dropout(std::string_view piece, double dropout, std::uint64_t seed, std::vector<Id>& ids,
                              const Monitor& monitor = {}) const;

    // A position p > start, near the end of `text`, where it may be cut: the ids of both parts, concatenated, are the
    // ids of the whole, whatever text follows. 0 if there is no such position.
    std::size_t last_cut(std::string_view text, std::size_t start, const SpecialRule& rule) const;

    // Empty for an unknown id; tokens are never empty.
    std::string_view token_bytes(Id id) const;
    // One more than the largest id.
    std::size_t num_ids() const;
    CacheStats cache_stats() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace gristmill
