// merge: both loops, on one thread and on three, against the definition.
#include <map>
#include <optional>
#include <set>
#include <stdexcept>

#include "fuzz.hpp"
#include "gristmill/merge.hpp"
#include "merge/loops.hpp"

using namespace gristmill;
using namespace gristmill::fuzz;

namespace {

// The words of the text, between line breaks, with counts of any size.
WordTable words_of(Input& input, std::string_view text) {
    const bool large = input.byte() < 8;
    WordTable table;
    table.offsets.push_back(0);
    std::set<std::string_view> seen;
    while (!text.empty()) {
        const std::string_view word = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(word.size() + 1, text.size()));
        if (word.empty() || !seen.insert(word).second) continue;
        table.firsts.push_back(table.bytes.size());
        table.bytes.insert(table.bytes.end(), word.begin(), word.end());
        table.offsets.push_back(table.bytes.size());
        table.counts.push_back(large ? input.number() : 1 + input.below(8));
    }
    table.source_bytes = table.bytes.size();
    return table;
}

// The definition: count every adjacent pair, take the best, replace it everywhere from left to right, repeat.
class PlainTrainer {
  public:
    __extension__ using Count = unsigned __int128;

    PlainTrainer(const WordTable& table, const std::vector<Merge>& given, const MergeOptions& options)
        : options_(options) {
        for (unsigned byte = 0; byte < 256; ++byte) tokens_.emplace_back(1, static_cast<char>(byte));
        for (std::size_t i = 0; i < table.size(); ++i) {
            if (!table.counts[i]) continue;
            words_.emplace_back();
            counts_.push_back(table.counts[i]);
            for (const char byte : table.word(i)) words_.back().push_back(static_cast<std::uint8_t>(byte));
        }
        for (const Merge& merge : given) replace(merge);
    }

    // Empty when a count exceeds 63 bits, even that of a pair that is too long to merge. Counts only fall, so checking
    // the first counts is enough.
    std::optional<MergeRun> learn() {
        MergeRun run;
        for (const auto& [pair, seen] : count_pairs(0)) {
            if (seen.count > INT64_MAX) return std::nullopt;
        }
        while (run.merges.size() < options_.num_merges) {
            const Pairs pairs = count_pairs(options_.max_token_bytes);
            const auto best = std::max_element(pairs.begin(), pairs.end(),
                                               [this](const auto& a, const auto& b) { return worse(a, b); });
            if (best == pairs.end()) break;
            run.merges.push_back(best->first);
            run.counts.push_back(static_cast<std::uint64_t>(best->second.count));
            replace(best->first);
        }
        return run;
    }

  private:
    struct Seen {
        Count count = 0;
        std::size_t first = 0;  // number of pairs before it
    };
    using Pairs = std::map<Merge, Seen>;

    // 0: any length.
    Pairs count_pairs(std::uint32_t max_token_bytes) const {
        Pairs pairs;
        std::size_t position = 0;
        for (std::size_t w = 0; w < words_.size(); ++w) {
            for (std::size_t i = 0; i + 1 < words_[w].size(); ++i, ++position) {
                const Merge pair(words_[w][i], words_[w][i + 1]);
                const std::size_t length = tokens_[pair.first].size() + tokens_[pair.second].size();
                if (max_token_bytes && length > max_token_bytes) continue;
                pairs.try_emplace(pair, Seen{0, position}).first->second.count += counts_[w];
            }
        }
        return pairs;
    }

    bool worse(const Pairs::value_type& a, const Pairs::value_type& b) const {
        if (a.second.count != b.second.count) return a.second.count < b.second.count;
        const auto bytes = [this](Merge m) { return std::pair(tokens_[m.first], tokens_[m.second]); };
        const auto ranks = [](Merge m) { return Merge(huggingface_rank(m.first), huggingface_rank(m.second)); };
        switch (options_.tie_break) {
            case TieBreak::greatest_bytes:
                return bytes(a.first) < bytes(b.first);
            case TieBreak::smallest_ids:
                return a.first > b.first;
            case TieBreak::huggingface:
                return ranks(a.first) > ranks(b.first);
            case TieBreak::first_seen:
                return a.second.first > b.second.first;
        }
        return false;
    }

