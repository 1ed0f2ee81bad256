// pretokenize: document bytes -> pieces, exactly the matches of the pattern's regular expression.
//
// Text is bytes. A valid UTF-8 sequence is one character. Every byte outside such a sequence is one character of class
// "other" (neither letter, number nor white space). This rule needs no context, so it gives the same result in every
// chunk.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
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

// The classes of code point c are classes[64 * rows[c / 64] + c % 64]; their bits are in
// cpp/src/pretokenize/unicode.hpp.
struct ClassTables {
    std::span<const std::uint16_t> rows;
    std::span<const std::uint8_t> classes;
};
ClassTables class_tables();

// Finds the piece ends of one text in batches, so that positions stay in the L1 cache and fit in 16 bits.
//
//   scanner->start(text, size);
//   const std::uint8_t* begin = text;                       // start of the current piece
//   while (scanner->next()) {
//       for (std::size_t i = 0; i < scanner->size(); ++i) {
//           const std::uint8_t* end = scanner->base() + scanner->ends()[i];
//           use(begin, end);  begin = end;
//       }
//   }                                                       // begin == text + size now
//
// Every piece is delivered once, in order; none is empty. A piece may begin in an earlier batch than the one with its
// end (batches cover a few KB of text; a piece may be megabytes long), and a batch may be empty. An empty text has no
// pieces.
class BoundaryScanner {
  public:
    virtual ~BoundaryScanner() = default;
    // `text` is a complete text: its end is an end of text for the pattern's look-ahead. No byte after it is read.
    virtual void start(const std::uint8_t* text, std::size_t size) = 0;
    virtual bool next() = 0;
    // Writes all ends of a complete text of at most kMaxAppended bytes to `out`, each plus `offset`, and returns their
    // number. Up to 64 meaningless values may be written after them. Abandons a text that was started.
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

// `kernel` must be supported. Scanners share no state; each thread uses its own.
std::unique_ptr<BoundaryScanner> make_scanner(Pattern pattern, Kernel kernel);

inline constexpr std::size_t kNoCut = static_cast<std::size_t>(-1);
// The first position p > 0 in [from, size) where a text may be cut in two: text[0, p) and text[p, size), as complete
// texts, have the same pieces as the whole, whatever comes before `from` or after `size`. kNoCut if there is no such
// position. Looks back at most 4 bytes before p, so a caller that starts in the middle of a text must pass at least
// that much context before `from`.
std::size_t find_cut(Pattern pattern, const std::uint8_t* text, std::size_t size, std::size_t from);

class SpecialAutomaton;

// Special tokens are hard boundaries in a text. They are found by their spelling; the leftmost wins, then the longest.
class SpecialFinder {
  public:
    // `specials` must be non-empty strings of valid UTF-8: one that ends inside a character would change the class of
    // that character, and with it the positions where a text may be cut. Of two equal strings, either may be found.
    // Takes about 13 bytes of memory per byte of the specials.
    explicit SpecialFinder(const std::vector<std::string>& specials);

    struct Match {
        std::size_t position;
        std::uint32_t index;  // into the list given; kNone when there is no match
    };
    static constexpr std::uint32_t kNone = static_cast<std::uint32_t>(-1);

    // The first special that starts in [from, to) and ends within text[0, size). If none does, the position is `to`, or
    // `size` if that is less. For a single search; use SpecialSearch to find all specials of a text.
    Match find(const std::uint8_t* text, std::size_t size, std::size_t from, std::size_t to) const;
    Match find(const std::uint8_t* text, std::size_t size, std::size_t from) const {
        return find(text, size, from, size);
    }
    // Whether any special, wherever the search began, could cover both text[at - 1] and text[at]. text[at] must be
    // ASCII white space, as at every cut. Takes time linear in span_reach(); use SpecialSpans for many cuts.
    bool may_span(const std::uint8_t* text, std::size_t size, std::size_t at) const;
    // The number of bytes on either side of `at` that may_span() reads.
    std::size_t span_reach() const { return span_reach_; }
    std::size_t length(std::uint32_t index) const { return specials_[index].size(); }
    // The length of the longest special; 0 without specials.
    std::size_t longest() const { return longest_; }
    bool empty() const { return specials_.empty(); }

