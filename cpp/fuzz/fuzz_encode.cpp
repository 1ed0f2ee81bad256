// encode: every way to encode a text, with every kernel, against a plain loop that applies the BPE rule.
#include <map>
#include <random>
#include <set>

#include "encode_judge.hpp"
#include "fuzz.hpp"
#include "texts.hpp"

using namespace gristmill;
using namespace gristmill::fuzz;
using gristmill::test::decoded;
using gristmill::test::encoded;
using gristmill::test::encoded_piece;
using gristmill::test::encoded_shortly;
using gristmill::test::Ids;
using gristmill::test::Judge;

namespace {

// Merges of bytes that occur in the text and of their results, in learning order or not; tokens that no merge makes;
// ids of 16 or 32 bits.
VocabularyParts parts_of(Input& input, std::string_view text) {
    static constexpr Id kFirstIds[] = {0, 0, 0, 1, 65500 - 256, 65536, (1 << 20) - 270, 300};
    const std::uint8_t layout = input.byte();
    VocabularyParts parts;
    Id first_id = kFirstIds[layout % 8];
    // Tables of many ids take long to make.
    if (first_id > 300 && !input.one_in(first_id > 65536 ? 64 : 8)) first_id = 0;
    std::iota(parts.byte_ids.begin(), parts.byte_ids.end(), first_id);
    if (layout & 8) std::reverse(parts.byte_ids.begin(), parts.byte_ids.end());
    parts.whole_pieces = layout & 16;
    std::map<std::string, Id> id_of;
    std::vector<std::string> tokens;
    Id next = first_id + 256;
    const auto id_for = [&](const std::string& token) {
        const auto [found, is_new] = id_of.emplace(token, next);
        if (is_new) {
            if (token.size() == 1) {
                found->second = parts.byte_ids[static_cast<std::uint8_t>(token[0])];
            } else {
                next += layout & 32 ? 3 : 1;
            }
            tokens.push_back(token);
        }
        return found->second;
    };
    for (const char byte : text.substr(0, 200)) id_for(std::string(1, byte));
    if (tokens.empty()) return parts;
    std::set<std::pair<Id, Id>> pairs;
    for (std::size_t left = input.below(64); left; --left) {
        const std::string a = tokens[input.below(tokens.size())], b = tokens[input.below(tokens.size())];
        const Id a_id = id_of[a], b_id = id_of[b];
        if (a.size() + b.size() <= 80 && pairs.emplace(a_id, b_id).second)
            parts.merges.push_back({a_id, b_id, id_for(a + b)});
    }
    for (std::size_t left = input.below(256) % 5; left; --left) {
        const std::size_t begin = input.below(256);
        const std::string token(text.substr(std::min(begin, text.size()), 2 + input.below(14)));
        if (token.size() > 1 && !id_of.contains(token)) parts.others.push_back({token, id_for(token)});
    }
    if (layout & 64) {
        std::mt19937 random(input.byte());
        std::shuffle(parts.merges.begin(), parts.merges.end(), random);
    }
    for (const std::string& special : specials_of(input, text, 3)) parts.specials.push_back({special, next++});
    return parts;
}

Ids joined(Ids a, const Ids& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

void check_encoder(const Encoder& encoder, std::string_view text, std::size_t cut, const SpecialRule& rule,
                   const VocabularyParts& parts, Judge& judge, Pattern pattern) {
    const Ids expected = judge.text(text, pattern, parts.specials);
    const ExactText exact(text);
    Monitor monitor;
    for (int time = 0; time < 2; ++time) {  // the second time from the cache
        CHECK(encoded(encoder, exact.view(), rule) == expected);
        CHECK(encoded_shortly(encoder, exact.view(), rule) == expected);
    }
    CHECK(encoder.count_tokens(exact.view(), rule, 2, monitor) == expected.size());
    CHECK(decoded(encoder, expected) == text);
    CHECK(encoded_piece(encoder, exact.view().substr(0, 300)) == judge.piece(text.substr(0, 300)));

    const ExactText beginning(text.substr(0, cut));
    const std::size_t last = encoder.last_cut(beginning.view(), 0, rule);
    if (last) {
        CHECK(last <= cut);
        CHECK(joined(judge.text(text.substr(0, last), pattern, parts.specials),
                     judge.text(text.substr(last), pattern, parts.specials)) == expected);
    }
}

// Several texts from every kind of source, with or without marks between them.
void check_texts(Input& input, const Encoder& encoder, std::string_view text, const SpecialRule& rule,
                 const VocabularyParts& parts, Judge& judge, Pattern pattern) {
    const std::uint8_t flags = input.byte();
    const Id mark = parts.specials.empty() ? parts.byte_ids[0] : parts.specials[0].id;
    TextMarks marks;
    if (flags & 1) marks.end_of_text = mark;
    marks.before = flags & 2, marks.continued = flags & 4, marks.unfinished = flags & 8;
    const Where where = where_of(input);
    const std::vector<std::string_view> texts = texts_of(input, text, 6);
    Ids expected;
    std::vector<std::int64_t> ends;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        if (flags & 1 && marks.before && !(i == 0 && marks.continued)) expected.push_back(mark);
        expected = joined(std::move(expected), judge.text(texts[i], pattern, parts.specials));
        if (flags & 1 && !marks.before && !(i + 1 == texts.size() && marks.unfinished)) expected.push_back(mark);
        ends.push_back(static_cast<std::int64_t>(expected.size()));
    }
    PlacedTexts placed(texts, where);
    Monitor monitor;
    EncodedTexts found = encoder.encode(placed.texts(), rule, marks, 2, monitor);
    CHECK(found.ends == ends);
    CHECK(found.ids.width() == (encoder.is_narrow() ? 2 : 4));
    CHECK(test::to_ids(std::move(found.ids)) == expected);
}

// A disallowed special is reported at its first occurrence, and only then.
void check_forged(const Encoder& encoder, std::string_view text, const VocabularyParts& parts) {
    const SpecialRule rule({}, parts.specials);
    std::vector<std::string> spellings;
    for (const IdOfBytes& special : parts.specials) spellings.push_back(special.bytes);
    const Found expected = find_plainly(text, 0, spellings);
    try {
        encoded(encoder, text, rule);
        CHECK(expected.index == spellings.size());
    } catch (const ForgedSpecial& forged) {
        CHECK(expected.index < spellings.size());
        CHECK(forged.text == 0 && forged.position == expected.position &&
              forged.id == parts.specials[expected.index].id);
    }
}

// Dropout 0 is BPE, dropout 1 leaves bytes, and anything between decodes to the text.
void check_dropout(const Encoder& encoder, std::string_view text, const SpecialRule& rule, const VocabularyParts& parts,
                   Judge& judge, Pattern pattern, std::uint8_t seed) {
    Ids ids;
    encoder.encode_dropout(text, rule, seed / 255.0, seed, ids);
    CHECK(decoded(encoder, ids) == text);
    encoder.encode_dropout(text, rule, 0.0, seed, ids);
    if (!parts.whole_pieces) CHECK(ids == judge.text(text, pattern, parts.specials));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    Input texts_input = input;  // the decisions about texts are those about the vocabulary, read once more
    const Pattern pattern = pattern_of(input);
    const Kernel kernel = kernels()[input.below(kernels().size())];
    const std::size_t cache_bytes = input.flag() ? 1 : 0;
    const std::uint8_t seed = input.byte();
    const std::uint8_t length = input.byte();
    const std::size_t cut_at = input.below(512);
    const Input before = input;
    const VocabularyParts parts = parts_of(input, Input(before).rest());
    std::string_view text = input.rest();
    // Longer than texts that are copied to make bytes after their end readable.
    std::string several_batches;
    if (length % 4 == 1 && input.one_in(32)) text = several_batches = repeated(text, 4000 + cut_at);

    const Encoder encoder(parts, pattern, kernel, cache_bytes);
    const SpecialRule rule(parts.specials, {});
    Judge judge(parts);
    check_encoder(encoder, text, cut_at % (text.size() + 1), rule, parts, judge, pattern);
    check_texts(texts_input, encoder, text, rule, parts, judge, pattern);
    if (!parts.specials.empty()) check_forged(encoder, text, parts);
    check_dropout(encoder, text, rule, parts, judge, pattern, seed);
    if (length % 2 && input.one_in(8192)) {  // large enough for several threads
        const std::string blocks = repeated(text, 1 << 20);
        CHECK(encoded(encoder, blocks, rule, 2) == judge.text(blocks, pattern, parts.specials));
    }
    return 0;
}
