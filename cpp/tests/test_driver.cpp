// The text driver: every byte of every text reaches the sink once and in order, however it is divided into tasks;
// failures do not depend on the number of threads; a waiting caller still polls.
#include <random>
#include <set>
#include <string>
#include <vector>

#include "check.hpp"
#include "driver/drive.hpp"
#include "driver/text_scanner.hpp"

using namespace gristmill;

namespace {

// Texts that must be read, like those in files.
class ReadTexts final : public Texts {
  public:
    explicit ReadTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {}
    std::size_t size() const override { return texts_.size(); }
    std::uint64_t num_bytes(std::size_t text) const override { return texts_[text].size(); }
    View view(std::size_t) const override { return {nullptr, 0}; }
    void read(std::size_t text, std::uint64_t at, std::uint8_t* into, std::size_t size) override {
        std::memcpy(into, texts_[text].data() + at, size);
    }

  private:
    std::vector<std::string> texts_;
};

std::string random_text(std::mt19937& random, std::size_t size) {
    static const std::vector<std::string> parts = {"a",  "the", " ", "  ",   "\n",
                                                   "'s", "12",  "é", "漢字", "<|e|>",
                                                   "<|", "a a", ".", "\xff", "longer than a key by far",
                                                   "\t"};
    std::string text;
    while (text.size() < size) text += parts[random() % parts.size()];
    return text;
}

void test_tasks_cover_every_byte_of_every_text_once_and_in_order() {
    std::mt19937 random(1);
    for (int round = 0; round < 300; ++round) {
        std::vector<std::string> texts;
        for (std::size_t i = random() % 40; i > 0; --i)
            texts.emplace_back(random() % 3 ? random() % 30 : random() % 400, 'x');
        const std::uint64_t task_bytes = 1 + random() % 100;
        ReadTexts source(texts);
        TaskQueue queue(source, task_bytes, 7);
        std::size_t text = 0, index = 0;
        std::uint64_t offset = 0, position = 7;
        for (Task task; queue.next(task); ++index) {
            CHECK(task.index == index && task.first_text == text && task.begin == offset && task.position == position);
            CHECK(task.num_bytes() <= task_bytes && task.num_texts >= 1);
            if (task.num_texts == 1 && task.end < texts[text].size()) {
                CHECK(task.num_bytes() == task_bytes);
                offset = task.end;
                continue;
            }
            std::uint64_t size = 0;
            for (std::size_t i = 0; i < task.num_texts; ++i) size += texts[text + i].size();
            CHECK(task.end == size && (task.num_texts == 1 || task.begin == 0));
            position += size;
            text += task.num_texts;
            offset = 0;
        }
        CHECK(text == texts.size());
    }
}

// Records its input.
template <bool kJoins>
struct Recorder {
    static constexpr bool kJoinsTexts = kJoins;
    std::vector<std::string> pieces_seen;
    std::vector<std::uint64_t> positions;
    std::set<std::size_t> begun, ended;
    const std::string* corpus;  // all texts, concatenated

