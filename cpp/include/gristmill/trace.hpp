// Records what each thread did and when, for a timeline that a person can look at.
//
// A Trace belongs to one call into the library and hangs on its Monitor. Row 0 is the calling thread, and the other
// rows are the other members of a crew. A thread writes only to its own row, so recording needs no lock. Without a
// Trace, recording costs one comparison with a null pointer per span.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace gristmill {

// `name` and `unit` are string literals. Times are nanoseconds of the steady clock.
struct TraceSpan {
    const char* name;
    const char* unit;  // of `amount`; null if the span has no amount
    std::int64_t begin, end;
    std::uint64_t amount;
};

class Trace {
  public:
    // A span that follows a shorter one of the same name within this time extends it, so the number of spans per second
    // is bounded.
    static constexpr std::int64_t kShortNanoseconds = 50'000;
    // Later spans of a row are dropped and counted: 5 MB per row.
    static constexpr std::size_t kMaxSpans = std::size_t{1} << 17;

    class alignas(64) Row {
      public:
        // Never throws: spans end in destructors, and a span without memory is dropped.
        void add(const TraceSpan& span) noexcept {
            if (!spans_.empty()) {
                TraceSpan& last = spans_.back();
                if (last.name == span.name && last.end - last.begin < kShortNanoseconds &&
                    span.begin - last.end < kShortNanoseconds) {
                    last.end = span.end;
                    last.amount += span.amount;
                    return;
                }
            }
            if (spans_.size() < kMaxSpans) {
                try {
                    spans_.push_back(span);
                    return;
                } catch (const std::bad_alloc&) {
                }
            }
            ++num_dropped_;
        }
        // In the order in which they ended: a span comes after the spans inside it.
        const std::vector<TraceSpan>& spans() const { return spans_; }
        std::uint64_t num_dropped() const { return num_dropped_; }

      private:
        std::vector<TraceSpan> spans_;
        std::uint64_t num_dropped_ = 0;
    };

    Trace() { need_rows(1); }

    static std::int64_t now() {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }

    // Called by the calling thread before other threads use rows up to `num`.
    void need_rows(std::size_t num) {
        while (rows_.size() < num) rows_.push_back(std::make_unique<Row>());
    }
    Row& row(unsigned member) { return *rows_[member]; }
    const std::vector<std::unique_ptr<Row>>& rows() const { return rows_; }

    // Ends the current stage and begins another one; null only ends it. A stage is a span of the calling thread that
    // contains all others.
    void begin_stage(const char* name) noexcept {
        const std::int64_t time = now();
        if (stage_) row(0).add({stage_, nullptr, stage_begin_, time, 0});
        stage_ = name;
        stage_begin_ = time;
    }

  private:
    std::vector<std::unique_ptr<Row>> rows_;
    const char* stage_ = nullptr;
    std::int64_t stage_begin_ = 0;
};

// The lifetime of this object as a span of one member. Does nothing if `trace` or `name` is null.
class TraceScope {
  public:
    TraceScope(Trace* trace, unsigned member, const char* name, const char* unit = nullptr, std::uint64_t amount = 0)
        : row_(trace && name ? &trace->row(member) : nullptr) {
        if (row_) span_ = {name, unit, Trace::now(), 0, amount};
    }
    TraceScope(const TraceScope&) = delete;
    TraceScope& operator=(const TraceScope&) = delete;
    ~TraceScope() {
        if (!row_) return;
        span_.end = Trace::now();
        row_->add(span_);
    }

  private:
    Trace::Row* row_;
    TraceSpan span_;
};

// Adjacent spans of the calling thread for steps that are too short for a span each: one span per kSteps steps. Two
// reads of the clock would cost 5 % of a merge.
class TraceLaps {
  public:
    static constexpr std::uint64_t kSteps = 64;

    TraceLaps(Trace* trace, const char* name, const char* unit) : row_(trace ? &trace->row(0) : nullptr) {
        if (row_) lap_ = {name, unit, Trace::now(), 0, 0};
    }
    TraceLaps(const TraceLaps&) = delete;
    TraceLaps& operator=(const TraceLaps&) = delete;
    ~TraceLaps() { close(); }

    void step() {
        if (row_ && ++lap_.amount == kSteps) close();
    }

  private:
    void close() {
        if (!row_) return;
        lap_.end = Trace::now();
        if (lap_.amount) row_->add(lap_);
        lap_.begin = lap_.end;
        lap_.amount = 0;
    }

    Trace::Row* row_;
    TraceSpan lap_;
};

}  // namespace gristmill
