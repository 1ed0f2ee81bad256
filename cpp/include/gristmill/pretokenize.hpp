// pretokenize: document bytes -> pieces, exactly the matches of the pattern's regular expression.
//
// Text is bytes. A valid UTF-8 sequence is one character; every byte that is not part of one is a character of its own,
// of class "other" (neither letter, number nor white space). This rule needs no context, so it is the same in every
// chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace gristmill {

enum class Pattern : std::uint8_t { gpt2, cl100k, o200k, llama3, qwen2, whitespace };
enum class Kernel : std::uint8_t { scalar, avx2, avx512 };

std::optional<Pattern> pattern_from_name(std::string_view name);
std::optional<Kernel> kernel_from_name(std::string_view name);
std::string_view kernel_name(Kernel kernel);
// What this CPU can run. `scalar` always.
bool kernel_supported(Kernel kernel);
// The fastest supported kernel, or the one named by GRISTMILL_KERNEL. Throws std::invalid_argument for an unknown or
// unsupported name.
Kernel default_kernel();
// The Unicode version of the class tables, e.g. "17.0.0".
std::string_view unicode_version();

// Readable bytes that every scanned text must have behind its end (their value does not matter).
inline constexpr std::size_t kTextPadding = 64;

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
    // `text` is a complete text: its end is an end of text for the pattern's look-ahead. kTextPadding bytes behind it
    // are readable.
    virtual void start(const std::uint8_t* text, std::size_t size) = 0;
    virtual bool next() = 0;
    const std::uint8_t* base() const { return base_; }
    const std::uint16_t* ends() const { return ends_; }  // 64 more entries behind size() are readable
    std::size_t size() const { return size_; }

  protected:
    const std::uint8_t* base_ = nullptr;
    std::uint16_t* ends_ = nullptr;
    std::size_t size_ = 0;
};

// `kernel` must be supported. One that has no code of its own for `pattern` falls back to the scalar specification.
// Scanners share nothing: each thread takes its own.
std::unique_ptr<BoundaryScanner> make_scanner(Pattern pattern, Kernel kernel);

inline constexpr std::size_t kNoCut = static_cast<std::size_t>(-1);
// The first position p > 0 in [from, size) where a text may be cut in two: text[0, p) and text[p, size) have, as
// complete texts of their own, the same pieces as the whole, whatever stands before `from` or behind `size`. kNoCut if
// there is none. Looks back at most 4 bytes before p, so a caller that starts in mid-text passes at least that much
// context before `from`.
std::size_t find_cut(Pattern pattern, const std::uint8_t* text, std::size_t size, std::size_t from);

}  // namespace gristmill
