// Encoding respects the limits of caches, memory and text; an error leaves the encoder unchanged.
#include <atomic>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <thread>

#include "check.hpp"
#include "encode_judge.hpp"

using namespace gristmill;
using namespace gristmill::test;

// Simulates running out of memory: the allocation after this many fails, once. -1: none fails.
static std::atomic<long> g_allocations_left{-1};

void* operator new(std::size_t size) {
    if (g_allocations_left.load(std::memory_order_relaxed) >= 0 && g_allocations_left.fetch_sub(1) == 0)
        throw std::bad_alloc();
    if (void* memory = std::malloc(size ? size : 1)) return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

void test_ids_do_not_depend_on_what_the_cache_has_room_for() {
    Random random(4);
    for (const Id first_id : {Id{0}, kWideIds}) {
        const Layout layout{.num_merges = 60, .first_id = first_id, .num_others = 3, .whole_pieces = true};
        const VocabularyParts parts = random_parts(random, kWords, layout);
        // Short pieces, pieces with more ids than an entry holds, long ones, and some too long to be cached.
        std::string text;
        for (std::uint32_t i = 0; i < 20000; ++i) {
            const std::size_t size = i % 7 == 0     ? 16 + random() % 40
                                     : i % 501 == 0 ? 240 + random() % 40
                                                    : random() % 14;
            text += joined(random, {"t", "h", "e", "m", "i", "l", "r", "y"}, size) + (i % 3 ? " the" : " mill");
        }
        Judge judge(parts);
        const Ids expected = judge.text(text, Pattern::gpt2);
        const Encoder roomy(parts, Pattern::gpt2, default_kernel());
        CHECK(encoded(roomy, text) == expected);
        CHECK(roomy.cache_stats().num_caches == 1 && roomy.cache_stats().num_pieces > 10000);
        for (const std::size_t limit : {std::size_t{1}, std::size_t{100'000}, std::size_t{4} << 20}) {
            const Encoder encoder(parts, Pattern::gpt2, default_kernel(), limit);
            for (int time = 0; time < 2; ++time) CHECK(encoded(encoder, text) == expected);
            const CacheStats stats = encoder.cache_stats();
            CHECK(stats.limit_bytes == limit);
            // One cache and the seeds, each within the limit; the minimum is 64 KiB.
            CHECK(stats.num_caches == 1);
            CHECK(stats.memory_bytes <= 2 * std::max(limit, std::size_t{64} << 10));
        }
    }
}

void test_the_cache_stays_within_its_limit_and_keeps_the_tokens() {
    Random random(5);
    const VocabularyParts parts = random_parts(random, kWords, {.num_merges = 60});
    const std::size_t limit = 8 << 20;
    const Encoder encoder(parts, Pattern::gpt2, default_kernel(), limit);
    const std::size_t shared = encoder.cache_stats().memory_bytes;
    CHECK(encoded(encoder, "").empty());
    const std::size_t num_tokens = encoder.cache_stats().num_pieces;
    CHECK(num_tokens >= 256);
    std::size_t most = 0, before = 0;
    bool cleared = false;
    for (int round = 0; round < 60; ++round) {
        std::string text;
        for (int i = 0; i < 4000; ++i) text += " " + random_bytes(random, random() % 40);
        encoded(encoder, text);
        const CacheStats stats = encoder.cache_stats();
        cleared |= stats.num_pieces < before;
        before = stats.num_pieces;
        most = std::max(most, static_cast<std::size_t>(stats.memory_bytes) - shared);
        CHECK(stats.num_caches == 1 && stats.num_pieces >= num_tokens);
    }
    CHECK(cleared);
    CHECK(most <= limit);
    CHECK(most > limit / 4);
}

// Every piece has more ids than an entry holds, or is longer than a key: the arena fills, not the table.
void test_the_arena_of_long_pieces_counts_within_the_limit() {
    Random random(17);
    for (const Id first_id : {Id{0}, kWideIds}) {
        const VocabularyParts parts = random_parts(random, kLetters, {.num_merges = 3, .first_id = first_id});
        for (const std::size_t limit : {std::size_t{64} << 10, std::size_t{1} << 20, std::size_t{8} << 20}) {
            const Encoder encoder(parts, Pattern::gpt2, default_kernel(), limit);
            const std::size_t seeds = encoder.cache_stats().memory_bytes;
            CHECK(seeds <= limit);
            for (int round = 0; round < 6; ++round) {
                std::string text;
                for (int i = 0; i < 20000; ++i) text += " " + joined(random, kLetters, 12 + random() % 50);
                encoded(encoder, text);
                CHECK(encoder.cache_stats().memory_bytes - seeds <= limit);
            }
        }
    }
}

void test_ids_far_apart_cost_no_more_than_their_tokens() {
    Random random(6);
    VocabularyParts parts = random_parts(random, kLetters, {});
    parts.specials = {{"<s>", (1u << 22)}};
    const Encoder encoder(parts, Pattern::gpt2, default_kernel());
    CHECK(encoded(encoder, "abc") == encoded_piece(encoder, "abc"));
    CHECK(encoder.cache_stats().memory_bytes < std::size_t{8} << 20);
}

void test_nothing_behind_the_end_of_a_text_is_read() {
    Random random(8);
    const VocabularyParts parts = random_parts(random, kWords, {.num_merges = 80});
    const Encoder encoder(parts, Pattern::gpt2, default_kernel());
    Judge judge(parts);
    std::vector<std::size_t> sizes(150);
    std::iota(sizes.begin(), sizes.end(), 0);
    for (const std::size_t around : {std::size_t{4096}, std::size_t{8192}, std::size_t{12288}}) {
        for (std::size_t size = around - 3; size < around + 4; ++size) sizes.push_back(size);
    }
    for (const std::size_t size : sizes) {
        for (std::string text : {random_text(random, size), std::string(size, 'e')}) {
            text.resize(size);
            const Exact exact(text);
            const Ids expected = judge.text(text, Pattern::gpt2);
            CHECK(encoded(encoder, exact.view()) == expected);
            CHECK(encoded_shortly(encoder, exact.view()) == expected);
            if (size < 150) CHECK(encoded_piece(encoder, exact.view()) == judge.piece(text));
        }
    }
    CHECK(encoded(encoder, {}).empty() && encoded_shortly(encoder, {}).empty() && encoded_piece(encoder, {}).empty());
}

// Found by fuzzing: 16 bytes are readable from the start of a piece, but not from the start of its last part.
void test_nothing_behind_the_last_part_of_a_long_piece_is_read() {
    VocabularyParts parts;
    std::iota(parts.byte_ids.begin(), parts.byte_ids.end(), 0);
    const Encoder encoder(parts, Pattern::gpt2, default_kernel());
    for (std::size_t size = 4080; size < 4130; ++size) {
        const Exact exact(std::string(size, 'e'));
        CHECK(encoded(encoder, exact.view()) == Ids(size, 'e'));
        CHECK(encoded_shortly(encoder, exact.view()) == Ids(size, 'e'));
    }
}

void test_thousands_of_specials_are_found_in_a_text_of_megabytes() {
    VocabularyParts parts;
    std::iota(parts.byte_ids.begin(), parts.byte_ids.end(), 0);
    for (Id i = 0; i < 5000; ++i) parts.specials.push_back({"<|special " + std::to_string(i) + "|>", 1000 + i});
    const Encoder encoder(parts, Pattern::gpt2, default_kernel());
    const SpecialRule rule(parts.specials, {});
    std::string text;
    Ids expected;
    for (Id i = 0; i < 40000; ++i) {
        text += "<|special " + std::to_string(i % 5000) + "|>" + std::string(i % 50, 'a') + "<|";
        expected.push_back(1000 + i % 5000);
        expected.insert(expected.end(), i % 50, 'a');
        expected.insert(expected.end(), {'<', '|'});
    }
    CHECK(encoded(encoder, text, rule, 2) == expected);
}

void test_a_piece_of_megabytes_is_not_quadratic() {
    VocabularyParts parts;
    std::iota(parts.byte_ids.begin(), parts.byte_ids.end(), 0);
    parts.merges = {{'a', 'a', 256}, {256, 256, 257}, {257, 257, 258}};
    const Encoder encoder(parts, Pattern::gpt2, default_kernel());
    const std::string letters(1'000'003, 'a');
    for (const Ids& ids : {encoded_piece(encoder, letters), encoded(encoder, letters, no_specials(), 2)}) {
        CHECK(ids.size() == 1'000'000 / 8 + 2);
        CHECK(ids.front() == 258 && ids[ids.size() - 2] == 256 && ids.back() == 'a');
    }
    CHECK(encoded(encoder, std::string(3'000'000, '^'), no_specials(), 2) == Ids(3'000'000, '^'));
    CHECK(encoded(encoder, std::string(3'000'000, ' '), no_specials(), 2) == Ids(3'000'000, ' '));
    Ids ids;
    encoder.encode_piece_dropout(std::string(200'000, 'a'), 0.5, 1, ids);
    CHECK(decoded(encoder, ids) == std::string(200'000, 'a'));
}

template <class Error>
bool is_refused(const VocabularyParts& parts) {
    try {
        const Encoder encoder(parts, std::nullopt, Kernel::scalar);
    } catch (const Error&) {
        return true;
    }
    return false;
}

void test_impossible_vocabularies_are_refused_before_anything_large_is_allocated() {
    VocabularyParts bytes;
    std::iota(bytes.byte_ids.begin(), bytes.byte_ids.end(), 0);
    VocabularyParts parts = bytes;
    parts.merges = {{'a', 256, 257}};
    CHECK(is_refused<std::invalid_argument>(parts));  // 256 is never made
    parts.merges = {{'a', 256, 257}, {'a', 257, 256}};
    CHECK(is_refused<std::invalid_argument>(parts));  // each needs the other
    parts.merges = {{'a', 'b', 256}, {'c', 'd', 256}};
    CHECK(is_refused<std::invalid_argument>(parts));  // two spellings
    parts.merges = {{'a', 'a', 256}};
    for (Id made = 257; made < 320; ++made) parts.merges.push_back({made - 1, made - 1, made});
    CHECK(is_refused<std::invalid_argument>(parts));  // 2^63 bytes
    parts = bytes;
    parts.byte_ids['a'] = 'b';
    CHECK(is_refused<std::invalid_argument>(parts));
    parts = bytes;
    parts.others = {{"xy", 'a'}};
    CHECK(is_refused<std::invalid_argument>(parts));
    parts = bytes;
    parts.specials = {{"<s>", 300}, {"<t>", 300}};
    CHECK(is_refused<std::invalid_argument>(parts));
    const Encoder encoder(bytes, std::nullopt, Kernel::scalar);
    bool refused = false;
    try {
        encoded(encoder, "no pattern");
    } catch (const std::invalid_argument&) {
        refused = true;
    }
    CHECK(refused);
}

void test_the_encoder_is_as_it_was_after_memory_ran_out_anywhere() {
    Random random(13);
    VocabularyParts parts = random_parts(random, kWords, {.num_merges = 40});
    for (const char letter : {'x', 'y', 'z'})  // runs of these cannot be split
        parts.merges.push_back({Id(letter), Id(letter), Id{900} + static_cast<Id>(letter)});
    // Pieces for every way to encode: short, long but cached, longer than that; consecutive and split.
    std::string text = random_text(random, 600);
    text += " a" + std::string(100, 'x') + " the" + std::string(400, 'y') + " mill" + std::string(150, 'z') + " rye";
    const std::string other = random_text(random, 700);
    Judge judge(parts);
    const Ids expected = judge.text(text, Pattern::gpt2), expected_other = judge.text(other, Pattern::gpt2);
    std::size_t num_failures = 0;
    for (long allowed = 0; allowed < 300; ++allowed) {
        const Encoder encoder(parts, Pattern::gpt2, default_kernel());
        if (allowed % 2) encoded(encoder, other);  // a worker exists already
        bool failed = false;
        g_allocations_left = allowed;
        try {
            Monitor monitor;
            encoder.encode(text, no_specials(), 1, monitor);
        } catch (const std::bad_alloc&) {
            failed = true;
        }
        g_allocations_left = -1;
        num_failures += failed;
        CHECK(encoded_shortly(encoder, other) == expected_other);
        CHECK(encoded(encoder, text) == expected);
        CHECK(encoded(encoder, text) == expected);
    }
    CHECK(num_failures > 5);
}

void test_a_cancelled_run_throws_and_the_next_one_is_right() {
    Random random(14);
    const VocabularyParts parts = random_parts(random, kWords, {.num_merges = 40});
    const Encoder encoder(parts, Pattern::gpt2, default_kernel());
    const std::string text = random_text(random, 2 * kBlock);
    Judge judge(parts);
    const Ids expected = judge.text(text, Pattern::gpt2);
    for (const unsigned num_threads : {1u, 3u}) {
        Monitor monitor;
        monitor.cancel();
        bool cancelled = false;
        try {
            encoder.encode(text, no_specials(), num_threads, monitor);
        } catch (const Cancelled&) {
            cancelled = true;
        }
        CHECK(cancelled);
        CHECK(encoded(encoder, text, no_specials(), num_threads) == expected);
    }
}

// Every loop over a piece checks the monitor: setup, sweeps, sorting, copying the ids.
void test_work_on_one_long_piece_can_be_cancelled_at_any_time() {
    Random random(16);
    for (const bool shuffled : {false, true}) {  // sweeps, and the heap
        const VocabularyParts parts =
            random_parts(random, kLetters, {.num_merges = 40, .shuffled_ranks = shuffled, .first_id = kWideIds});
        const Encoder encoder(parts, Pattern::gpt2, default_kernel());
        const std::string piece = joined(random, kLetters, 400'000) + std::string(400'000, 'a');
        Ids expected;
        encoder.encode_piece_dropout(piece, 0, 1, expected);
        int num_cancelled = 0;
        // On a busy machine, the other thread may get its turn only after the encoding: try again, from the shortest.
        int microseconds = 1;
        for (int attempt = 0; attempt < 20 || (num_cancelled <= 2 && attempt < 1000); ++attempt) {
            microseconds = microseconds < 300'000 ? microseconds + microseconds / 2 + 100 : 1;
            Monitor monitor;
            std::thread canceller([&monitor, microseconds] {
                std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
                monitor.cancel();
            });
            try {
                encoder.encode(piece, no_specials(), 1, monitor);
            } catch (const Cancelled&) {
                ++num_cancelled;
            }
            canceller.join();
        }
        CHECK(num_cancelled > 2);
        CHECK(encoded(encoder, piece) == expected);
    }
}

void test_many_threads_share_one_encoder() {
    Random random(15);
    VocabularyParts parts = random_parts(random, kWords, {.num_merges = 60});
    parts.specials = {{"<s>", 900}};
    const Encoder encoder(parts, Pattern::gpt2, default_kernel(), 200'000);
    const SpecialRule rule(parts.specials, {});
    std::vector<std::string> texts;
    std::vector<Ids> expected;
    Judge judge(parts);
    for (int i = 0; i < 8; ++i) {
        texts.push_back(random_text(random, 2000) + "<s>" + random_bytes(random, 3000));
        expected.push_back(judge.text(texts.back(), Pattern::gpt2, parts.specials));
    }
    std::atomic<int> num_wrong{0};
    std::vector<std::thread> threads;
    for (std::size_t thread = 0; thread < 8; ++thread) {
        threads.emplace_back([&, thread] {
            for (std::size_t round = 0; round < 20; ++round) {
                const std::size_t i = (thread + round) % texts.size();
                num_wrong += encoded(encoder, texts[i], rule, 1 + round % 2) != expected[i];
                num_wrong += encoded_shortly(encoder, texts[i], rule) != expected[i];
                num_wrong += encoder.cache_stats().limit_bytes != 200'000;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(num_wrong == 0);
}

}  // namespace

int main() {
    test_ids_do_not_depend_on_what_the_cache_has_room_for();
    test_the_cache_stays_within_its_limit_and_keeps_the_tokens();
    test_the_arena_of_long_pieces_counts_within_the_limit();
    test_ids_far_apart_cost_no_more_than_their_tokens();
    test_nothing_behind_the_end_of_a_text_is_read();
    test_nothing_behind_the_last_part_of_a_long_piece_is_read();
    test_thousands_of_specials_are_found_in_a_text_of_megabytes();
    test_a_piece_of_megabytes_is_not_quadratic();
    test_impossible_vocabularies_are_refused_before_anything_large_is_allocated();
    test_the_encoder_is_as_it_was_after_memory_ran_out_anywhere();
    test_a_cancelled_run_throws_and_the_next_one_is_right();
    test_work_on_one_long_piece_can_be_cancelled_at_any_time();
    test_many_threads_share_one_encoder();
    return test_result();
}