    void begin_block(std::size_t text, bool is_first, std::size_t) {
        if (is_first) CHECK(begun.insert(text).second);
    }
    void end_block(std::size_t text, bool is_last) {
        if (is_last) CHECK(ended.insert(text).second);
    }
    void stretch(const Stretch&, std::size_t) {}
    void special(std::uint32_t index) { pieces_seen.push_back("special " + std::to_string(index)); }
    void pieces(const PieceBatch& batch) {
        const std::uint8_t* begin = batch.begin;
        std::uint64_t position = batch.position - static_cast<std::uint64_t>(batch.base - batch.begin);
        for (std::size_t i = 0; i < batch.size; ++i) {
            const std::uint8_t* end = batch.base + batch.ends[i];
            std::uint8_t readable[kPieceBytes];
            std::memcpy(readable, begin, kPieceBytes);  // for the sanitizer
            pieces_seen.emplace_back(begin, end);
            positions.push_back(position);
            CHECK(corpus->compare(position, pieces_seen.back().size(), pieces_seen.back()) == 0);
            position += static_cast<std::uint64_t>(end - begin);
            begin = end;
        }
    }
};

template <bool kJoins>
std::vector<std::string> record(Texts& texts, const std::string& corpus, Pattern pattern, const SpecialFinder& specials,
                                std::uint64_t task_bytes) {
    const Monitor monitor;
    const TextRules rules{specials, Cutter(pattern, specials)};
    TextScanner scanner(pattern, default_kernel());
    Recorder<kJoins> recorder;
    recorder.corpus = &corpus;
    TaskQueue queue(texts, task_bytes);
    for (Task task; queue.next(task);) scanner.run(task, texts, rules, recorder, monitor);
    if (!kJoins) CHECK(recorder.begun.size() == texts.size() && recorder.ended.size() == texts.size());
    CHECK(std::is_sorted(recorder.positions.begin(), recorder.positions.end()));
    return recorder.pieces_seen;
}

void test_every_way_through_the_driver_gives_the_same_pieces() {
    std::mt19937 random(2);
    for (int round = 0; round < 120; ++round) {
        const Pattern pattern = round % 3 == 0 ? Pattern::o200k : round % 3 == 1 ? Pattern::gpt2 : Pattern::cl100k;
        const std::vector<std::string> names =
            round % 4 ? std::vector<std::string>{"<|e|>", "a a", " \n"} : std::vector<std::string>{};
        const SpecialFinder specials(names);
        std::vector<std::string> texts;
        std::string corpus;
        std::vector<std::int64_t> begins, ends;
        for (std::size_t i = random() % 60; i > 0; --i) {
            texts.push_back(random_text(random, random() % 12 ? random() % 150 : random() % 15000));
            if (random() % 6 == 0) texts.back().clear();
            texts.back().shrink_to_fit();
            begins.push_back(static_cast<std::int64_t>(corpus.size()));
            corpus += texts.back();
            ends.push_back(static_cast<std::int64_t>(corpus.size()));
        }
        corpus.shrink_to_fit();
        ViewTexts views(std::vector<std::string_view>(texts.begin(), texts.end()));
        SpanTexts spans({corpus, begins.data(), ends.data(), begins.size()});
        ReadTexts reads(texts);
        // Each text in a separate task.
        std::vector<std::string> expected;
        std::uint64_t position = 0;
        for (const std::string& text : texts) {
            ViewTexts alone({text});
            const std::string copy = text;
            for (std::string& piece : record<false>(alone, copy, pattern, specials, 1 << 20))
                expected.push_back(std::move(piece));
            position += text.size();
        }
        CHECK(position == corpus.size());
        for (const std::uint64_t task_bytes : {std::uint64_t{3}, std::uint64_t{100}, std::uint64_t{5000}, kTaskBytes}) {
            for (Texts* some :
                 {static_cast<Texts*>(&views), static_cast<Texts*>(&spans), static_cast<Texts*>(&reads)}) {
                CHECK(record<false>(*some, corpus, pattern, specials, task_bytes) == expected);
                CHECK(record<true>(*some, corpus, pattern, specials, task_bytes) == expected);
            }
        }
    }
}

void test_the_failure_of_the_earliest_task_is_thrown_whatever_the_threads() {
    ReadTexts texts(std::vector<std::string>(200, std::string(50, 'x')));
    for (int round = 0; round < 50; ++round) {
        for (const unsigned num_threads : {1u, 2u, 7u}) {
            Monitor monitor;
            Crew crew(num_threads, monitor);
            TaskQueue queue(texts, 50);
            std::string thrown;
            try {
                drive(queue, crew, monitor, "task", [&](unsigned) {
                    return [&](const Task& task) {
                        if (task.index >= 60 && task.index % 3 == 1)
                            throw std::runtime_error(std::to_string(task.index));
                    };
                });
            } catch (const std::runtime_error& error) {
                thrown = error.what();
            }
            CHECK(thrown == "61");
        }
    }
}

// Before crews polled, Ctrl-C had to wait until the longest share of the work was done.
void test_a_caller_that_waits_for_another_thread_polls() {
    Monitor monitor;
    monitor.poll_on_this_thread(
        [](void* context) {
            static_cast<Monitor*>(context)->cancel();
            throw Cancelled();
        },
        &monitor);
    Crew crew(2, monitor);
    bool cancelled = false;
    try {
        crew.run("wait", [&](unsigned member) {
            while (member == 1 && !monitor.cancelled()) std::this_thread::yield();
        });
    } catch (const Cancelled&) {
        cancelled = true;
    }
    CHECK(cancelled);
}

// A search for specials, or for a cut, through megabytes polls on the way.
void test_a_long_text_without_cuts_or_specials_is_searched_in_steps() {
    struct Cancelling {
        static void cancel(void* context) {
            static_cast<Monitor*>(context)->cancel();
            throw Cancelled();
        }
    };
    const std::string text(64 << 20, 'x');
    const SpecialFinder specials({"<|e|>", "yz"});
    const auto is_cancelled = [&](const auto& work) {
        Monitor monitor;
        monitor.poll_on_this_thread(&Cancelling::cancel, &monitor);
        std::this_thread::sleep_for(Monitor::kPollInterval);  // the next check polls
        try {
            work(monitor);
        } catch (const Cancelled&) {
            return true;
        }
        return false;
    };
    const auto* data = reinterpret_cast<const std::uint8_t*>(text.data());
    CHECK(is_cancelled([&](const Monitor& monitor) {
        SpecialSearch search(specials, data, text.size());
        TextScanner::find_polling(search, text.size(), 0, monitor);
    }));
    CHECK(is_cancelled([&](const Monitor& monitor) {
        ViewTexts texts({text});
        Window().load(texts, 0, kTaskBytes, 2 * kTaskBytes + (8 << 20), Cutter(Pattern::gpt2, specials), monitor);
    }));
}

}  // namespace

int main() {
    test_tasks_cover_every_byte_of_every_text_once_and_in_order();
    test_every_way_through_the_driver_gives_the_same_pieces();
    test_the_failure_of_the_earliest_task_is_thrown_whatever_the_threads();
    test_a_caller_that_waits_for_another_thread_polls();
    test_a_long_text_without_cuts_or_specials_is_searched_in_steps();
    return test_result();
}