  private:
    friend class SpecialSearch;
    friend class SpecialSpans;
    std::size_t next_candidate(const std::uint8_t* text, std::size_t size, std::size_t from, std::size_t to) const;
    std::uint32_t longest_at(const std::uint8_t* text, std::size_t size, std::size_t at, std::size_t& num_steps) const;

    std::vector<std::string> specials_;
    std::vector<std::uint32_t> sorted_;    // indices, by spelling
    std::vector<std::uint16_t> prefixes_;  // distinct first two bytes of the specials with at least two
    std::vector<bool> starts_with_;        // by the first two bytes, where there are too many prefixes to compare
    bool has_single_byte_ = false;
    std::size_t longest_ = 0;
    std::size_t span_reach_ = 0;  // the longest special with ASCII white space inside: only those can cover a cut
    std::shared_ptr<const SpecialAutomaton> automaton_;
};

// Finds the specials of one text from left to right. All searches together take time linear in the text, regardless of
// the number and length of the specials and of their overlap with each other and with the text.
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

    // Like SpecialFinder::find. `from` must not be less than in the previous call.
    SpecialFinder::Match next(std::size_t from, std::size_t to);

  private:
    friend class SpecialFinder;
    // Ignores specials that start at `limit` or later.
    SpecialSearch(const SpecialFinder& finder, const std::uint8_t* text, std::size_t size, std::size_t limit)
        : finder_(finder), text_(text), size_(size), limit_(limit) {}
    bool is_too_slow(std::size_t at) const;
    void fill_window(std::size_t begin);

    const SpecialFinder& finder_;
    const std::uint8_t* text_;
    std::size_t size_, limit_;
    std::size_t num_steps_ = 0, steps_begin_ = 0;    // cost of comparisons since steps_begin_
    std::size_t window_begin_ = 0, window_end_ = 0;  // range that the automaton has read
    std::vector<std::uint32_t> window_;              // the longest special that starts at each position of the window
};

// Positions of a text that specials cover: SpecialFinder::may_span() for many positions, in time linear in the text if
// the positions ascend.
class SpecialSpans {
  public:
    explicit SpecialSpans(const SpecialFinder& finder) : finder_(finder) {}

    // Whether a special may cover both text[at - 1] and text[at]. Every call is for the same text, which may be longer
    // in later calls. `is_complete`: nothing follows text[0, size).
    bool cover(const std::uint8_t* text, std::size_t size, std::size_t at, bool is_complete = true);

  private:
    void fill_window(const std::uint8_t* text, std::size_t size, std::size_t begin, std::size_t end);

    const SpecialFinder& finder_;
    std::size_t window_begin_ = 0, window_end_ = 0;
    std::vector<std::int32_t> window_;             // number of specials that cover each position
    std::size_t clear_begin_ = 0, clear_end_ = 0;  // no special starts in this range
};

// Positions where a text may be cut in two: the pieces and specials of both parts are those of the whole.
class Cutter {
  public:
    // `specials` must outlive it.
    Cutter(Pattern pattern, const SpecialFinder& specials) : pattern_(pattern), specials_(specials) {}

    // The first cut in [from, to), or kNoCut. text[0, size) must be all of the text, or include at least reach() bytes
    // on either side of [from, to) where the text has that many.
    std::size_t first(const std::uint8_t* text, std::size_t size, std::size_t from, std::size_t to) const;
    std::size_t reach() const { return std::max<std::size_t>(kCutContext, specials_.span_reach()); }

    // A cut p > start, near the end of `text`, that is valid whatever text follows; 0 if there is no cut.
    std::size_t last(std::string_view text, std::size_t start) const;

  private:
    std::size_t first(SpecialSpans& spans, const std::uint8_t* text, std::size_t size, std::size_t from,
                      std::size_t to) const;

    static constexpr std::size_t kCutContext = 4;  // the number of bytes that find_cut() looks back
    Pattern pattern_;
    const SpecialFinder& specials_;
};

}  // namespace gristmill
