// tokenizer: a vocabulary as plain parts, and merges recovered from a table of ranks.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "gristmill/ids.hpp"

namespace gristmill {

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

// For every token, the merge that makes it when its own bytes are encoded with its rank as priority; tokens that are
// never made so are left out. In the order of ranks (ids are ranks).
std::vector<MergeRule> recover_merges(const std::vector<std::string_view>& tokens, const std::vector<Id>& ids);

}  // namespace gristmill
