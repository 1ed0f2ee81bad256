// pretokenize: examples, every kernel against the scalar specification, and the cut rule against its definition.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "gristmill/pretokenize.hpp"

using namespace gristmill;

namespace {

// A copy of `text` at the given alignment, in memory that ends with its padding, so that a sanitizer detects an
// excessive read. The padding consists of bytes that would change the pieces if they were read.
class PaddedText {
  public:
    explicit PaddedText(const std::string& text, std::size_t alignment = 0, char padding = 's')
        : memory_(alignment + text.size() + kTextPadding, padding), alignment_(alignment), size_(text.size()) {
        std::memcpy(memory_.data() + alignment, text.data(), text.size());
    }
    const std::uint8_t* data() const { return reinterpret_cast<const std::uint8_t*>(memory_.data()) + alignment_; }
    std::size_t size() const { return size_; }

  private:
    std::vector<char> memory_;
    std::size_t alignment_, size_;
};

std::vector<std::size_t> piece_ends(BoundaryScanner& scanner, const PaddedText& text) {
    std::vector<std::size_t> ends;
    scanner.start(text.data(), text.size());
    while (scanner.next()) {
        for (std::size_t i = 0; i < scanner.size(); ++i) {
            ends.push_back(static_cast<std::size_t>(scanner.base() + scanner.ends()[i] - text.data()));
        }
    }
    if (text.size() <= BoundaryScanner::kMaxAppended) {
        // All at once: the same ends, each plus the offset.
        constexpr std::uint16_t kOffset = 1000;
        std::vector<std::uint16_t> appended(text.size() + 65);
        appended.resize(scanner.append(text.data(), text.size(), kOffset, appended.data()));
        CHECK(std::equal(ends.begin(), ends.end(), appended.begin(), appended.end(),
                         [](std::size_t end, std::uint16_t moved) { return end + kOffset == moved; }));
    }
    return ends;
}

std::vector<std::size_t> piece_ends(Pattern pattern, Kernel kernel, const std::string& text) {
    return piece_ends(*make_scanner(pattern, kernel), PaddedText(text));
}

// The pieces of `text`, joined by '|'.
std::string pieces(Pattern pattern, const std::string& text) {
    std::string joined;
    std::size_t begin = 0;
    for (const std::size_t end : piece_ends(pattern, Kernel::scalar, text)) {
        if (begin != 0) joined += '|';
        joined += text.substr(begin, end - begin);
        begin = end;
    }
    CHECK(begin == text.size());
    return joined;
}

// Fragments that exercise the rules of the patterns and the special cases of the kernels.
std::string random_text(std::mt19937& random, std::size_t size) {
    static const std::vector<std::string> kFragments = {"a",
                                                        "b",
                                                        "Z",
                                                        "the",
                                                        " of",
                                                        "'",
                                                        "'s",
                                                        "'S",
                                                        "'\xC5\xBF",
                                                        "\xC5\xBF",
                                                        "'ll",
                                                        "'lL",
                                                        "'l",
                                                        "'ve",
                                                        "'Re",
                                                        "'d",
                                                        "'m",
                                                        "'T",
                                                        " ",
                                                        " ",
                                                        "  ",
                                                        "\n",
                                                        "\n",
                                                        "\r",
                                                        "\r\n",
                                                        "\t",
                                                        "\x0B",
                                                        "\x1C",
                                                        "0",
                                                        "1",
                                                        "77",
                                                        "1234567",
                                                        "!",
                                                        ".",
                                                        "/",
                                                        "-",
                                                        "\xC2\x85",
                                                        "\xC2\xA0",
                                                        "\xE3\x80\x80",
                                                        "\xE2\x80\xA8",
                                                        "\xE1\x9A\x80",
                                                        "\xE2\x80\x8B",  // white space, and none
                                                        "\xC3\xA9",
                                                        "\xC3\x89",
                                                        "\xC3\x97",
                                                        "\xD0\x96",
                                                        "\xD1\x8F",
                                                        "\xC7\x85",
                                                        "\xCA\xB0",  // letters of all cases
                                                        "\xCC\x81",
                                                        "\xE3\x82\x99",
                                                        "\xE0\xA4\xBE",
                                                        "\xE0\xA4\x95",  // marks
                                                        "\xE4\xB8\xAD",
                                                        "\xE6\x96\x87",
                                                        "\xE3\x81\x8B",
                                                        "\xED\x95\x9C",
                                                        "\xE0\xB9\x84",  // CJK, Thai
                                                        "\xD9\xA3",
                                                        "\xC2\xB2",
                                                        "\xE2\x85\xA7",
                                                        "\xF0\x9D\x9F\x98",  // numbers
                                                        "\xF0\x9F\x98\x80",
                                                        "\xF0\x90\x90\x80",
                                                        "\xF0\x90\x90\xA8",
                                                        "\xF0\xA0\x80\x80",
                                                        "\xF4\x8F\xBF\xBF",
                                                        "\xC0\x80",
                                                        "\xC1\xBF",
                                                        "\xE0\x80\x80",
                                                        "\xE0\x9F\xBF",
                                                        "\xED\xA0\x80",
                                                        "\xED\xBF\xBF",  // overlong, surrogate
                                                        "\xF0\x8F\xBF\xBF",
                                                        "\xF4\x90\x80\x80",
                                                        "\xF5\x80\x80\x80",
                                                        "\xFF",
                                                        "\xFE",
                                                        "\xF8\x88\x80\x80\x80",
                                                        "\xE4",
                                                        "\xE4\xB8",
                                                        "\xF0",
                                                        "\xF0\x9F",
                                                        "\xF0\x9F\x98",
                                                        "\xC3",
                                                        "\xC5",
                                                        "\x80",
                                                        "\xBF",
                                                        "\x85",
                                                        "\xA0",  // truncated
                                                        std::string(1, '\0'),
                                                        std::string(70, ' '),
                                                        std::string(130, ' '),
                                                        std::string(65, '\n'),
                                                        std::string(67, 'x'),
                                                        std::string(68, '5'),
                                                        std::string(66, '!'),
                                                        std::string(200, '\t')};
    // A few fragments at a time make rare combinations frequent.
    std::vector<std::string> some;
    const std::size_t num_fragments = random() % 4 == 0 ? kFragments.size() : 2 + random() % 8;
    for (std::size_t i = 0; i < num_fragments; ++i) some.push_back(kFragments[random() % kFragments.size()]);
    std::string text;
    while (text.size() < size) text += some[random() % some.size()];
    text.resize(size);
    return text;
}

void test_pieces_of_hand_made_examples() {
    CHECK(pieces(Pattern::gpt2, "") == "");
    CHECK(pieces(Pattern::gpt2, "I'll  say it's 12345!?") == "I|'ll| | say| it|'s| 12345|!?");
    CHECK(pieces(Pattern::gpt2, "IT'S \n\n x\n ") == "IT|'|S| \n\n| x|\n ");
    CHECK(pieces(Pattern::cl100k, "IT'S 12345!?\n\n x") == "IT|'S| |123|45|!?\n\n| x");
    CHECK(pieces(Pattern::cl100k, "a \n  \n   b\tc(d ((e") == "a| \n  \n|  | b|\tc|(d| ((|e");
    CHECK(pieces(Pattern::cl100k, "a\n  ") == "a|\n  ");
    CHECK(pieces(Pattern::llama3, "a\n  ") == "a|\n|  ");
    CHECK(pieces(Pattern::llama3, "1234567 '\xC5\xBFx") == "123|456|7| '|\xC5\xBFx");
    CHECK(pieces(Pattern::llama3, "y'\xC5\xBFx") == "y|'\xC5\xBF|x");
    CHECK(pieces(Pattern::nanochat, "a1234567 12\n  ") == "a|12|34|56|7| |12|\n|  ");
    CHECK(pieces(Pattern::qwen2, "x 123") == "x| |1|2|3");
    CHECK(pieces(Pattern::o200k, "HTMLParser isn't\n//x") == "HTMLParser| isn't|\n|//|x");
    CHECK(pieces(Pattern::o200k,
                 "aBc!\n/\n/ X\xE4\xB8\xAD"
                 "ABC ") == "a|Bc|!\n/\n/| X\xE4\xB8\xAD|ABC| ");
    CHECK(pieces(Pattern::whitespace, "Hi,  it's\t\n12 ") == "Hi,| | it's|\t|\n|12| ");
}

void test_an_invalid_byte_is_an_other_of_its_own() {
    CHECK(pieces(Pattern::gpt2,
                 "a\xE4\xB8"
                 "b") == "a|\xE4\xB8|b");
    CHECK(pieces(Pattern::gpt2, "a\xED\xA0\x80!1") == "a|\xED\xA0\x80!|1");
    CHECK(pieces(Pattern::cl100k,
                 "a\x80"
                 "b") ==
          "a|\x80"
          "b");
}

void test_every_kernel_agrees_with_scalar_at_every_length() {
    std::vector<std::size_t> sizes;
    for (std::size_t size = 0; size <= 300; ++size) sizes.insert(sizes.end(), {size, size});
    for (const std::size_t batch : {4096, 8192, 16384, 32768, 65536}) {
        for (std::size_t size = batch - 3; size <= batch + 67; size += size < batch + 3 ? 1 : 16) sizes.push_back(size);
    }
    std::mt19937 random(1);
    for (const Pattern pattern : kAllPatterns) {
        const auto scalar = make_scanner(pattern, Kernel::scalar);
        for (const Kernel kernel : kAllKernels) {
            if (!kernel_supported(kernel)) continue;
            const auto scanner = make_scanner(pattern, kernel);
            for (const std::size_t size : sizes) {
                const std::string text = random_text(random, size);
                const std::vector<std::size_t> expected = piece_ends(*scalar, PaddedText(text));
                CHECK(piece_ends(*scanner, PaddedText(text, random() % 64)) == expected);
                CHECK(piece_ends(*scanner, PaddedText(text, random() % 64, '\x80')) == expected);
            }
        }
    }
}

// ASCII has a separate path for short texts.
void test_every_kernel_agrees_with_scalar_on_short_ascii() {
    std::mt19937 random(11);
    for (int round = 0; round < 3000; ++round) {
        std::string text;
        for (const char c : random_text(random, random() % 300)) {
            if (static_cast<unsigned char>(c) < 0x80) text += c;
        }
        if (round % 3 == 0) text += &"'s"[random() % 3];
        for (const Pattern pattern : kAllPatterns) {
            const auto expected = piece_ends(pattern, Kernel::scalar, text);
            for (const Kernel kernel : kAllKernels) {
                if (kernel_supported(kernel)) CHECK(piece_ends(pattern, kernel, text) == expected);
            }
        }
    }
}

void test_every_kernel_agrees_with_scalar_on_every_end_of_one_text() {
    std::mt19937 random(2);
    for (int round = 0; round < 20; ++round) {
        const std::string text = random_text(random, 400);
        for (const Pattern pattern : kAllPatterns) {
            for (const Kernel kernel : kAllKernels) {
                if (!kernel_supported(kernel)) continue;
                const auto scanner = make_scanner(pattern, kernel);
                const auto scalar = make_scanner(pattern, Kernel::scalar);
                for (std::size_t size = 0; size <= text.size(); ++size) {
                    const PaddedText start(text.substr(0, size));
                    CHECK(piece_ends(*scanner, start) == piece_ends(*scalar, start));
                }
            }
        }
    }
}

// As UTF-8; a surrogate, which has no valid form, becomes the three bytes it would have.
std::string utf8(std::uint32_t code_point) {
    const auto byte = [](std::uint32_t lead, std::uint32_t bits) { return static_cast<char>(lead | bits); };
    const auto continuation = [=](unsigned shift) { return byte(0x80, code_point >> shift & 0x3F); };
    if (code_point < 0x80) return {byte(0, code_point)};
    if (code_point < 0x800) return {byte(0xC0, code_point >> 6), continuation(0)};
    if (code_point < 0x10000) return {byte(0xE0, code_point >> 12), continuation(6), continuation(0)};
    return {byte(0xF0, code_point >> 18), continuation(12), continuation(6), continuation(0)};
}

// All 0x110000, between letters of either case, after a space, an apostrophe and a number, twice, and before a newline.
void test_every_kernel_agrees_with_scalar_on_every_code_point() {
    constexpr std::uint32_t kNumCodePoints = 0x110000, kPerText = 0x2000;
    for (std::uint32_t first = 0; first < kNumCodePoints; first += kPerText) {
        std::string text;
        for (std::uint32_t code_point = first; code_point < first + kPerText; ++code_point) {
            const std::string c = utf8(code_point);
            text += "a" + c + "b " + c + "B" + c + "'" + c + "1" + c + c + "\n";
        }
        const PaddedText padded(text);
        for (const Pattern pattern : kAllPatterns) {
            const std::vector<std::size_t> expected = piece_ends(*make_scanner(pattern, Kernel::scalar), padded);
            for (const Kernel kernel : kAllKernels) {
                if (kernel == Kernel::scalar || !kernel_supported(kernel)) continue;
                CHECK(piece_ends(*make_scanner(pattern, kernel), padded) == expected);
            }
        }
    }
}

// Hostile: bytes of all values, and mixes of a few values with frequent leads and continuations.
void test_every_kernel_agrees_with_scalar_on_random_bytes() {
    std::mt19937 random(4);
    for (int round = 0; round < 200; ++round) {
        const unsigned least = round % 3 == 0 ? 0 : round % 3 == 1 ? 0x80 : 0xC0;
        std::string values;
        for (unsigned i = 0; i < 1 + random() % 256; ++i) values += static_cast<char>(least + random() % (256 - least));
        values += "\x80\x9F\xA0\xBF a'";
        std::string text;
        while (text.size() < 5000) text += values[random() % values.size()];
        for (const Pattern pattern : kAllPatterns) {
            const std::vector<std::size_t> expected = piece_ends(pattern, Kernel::scalar, text);
            for (const Kernel kernel : kAllKernels) {
                if (kernel_supported(kernel)) CHECK(piece_ends(pattern, kernel, text) == expected);
            }
        }
    }
}

// A matcher that backtracks like the expressions, or looks ahead again in every block, would not finish.
void test_runs_longer_than_an_offset_take_linear_time() {
    const std::size_t size = 1 << 18;
    for (const std::string unit : {" ", "\n", " \n", "\n ", "\r\n\t", "\xE3\x80\x80", "a", "A", "7", "!", "'", "'s",
                                   "!\n/", "\xE4\xB8\xAD", "\xE4\xB8\xADZ", "\xCC\x81", "\xFF"}) {
        for (const std::string head : {"", "x", "\n", "!\n", "\xE4\xB8\xAD"}) {
            for (const std::string tail : {"", "x", "\n", "\nx"}) {
                std::string text = head;
                while (text.size() < size) text += unit;
                text += tail;
                for (const Pattern pattern :
                     {Pattern::gpt2, Pattern::cl100k, Pattern::o200k, Pattern::llama3, Pattern::nanochat}) {
                    const std::vector<std::size_t> expected = piece_ends(pattern, Kernel::scalar, text);
                    CHECK(!expected.empty() && expected.back() == text.size());
                    for (const Kernel kernel : kAllKernels) {
                        if (kernel == Kernel::scalar || !kernel_supported(kernel)) continue;
                        CHECK(piece_ends(pattern, kernel, text) == expected);
                    }
                }
            }
        }
    }
}

// Cuts `text` at every position that find_cut returns and compares the pieces of both parts with those of the whole.
std::size_t check_cuts(Pattern pattern, const std::string& text) {
    const PaddedText padded(text);
    const std::vector<std::size_t> whole = piece_ends(pattern, Kernel::scalar, text);
    std::size_t num_cuts = 0;
    for (std::size_t from = 0; from < text.size();) {
        const std::size_t cut = find_cut(pattern, padded.data(), text.size(), from);
        // Four bytes of context are enough.
        const std::size_t skipped = from < 4 ? 0 : from - 4;
        const std::size_t again = find_cut(pattern, padded.data() + skipped, text.size() - skipped, from - skipped);
        CHECK(again == (cut == kNoCut ? kNoCut : cut - skipped));
        if (cut == kNoCut) break;
        CHECK(cut >= from && cut > 0 && cut < text.size());
        std::vector<std::size_t> parts = piece_ends(pattern, Kernel::scalar, text.substr(0, cut));
        for (const std::size_t end : piece_ends(pattern, Kernel::scalar, text.substr(cut))) parts.push_back(cut + end);
        CHECK(parts == whole);
        from = cut + 1;
        ++num_cuts;
    }
    return num_cuts;
}

void test_no_cut_changes_a_piece() {
    std::mt19937 random(3);
    for (const Pattern pattern : kAllPatterns) {
        std::size_t num_cuts = 0;
        for (int round = 0; round < 2000; ++round) num_cuts += check_cuts(pattern, random_text(random, random() % 200));
        CHECK(num_cuts > 2000);
        CHECK(check_cuts(pattern, "one two, three\nfour\r\n5\tsix!\nseven") >= 5);
        CHECK(check_cuts(pattern, "\xC3\xA9 \xE4\xB8\xAD\n\xF0\x9F\x98\x80 \xC2\xA0 \xE3\x80\x80 x") >= 3);
        CHECK(check_cuts(pattern, " \n\xC2\xA0 \xE3\x80\x80\n\xE2\x80\x8A ") == 0);
        CHECK(check_cuts(pattern, std::string(1000, 'x')) == 0);
        CHECK(check_cuts(pattern, std::string(1000, ' ')) == 0);
    }
}

void test_names_and_forced_kernels() {
    CHECK(pattern_from_name("o200k") == Pattern::o200k);
    CHECK(!pattern_from_name("gpt5"));
    for (const Pattern pattern : kAllPatterns) CHECK(pattern_from_name(pattern_name(pattern)) == pattern);
    for (const Kernel kernel : kAllKernels) CHECK(kernel_from_name(kernel_name(kernel)) == kernel);
    CHECK(kernel_supported(Kernel::scalar));
    CHECK(!unicode_version().empty());

    setenv("GRISTMILL_KERNEL", "scalar", 1);
    CHECK(default_kernel() == Kernel::scalar);
    setenv("GRISTMILL_KERNEL", "mmx", 1);
    bool refused = false;
    try {
        default_kernel();
    } catch (const std::invalid_argument&) {
        refused = true;
    }
    CHECK(refused);
    for (const Kernel kernel : kAllKernels) {
        if (!kernel_supported(kernel)) continue;
        setenv("GRISTMILL_KERNEL", std::string(kernel_name(kernel)).c_str(), 1);
        CHECK(default_kernel() == kernel);
    }
    unsetenv("GRISTMILL_KERNEL");
    CHECK(kernel_supported(default_kernel()) && default_kernel() != Kernel::avx2_nopext);
#if defined(__aarch64__)
    CHECK(default_kernel() == Kernel::neon);
#endif
}

}  // namespace

int main() {
    test_pieces_of_hand_made_examples();
    test_an_invalid_byte_is_an_other_of_its_own();
    test_every_kernel_agrees_with_scalar_at_every_length();
    test_every_kernel_agrees_with_scalar_on_short_ascii();
    test_every_kernel_agrees_with_scalar_on_every_end_of_one_text();
    test_every_kernel_agrees_with_scalar_on_every_code_point();
    test_every_kernel_agrees_with_scalar_on_random_bytes();
    test_runs_longer_than_an_offset_take_linear_time();
    test_no_cut_changes_a_piece();
    test_names_and_forced_kernels();
    return test_result();
}
