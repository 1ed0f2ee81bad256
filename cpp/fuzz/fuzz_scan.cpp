// pretokenize: every kernel against the scalar specification; cuts and specials against their definitions.
#include "fuzz.hpp"

using namespace gristmill;
using namespace gristmill::fuzz;

namespace {

using Ends = std::vector<std::size_t>;

struct Part {
    std::size_t begin, end, special;
    friend bool operator==(const Part&, const Part&) = default;
};

std::vector<Part> parts_of(std::string_view text, Pattern pattern, const std::vector<std::string>& specials,
                           std::size_t offset = 0) {
    std::vector<Part> parts;
    for_each_part(text, pattern, specials, [&](std::size_t begin, std::size_t end, std::size_t special) {
        parts.push_back({offset + begin, offset + end, special});
    });
    return parts;
}

void check_tiles(const Ends& ends, std::size_t size) {
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
        CHECK(end > begin);
        begin = end;
    }
    CHECK(begin == size);
}

void check_append(BoundaryScanner& scanner, const ExactText& text, std::uint16_t offset, const Ends& expected) {
    static std::uint16_t ends[BoundaryScanner::kMaxAppended + 64];
    if (text.size() > BoundaryScanner::kMaxAppended) return;
    CHECK(scanner.append(text.bytes(), text.size(), offset, ends) == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(ends[i] == expected[i] + offset);
}

// The bytes before and after the text must not matter, so they differ between the scanners. The driver passes texts
// without padding.
Ends check_kernels(std::string_view text, Pattern pattern, std::size_t alignment, char fill) {
    static Ends expected, found;
    const ExactText plain(text, 0, kTextPadding);
    piece_ends(scanner_for(pattern, Kernel::scalar), plain.bytes(), text.size(), expected);
    check_tiles(expected, text.size());
    const ExactText bare(text, alignment, 0, fill), padded(text, alignment, kTextPadding, fill);
    for (const Kernel kernel : kernels()) {
        BoundaryScanner& scanner = scanner_for(pattern, kernel);
        piece_ends(scanner, (fill & 1 ? bare : padded).bytes(), text.size(), found);
        CHECK(found == expected);
        check_append(scanner, fill & 2 ? bare : padded, static_cast<std::uint16_t>(alignment), expected);
    }
    return expected;
}

// Every cut is the end of a piece and is found with four bytes of context; the pieces on both sides of a cut are those
// of the whole text.
void check_cuts(std::string_view text, Pattern pattern, const Ends& whole, std::size_t chosen) {
    const ExactText exact(text);
    std::size_t last = 0;
    for (std::size_t from = 0; from < text.size(); from = last + 1) {
        const std::size_t cut = find_cut(pattern, exact.bytes(), text.size(), from);
        const std::size_t skipped = from < 4 ? 0 : from - 4;
        const std::size_t again = find_cut(pattern, exact.bytes() + skipped, text.size() - skipped, from - skipped);
        CHECK(again == (cut == kNoCut ? kNoCut : cut - skipped));
        if (cut == kNoCut) break;
        CHECK(cut >= from && cut > 0 && cut < text.size());
        CHECK(std::binary_search(whole.begin(), whole.end(), cut));
        last = cut;
        if (chosen-- == 0) break;
    }
    if (!last) return;
    static Ends parts, right;
    const ExactText before(text.substr(0, last), 0, kTextPadding), rest(text.substr(last), 0, kTextPadding);
    BoundaryScanner& scanner = scanner_for(pattern, kernels().back());
    piece_ends(scanner, before.bytes(), before.size(), parts);
    piece_ends(scanner, rest.bytes(), rest.size(), right);
    for (const std::size_t end : right) parts.push_back(last + end);
    CHECK(parts == whole);
}

void check_finder(std::string_view text, const SpecialFinder& finder, const std::vector<std::string>& specials) {
    const ExactText exact(text);
    for (std::size_t at = 0; at <= text.size();) {
        const Found expected = find_plainly(text, at, specials);
        const SpecialFinder::Match match = finder.find(exact.bytes(), text.size(), at);
        CHECK(match.position == expected.position);
        const SpecialFinder::Match nearer = finder.find(exact.bytes(), text.size(), at, expected.position);
        CHECK(nearer.index == SpecialFinder::kNone && nearer.position == expected.position);
        if (expected.index == specials.size()) {
            CHECK(match.index == SpecialFinder::kNone);
            return;
        }
        CHECK(match.index == expected.index && finder.length(match.index) == specials[match.index].size());
        at = expected.position + 1;
    }
}

// The non-overlapping specials of the text, from its beginning and from any other position.
void check_search(std::string_view text, std::size_t step, const SpecialFinder& finder,
                  const std::vector<std::string>& specials) {
    const ExactText exact(text);
    SpecialSearch search(finder, exact.bytes(), text.size());
    for (std::size_t at = 0; at <= text.size();) {
        const Found expected = find_plainly(text, at, specials);
        const SpecialFinder::Match match = search.next(at, text.size());
        CHECK(match.position == expected.position);
        CHECK(match.index == (expected.index == specials.size() ? SpecialFinder::kNone : expected.index));
        if (expected.index == specials.size()) break;
        at = expected.position + (step ? step : specials[expected.index].size());
    }
}

bool any_covers(std::string_view text, std::size_t at, const std::vector<std::string>& specials) {
    for (const std::string& special : specials) {
        for (std::size_t begin = at > special.size() ? at - special.size() + 1 : 0; begin < at; ++begin) {
            if (begin + special.size() > at && text.substr(begin).starts_with(special)) return true;
        }
    }
    return false;
}

// Cuts a text that continues after `known` bytes where Cutter allows it: pieces and specials stay those of the whole.
void check_cut(std::string_view text, std::size_t cut, Pattern pattern, const std::vector<std::string>& specials) {
    std::vector<Part> parts = parts_of(text.substr(0, cut), pattern, specials);
    for (const Part& part : parts_of(text.substr(cut), pattern, specials, cut)) parts.push_back(part);
    CHECK(parts == parts_of(text, pattern, specials));
}

void check_cutter(std::string_view text, std::size_t known, std::size_t start, Pattern pattern,
                  const SpecialFinder& finder, const std::vector<std::string>& specials) {
    const Cutter cutter(pattern, finder);
    const ExactText beginning(text.substr(0, known)), whole(text);
    if (const std::size_t cut = cutter.last(beginning.view(), start)) {
        CHECK(cut > start && cut <= known);
        check_cut(text, cut, pattern, specials);
    }
    const std::size_t first = cutter.first(whole.bytes(), text.size(), start, known);
    if (first == kNoCut) return;
    CHECK(first >= start && first < known);
    check_cut(text, first, pattern, specials);
    // Bytes further away than reach() do not matter.
    const std::size_t skipped = start > cutter.reach() ? start - cutter.reach() : 0;
    const ExactText near(text.substr(skipped, known + cutter.reach() - skipped));
    CHECK(cutter.first(near.bytes(), near.size(), start - skipped, known - skipped) == first - skipped);
}

// Where a special covers a position that would be a cut, all three report it, also for a text that continues after
// `known` bytes.
void check_spans(std::string_view text, std::size_t known, Pattern pattern, const SpecialFinder& finder,
                 const std::vector<std::string>& specials) {
    const ExactText exact(text), beginning(text.substr(0, known));
    SpecialSpans whole(finder), growing(finder);
    for (std::size_t at = 0; at < text.size(); ++at) {
        at = find_cut(pattern, exact.bytes(), text.size(), at);
        if (at == kNoCut) return;
        const bool covered = any_covers(text, at, specials);
        CHECK(finder.may_span(exact.bytes(), text.size(), at) >= covered);
        CHECK(whole.cover(exact.bytes(), text.size(), at) >= covered);
        if (at + finder.span_reach() <= known) {
            CHECK(growing.cover(beginning.bytes(), known, at, false) >= covered);
        } else {
            CHECK(growing.cover(exact.bytes(), text.size(), at) >= covered);
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    const Pattern pattern = pattern_of(input);
    const std::uint8_t what = input.byte();
    const std::size_t alignment = input.below(64);
    const char fill = static_cast<char>(input.byte());
    const std::size_t chosen = input.below(256), start = input.below(256);
    const bool with_specials = what % 4 == 0 && input.one_in(4);  // takes ten times as long
    std::vector<std::string> specials;
    if (with_specials) {
        const Input before = input;
        specials = specials_of(input, Input(before).rest(), 6);
    }
    std::string_view text = input.rest();
    // Batches end after a few kilobytes.
    std::string several_batches;
    if (fill % 2 && input.one_in(with_specials ? 1024 : 512))
        text = several_batches = repeated(text, BoundaryScanner::kMaxAppended - 100);

    const Ends whole = check_kernels(text, pattern, alignment, fill);
    if (what % 2 == 0) check_cuts(text, pattern, whole, chosen);
    if (with_specials) {
        const SpecialFinder finder(specials);
        check_finder(text, finder, specials);
        check_search(text, chosen % 8, finder, specials);
        const std::size_t known = text.empty() ? 0 : chosen * 7 % (text.size() + 1);
        check_spans(text, known, pattern, finder, specials);
        check_cutter(text, known, known ? start % known : 0, pattern, finder, specials);
    }
    return 0;
}
