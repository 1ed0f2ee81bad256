// The native patterns: one line each in GRISTMILL_PATTERNS, which generates the enum, the names and every table.
#pragma once

namespace gristmill {

// Pattern families. A family has a scalar matcher in specification.hpp (`piece_end`) and one for 64 characters at a
// time in block_rules.hpp (`BlockRules`).
//
// kNewlineNeedsWord: a text may be cut before \r or \n only after a letter or a number; see cuts.cpp.
struct Gpt2 {
    static constexpr bool kNewlineNeedsWord = false;
};

// kMaxDigits: the maximum length of a number, \p{N}{1,kMaxDigits}; below 16. kSpaceToEnd: the pattern has `\s++$`, so
// that white space at the end of a text is one piece.
template <int kMaxDigits, bool kSpaceToEnd>
struct Cl100k {
    static constexpr bool kNewlineNeedsWord = true;
};

struct O200k {
    static constexpr bool kNewlineNeedsWord = true;
};

struct Whitespace {
    static constexpr bool kNewlineNeedsWord = false;
};

}  // namespace gristmill

// X(name, family); the family is variadic because of the commas in it.
#define GRISTMILL_PATTERNS(X)     \
    X(gpt2, Gpt2)                 \
    X(cl100k, Cl100k<3, true>)    \
    X(o200k, O200k)               \
    X(llama3, Cl100k<3, false>)   \
    X(nanochat, Cl100k<2, false>) \
    X(qwen2, Cl100k<1, false>)    \
    X(whitespace, Whitespace)
