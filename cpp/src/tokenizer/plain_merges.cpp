// Checks of merges in Gristmill's layout.
#include <unordered_set>

#include "gristmill/tokenizer.hpp"
#include "hash.hpp"

namespace gristmill {

std::size_t find_wrong_merge(const PlainMerges& merges) {
    std::unordered_set<std::uint64_t, SeededHash> seen;
    seen.reserve(merges.size);
    for (std::size_t i = 0; i < merges.size; ++i) {
        const std::uint64_t left = merges.left(i), right = merges.right(i);
        if (left >= 256 + i || right >= 256 + i || !seen.insert(left << 32 | right).second) return i;
    }
    return merges.size;
}

std::size_t find_merge_past_limit(const PlainMerges& merges) {
    std::vector<std::uint32_t> lengths(256, 1);
    lengths.reserve(256 + merges.size);
    std::uint64_t total = lengths.size();
    for (std::size_t i = 0; i < merges.size; ++i) {
        const std::uint64_t length = std::uint64_t{lengths[merges.left(i)]} + lengths[merges.right(i)];
        total += length;
        if (total > kMaxVocabularyBytes) return i;
        lengths.push_back(static_cast<std::uint32_t>(length));
    }
    return merges.size;
}

}  // namespace gristmill
