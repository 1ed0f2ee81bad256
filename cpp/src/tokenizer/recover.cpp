// Recovers merges from a table of ranks, the format of tiktoken.
#include <algorithm>
#include <stdexcept>
#include <unordered_map>

#include "gristmill/tokenizer.hpp"
#include "hash.hpp"

namespace gristmill {
namespace {

constexpr Id kNone = static_cast<Id>(-1);
// Limit for the sum of the squares of the token lengths. Published vocabularies of 200,000 tokens need 20 million.
constexpr std::uint64_t kMaxWork = std::uint64_t{1} << 31;

// Finds the two parts that the bytes of a token have just before they become the token; false if they never do. A plain
// loop over byte strings is enough: it runs once per token of a vocabulary, and tokens are short.
class Recovery {
  public:
    Recovery(const std::vector<std::string_view>& tokens, const std::vector<Id>& ids, const Monitor& monitor)
        : monitor_(monitor) {
        id_of_.reserve(tokens.size());
        for (std::size_t i = 0; i < tokens.size(); ++i) id_of_.emplace(tokens[i], ids[i]);
    }

    bool find(std::string_view token, MergeRule& merge) {
        begins_.clear();
        for (std::size_t i = 0; i <= token.size(); ++i) begins_.push_back(i);
        made_.clear();
        for (std::size_t i = 0; i + 2 < begins_.size(); ++i) made_.push_back(joined(token, i));
        while (begins_.size() > 3) {
            // Steps of long tokens take long: check the monitor in each of them, but not for the many short tokens.
            if (begins_.size() > kLongToken) monitor_.check();
            const auto best = std::min_element(made_.begin(), made_.end());
            if (*best == kNone) return false;
            const auto i = static_cast<std::size_t>(best - made_.begin());
            begins_.erase(begins_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
            made_.erase(best);
            if (i < made_.size()) made_[i] = joined(token, i);
            if (i > 0) made_[i - 1] = joined(token, i - 1);
        }
        if (begins_.size() != 3 || made_[0] == kNone) return false;
        merge = {id_of(token.substr(0, begins_[1])), id_of(token.substr(begins_[1])), made_[0]};
        return merge.left != kNone && merge.right != kNone;
    }

  private:
    static constexpr std::size_t kLongToken = 256;

    Id id_of(std::string_view bytes) const {
        const auto found = id_of_.find(bytes);
        return found == id_of_.end() ? kNone : found->second;
    }
    // The token that parts i and i + 1 make.
    Id joined(std::string_view token, std::size_t i) const {
        return id_of(token.substr(begins_[i], begins_[i + 2] - begins_[i]));
    }

    std::unordered_map<std::string_view, Id, SeededHash> id_of_;
    std::vector<std::size_t> begins_;  // starts of the parts, and the end
    std::vector<Id> made_;
    const Monitor& monitor_;
};

}  // namespace

std::vector<MergeRule> recover_merges(const std::vector<std::string_view>& tokens, const std::vector<Id>& ids,
                                      const Monitor& monitor) {
    std::uint64_t work = 0;
    for (const std::string_view token : tokens) work += static_cast<std::uint64_t>(token.size()) * token.size();
    if (work > kMaxWork)
        throw std::invalid_argument(
            "the tokens are too long for a table of ranks: the squares of their lengths add up to " +
            std::to_string(work) + ", and at most " + std::to_string(kMaxWork) +
            " is allowed. Published vocabularies need 20 million. Check that the file is a table of ranks.");
    Recovery recovery(tokens, ids, monitor);
    std::vector<MergeRule> merges;
    for (const std::string_view token : tokens) {
        monitor.check();
        MergeRule merge;
        if (token.size() > 1 && recovery.find(token, merge)) merges.push_back(merge);
    }
    std::sort(merges.begin(), merges.end(), [](const MergeRule& a, const MergeRule& b) { return a.made < b.made; });
    return merges;
}

}  // namespace gristmill
