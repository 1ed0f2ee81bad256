// pretokenize: document bytes -> pieces, exactly the matches of the pattern's regular expression.
//
// Text is bytes. A valid UTF-8 sequence is one character; every byte that is not part of one is a character of its own,
// of class "other" (neither letter, number nor white space). This rule needs no context, so it is the same in every
// chunk.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gristmill/kernel.hpp"
#include "gristmill/pattern_list.hpp"

namespace gristmill {

#define GRISTMILL_PATTERN(name, ...) name,
enum class Pattern : std::uint8_t { GRISTMILL_PATTERNS(GRISTMILL_PATTERN) };
#undef GRISTMILL_PATTERN

#define GRISTMILL_PATTERN(name, ...) Pattern::name,
inline constexpr Pattern kAllPatterns[] = {GRISTMILL_PATTERNS(GRISTMILL_PATTERN)};
#undef GRISTMILL_PATTERN

std::optional<Pattern> pattern_from_name(std::string_view name);
std::string_view pattern_name(Pattern pattern);
// The Unicode version of the class tables, e.g. "17.0.0".
std::string_view unicode_version();

// Finds the piece ends of one text, a batch at a time, so that positions stay in the first-level cache and fit 16 bits.
//
//   scanner->start(text, size);
//   const std::uint8_t* begin = text;                       // start of the piece under way
//   while (scanner->next()) {
//       for (std::size_t i = 0; i < scanner->size(); ++i) {
//           const std::uint8_t* end = scanner->base() + scanner->ends()[i];
//           use(begin, end);  begin = end;
//       }
//   }                                                       // begin == text + size now
//
// Every piece is delivered once, in order; none is empty. A piece may begin in an earlier batch than the one its end is
// in (batches cover a few KB of text; a piece may be megabytes), and a batch may be empty. An empty text has no piece.
class BoundaryScanner {
  public:
    virtual ~BoundaryScanner() = default;
    // `text` is a complete text: its end is an end of text for the pattern's look-ahead. No byte after it is read.
    virtual void start(const std::uint8_t* text, std::size_t size) = 0;
    virtual bool next() = 0;
    // All ends of a complete text of at most kMaxAppended bytes, each plus `offset`, written to `out`; returns their
    // number. Up to 64 values of no meaning are written after them. Ends a text that was started.
    virtual std::size_t append(const std::uint8_t* text, std::size_t size, std::uint16_t offset,
                               std::uint16_t* out) = 0;
    static constexpr std::size_t kMaxAppended = 8192;

    const std::uint8_t* base() const { return base_; }
    const std::uint16_t* ends() const { return ends_; }  // 64 more entries after size() are readable
    std::size_t size() const { return size_; }

  protected:
    const std::uint8_t* base_ = nullptr;
    std::uint16_t* ends_ = nullptr;
    std::size_t size_ = 0;
};

// `kernel` must be supported.
// Scanners share nothing: each thread takes its own.
std::unique_ptr<BoundaryScanner> make_scanner(Pattern pattern, Kernel kernel);

inline constexpr std::size_t kNoCut = static_cast<std::size_t>(-1);
// The first position p > 0 in [from, size) where a text may be cut in two: text[0, p) and text[p, size) have, as
// complete texts of their own, the same pieces as the whole, whatever stands before `from` or after `size`. kNoCut if
// there is none. Looks back at most 4 bytes before p, so a caller that starts in mid-text passes at least that much
// context before `from`.
std::size_t find_cut(Pattern pattern, const std::uint8_t* text, std::size_t size, std::size_t from);

class SpecialAutomaton;

// Special tokens are hard boundaries of text: found by their spelling, the leftmost first, the longest among those.
class SpecialFinder {
  public:
    // `specials` are not empty and valid UTF-8: one that ends inside a character would change its class, and with it
    // where a text may be cut. Of two that are the same, either may be found. Takes memory in proportion to their
    // bytes, about 13 for each.
    explicit SpecialFinder(const std::vector<std::string>& specials);

    struct Match {
        std::size_t position;
        std::uint32_t index;  // into the list given; kNone when there is no match
    };
    static constexpr std::uint32_t kNone = static_cast<std::uint32_t>(-1);

    // The first special that starts in [from, to) and ends within text[0, size). If there is none, its position is
    // `to`, or `size` if that is less. For one search; a loop over all specials of a text is a SpecialSearch.
    Match find(const std::uint8_t* text, std::size_t size, std::size_t from, std::size_t to) const;
    Match find(const std::uint8_t* text, std::size_t size, std::size_t from) const {
        return find(text, size, from, size);
    }
    // Whether any special, wherever the search began, could cover both text[at - 1] and text[at], which is ASCII white
    // space, as at every cut. Takes time linear in span_reach(); a loop over many cuts needs SpecialSpans.
    bool may_span(const std::uint8_t* text, std::size_t size, std::size_t at) const;
    // How many bytes on either side of `at` may_span() looks at.
    std::size_t span_reach() const { return span_reach_; }
    std::size_t length(std::uint32_t index) const { return specials_[index].size(); }
    // The length of the longest; 0 if there is none.
    std::size_t longest() const { return longest_; }
    bool empty() const { return specials_.empty(); }

