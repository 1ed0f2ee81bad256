// Encoding merges the pair learned first, leftmost first, in pieces of every length: the plain loop written here is the
// judge.
#include <algorithm>
#include <random>
#include <stdexcept>

#include "check.hpp"
#include "gristmill/encode.hpp"

using namespace gristmill;

namespace {

std::vector<Id> encode_plainly(std::string_view piece, const std::vector<Merge>& merges) {
    std::vector<Id> symbols;
    for (const char c : piece) symbols.push_back(static_cast<std::uint8_t>(c));
    for (;;) {
        std::size_t best_rank = merges.size(), best = 0;
        for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
            const auto found = std::find(merges.begin(), merges.end(), Merge(symbols[i], symbols[i + 1]));
            const auto rank = static_cast<std::size_t>(found - merges.begin());
            if (rank < best_rank) best_rank = rank, best = i;
        }
        if (best_rank == merges.size()) return symbols;
        symbols[best] = static_cast<Id>(256 + best_rank);
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
}

// Merges of any two tokens made so far over a small alphabet; many are never used, which is how hostile vocabularies
// are.
std::vector<Merge> random_merges(std::mt19937& random, std::size_t num) {
    std::vector<Merge> merges;
    const auto token = [&]() -> Id {
        const std::size_t made = merges.size(), draw = random() % (made + 3);
        return draw < 3 ? static_cast<Id>('a' + draw) : static_cast<Id>(256 + draw - 3);
    };
    while (merges.size() < num) {
        const Merge merge(token(), token());
        if (std::find(merges.begin(), merges.end(), merge) == merges.end()) merges.push_back(merge);
    }
    return merges;
}

void test_pieces_of_every_length_equal_the_plain_loop() {
    std::mt19937 random(1);
    for (int round = 0; round < 300; ++round) {
        const std::vector<Merge> merges = random_merges(random, random() % 12);
        const Encoder encoder(merges, std::nullopt, Kernel::scalar, {}, {});
        std::string piece;
        for (std::size_t size = random() % 150; size; --size) piece += static_cast<char>('a' + random() % 3);
        std::vector<Id> ids;
        encoder.encode_piece(piece, ids);
        CHECK(ids == encode_plainly(piece, merges));
        std::string decoded;
        for (const Id id : ids) decoded += encoder.token_bytes(id);
        CHECK(decoded == piece);
    }
}

void test_a_piece_of_megabytes_is_not_quadratic() {
    const std::vector<Merge> merges = {{'a', 'a'}, {256, 256}, {257, 257}};
    const Encoder encoder(merges, std::nullopt, Kernel::scalar, {}, {});
    std::vector<Id> ids;
    encoder.encode_piece(std::string(3'000'003, 'a'), ids);
    CHECK(ids.size() == 3'000'000 / 8 + 2);
    CHECK(ids.front() == 258 && ids[ids.size() - 2] == 256 && ids.back() == 'a');
}

void test_only_allowed_specials_are_found_and_the_longest_wins() {
    const Encoder encoder({}, Pattern::gpt2, default_kernel(), {"<s>", "<s>>", "x"}, {300, 301, 302});
    const auto encoded = [&](std::string_view text, const std::vector<Id>& allowed) {
        std::vector<Id> ids;
        encoder.encode(text, allowed, ids);
        return ids;
    };
    CHECK((encoded("<s>><s>x", {300, 301}) == std::vector<Id>{301, 300, 'x'}));
    CHECK((encoded("<s>>", {300}) == std::vector<Id>{300, '>'}));
    CHECK((encoded("<s>", {}) == std::vector<Id>{'<', 's', '>'}));
    CHECK(encoded("", {300}).empty());
    CHECK(encoder.find_special("a x", {302})->position == 2);
    CHECK(!encoder.find_special("a x", {300}));
    CHECK(encoder.token_bytes(301) == "<s>>");
    CHECK(encoder.token_bytes(303).empty());
}

void test_impossible_merges_are_refused_before_anything_large_is_allocated() {
    std::vector<Merge> doubling = {{'a', 'a'}};
    while (doubling.size() < 60) doubling.emplace_back(255 + doubling.size(), 255 + doubling.size());
    for (const std::vector<Merge>& merges : {std::vector<Merge>{{'a', 256}}, doubling}) {
        bool refused = false;
        try {
            const Encoder encoder(merges, std::nullopt, Kernel::scalar, {}, {});
        } catch (const std::invalid_argument&) {
            refused = true;
        }
        CHECK(refused);
    }
}

}  // namespace

int main() {
    test_pieces_of_every_length_equal_the_plain_loop();
    test_a_piece_of_megabytes_is_not_quadratic();
    test_only_allowed_specials_are_found_and_the_longest_wins();
    test_impossible_merges_are_refused_before_anything_large_is_allocated();
    return test_result();
}
