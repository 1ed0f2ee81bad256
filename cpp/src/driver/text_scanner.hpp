// Turns a task into the pieces of its texts, on one thread: loads, splits at specials, scans, and passes batches on.
//
// A sink receives the output:
//   static constexpr bool kJoinsTexts      true if it ignores where one text ends and the next begins
//   begin_block(text, is_first, num_bytes) before the output of a block of a text, or of a whole text
//   end_block(text, is_last)               after that output (neither is called if kJoinsTexts)
//   stretch(stretch, text)                 a whole stretch, before it is scanned (not called if kJoinsTexts)
//   pieces(batch)                          the next pieces
//   special(index)                         the next special
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "driver/tasks.hpp"
#include "driver/window.hpp"
#include "gristmill/monitor.hpp"
#include "gristmill/pretokenize.hpp"

namespace gristmill {

// Consecutive pieces, as a scanner finds them: the first one spans from `begin` to base + ends[0], every other one from
// the end of the previous piece to its own end. kPieceBytes bytes from the start of every piece are readable.
struct PieceBatch {
    const std::uint8_t* begin;
    const std::uint8_t* base;
    const std::uint16_t* ends;  // 64 more are readable
    std::size_t size;           // at least 1
    std::uint64_t position;     // of `base` in the corpus
};
inline constexpr std::size_t kPieceBytes = 16;

// Where texts are split.
struct TextRules {
    const SpecialFinder& boundaries;  // specials that are not text
    Cutter cutter;
};

class TextScanner {
  public:
    TextScanner(Pattern pattern, Kernel kernel) : scanner_(make_scanner(pattern, kernel)) {}

    template <class Sink>
    void run(const Task& task, Texts& texts, const TextRules& rules, Sink& sink, const Monitor& monitor) {
        if (task.num_texts == 1) return run_block(task, texts, rules, sink, monitor);
        if constexpr (Sink::kJoinsTexts) {
            run_joined(task, texts, rules, sink, monitor);
        } else {
            std::uint64_t position = task.position;
            for (std::size_t text = task.first_text; text < task.first_text + task.num_texts; ++text) {
                const std::uint64_t size = texts.num_bytes(text);
                run_block({0, text, 1, 0, size, position}, texts, rules, sink, monitor);
                position += size;
            }
        }
    }

    // Scans one stretch, which starts at `position` of the corpus.
    template <class Sink>
    void run_stretch(Stretch stretch, std::uint64_t position, const SpecialFinder& boundaries, Sink& sink,
                     const Monitor& monitor) {
        if (stretch.readable < stretch.size + kPieceBytes && stretch.size <= kCopiedBytes)
            stretch = padded_copy(stretch);
        SpecialSearch search(boundaries, stretch.data, stretch.size);
        for (std::size_t at = 0; at < stretch.size;) {
            const SpecialFinder::Match special = find_polling(search, stretch.size, at, monitor);
            scan({stretch.data + at, special.position - at, stretch.readable - at, position + at}, sink, monitor);
            at = special.position;
            if (special.index == SpecialFinder::kNone) break;
            sink.special(special.index);
            at += boundaries.length(special.index);
        }
    }

    // Texts of up to a quarter of this are scanned one by one, but their pieces are passed on together.
    static constexpr std::size_t kPackBytes = BoundaryScanner::kMaxAppended;

    // Finds the first special at or after `from`, and polls the monitor during the search.
    static SpecialFinder::Match find_polling(SpecialSearch& search, std::size_t size, std::size_t from,
                                             const Monitor& monitor) {
        constexpr std::size_t kStepBytes = 1 << 20;
        while (size - from > kStepBytes) {
            const SpecialFinder::Match found = search.next(from, from + kStepBytes);
            if (found.index != SpecialFinder::kNone) return found;
            from += kStepBytes;
            monitor.check();
        }
        return search.next(from, size);
    }

    std::size_t memory_bytes() const { return window_.capacity() + (pack_ ? sizeof *pack_ : 0); }

  private:
    // A shorter text in memory is copied, so that bytes after its end are readable.
    static constexpr std::size_t kCopiedBytes = 4096;

    // Consecutive short texts: used in place while each starts where the previous one ends, otherwise copied.
    struct Pack {
        const std::uint8_t* data = nullptr;
        std::size_t num_texts = 0, size = 0, readable = 0;
        std::uint64_t position = 0;       // in the corpus
        std::uint16_t sizes[kPackBytes];  // sizes of the texts, which are not empty
        std::uint16_t ends[kPackBytes + kTextPadding];
        std::uint8_t copy[kPackBytes + kTextPadding];

        void clear(std::uint64_t new_position) {
            num_texts = size = readable = 0;
            data = nullptr;
            position = new_position;
        }
        void add(Texts& texts, std::size_t text, std::size_t text_bytes) {
            const Texts::View view = texts.view(text);
            if (view.data && (size == 0 || view.data == data + size)) {
                if (size == 0) data = view.data;
                readable = size + view.readable;
            } else {
                use_copy();
                texts.read(text, 0, copy + size, text_bytes);
            }
            sizes[num_texts++] = static_cast<std::uint16_t>(text_bytes);
            size += text_bytes;
        }
        void use_copy() {
            if (data == copy) return;
            if (size) std::memcpy(copy, data, size);
            data = copy;
            readable = sizeof copy;
        }
    };

