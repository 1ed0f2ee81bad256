// tokenizer: the plain parts of a vocabulary, and merges recovered from a table of ranks.
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

// Maximum total size of all tokens of a vocabulary. A token counts once for every merge that makes it. Published
// vocabularies have a few million bytes; thirty merges that each double a token would make two billion.
inline constexpr std::uint64_t kMaxVocabularyBytes = std::uint64_t{256} << 20;
// Maximum total size of all special tokens. Their search structures take up to 30 times as much memory.
inline constexpr std::uint64_t kMaxSpecialBytes = std::uint64_t{8} << 20;

struct MergeRule {
    Id left, right, made;
};

struct IdOfBytes {
    std::string bytes;
    Id id;
};

// Ids may be in any order and have gaps. Several merges may make the same token; merges are in the order of their rank.
struct VocabularyParts {
    std::array<Id, 256> byte_ids;
    std::vector<MergeRule> merges;
    std::vector<IdOfBytes> others;  // tokens that no merge makes
    bool whole_pieces = false;      // a piece that equals one of `others` becomes that token
    std::vector<IdOfBytes> specials;
};

// Merges in Gristmill's layout, where merge i makes id 256 + i: the left id is pairs[2 * i], the right id follows it.
struct PlainMerges {
    const Id* pairs;
    std::size_t size;
    Id left(std::size_t i) const { return pairs[2 * i]; }
    Id right(std::size_t i) const { return pairs[2 * i + 1]; }
};

// The first merge that uses an id not made before it, or that repeats an earlier pair; the number of merges if there is
// none of these.
std::size_t find_wrong_merge(const PlainMerges& merges);
// The first merge at which the total size of the tokens exceeds kMaxVocabularyBytes; the number of merges if the limit
// holds. Computes only lengths, so that tokens of gigabytes cost no more. Each merge must use ids made before it.
std::size_t find_merge_past_limit(const PlainMerges& merges);

// For every token, the merge that makes it when its bytes are encoded with rank as priority. Tokens that this never
// makes are omitted. The result is in rank order (ids are ranks).
std::vector<MergeRule> recover_merges(const std::vector<std::string_view>& tokens, const std::vector<Id>& ids,
                                      const Monitor& monitor = {});

}  // namespace gristmill
