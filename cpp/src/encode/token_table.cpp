#include "encode/token_table.hpp"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

namespace gristmill {
namespace {

// Thirty merges that each double a token would fill the memory.
constexpr std::uint64_t kMaxTotalBytes = std::uint64_t{1} << 30;
// Tables go by id.
constexpr std::size_t kMaxIds = std::size_t{1} << 25;

std::size_t num_ids_of(const VocabularyParts& parts) {
    Id largest = *std::max_element(parts.byte_ids.begin(), parts.byte_ids.end());
    for (const MergeRule& merge : parts.merges) largest = std::max(largest, merge.made);
    for (const IdOfBytes& token : parts.others) largest = std::max(largest, token.id);
    for (const IdOfBytes& special : parts.specials) largest = std::max(largest, special.id);
    if (largest >= kMaxIds) throw std::invalid_argument("id " + std::to_string(largest) + " is too large");
    return std::size_t{largest} + 1;
}

}  // namespace

TokenTable::TokenTable(const VocabularyParts& parts) : begins_(num_ids_of(parts)), lengths_(begins_.size()) {
    for (unsigned byte = 0; byte < 256; ++byte) {
        const char single = static_cast<char>(byte);
        add(parts.byte_ids[byte], {&single, 1});
    }
    for (const IdOfBytes& token : parts.others) add(token.id, token.bytes);
    add_merges(parts.merges);
    for (const IdOfBytes& special : parts.specials) add(special.id, special.bytes);
}

void TokenTable::add(Id id, std::string_view bytes) {
    if (lengths_[id]) {
        if (this->bytes(id) == bytes) return;
        throw std::invalid_argument("id " + std::to_string(id) + " is two different tokens");
    }
    if (bytes_.size() + bytes.size() > kMaxTotalBytes)
        throw std::invalid_argument("the tokens add up to more than 1 GiB");
    begins_[id] = static_cast<std::uint32_t>(bytes_.size());
    lengths_[id] = static_cast<std::uint32_t>(bytes.size());
    bytes_ += bytes;
}

bool TokenTable::add_merged(const MergeRule& merge) {
    const std::string_view left = bytes(merge.left), right = bytes(merge.right);
    if (left.empty() || right.empty()) return false;
    std::string joined(left);
    joined += right;
    add(merge.made, joined);
    return true;
}

// Rank need not follow the order of making: where several merges make one token, one of them may come before its parts.
// It then waits for the first of them that is missing.
void TokenTable::add_merges(const std::vector<MergeRule>& merges) {
    std::unordered_map<Id, std::vector<const MergeRule*>> waiting;
    std::size_t num_waiting = 0;
    std::vector<const MergeRule*> ready;
    for (const MergeRule& merge : merges) {
        ready.push_back(&merge);
        while (!ready.empty()) {
            const MergeRule& next = *ready.back();
            ready.pop_back();
            if (!add_merged(next)) {
                waiting[bytes(next.left).empty() ? next.left : next.right].push_back(&next);
                ++num_waiting;
                continue;
            }
            const auto found = waiting.find(next.made);
            if (found == waiting.end()) continue;
            num_waiting -= found->second.size();
            ready.insert(ready.end(), found->second.begin(), found->second.end());
            waiting.erase(found);
        }
    }
    if (!num_waiting) return;
    const MergeRule& never = *waiting.begin()->second.front();
    throw std::invalid_argument("the merge of ids " + std::to_string(never.left) + " and " +
                                std::to_string(never.right) + " uses a token that is never made");
}

}  // namespace gristmill