    // The alphabet has the printable bytes first, then the others, both in order.
    static Id huggingface_rank(Id id) {
        const auto printable = [](Id b) { return (b > 32 && b < 127) || (b > 160 && b != 173); };
        if (id > 255) return id;
        Id rank = 0;
        for (Id b = 0; b < 256; ++b) {
            if (printable(id) ? printable(b) && b < id : printable(b) || b < id) ++rank;
        }
        return rank;
    }

    void replace(const Merge& merge) {
        const auto made = static_cast<Id>(tokens_.size());
        tokens_.push_back(tokens_[merge.first] + tokens_[merge.second]);
        for (std::vector<Id>& word : words_) {
            std::size_t size = 0;
            for (std::size_t i = 0; i < word.size(); ++i) {
                const bool here = i + 1 < word.size() && word[i] == merge.first && word[i + 1] == merge.second;
                word[size++] = here ? made : word[i];
                i += here;
            }
            word.resize(size);
        }
    }

    MergeOptions options_;
    std::vector<std::string> tokens_;
    std::vector<std::vector<Id>> words_;
    std::vector<std::uint64_t> counts_;
};

// Merges of bytes of the text and of earlier results; occasionally of an id that does not exist yet.
std::vector<Merge> given_of(Input& input, std::string_view text) {
    std::vector<Merge> given;
    const auto any = [&]() -> Id {
        const std::uint8_t kind = input.byte();
        if (kind == 255) return static_cast<Id>(input.number());
        if (kind % 2 && !given.empty()) return static_cast<Id>(256 + kind / 2 % given.size());
        return text.empty() ? kind : static_cast<std::uint8_t>(text[kind / 2 % text.size()]);
    };
    for (std::size_t left = input.flag() ? input.below(12) : 0; left; --left) {
        const Id first = any();
        given.emplace_back(first, any());
    }
    return given;
}

bool can_be_given(const std::vector<Merge>& given) {
    for (std::size_t i = 0; i < given.size(); ++i) {
        if (given[i].first >= 256 + i || given[i].second >= 256 + i) return false;
    }
    return true;
}

enum class Outcome { learned, refused, overflowed };

Outcome learn(const WordTable& words, const std::vector<Merge>& given, const MergeOptions& options,
              const merge::Tuning& tuning, MergeRun& run) {
    Monitor monitor;
    try {
        run = merge::learn_merges(words, given, options, tuning, monitor);
    } catch (const std::invalid_argument&) {
        return Outcome::refused;
    } catch (const std::overflow_error&) {
        return Outcome::overflowed;
    }
    return Outcome::learned;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    MergeOptions options;
    options.tie_break = static_cast<TieBreak>(input.below(4));
    options.num_merges = static_cast<std::uint32_t>(input.below(40));
    options.max_token_bytes = input.flag() ? 0 : static_cast<std::uint32_t>(input.below(12));
    merge::Tuning tuning;
    if (input.flag()) tuning.initial_threshold = input.below(200);
    tuning.wide_symbols = input.flag();
    tuning.seed = HashSeed{0x9E3779B97F4A7C15, 0xD1B54A32D192ED03};  // the same input takes the same path
    const std::size_t threads = input.below(16);
    const unsigned num_threads = input.one_in(128) ? 3 : 1;  // starting threads takes longer than everything else
    tuning.shared_postings = threads == 2 ? 1 + static_cast<std::uint32_t>(input.below(8)) : 0;
    const Input before = input;
    const std::vector<Merge> given = given_of(input, Input(before).rest());
    const std::string_view text = input.text(input.size() - input.size() / 4);
    const WordTable words = words_of(input, text);

    std::optional<MergeRun> expected;
    Outcome outcome = Outcome::refused;
    if (can_be_given(given)) {
        expected = PlainTrainer(words, given, options).learn();
        outcome = expected ? Outcome::learned : Outcome::overflowed;
    }
    for (const MergeLoop loop : {MergeLoop::sequential, MergeLoop::rounds}) {
        options.loop = loop;
        options.num_threads = num_threads;
        MergeRun run;
        CHECK(learn(words, given, options, tuning, run) == outcome);
        if (outcome != Outcome::learned) continue;
        CHECK(run.merges == expected->merges);
        CHECK(run.counts == expected->counts);
    }
    return 0;
}