  private:
    friend class SpecialSearch;
    friend class SpecialSpans;
    std::size_t next_candidate(const std::uint8_t* text, std::size_t size, std::size_t from, std::size_t to) const;
    std::uint32_t longest_at(const std::uint8_t* text, std::size_t size, std::size_t at, std::size_t& num_steps) const;

    std::vector<std::string> specials_;
    std::vector<std::uint32_t> sorted_;    // indices, by spelling
    std::vector<std::uint16_t> prefixes_;  // distinct first two bytes of the specials that have two
    std::vector<bool> starts_with_;  // by the first two bytes, for more prefixes than a register compare is good for
    bool has_single_byte_ = false;
    std::size_t longest_ = 0;
    std::size_t span_reach_ = 0;  // the longest special with ASCII white space inside: only such can cover a cut
    std::shared_ptr<const SpecialAutomaton> automaton_;
};

// The specials of one text, from left to right. All searches together take time linear in the text, however many
// specials there are, how long, and what they have in common with each other and with the text.
//
//   SpecialSearch search(finder, text, size);
//   for (std::size_t at = 0; at < size;) {
//       const SpecialFinder::Match special = search.next(at, size);
//       use(at, special.position);                            // plain text
//       if (special.index == SpecialFinder::kNone) break;
//       at = special.position + finder.length(special.index);
//   }
class SpecialSearch {
  public:
    // `finder` and `text` must outlive it.
    SpecialSearch(const SpecialFinder& finder, const std::uint8_t* text, std::size_t size)
        : SpecialSearch(finder, text, size, size) {}

    // As SpecialFinder::find. `from` is not less than in the call before.
    SpecialFinder::Match next(std::size_t from, std::size_t to);

  private:
    friend class SpecialFinder;
    // Nothing that starts at `limit` or after it is looked for.
    SpecialSearch(const SpecialFinder& finder, const std::uint8_t* text, std::size_t size, std::size_t limit)
        : finder_(finder), text_(text), size_(size), limit_(limit) {}
    bool is_too_slow(std::size_t at) const;
    void fill_window(std::size_t begin);

    const SpecialFinder& finder_;
    const std::uint8_t* text_;
    std::size_t size_, limit_;
    std::size_t num_steps_ = 0, steps_begin_ = 0;    // what comparing has cost since that place
    std::size_t window_begin_ = 0, window_end_ = 0;  // what the automaton has read
    std::vector<std::uint32_t> window_;              // the longest special that starts at each of its places
};

// Which places of a text specials cover: SpecialFinder::may_span() for many places, in time linear in the text if they
// are asked for from left to right.
class SpecialSpans {
  public:
    explicit SpecialSpans(const SpecialFinder& finder) : finder_(finder) {}

    // May a special cover both text[at - 1] and text[at]? Every call is for the same text, of which later calls may
    // know more; `is_complete`: nothing follows text[0, size).
    bool cover(const std::uint8_t* text, std::size_t size, std::size_t at, bool is_complete = true);

  private:
    void fill_window(const std::uint8_t* text, std::size_t size, std::size_t begin, std::size_t end);

    const SpecialFinder& finder_;
    std::size_t window_begin_ = 0, window_end_ = 0;
    std::vector<std::int32_t> window_;             // how many specials cover each place
    std::size_t clear_begin_ = 0, clear_end_ = 0;  // no special starts in between
};

// Where a text may be cut in two: pieces and specials of both parts are those of the whole.
class Cutter {
  public:
    // `specials` must outlive it.
    Cutter(Pattern pattern, const SpecialFinder& specials) : pattern_(pattern), specials_(specials) {}

    // The first cut in [from, to), kNoCut if there is none. text[0, size) is all of the text, or at least reach() bytes
    // on either side of [from, to) where there are so many.
    std::size_t first(const std::uint8_t* text, std::size_t size, std::size_t from, std::size_t to) const;
    std::size_t reach() const { return std::max<std::size_t>(kCutContext, specials_.span_reach()); }

    // A cut p > start, near the end of `text`, that is one whatever follows; 0 if there is none.
    std::size_t last(std::string_view text, std::size_t start) const;

  private:
    std::size_t first(SpecialSpans& spans, const std::uint8_t* text, std::size_t size, std::size_t from,
                      std::size_t to) const;

    static constexpr std::size_t kCutContext = 4;  // how far find_cut() looks back
    Pattern pattern_;
    const SpecialFinder& specials_;
};

}  // namespace gristmill
