// Shared by the fuzz targets. A target defines LLVMFuzzerTestOneInput() and compares a fast path with a plain one.
//
// Two programs are built from each target: libFuzzer's (`make fuzz`), and the smoke test in smoke.cpp that `make test`
// runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gristmill/pretokenize.hpp"
#include "hash.hpp"

// libFuzzer saves the input when the process aborts.
#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            std::fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition); \
            std::abort();                                                                      \
        }                                                                                      \
    } while (0)

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace gristmill::fuzz {

// Decisions are read from the end of the input and the text from its beginning, so a plain text file is a useful seed.
// When the input is used up, every decision is 0.
class Input {
  public:
    Input(const std::uint8_t* data, std::size_t size) : data_(reinterpret_cast<const char*>(data)), size_(size) {
#if defined(GRISTMILL_FUZZ)
        next_hash_seed = 0;
#endif
        hash_ = size;
        std::size_t at = 0;
        for (; at + 8 <= size; at += 8) hash_ = fold_multiply(hash_ ^ load_8(data + at), kOdd);
        for (; at < size; ++at) hash_ = fold_multiply(hash_ ^ data[at], kOdd);
    }

    std::uint8_t byte() { return size_ ? static_cast<std::uint8_t>(data_[--size_]) : 0; }
    bool flag() { return byte() & 1; }
    // Any 64-bit value. Half of them are near a power of two, where overflows occur.
    std::uint64_t number() {
        const std::uint8_t kind = byte();
        if (kind < 64) return kind;
        if (kind < 128) return (std::uint64_t{1} << kind % 64) - 1 - (byte() & 3);
        std::uint64_t value = 0;
        for (int i = 0; i < (kind & 7) + 1; ++i) value = value << 8 | byte();
        return value;
    }
    // True for one input in `n`, whatever its bytes: for variants that take many times as long as the others. If a byte
    // decided, the fuzzer would keep the inputs that reach such a variant and mainly run their descendants.
    bool one_in(std::uint64_t n) {
#if !defined(GRISTMILL_FUZZ)
        n = std::max<std::uint64_t>(n / 8, 1);  // smoke tests run few inputs
#endif
        hash_ = fold_multiply(hash_ + 1, kOdd);
        return hash_ % n == 0;
    }
    // In [0, bound); `bound` is at most 65536.
    std::size_t below(std::size_t bound) {
        const std::size_t value = bound > 256 ? byte() << 8 | byte() : byte();
        return bound ? value % bound : 0;
    }

    // Up to `num_bytes` of the text.
    std::string_view text(std::size_t num_bytes) {
        const std::size_t taken = std::min(num_bytes, size_);
        const std::string_view result(data_, taken);
        data_ += taken;
        size_ -= taken;
        return result;
    }
    // The rest of the text.
    std::string_view rest() { return text(size_); }
    std::size_t size() const { return size_; }

  private:
    static constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15;
    const char* data_;
    std::size_t size_;
    std::uint64_t hash_;
};

// The kernels that this CPU supports, the scalar one first.
inline const std::vector<Kernel>& kernels() {
    static const std::vector<Kernel> supported = [] {
        std::vector<Kernel> kernels;
        for (const Kernel kernel : kAllKernels) {
            if (kernel_supported(kernel)) kernels.push_back(kernel);
        }
        return kernels;
    }();
    return supported;
}

inline Pattern pattern_of(Input& input) { return kAllPatterns[input.below(std::size(kAllPatterns))]; }

// A text in memory of exactly its size, at the given alignment, so that AddressSanitizer detects a read outside it.
class ExactText {
  public:
    explicit ExactText(std::string_view text, std::size_t alignment = 0, std::size_t padding = 0, char fill = 's')
        : memory_(new char[alignment + text.size() + padding]), alignment_(alignment), size_(text.size()) {
        std::memset(memory_.get(), fill, alignment);
        std::copy(text.begin(), text.end(), memory_.get() + alignment);
        std::memset(memory_.get() + alignment + size_, fill, padding);
    }
    std::string_view view() const { return {memory_.get() + alignment_, size_}; }
    const std::uint8_t* bytes() const { return reinterpret_cast<const std::uint8_t*>(view().data()); }
    std::size_t size() const { return size_; }

  private:
    std::unique_ptr<char[]> memory_;
    std::size_t alignment_, size_;
};

// Repeats the text, with an occasional space, until it has `num_bytes`.
inline std::string repeated(std::string_view text, std::size_t num_bytes) {
    std::string result;
    while (!text.empty() && result.size() < num_bytes) {
        result += text;
        if (result.size() % 7 == 0) result += ' ';
    }
    return result;
}

inline BoundaryScanner& scanner_for(Pattern pattern, Kernel kernel) {
    static std::unique_ptr<BoundaryScanner> scanners[std::size(kAllPatterns)][std::size(kAllKernels)];
    auto& scanner = scanners[static_cast<std::size_t>(pattern)][static_cast<std::size_t>(kernel)];
    if (!scanner) scanner = make_scanner(pattern, kernel);
    return *scanner;
}

// The piece ends of a padded text.
inline void piece_ends(BoundaryScanner& scanner, const std::uint8_t* text, std::size_t size,
                       std::vector<std::size_t>& ends) {
    ends.clear();
    scanner.start(text, size);
    while (scanner.next()) {
        for (std::size_t i = 0; i < scanner.size(); ++i)
            ends.push_back(static_cast<std::size_t>(scanner.base() - text) + scanner.ends()[i]);
    }
}

// Whether the text is valid UTF-8, as special tokens are.
inline bool is_utf8(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        const auto byte = [&](std::size_t i) -> std::uint32_t { return static_cast<std::uint8_t>(text[at + i]); };
        const std::size_t size = byte(0) < 0x80 ? 1 : byte(0) < 0xE0 ? 2 : byte(0) < 0xF0 ? 3 : 4;
        if (byte(0) >= 0xF8 || (byte(0) >= 0x80 && byte(0) < 0xC0) || at + size > text.size()) return false;
        std::uint32_t character = size == 1 ? byte(0) : byte(0) & (0xFFu >> (size + 1));
        for (std::size_t i = 1; i < size; ++i) {
            if (byte(i) >> 6 != 2) return false;
            character = character << 6 | (byte(i) & 0x3F);
        }
        constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
        if (character < kLeast[size] || character > 0x10FFFF || character >> 11 == 0x1B) return false;
        at += size;
    }
    return true;
}

