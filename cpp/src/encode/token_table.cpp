#include "encode/token_table.hpp"

#include <algorithm>
#include <stdexcept>

namespace gristmill {
namespace {

// Tables are indexed by id.
constexpr std::size_t kMaxIds = std::size_t{1} << 25;
constexpr std::uint32_t kNone = static_cast<std::uint32_t>(-1);

std::size_t num_ids_of(const VocabularyParts& parts) {
    Id largest = *std::max_element(parts.byte_ids.begin(), parts.byte_ids.end());
    for (const MergeRule& merge : parts.merges) largest = std::max(largest, merge.made);
    for (const IdOfBytes& token : parts.others) largest = std::max(largest, token.id);
    for (const IdOfBytes& special : parts.specials) largest = std::max(largest, special.id);
    if (largest >= kMaxIds)
        throw std::invalid_argument("id " + std::to_string(largest) + " is too large: ids must be below " +
                                    std::to_string(kMaxIds));
    return std::size_t{largest} + 1;
}

// The lengths of the tokens, computed before any token is built, and an order in which they can be built.
//
// Ranks need not be in that order: if several merges make one token, one of them may come before its parts exist. It
// then waits for the first missing part.
class Measure {
  public:
    Measure(const VocabularyParts& parts, std::size_t num_ids) : merges_(parts.merges), lengths_(num_ids) {
        for (const Id id : parts.byte_ids) set_length(id, 1);
        for (const IdOfBytes& token : parts.others) set_length(token.id, token.bytes.size());
        order_.reserve(merges_.size());
        for (std::uint32_t rank = 0; rank < merges_.size(); ++rank) measure(rank);
        if (order_.size() < merges_.size()) throw_never_made();
        std::uint64_t special_bytes = 0;
        for (const IdOfBytes& special : parts.specials) special_bytes += special.bytes.size();
        if (special_bytes > kMaxSpecialBytes)
            throw std::invalid_argument("the special tokens have " + std::to_string(special_bytes) +
                                        " bytes together; at most " + std::to_string(kMaxSpecialBytes) +
                                        " are allowed. Pass fewer or shorter ones");
        total_ += special_bytes;
    }

    const std::vector<std::uint32_t>& order() const { return order_; }  // ranks
    std::uint64_t total_bytes() const { return total_; }                // upper bound of the total size of the tokens

  private:
    bool is_known(Id id) const { return id < lengths_.size() && lengths_[id]; }

    void set_length(Id id, std::uint64_t length) {
        total_ += length;
        if (total_ > kMaxVocabularyBytes)
            throw std::invalid_argument("the tokens have more than " + std::to_string(kMaxVocabularyBytes) +
                                        " bytes together, the most that is allowed; the token with id " +
                                        std::to_string(id) + " alone would have " + std::to_string(length) +
                                        ". Real vocabularies have a few million: check where this one comes from");
        if (!lengths_[id]) lengths_[id] = static_cast<std::uint32_t>(length);
    }

    void measure(std::uint32_t rank) {
        ready_.push_back(rank);
        while (!ready_.empty()) {
            const std::uint32_t next = ready_.back();
            ready_.pop_back();
            const auto& [left, right, made] = merges_[next];
            if (!is_known(left) || !is_known(right)) {
                wait(next, is_known(left) ? right : left);
                continue;
            }
            set_length(made, std::uint64_t{lengths_[left]} + lengths_[right]);
            order_.push_back(next);
            if (first_waiting_.empty()) continue;
            for (std::uint32_t& waiting = first_waiting_[made]; waiting != kNone; waiting = next_waiting_[waiting])
                ready_.push_back(waiting);
        }
    }

    void wait(std::uint32_t rank, Id missing) {
        if (missing >= lengths_.size()) return;
        if (first_waiting_.empty()) {
            first_waiting_.assign(lengths_.size(), kNone);
            next_waiting_.assign(merges_.size(), kNone);
        }
        next_waiting_[rank] = first_waiting_[missing];
        first_waiting_[missing] = rank;
    }

    [[noreturn]] void throw_never_made() const {
        std::vector<bool> is_done(merges_.size());
        for (const std::uint32_t rank : order_) is_done[rank] = true;
        const auto never = std::find(is_done.begin(), is_done.end(), false) - is_done.begin();
        const auto& [left, right, made] = merges_[static_cast<std::size_t>(never)];
        throw std::invalid_argument("the merge of ids " + std::to_string(left) + " and " + std::to_string(right) +
                                    " uses a token that is never made");
    }

    const std::vector<MergeRule>& merges_;
    std::vector<std::uint32_t> lengths_;  // by id; 0: unknown
    std::uint64_t total_ = 0;
    std::vector<std::uint32_t> order_, ready_;
    std::vector<std::uint32_t> first_waiting_, next_waiting_;  // merges by the id that they wait for; usually empty
};

}  // namespace

TokenTable::TokenTable(const VocabularyParts& parts) : begins_(num_ids_of(parts)), lengths_(begins_.size()) {
    const Measure measure(parts, num_ids());
    bytes_.reserve(measure.total_bytes());
    for (unsigned byte = 0; byte < 256; ++byte) {
        const char single = static_cast<char>(byte);
        add(parts.byte_ids[byte], {&single, 1});
    }
    for (const IdOfBytes& token : parts.others) add(token.id, token.bytes);
    std::string joined;
    for (const std::uint32_t rank : measure.order()) {
        const auto& [left, right, made] = parts.merges[rank];
        joined = bytes(left);
        joined += bytes(right);
        add(made, joined);
    }
    for (const IdOfBytes& special : parts.specials) add(special.id, special.bytes);
}

void TokenTable::add(Id id, std::string_view bytes) {
    if (lengths_[id]) {
        if (this->bytes(id) == bytes) return;
        throw std::invalid_argument("id " + std::to_string(id) + " is two different tokens");
    }
    begins_[id] = static_cast<std::uint32_t>(bytes_.size());
    lengths_[id] = static_cast<std::uint32_t>(bytes.size());
    bytes_ += bytes;
}

}  // namespace gristmill
