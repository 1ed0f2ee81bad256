// Documents as ranges of a buffer: found, hashed, and encoded with their marks.
#include <cstring>
#include <stdexcept>

#include "check.hpp"
#include "encode_judge.hpp"
#include "gristmill/corpus.hpp"
#include "gristmill/count.hpp"
#include "gristmill/shards.hpp"
#include "word_tables.hpp"

using namespace gristmill;
using namespace gristmill::test;

namespace {

std::vector<std::string> split(std::string_view text, std::string_view separator) {
    std::vector<std::int64_t> begins, ends;
    split_spans(text, separator, begins, ends);
    const Spans spans{text, begins.data(), ends.data(), begins.size()};
    check_spans(spans);
    std::vector<std::string> documents;
    for (std::size_t i = 0; i < spans.size; ++i) documents.emplace_back(spans[i]);
    return documents;
}

void test_stretches_lie_between_separators_the_leftmost_first() {
    using Documents = std::vector<std::string>;
    CHECK(split("", "|") == Documents({""}));
    CHECK(split("a|b||", "|") == Documents({"a", "b", "", ""}));
    CHECK(split("aaaaa", "aa") == Documents({"", "", "a"}));
    CHECK(split("ab<>ab<><", "<>") == Documents({"ab", "ab", "<"}));
    CHECK(split("<|end|><|end|", "<|end|>") == Documents({"", "<|end|"}));
    CHECK(split(std::string_view("x\0y\0", 4), std::string_view("\0", 1)) == Documents({"x", "y", ""}));
}

void test_a_stretch_outside_the_text_is_refused() {
    const std::int64_t wrong[][2] = {{-1, 2}, {2, 1}, {0, 4}};
    for (const auto& [begin, end] : wrong) {
        bool refused = false;
        try {
            check_spans({"abc", &begin, &end, 1});
        } catch (const std::invalid_argument&) {
            refused = true;
        }
        CHECK(refused);
    }
}

// The test vectors of the specification: the empty input, and "abc".
void test_xxh64_is_that_of_its_specification() {
    CHECK(xxh64("", 0) == 0xEF46DB3751D8E999u);
    CHECK(xxh64("abc", 0) == 0x44BC2CF5AD770999u);
    CHECK(xxh64("", 1) == 0xD5AFBA1336A3BE4Bu);
}

void test_xxh64_of_parts_is_that_of_the_whole() {
    Random random(8);
    for (std::size_t size = 0; size < 200; ++size) {
        const std::string data = random_bytes(random, size);
        Xxh64 hash(5);
        for (std::size_t at = 0; at < size;) {
            const std::size_t part = std::min<std::size_t>(random() % 70, size - at);
            hash.update(std::string_view(data).substr(at, part));
            at += part;
        }
        CHECK(hash.digest() == xxh64(data, 5));
    }
}

void test_documents_have_the_ids_of_their_texts_and_a_mark_each() {
    Random random(9);
    for (const Id first_id : {Id{0}, kWideIds}) {
        const Layout layout{.num_merges = 40, .first_id = first_id, .num_others = 0, .whole_pieces = false};
        const VocabularyParts parts = random_parts(random, kWords, layout);
        const Encoder encoder(parts, Pattern::gpt2, default_kernel());
        const SpecialRule rule({}, {});
        const Id mark = parts.byte_ids[0];
        for (int round = 0; round < 40; ++round) {
            // Exactly as large as the text, so that the sanitizer detects a read after it.
            std::string text;
            std::vector<std::int64_t> begins, ends;
            for (std::size_t i = 0; i < random() % 5; ++i) {
                begins.push_back(static_cast<std::int64_t>(text.size()));
                text += random_text(random, random() % 3 ? random() % 40 : random() % 20000);
                ends.push_back(static_cast<std::int64_t>(text.size()));
            }
            text.shrink_to_fit();
            const Spans spans{text, begins.data(), ends.data(), begins.size()};
            for (int flags = 0; flags < 16; ++flags) {
                TextMarks marks;
                if (flags & 8) marks.end_of_text = mark;
                marks.before = flags & 4, marks.continued = flags & 2, marks.unfinished = flags & 1;
                Monitor monitor;
                SpanTexts documents(spans);
                EncodedTexts encoded = encoder.encode(documents, rule, marks, 1, monitor);
                Ids expected;
                std::vector<std::int64_t> expected_ends;
                for (std::size_t i = 0; i < spans.size; ++i) {
                    const bool is_last = i + 1 == spans.size;
                    if (marks.end_of_text && marks.before && (i || !marks.continued)) expected.push_back(mark);
                    IdBuffer whole = encoder.encode(spans[i], rule, 1, monitor);
                    for (std::size_t k = 0; k < whole.size(); ++k)
                        expected.push_back(whole.width() == 2 ? whole.data<std::uint16_t>()[k]
                                                              : whole.data<std::uint32_t>()[k]);
                    if (marks.end_of_text && !marks.before && !(is_last && marks.unfinished)) expected.push_back(mark);
                    expected_ends.push_back(static_cast<std::int64_t>(expected.size()));
                }
                CHECK(to_ids(std::move(encoded.ids)) == expected);
                CHECK(encoded.ends == expected_ends);
            }
        }
    }
}

void test_a_cancelled_batch_stops() {
    Random random(2);
    const VocabularyParts parts = random_parts(random, kWords, {.num_merges = 5});
    const Encoder encoder(parts, Pattern::gpt2, default_kernel());
    const std::string text = random_text(random, 100000);
    const std::int64_t begin = 0, end = static_cast<std::int64_t>(text.size());
    Monitor monitor;
    monitor.cancel();
    bool stopped = false;
    try {
        SpanTexts document({text, &begin, &end, 1});
        encoder.encode(document, SpecialRule({}, {}), {}, 1, monitor);
    } catch (const Cancelled&) {
        stopped = true;
    }
    CHECK(stopped);
}

void test_a_text_cut_at_the_last_cut_counts_like_the_whole() {
    Random random(5);
    for (int round = 0; round < 60; ++round) {
        const std::string text = random_text(random, 200 + random() % 300) + (round % 2 ? "<|end|>" : "<|en");
        const auto total = [&](const std::vector<std::string_view>& texts) {
            Monitor monitor;
            CountOptions options;
            options.specials = {"<|end|>", "<|end|> of"};
            options.smaller_tables = kSmallerTables;
            Counter counter(options, monitor);
            ViewTexts in_memory(texts);
            counter.add(in_memory);
            CountStats stats;
            counter.finish(stats);
            return std::pair(stats.num_pieces, stats.num_words);
        };
        Monitor monitor;
        CountOptions options;
        options.specials = {"<|end|>", "<|end|> of"};
        const Counter counter(options, monitor);
        const std::string whole = text + " of it" + random_text(random, 50);
        const std::size_t cut = counter.last_cut(text, 0);
        CHECK(cut > 0 && cut <= text.size());
        const std::string_view view(whole);
        CHECK(total({view.substr(0, cut), view.substr(cut)}) == total({view}));
    }
}

}  // namespace

int main() {
    test_stretches_lie_between_separators_the_leftmost_first();
    test_a_stretch_outside_the_text_is_refused();
    test_xxh64_is_that_of_its_specification();
    test_xxh64_of_parts_is_that_of_the_whole();
    test_documents_have_the_ids_of_their_texts_and_a_mark_each();
    test_a_cancelled_batch_stops();
    test_a_text_cut_at_the_last_cut_counts_like_the_whole();
    return test_result();
}
