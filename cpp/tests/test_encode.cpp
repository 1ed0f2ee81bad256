// Encoding gives the ids of the plain loop for any vocabulary, piece length, cut positions and number of threads.
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "check.hpp"
#include "encode_judge.hpp"

using namespace gristmill;
using namespace gristmill::test;

namespace {

void test_pieces_of_every_length_equal_the_plain_loop() {
    Random random(1);
    for (int round = 0; round < 300; ++round) {
        const std::vector<std::string>& units = round % 2 ? kLetters : kCharacters;
        const VocabularyParts parts = random_parts(random, units, random_layout(random));
        std::vector<std::unique_ptr<Encoder>> encoders;
        for (const Kernel kernel : kernels())
            encoders.push_back(std::make_unique<Encoder>(parts, std::nullopt, kernel));
        Judge judge(parts);
        for (int i = 0; i < 8; ++i) {
            std::string piece = joined(random, units, random() % 100);
            if (i == 0) piece.resize(62 + random() % 5, 'a');  // where the scan ends and the heap begins
            if (i == 1 && !parts.others.empty()) piece = any_of(random, parts.others).bytes;
            // Where a kernel needs more registers.
            if (i == 2 || i == 3) piece.resize(16 * (i - 1) - 1 + random() % 3, 'a');
            const Ids expected = judge.piece(piece);
            for (const auto& encoder : encoders) {
                const Ids ids = encoded_piece(*encoder, piece);
                CHECK(ids == expected);
                CHECK((parts.whole_pieces && ids.size() == 1) || decoded(*encoder, ids) == piece);
            }
        }
    }
    const VocabularyParts parts = random_parts(random, kLetters, {.num_merges = 12});
    Judge judge(parts);
    for (const Kernel kernel : kernels()) {
        const Encoder encoder(parts, std::nullopt, kernel);
        for (std::size_t size = 0; size < 200; ++size) {
            for (const char* unit : {"a", "ab", "aab"}) {
                std::string piece;
                while (piece.size() < size) piece += unit;
                CHECK(encoded_piece(encoder, piece) == judge.piece(piece));
            }
        }
    }
}

// Sweeps and the heap give the same ids; the plain loop verifies the shorter pieces.
void test_pieces_of_kilobytes_equal_the_plain_loop_and_the_heap() {
    Random random(8);
    for (int round = 0; round < 120; ++round) {
        const std::vector<std::string>& units = round % 2 ? kLetters : kCharacters;
        Layout layout = random_layout(random);
        layout.shuffled_ranks = round % 4 == 0;  // these never use sweeps
        layout.num_others = 0;
        const VocabularyParts parts = random_parts(random, units, layout);
        const Encoder encoder(parts, std::nullopt, any_of(random, kernels()));
        std::string piece = joined(random, units, 500 + random() % 2000);
        piece.resize(std::max<std::size_t>(piece.size(), 1020 + random() % 8), 'a');  // where sweeps begin
        const Ids ids = encoded_piece(encoder, piece);
        Ids by_heap;
        encoder.encode_piece_dropout(piece, 0, 1, by_heap);
        CHECK(ids == by_heap);
        if (round < 20) {
            piece.resize(1100, 'a');
            CHECK(encoded_piece(encoder, piece) == Judge(parts).piece(piece));
        }
    }
}

// A worker keeps its lists by rank from piece to piece, so sweeps begin at a shorter length there.
void test_pieces_of_every_length_one_after_another_equal_the_heap() {
    Random random(21);
    for (int round = 0; round < 60; ++round) {
        Layout layout = random_layout(random);
        layout.num_merges += 20;
        layout.shuffled_ranks = round % 8 == 0;
        layout.num_others = 0;
        const VocabularyParts parts = random_parts(random, kLetters, layout);
        const Encoder encoder(parts, Pattern::whitespace, any_of(random, kernels()));
        std::string text;
        Ids expected, by_heap;
        for (int i = 0; i < 30; ++i) {
            std::string piece = i ? " " : "";
            piece += joined(random, kLetters, i % 3 ? 50 + random() % 400 : 800 + random() % 400);
            if (i % 5 == 0) piece.resize(piece.size() + random() % 600, 'a');
            encoder.encode_piece_dropout(piece, 0, 1, by_heap);
            expected.insert(expected.end(), by_heap.begin(), by_heap.end());
            text += piece;
        }
        for (int time = 0; time < 2; ++time) CHECK(encoded(encoder, text) == expected);
    }
}

// Long pieces are split where no token spans the position, and their parts are looked up separately.
void test_cutting_long_pieces_never_changes_their_ids() {
    Random random(2);
    for (int round = 0; round < 150; ++round) {
        const std::vector<std::string>& units = round % 3 == 0 ? kLetters : kCharacters;
        const VocabularyParts parts = random_parts(random, units, random_layout(random));
        const Encoder encoder(parts, Pattern::whitespace, any_of(random, kernels()));
        Judge judge(parts);
        for (int i = 0; i < 16; ++i) {
            std::string piece = joined(random, units, 1 + random() % 150);
            if (i % 4 == 0) piece = random_bytes(random, 1 + random() % 600);
            if (i % 4 == 1) piece += std::string(random() % 300, units[0][0]);  // parts too long to be cached
            if (i % 4 == 2 && !parts.others.empty()) {
                // Parts that are whole pieces elsewhere but not here, and the reverse.
                const std::string& other = any_of(random, parts.others).bytes;
                piece = random() % 2 ? other : "\x01" + other + "\x01" + other + std::string(9, '\x01');
            }
            for (int time = 0; time < 2; ++time)  // computed, then from the cache
                CHECK(encoded(encoder, piece) == judge.text(piece, Pattern::whitespace));
        }
    }
}

void test_texts_equal_the_plain_loop_in_narrow_and_wide_ids_under_every_pattern() {
    Random random(3);
    for (int round = 0; round < 60; ++round) {
        Layout layout = random_layout(random);
        layout.num_merges = random() % 120;
        layout.first_id = round % 2 ? kWideIds : 0;
        VocabularyParts parts = random_parts(random, kWords, layout);
        parts.specials = {{"<s>", layout.first_id + 900}, {"the", layout.first_id + 901}};
        const auto pattern = static_cast<Pattern>(round % 6);
        const Encoder encoder(parts, pattern, any_of(random, kernels()));
        CHECK(encoder.is_narrow() == !layout.first_id);
        Judge judge(parts);
        const SpecialRule rule(parts.specials, {});
        std::string text = random_text(random, 1 + random() % 3000);
        for (int i = 0; i < 3; ++i) text.insert(random() % text.size(), "<s>");
        CHECK(encoded(encoder, text) == judge.text(text, pattern));
        const Ids expected = judge.text(text, pattern, parts.specials);
        CHECK(encoded(encoder, text, rule) == expected);
        CHECK(encoded_shortly(encoder, text, rule) == expected);
        CHECK(encoded(encoder, text, rule) == expected);  // from the cache
        Monitor monitor;
        CHECK(encoder.count_tokens(text, rule, 2, monitor) == expected.size());
    }
    for (const Id largest : {65535u, 65536u}) {
        VocabularyParts parts = random_parts(random, kWords, {});
        parts.specials = {{"<s>", largest}};
        const Encoder encoder(parts, Pattern::gpt2, default_kernel());
        CHECK(encoder.is_narrow() == (largest < 65536));
        CHECK((encoded(encoder, "<s>", SpecialRule(parts.specials, {})) == Ids{largest}));
        CHECK(encoder.num_ids() == largest + 1 && encoder.token_bytes(largest) == "<s>");
        CHECK(encoder.token_bytes(largest - 1).empty() && encoder.token_bytes(largest + 1).empty());
    }
}

void test_threads_batches_and_files_give_the_ids_of_one_thread() {
    Random random(7);
    const std::string path = "test_encode." + std::to_string(::getpid()) + ".tmp";
    for (const Id first_id : {Id{0}, kWideIds}) {
        VocabularyParts parts = random_parts(random, kWords, {.num_merges = 80, .first_id = first_id});
        parts.specials = {{"<s>", first_id + 900}, {"mill of", first_id + 901}, {"\n", first_id + 902}};
        const Encoder encoder(parts, Pattern::cl100k, default_kernel());
        const SpecialRule rule(parts.specials, {});
        Judge judge(parts);

        std::vector<std::string> texts;
        for (const std::size_t size :
             {std::size_t{0}, std::size_t{1}, kBlock - 1, kBlock, kBlock + 1, 3 * kBlock + 77}) {
            std::string text = random_text(random, size + 8);
            for (std::size_t at = 0; at + 8 < size; at += 1 + random() % 60000) text.replace(at, 7, "mill of");
            // A special, a character and white space across a block boundary.
            if (size > kBlock) text.replace(kBlock - 3, 7, "mill of");
            if (size > 3 * kBlock)
                text.replace(2 * kBlock - 2, 4, "😀").replace(3 * kBlock - 9, 20, std::string(20, ' '));
            text.resize(size);
            texts.push_back(text);
        }
        for (int i = 0; i < 300; ++i) texts.push_back(random_text(random, random() % 2000));
        texts.insert(texts.begin() + 2, "");
        texts.push_back("");

        Ids together;
        std::vector<std::int64_t> expected_ends;
        std::vector<Exact> kept;
        std::vector<std::string_view> views;
        for (const std::string& text : texts) {
            const Ids ids = judge.text(text, Pattern::cl100k, parts.specials);
            together.insert(together.end(), ids.begin(), ids.end());
            expected_ends.push_back(static_cast<std::int64_t>(together.size()));
            kept.emplace_back(text);
            views.push_back(kept.back().view());
        }
        for (const unsigned num_threads : {1u, 2u, 7u}) {
            Monitor monitor;
            ViewTexts in_memory(views);
            EncodedTexts all = encoder.encode(in_memory, rule, {}, num_threads, monitor);
            CHECK(to_ids(std::move(all.ids)) == together);
            CHECK(all.ends == expected_ends);
            for (std::size_t i = 0; i < 8; ++i) {
                const Ids expected(together.begin() + (i ? expected_ends[i - 1] : 0),
                                   together.begin() + expected_ends[i]);
                CHECK(encoded(encoder, views[i], rule, num_threads) == expected);
                Monitor counting;
                CHECK(encoder.count_tokens(views[i], rule, num_threads, counting) == expected.size());
                std::ofstream(path, std::ios::binary) << views[i];
                Monitor reading;
                FileTexts file({path});
                CHECK(to_ids(encoder.encode(file, rule, {}, num_threads, reading).ids) == expected);
                CHECK(reading.done() == views[i].size() && reading.total() == views[i].size());
            }
        }
        Monitor monitor;
        ViewTexts none({});
        const EncodedTexts nothing = encoder.encode(none, rule, {}, 2, monitor);
        CHECK(nothing.ids.size() == 0 && nothing.ends.empty());
    }
    std::remove(path.c_str());
}

void test_a_text_may_be_cut_at_every_last_cut_whatever_follows() {
    Random random(9);
    const std::vector<std::string> units = {"a", "b", " ", " ",  "\n", "\r",       "\t",   "<s>", "<",        "s",
                                            ">", "1", "!", "'s", "é",  "\xc2\xa0", "\xff", "a b", "\xe4\xb8", "'"};
    std::size_t num_cuts = 0;
    for (int round = 0; round < 600; ++round) {
        VocabularyParts parts = random_parts(random, {"a", "b", " ", "é", "'s", "\n"}, {.num_merges = 30});
        parts.specials = {{"<s>", 900}, {"<s>>", 901}, {"<s> <", 902}, {" a", 903},
                          {"a b", 904}, {"\n\n", 905}, {"b \n a", 906}};
        std::shuffle(parts.specials.begin(), parts.specials.end(), random);
        parts.specials.resize(random() % 5);
        const auto middle =
            parts.specials.begin() + static_cast<std::ptrdiff_t>(random() % (parts.specials.size() + 1));
        const Tokens allowed(parts.specials.begin(), middle), disallowed(middle, parts.specials.end());
        const auto pattern = static_cast<Pattern>(round % 6);
        const Encoder encoder(parts, pattern, default_kernel());
        const SpecialRule rule(allowed, disallowed), only_allowed(allowed, {}), only_disallowed(disallowed, {});
        const std::string text = joined(random, units, 1 + random() % 120);
        const std::size_t start = random() % 3 ? 0 : random() % text.size();
        const Exact seen(text);
        const std::size_t cut = encoder.last_cut(seen.view(), start, rule);
        if (!cut) continue;
        ++num_cuts;
        CHECK(cut > start && cut < text.size());
        for (int i = 0; i < 6; ++i) {
            const std::string whole = text + joined(random, units, random() % 12);
            const std::string_view left = std::string_view(whole).substr(0, cut),
                                   right = std::string_view(whole).substr(cut);
            // The disallowed ones as well, as if each kind were searched for.
            for (const SpecialRule* one : {&only_allowed, &only_disallowed}) {
                Ids both = encoded(encoder, left, *one);
                const Ids others = encoded(encoder, right, *one);
                both.insert(both.end(), others.begin(), others.end());
                CHECK(both == encoded(encoder, whole, *one));
            }
        }
    }
    CHECK(num_cuts > 300);
    VocabularyParts parts = random_parts(random, kWords, {});
    const Encoder encoder(parts, Pattern::gpt2, default_kernel());
    CHECK(encoder.last_cut("", 0, no_specials()) == 0);
    CHECK(encoder.last_cut(std::string(5000, 'a'), 0, no_specials()) == 0);
    CHECK(encoder.last_cut("a b" + std::string(5000, 'c'), 0, no_specials()) == 1);
    CHECK(encoder.last_cut("a b" + std::string(5000, 'c'), 1, no_specials()) == 0);
    CHECK(encoder.last_cut("a b c", 5, no_specials()) == 0);
}

void test_the_longest_special_wins_and_only_allowed_ones_are_found() {
    VocabularyParts parts;
    std::iota(parts.byte_ids.begin(), parts.byte_ids.end(), 0);
    parts.specials = {{"<s>", 300}, {"<s>>", 301}, {"x", 302}};
    const Encoder encoder(parts, Pattern::gpt2, default_kernel());
    const auto with = [&](std::string_view text, const Tokens& allowed) {
        return encoded(encoder, text, SpecialRule(allowed, {}));
    };
    CHECK((with("<s>><s>x", {{"<s>", 300}, {"<s>>", 301}}) == Ids{301, 300, 'x'}));
    CHECK((with("<s>>", {{"<s>", 300}}) == Ids{300, '>'}));
    CHECK((with("<s>", {}) == Ids{'<', 's', '>'}));
    CHECK((with("axx", {{"x", 302}}) == Ids{'a', 302, 302}));
    CHECK(with("", {{"<s>", 300}}).empty());
}

void test_the_earliest_forged_special_is_reported_for_any_number_of_threads() {
    Random random(10);
    VocabularyParts parts = random_parts(random, kWords, {});
    const Tokens allowed = {{"<a>", 900}}, disallowed = {{"<x>", 901}, {"<x>>", 902}, {"rye <x>", 903}};
    parts.specials = allowed;
    parts.specials.insert(parts.specials.end(), disallowed.begin(), disallowed.end());
    const Encoder encoder(parts, Pattern::gpt2, default_kernel());
    const SpecialRule rule(allowed, disallowed);
    std::string base;
    while (base.size() < 6 * kBlock) base += random_text(random, 500) + "<a> ";
    for (int round = 0; round < 6; ++round) {
        std::string text = base;
        std::size_t first = text.size();
        for (int i = 0; i < 4; ++i) {
            const std::size_t at = i == 0 ? (1 + random() % 5) * kBlock - 2 : random() % (text.size() - 8);
            text.replace(at, 4, "<x>>");
            first = std::min(first, at);
        }
        first = std::min(text.find("<x>"), text.find("rye <x>"));
        const Id id = text[first] == 'r' ? 903 : text[first + 3] == '>' ? 902 : 901;
        for (const unsigned num_threads : {1u, 2u, 7u}) {
            for (int how = 0; how < 3; ++how) {
                std::uint64_t index = 99, position = 0;
                Id found_id = 0;
                try {
                    Monitor monitor;
                    ViewTexts several({base, "", text, text});
                    if (how == 0) encoder.encode(text, rule, num_threads, monitor);
                    if (how == 1) encoder.count_tokens(text, rule, num_threads, monitor);
                    if (how == 2) encoder.encode(several, rule, {}, num_threads, monitor);
                } catch (const ForgedSpecial& found) {
                    index = found.text, position = found.position, found_id = found.id;
                }
                CHECK(index == (how == 2 ? 2u : 0u) && position == first && found_id == id);
            }
        }
    }
    Judge judge(parts);
    CHECK(encoded(encoder, base, rule, 7) == judge.text(base, Pattern::gpt2, allowed));
}

// The rule of tiktoken: of all neighbours whose joined bytes are a token, those with the lowest id merge first.
Ids encode_by_ranks(std::string_view piece, const std::map<std::string, Id>& ranks) {
    const auto rank_of = [&](const std::string& bytes) {
        const auto found = ranks.find(bytes);
        return found == ranks.end() ? static_cast<Id>(-1) : found->second;
    };
    if (ranks.contains(std::string(piece))) return {ranks.at(std::string(piece))};
    std::vector<std::string> symbols;
    for (const char byte : piece) symbols.emplace_back(1, byte);
    for (;;) {
        Id best_rank = static_cast<Id>(-1);
        std::size_t best = 0;
        for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
            const Id rank = rank_of(symbols[i] + symbols[i + 1]);
            if (rank < best_rank) best_rank = rank, best = i;
        }
        if (best_rank == static_cast<Id>(-1)) break;
        symbols[best] += symbols[best + 1];
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    Ids ids;
    for (const std::string& symbol : symbols) ids.push_back(rank_of(symbol));
    return ids;
}

void test_merges_recovered_from_ranks_encode_as_the_ranks_do() {
    Random random(11);
    for (int round = 0; round < 150; ++round) {
        std::map<std::string, Id> ranks;
        std::vector<Id> ids(256 + random() % 60);
        std::iota(ids.begin(), ids.end(), 0);
        if (round % 2) std::shuffle(ids.begin(), ids.end(), random);  // a token may rank before its parts
        std::size_t next = 0;
        for (int byte = 0; byte < 256; ++byte) ranks[std::string(1, static_cast<char>(byte))] = ids[next++];
        while (next < ids.size()) {
            const std::string token = joined(random, kLetters, 2 + random() % 5);
            if (!ranks.contains(token)) ranks[token] = ids[next++];
        }
        std::vector<std::string_view> tokens;
        std::vector<Id> token_ids;
        for (const auto& [token, id] : ranks) tokens.push_back(token), token_ids.push_back(id);
        VocabularyParts parts;
        parts.merges = recover_merges(tokens, token_ids);
        parts.whole_pieces = true;
        std::set<Id> made;
        for (const MergeRule& merge : parts.merges) CHECK(made.insert(merge.made).second);
        CHECK(std::is_sorted(parts.merges.begin(), parts.merges.end(),
                             [](const MergeRule& a, const MergeRule& b) { return a.made < b.made; }));
        for (const auto& [token, id] : ranks) {
            if (token.size() == 1) parts.byte_ids[static_cast<std::uint8_t>(token[0])] = id;
            if (token.size() > 1 && !made.contains(id)) parts.others.push_back({token, id});
        }
        const Encoder encoder(parts, Pattern::gpt2, default_kernel());
        for (int i = 0; i < 20; ++i) {
            const std::string piece = joined(random, kLetters, 1 + random() % 90);
            CHECK(encoded_piece(encoder, piece) == encode_by_ranks(piece, ranks));
            CHECK(encoded(encoder, piece) == encode_by_ranks(piece, ranks));
        }
        for (const auto& [token, id] : ranks) CHECK((encoded_piece(encoder, token) == Ids{id}));
    }
    CHECK(recover_merges({}, {}).empty());
}

void test_dropout_goes_from_plain_ids_to_bytes() {
    Random random(12);
    VocabularyParts parts = random_parts(random, kWords, {.num_merges = 120, .permuted_bytes = true});
    parts.specials = {{"<s>", 900}};
    const Encoder encoder(parts, Pattern::gpt2, default_kernel());
    const SpecialRule rule(parts.specials, {});
    const std::string text = random_text(random, 4000) + "<s>" + random_text(random, 4000) + std::string(300, 'e');
    const auto dropped = [&](double dropout, std::uint64_t seed) {
        Ids ids;
        encoder.encode_dropout(text, rule, dropout, seed, ids);
        CHECK(decoded(encoder, ids) == text);
        CHECK(std::count(ids.begin(), ids.end(), 900u) == 1);
        return ids;
    };
    const Ids plain = encoded(encoder, text, rule);
    CHECK(dropped(0, 1) == plain && dropped(0, 2) == plain);
    CHECK(dropped(1, 1).size() == text.size() - 2);
    CHECK(dropped(0.5, 1) == dropped(0.5, 1) && dropped(0.5, 1) != dropped(0.5, 2));
    std::size_t before = plain.size();
    for (const double dropout : {0.1, 0.5, 0.9}) {
        const std::size_t size = dropped(dropout, 7).size();
        CHECK(size > before);
        before = size;
    }
    Ids ids;
    encoder.encode_dropout("", rule, 0.5, 1, ids);
    CHECK(ids.empty());
    bool forged = false;
    try {
        encoder.encode_dropout("a <s>", SpecialRule({}, parts.specials), 0.5, 1, ids);
    } catch (const ForgedSpecial& found) {
        forged = found.position == 2 && found.id == 900;
    }
    CHECK(forged);

    // One possible merge: it is skipped as often as expected.
    VocabularyParts single;
    std::iota(single.byte_ids.begin(), single.byte_ids.end(), 0);
    single.merges = {{'a', 'b', 256}};
    const Encoder one(single, std::nullopt, Kernel::scalar);
    std::size_t num_left_out = 0;
    for (std::uint64_t seed = 0; seed < 10000; ++seed) {
        one.encode_piece_dropout("ab", 0.3, seed, ids);
        num_left_out += ids.size() == 2;
    }
    CHECK(num_left_out > 2800 && num_left_out < 3200);
}

}  // namespace

int main() {
    test_pieces_of_every_length_equal_the_plain_loop();
    test_pieces_of_kilobytes_equal_the_plain_loop_and_the_heap();
    test_pieces_of_every_length_one_after_another_equal_the_heap();
    test_cutting_long_pieces_never_changes_their_ids();
    test_texts_equal_the_plain_loop_in_narrow_and_wide_ids_under_every_pattern();
    test_threads_batches_and_files_give_the_ids_of_one_thread();
    test_a_text_may_be_cut_at_every_last_cut_whatever_follows();
    test_the_longest_special_wins_and_only_allowed_ones_are_found();
    test_the_earliest_forged_special_is_reported_for_any_number_of_threads();
    test_merges_recovered_from_ranks_encode_as_the_ranks_do();
    test_dropout_goes_from_plain_ids_to_bytes();
    return test_result();
}
