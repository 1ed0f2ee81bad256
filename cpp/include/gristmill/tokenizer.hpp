// tokenizer: a vocabulary as plain parts, and merges recovered from a table of ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gristmill/ids.hpp"
#include "gristmill/monitor.hpp"

namespace gristmill {

// The most bytes that all tokens of a vocabulary may have together, a token counted once for every merge that makes it.
// Published vocabularies have a few million; thirty merges that each double a token would make two thousand million.
inline constexpr std::uint64_t kMaxVocabularyBytes = std::uint64_t{256} << 20;
// The most bytes that all special tokens may have together. What finds them in text takes up to 30 times as much
// memory.
inline constexpr std::uint64_t kMaxSpecialBytes = std::uint64_t{8} << 20;

struct MergeRule {
    Id left, right, made;
};

struct IdOfBytes {
    std::string bytes;
    Id id;
};

// Ids as they are, in any order and with gaps. Several rules may make one token; rules are in the order of their rank.
struct VocabularyParts {
    std::array<Id, 256> byte_ids;
    std::vector<MergeRule> merges;
    std::vector<IdOfBytes> others;  // tokens that no merge makes
    bool whole_pieces = false;      // a piece that is one of `others` is that token
    std::vector<IdOfBytes> specials;
};

// Merges in Gristmill's own layout, where merge i makes id 256 + i: left ids in pairs[2 * i], right ids after them.
struct PlainMerges {
    const Id* pairs;
    std::size_t size;
    Id left(std::size_t i) const { return pairs[2 * i]; }
    Id right(std::size_t i) const { return pairs[2 * i + 1]; }
};

// The first merge of ids that are not made before it, or of a pair that was merged before; the number of merges if
// there is none.
std::size_t find_wrong_merge(const PlainMerges& merges);
// The first merge with which the tokens pass kMaxVocabularyBytes; the number of merges if there is none. Only their
// lengths are computed, so that this costs no more for tokens of gigabytes. Every merge must be of ids made before it.
std::size_t find_merge_past_limit(const PlainMerges& merges);

// For every token, the merge that makes it when its own bytes are encoded with its rank as priority; tokens that are
// never made so are left out. In the order of ranks (ids are ranks).
std::vector<MergeRule> recover_merges(const std::vector<std::string_view>& tokens, const std::vector<Id>& ids,
                                      const Monitor& monitor = {});

}  // namespace gristmill
