// The recorder: rows per thread, joined spans, bounds, and traces of whole stages.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "check.hpp"
#include "crew.hpp"
#include "gristmill/corpus.hpp"
#include "gristmill/count.hpp"
#include "gristmill/merge.hpp"
#include "gristmill/monitor.hpp"
#include "gristmill/trace.hpp"

using namespace gristmill;

namespace {

constexpr std::int64_t kMs = 1'000'000;

bool is_nested(std::vector<TraceSpan> spans) {
    std::sort(spans.begin(), spans.end(), [](const TraceSpan& a, const TraceSpan& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    std::vector<std::int64_t> open;
    for (const TraceSpan& span : spans) {
        while (!open.empty() && open.back() <= span.begin) open.pop_back();
        if (span.end < span.begin || (!open.empty() && span.end > open.back())) return false;
        open.push_back(span.end);
    }
    return true;
}

std::size_t num_named(const Trace& trace, std::string_view name) {
    std::size_t num = 0;
    for (const auto& row : trace.rows())
        for (const TraceSpan& span : row->spans()) num += span.name == name;
    return num;
}

std::uint64_t amount_of(const Trace& trace, std::string_view name) {
    std::uint64_t amount = 0;
    for (const auto& row : trace.rows())
        for (const TraceSpan& span : row->spans()) amount += span.name == name ? span.amount : 0;
    return amount;
}

void test_short_spans_of_one_name_are_joined_and_their_amounts_added() {
    Trace trace;
    Trace::Row& row = trace.row(0);
    const char *a = "a", *b = "b";
    row.add({a, "bytes", 0, 10'000, 3});
    row.add({a, "bytes", 20'000, 60'000, 4});           // joined: the span before was shorter than 50 µs
    row.add({a, "bytes", 70'000, 80'000, 5});           // not joined: that span is now long enough
    row.add({b, nullptr, 81'000, 82'000, 0});           // another name
    row.add({a, "bytes", 83'000, 84'000, 6});           // not joined over another name
    row.add({a, "bytes", 9 * kMs, 9 * kMs + 1000, 7});  // not joined over a long pause
    CHECK(row.spans().size() == 5);
    CHECK(row.spans()[0].end == 60'000 && row.spans()[0].amount == 7);
    CHECK(row.spans()[1].amount == 5);
    CHECK(row.num_dropped() == 0);
}

void test_a_full_row_counts_the_spans_that_it_drops() {
    Trace trace;
    Trace::Row& row = trace.row(0);
    for (std::size_t i = 0; i < Trace::kMaxSpans + 10; ++i) {
        const auto begin = static_cast<std::int64_t>(i) * kMs;
        row.add({"a", nullptr, begin, begin + kMs / 2, 0});
    }
    CHECK(row.spans().size() == Trace::kMaxSpans);
    CHECK(row.num_dropped() == 10);
}

void test_every_member_of_a_crew_has_a_row_and_a_failing_job_its_span() {
    Trace trace;
    Monitor monitor;
    monitor.record_in(&trace);
    Crew crew(3, monitor);
    bool failed = false;
    try {
        crew.run("job", [](unsigned member) {
            if (member == 1) throw std::runtime_error("one");
        });
    } catch (const std::runtime_error&) {
        failed = true;
    }
    CHECK(failed);
    CHECK(trace.rows().size() == 3);
    for (unsigned member = 0; member < crew.size(); ++member) CHECK(trace.row(member).spans().size() == 1);
    crew.run(nullptr, [](unsigned) {});
    CHECK(num_named(trace, "job") == crew.size());
}

WordTable count(const std::string& text, unsigned num_threads, Monitor& monitor) {
    CountOptions options;
    options.num_threads = num_threads;
    options.block_bytes = 1000;
    Counter counter(options, monitor);
    ViewTexts texts({text});
    counter.add(texts);
    CountStats stats;
    return counter.finish(stats);
}

void test_stages_contain_their_spans_and_the_amounts_are_complete() {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += " word" + std::to_string(i * i % 997);
    for (const unsigned num_threads : {1u, 2u, 5u}) {
        for (const MergeLoop loop : {MergeLoop::sequential, MergeLoop::rounds}) {
            Trace trace;
            Monitor monitor, unwatched;
            monitor.record_in(&trace);
            const WordTable words = count(text, num_threads, monitor);
            MergeOptions options;
            options.num_merges = 300;
            options.num_threads = num_threads;
            options.loop = loop;
            const MergeRun run = learn_merges(words, {}, options, monitor);
            trace.begin_stage(nullptr);
            for (const char* stage : {"count", "join", "setup", "merge"}) CHECK(num_named(trace, stage) == 1);
            CHECK(amount_of(trace, "count block") == text.size());
            if (loop == MergeLoop::sequential)
                CHECK(amount_of(trace, "merges") == run.merges.size());
            else
                CHECK(num_named(trace, "choose batch") > 0 && num_named(trace, "merge batch") > 0);
            for (const auto& row : trace.rows()) CHECK(is_nested(row->spans()));
            // Recording changes no result.
            CHECK(learn_merges(count(text, num_threads, unwatched), {}, options, unwatched).merges == run.merges);
        }
    }
}

}  // namespace

int main() {
    test_short_spans_of_one_name_are_joined_and_their_amounts_added();
    test_a_full_row_counts_the_spans_that_it_drops();
    test_every_member_of_a_crew_has_a_row_and_a_failing_job_its_span();
    test_stages_contain_their_spans_and_the_amounts_are_complete();
    return test_result();
}