    template <class Sink>
    void run_block(const Task& task, Texts& texts, const TextRules& rules, Sink& sink, const Monitor& monitor) {
        const std::size_t text = task.first_text;
        const std::uint64_t text_bytes = texts.num_bytes(text);
        Stretch stretch{};
        if (text_bytes) stretch = window_.load(texts, text, task.begin, task.end, rules.cutter, monitor);
        if constexpr (!Sink::kJoinsTexts) {
            sink.begin_block(text, task.begin == 0, stretch.size);
            sink.stretch(stretch, text);
        }
        run_stretch(stretch, task.position + stretch.position, rules.boundaries, sink, monitor);
        texts.finished(text, task.num_bytes());
        if constexpr (!Sink::kJoinsTexts) sink.end_block(text, task.end == text_bytes);
    }

    // The pieces of many short texts form one batch: passing on and looking up a hundred bytes at a time takes twice as
    // long.
    template <class Sink>
    void run_joined(const Task& task, Texts& texts, const TextRules& rules, Sink& sink, const Monitor& monitor) {
        Pack& pack = this->pack();
        std::uint64_t position = task.position;
        pack.clear(position);
        for (std::size_t text = task.first_text; text < task.first_text + task.num_texts; ++text) {
            const std::uint64_t size = texts.num_bytes(text);
            const bool is_long = size > kPackBytes / 4;
            if (is_long || pack.size + size > kPackBytes) {
                flush(pack, rules, sink, monitor);
                pack.clear(position);
            }
            if (is_long) {
                run_block({0, text, 1, 0, size, position}, texts, rules, sink, monitor);
                pack.clear(position + size);
            } else {
                if (size) pack.add(texts, text, static_cast<std::size_t>(size));
                texts.finished(text, size);
            }
            position += size;
        }
        flush(pack, rules, sink, monitor);
    }

    template <class Sink>
    void flush(Pack& pack, const TextRules& rules, Sink& sink, const Monitor& monitor) {
        monitor.check();
        if (!pack.num_texts) return;
        if (pack.readable < pack.size + kPieceBytes) pack.use_copy();
        // A match may begin in one text and end in the next, so on a match every text is searched separately.
        const bool may_have_specials = rules.boundaries.find(pack.data, pack.size, 0).index != SpecialFinder::kNone;
        std::size_t begin = 0, num_ends = 0;
        for (std::size_t i = 0; i < pack.num_texts; begin += pack.sizes[i++]) {
            if (may_have_specials) {
                const Stretch stretch{pack.data + begin, pack.sizes[i], pack.readable - begin, 0};
                run_stretch(stretch, pack.position + begin, rules.boundaries, sink, monitor);
            } else {
                num_ends += scanner_->append(pack.data + begin, pack.sizes[i], static_cast<std::uint16_t>(begin),
                                             pack.ends + num_ends);
            }
        }
        if (num_ends) sink.pieces({pack.data, pack.data, pack.ends, num_ends, pack.position});
    }

    // Scans a complete text; its position is in the corpus.
    template <class Sink>
    void scan(const Stretch& text, Sink& sink, const Monitor& monitor) {
        if (!text.size) return;
        const std::uint8_t* begin = text.data;
        scanner_->start(text.data, text.size);
        while (scanner_->next()) {
            monitor.check();
            if (!scanner_->size()) continue;
            const PieceBatch batch{begin, scanner_->base(), scanner_->ends(), scanner_->size(),
                                   text.position + static_cast<std::uint64_t>(scanner_->base() - text.data)};
            begin = batch.base + batch.ends[batch.size - 1];
            if (begin + kPieceBytes <= text.data + text.readable) {
                sink.pieces(batch);
            } else {
                hand_on_the_end(batch, text, sink);
            }
        }
    }

    // Passes on a batch whose last pieces are so close to the end of the readable bytes that they must be copied.
    template <class Sink>
    void hand_on_the_end(const PieceBatch& batch, const Stretch& text, Sink& sink) {
        const std::uint8_t* const last = text.data + (text.readable < kPieceBytes ? 0 : text.readable - kPieceBytes);
        const auto begin_of = [&](std::size_t i) { return i ? batch.base + batch.ends[i - 1] : batch.begin; };
        std::size_t first = 0;  // first piece to copy
        while (first < batch.size && begin_of(first) <= last && text.readable >= kPieceBytes) ++first;
        if (first) sink.pieces({batch.begin, batch.base, batch.ends, first, batch.position});
        if (first == batch.size) return;
        std::uint8_t copy[2 * kPieceBytes] = {};
        std::uint16_t ends[kPieceBytes + kTextPadding] = {};
        const std::uint8_t* const begin = begin_of(first);
        const std::size_t num_ends = batch.size - first;
        for (std::size_t i = 0; i < num_ends; ++i)
            ends[i] = static_cast<std::uint16_t>(batch.base + batch.ends[first + i] - begin);
        std::memcpy(copy, begin, ends[num_ends - 1]);
        sink.pieces({copy, copy, ends, num_ends, batch.position + static_cast<std::uint64_t>(begin - batch.base)});
    }

    Stretch padded_copy(const Stretch& stretch) {
        Pack& pack = this->pack();
        if (stretch.size) std::memcpy(pack.copy, stretch.data, stretch.size);
        return {pack.copy, stretch.size, sizeof pack.copy, stretch.position};
    }

    Pack& pack() {
        if (!pack_) pack_ = std::make_unique<Pack>();
        return *pack_;
    }

    std::unique_ptr<BoundaryScanner> scanner_;
    Window window_;
    std::unique_ptr<Pack> pack_;
};

}  // namespace gristmill