// A few distinct specials: taken from the text, so that they occur, or well-known ones.
inline std::vector<std::string> specials_of(Input& input, std::string_view text, std::size_t most) {
    static const std::string_view kKnown[] = {"<|endoftext|>", "<|e|>", "<s>",      " ",
                                              "a a",           "\n",    "<|e|> of", "\xC3\xA9"};
    std::vector<std::string> specials;
    for (std::size_t left = input.below(most + 1); left; --left) {
        const std::size_t size = 1 + input.below(16), begin = input.below(std::max<std::size_t>(text.size(), 1));
        const std::uint8_t kind = input.byte();
        std::string special(text.substr(begin, size));
        while (!is_utf8(special)) special.pop_back();
        // Long specials that the text almost repeats make comparisons slow.
        if (kind % 4 == 1) special = repeated(special, kind / 2) + "!";
        if (special.empty() || kind % 8 == 2) special = kKnown[size % std::size(kKnown)];
        if (std::find(specials.begin(), specials.end(), special) == specials.end()) specials.push_back(special);
    }
    return specials;
}

// The plain rule for specials: the leftmost, then the longest.
struct Found {
    std::size_t position;
    std::size_t index;  // specials.size() if none is found; position is then the size of the text
};
inline Found find_plainly(std::string_view text, std::size_t from, const std::vector<std::string>& specials) {
    for (std::size_t at = from; at < text.size(); ++at) {
        std::size_t best = specials.size();
        for (std::size_t i = 0; i < specials.size(); ++i) {
            if (text.substr(at).starts_with(specials[i]) &&
                (best == specials.size() || specials[i].size() > specials[best].size()))
                best = i;
        }
        if (best < specials.size()) return {at, best};
    }
    return {text.size(), specials.size()};
}

// Calls use(begin, end, special) for every piece and special of `text`, in order; `special` is specials.size() for a
// piece. Implements the definition directly, with the scalar scanner.
template <class Use>
void for_each_part(std::string_view text, Pattern pattern, const std::vector<std::string>& specials, const Use& use) {
    const ExactText padded(text, 0, kTextPadding);
    std::vector<std::size_t> ends;
    for (std::size_t at = 0; at < text.size();) {
        const Found special = find_plainly(text, at, specials);
        piece_ends(scanner_for(pattern, Kernel::scalar), padded.bytes() + at, special.position - at, ends);
        std::size_t begin = at;
        for (const std::size_t end : ends) {
            use(begin, at + end, specials.size());
            begin = at + end;
        }
        CHECK(begin == special.position);
        at = special.position;
        if (special.index == specials.size()) break;
        use(at, at + specials[special.index].size(), special.index);
        at += specials[special.index].size();
    }
}

}  // namespace gristmill::fuzz
