// tokenizer: merges recovered from ranks against the definition; malformed vocabularies are either refused with
// std::invalid_argument or encode like the plain loop.
#include <map>
#include <set>
#include <stdexcept>

#include "encode_judge.hpp"
#include "fuzz.hpp"

using namespace gristmill;
using namespace gristmill::fuzz;
using gristmill::test::decoded;
using gristmill::test::encoded;
using gristmill::test::encoded_piece;
using gristmill::test::Judge;

namespace {

bool operator==(const MergeRule& a, const MergeRule& b) {
    return a.left == b.left && a.right == b.right && a.made == b.made;
}

// For each token of several bytes: merge the pair with the lowest id, leftmost first, until two parts are left.
std::vector<MergeRule> recover_plainly(const std::map<std::string, Id>& id_of) {
    std::map<Id, MergeRule> rules;
    for (const auto& [token, id] : id_of) {
        std::vector<std::string> parts;
        for (const char byte : token) parts.emplace_back(1, byte);
        while (parts.size() > 2) {
            std::size_t best = parts.size();
            Id best_id = 0;
            for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
                const auto found = id_of.find(parts[i] + parts[i + 1]);
                if (found != id_of.end() && (best == parts.size() || found->second < best_id)) {
                    best = i;
                    best_id = found->second;
                }
            }
            if (best == parts.size()) break;
            parts[best] += parts[best + 1];
            parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
        }
        if (parts.size() == 2 && id_of.contains(parts[0]) && id_of.contains(parts[1]))
            rules[id] = {id_of.at(parts[0]), id_of.at(parts[1]), id};
    }
    std::vector<MergeRule> result;
    for (const auto& [id, rule] : rules) result.push_back(rule);
    return result;
}

void check_recovery(Input& input) {
    std::vector<std::string> tokens;
    std::vector<Id> ids;
    std::map<std::string, Id> id_of;
    const bool all_bytes = input.flag(), shuffled = input.flag(), repeats = input.byte() < 16;
    Id next = 0;
    const auto add = [&](std::string token) {
        if (id_of.emplace(token, next).second || repeats) {
            tokens.push_back(std::move(token));
            ids.push_back(next++);
        }
    };
    if (all_bytes) {
        for (unsigned byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
    }
    while (input.size()) {
        const std::size_t num_bytes = input.byte() % 16;
        add(std::string(input.text(num_bytes)));
    }
    if (shuffled) {
        std::reverse(tokens.begin(), tokens.end());
        std::reverse(ids.begin(), ids.end());
    }
    const std::vector<std::string_view> views(tokens.begin(), tokens.end());
    const std::vector<MergeRule> rules = recover_merges(views, ids);
    for (const MergeRule& rule : rules) CHECK(rule.left < next && rule.right < next && rule.made < next);
    if (repeats) return;
    const std::vector<MergeRule> expected = recover_plainly(id_of);
    CHECK(std::equal(rules.begin(), rules.end(), expected.begin(), expected.end(),
                     [](const MergeRule& a, const MergeRule& b) { return a == b; }));
}

// Ids are mostly small, so that they collide and refer to each other. Large allowed ids would only cost memory.
Id id_of(Input& input) {
    static constexpr Id kLarge[] = {65534, 65535, 65536, 70000, (1 << 20) - 2, (1 << 20) - 1, 1 << 20, 1 << 25, ~Id{0}};
    const std::uint8_t kind = input.byte();
    // Tables of a million ids take long to make.
    if (kind >= 250) return kLarge[input.below(input.one_in(16) ? std::size(kLarge) : 4)];
    return kind < 200 ? 256 + kind % 24 : kind + input.byte() % 64;
}

std::string token_of(Input& input, std::string_view text) {
    const std::size_t begin = input.below(256);
    return std::string(text.substr(std::min(begin, text.size()), input.below(256) % 12));
}

VocabularyParts hostile_parts(Input& input, std::string_view text) {
    VocabularyParts parts;
    std::iota(parts.byte_ids.begin(), parts.byte_ids.end(), 0);
    const std::uint8_t kind = input.byte();
    if (kind % 16 == 0) parts.byte_ids[input.byte()] = id_of(input);
    parts.whole_pieces = kind & 16;
    const auto any_part = [&]() -> Id {
        const std::uint8_t choice = input.byte();
        if (choice == 255) return id_of(input);
        if (choice % 2 && !parts.merges.empty()) return parts.merges[choice / 2 % parts.merges.size()].made;
        return text.empty() ? choice : static_cast<std::uint8_t>(text[choice / 2 % text.size()]);
    };
    const bool in_order = kind & 32;
    for (std::size_t left = input.below(24); left; --left) {
        const Id a = any_part(), b = any_part();
        const Id made = in_order ? static_cast<Id>(256 + parts.merges.size()) : id_of(input);
        parts.merges.push_back({a, b, made});
    }
    if (kind & 64) std::reverse(parts.merges.begin(), parts.merges.end());
    for (std::size_t left = input.below(256) % 4; left; --left)
        parts.others.push_back({token_of(input, text), id_of(input)});
    for (std::size_t left = input.below(256) % 3; left; --left)
        parts.specials.push_back({token_of(input, text), id_of(input)});
    return parts;
}

void check_hostile(Input& input) {
    const Pattern pattern = pattern_of(input);
    const Kernel kernel = kernels()[input.below(kernels().size())];
    const Input before = input;
    const VocabularyParts parts = hostile_parts(input, Input(before).rest());
    const std::string_view text = input.rest();
    std::unique_ptr<Encoder> encoder;
    try {
        encoder = std::make_unique<Encoder>(parts, pattern, kernel, 1);
    } catch (const std::invalid_argument&) {
        return;
    }
    const auto ids = encoded(*encoder, text);
    CHECK(decoded(*encoder, ids) == text);
    for (const auto id : ids) CHECK(id < encoder->num_ids());
    std::set<std::string> others;
    for (const IdOfBytes& other : parts.others) {
        if (!others.insert(other.bytes).second) return;  // which of the two is the piece is undefined
    }
    Judge judge(parts);
    CHECK(ids == judge.text(text, pattern));
    if (!text.empty()) CHECK(encoded_piece(*encoder, text) == judge.piece(text));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    if (input.byte() % 4 == 0) {
        check_hostile(input);
    } else {
        check_recovery(input);
    }
    return 0;
}
