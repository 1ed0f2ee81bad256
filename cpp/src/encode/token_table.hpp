// The bytes of every id.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gristmill/tokenizer.hpp"

namespace gristmill {

class TokenTable {
  public:
    // Throws std::invalid_argument when a merge uses a token that is never made, a token has two spellings, or the
    // total size exceeds kMaxVocabularyBytes; the size is checked before any token is built.
    explicit TokenTable(const VocabularyParts& parts);

    // Empty for an unknown id.
    std::string_view bytes(Id id) const {
        if (id >= lengths_.size()) return {};
        return std::string_view(bytes_).substr(begins_[id], lengths_[id]);
    }
    // `id` must be known.
    std::uint32_t length(Id id) const { return lengths_[id]; }
    std::size_t num_ids() const { return lengths_.size(); }

  private:
    void add(Id id, std::string_view bytes);

    std::string bytes_;
    std::vector<std::uint32_t> begins_, lengths_;  // by id; length 0: not a token
};

}  // namespace gristmill
