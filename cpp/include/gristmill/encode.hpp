// encode: text -> ids under a list of merges, and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gristmill/merge.hpp"
#include "gristmill/pretokenize.hpp"
#include "gristmill/specials.hpp"

namespace gristmill {

// Immutable: any number of threads may use one.
class Encoder {
  public:
    // Merge i makes id 256 + i from two smaller ids; special i has the id special_ids[i]. Without a pattern only pieces
    // can be encoded. Throws std::invalid_argument for a merge of ids that are not there yet, or tokens that add up to
    // over 1 GiB.
    Encoder(const std::vector<Merge>& merges, std::optional<Pattern> pattern, Kernel kernel,
            const std::vector<std::string>& specials, const std::vector<Id>& special_ids);

    // `allowed` are the specials to recognise; everything else is ordinary text.
    void encode(std::string_view text, const std::vector<Id>& allowed, std::vector<Id>& ids) const;
    void encode_piece(std::string_view piece, std::vector<Id>& ids) const;

    struct Found {
        std::size_t position;
        Id id;
    };
    std::optional<Found> find_special(std::string_view text, const std::vector<Id>& among) const;
    // Empty for an unknown id: no token is.
    std::string_view token_bytes(Id id) const;

  private:
    static constexpr Id kNoId = static_cast<Id>(-1);

    void add_tokens(const std::vector<Merge>& merges);
    void add_pairs(const std::vector<Merge>& merges);
    // What merging `left` and `right` makes, kNoId if they are no merge. A smaller id was learned earlier, so it is
    // also the rank.
    Id merged(Id left, Id right) const;
    void encode_text(std::string_view text, std::vector<Id>& ids) const;
    void encode_short(std::string_view piece, std::vector<Id>& ids) const;
    void encode_long(std::string_view piece, std::vector<Id>& ids) const;
    SpecialFinder finder(const std::vector<Id>& among, std::vector<Id>& ids) const;

    struct Slot {
        std::uint64_t pair;
        Id id;
    };
    std::vector<Slot> slots_;  // open addressing by pair; id == kNoId: free
    unsigned slot_shift_ = 0;
    std::string bytes_;  // all tokens, end to end
    std::vector<std::uint32_t> offsets_;
    std::optional<Pattern> pattern_;
    Kernel kernel_;
    std::vector<std::string> specials_;
    std::vector<Id> special_ids_;
};

}  // namespace gristmill
