// The top of the stage: sinks for the text driver that write ids, count them, or apply dropout.
#include <algorithm>
#include <atomic>

#include "driver/drive.hpp"
#include "encode/ordered_output.hpp"
#include "encode/worker_pool.hpp"
#include "gristmill/encode.hpp"

namespace gristmill {
namespace {

// Starting a thread for fewer tasks does not pay off.
constexpr std::size_t kMinTasksPerThread = 2;
// Up to this many ids of several texts are written to a warm buffer, and copied when their number is known.
constexpr std::size_t kMaxCopiedIds = std::size_t{8} << 20;
constexpr Id kNarrowIds = 65536;

std::vector<std::string> bytes_of(const std::vector<IdOfBytes>& specials) {
    std::vector<std::string> result;
    for (const IdOfBytes& special : specials) result.push_back(special.bytes);
    return result;
}

std::vector<Id> ids_of(const std::vector<IdOfBytes>& specials) {
    std::vector<Id> result;
    for (const IdOfBytes& special : specials) result.push_back(special.id);
    return result;
}

std::vector<IdOfBytes> both(std::vector<IdOfBytes> a, const std::vector<IdOfBytes>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// Throws ForgedSpecial if a stretch contains a disallowed special.
void check_specials(const SpecialRule& rule, const Stretch& stretch, std::size_t text, const Monitor& monitor) {
    if (rule.disallowed().empty()) return;
    SpecialSearch search(rule.disallowed(), stretch.data, stretch.size);
    const SpecialFinder::Match found = TextScanner::find_polling(search, stretch.size, 0, monitor);
    if (found.index != SpecialFinder::kNone)
        throw ForgedSpecial(text, stretch.position + found.position, rule.disallowed_id(found.index));
}

// Destinations for the ids of a task. begin(task, capacity) returns the position to write to, end(end) sets the number.
//
// At the final position in the result, or in a buffer until that is known:
template <class Token>
struct OrderedPlace {
    OrderedOutput<Token>& output;
    typename OrderedOutput<Token>::Segment segment{};
    Token* begin(std::size_t task, std::size_t capacity) {
        segment = output.begin(task, capacity);
        return segment.out;
    }
    void end(Token* end) {
        const auto num_ids = static_cast<std::size_t>(end - segment.out);
        output.end(std::move(segment), num_ids);
    }
};
// After the ids of the previous task, on one thread:
template <class Token>
struct NextPlace {
    Token* next;
    Token* begin(std::size_t, std::size_t) { return next; }
    void end(Token* end) { next = end; }
};
// Discarded, if only their number is needed:
template <class Token>
struct DiscardedPlace {
    Worker<Token>& worker;
    Token* begin(std::size_t, std::size_t capacity) { return worker.buffer(capacity); }
    void end(Token*) { worker.release_large_buffer(); }
};

// The arguments and state of one call of encode().
struct Encoding {
    const SpecialRule& rule;
    const TextMarks& marks;
    std::vector<std::atomic<std::int64_t>> num_ids;  // by text; several threads may work on one text
    const Monitor& monitor;
};

template <class Token, class Place>
class EncodeSink {
  public:
    static constexpr bool kJoinsTexts = false;

    EncodeSink(Worker<Token>& worker, Encoding& encoding, Place& place)
        : worker_(worker), encoding_(encoding), place_(place) {}

    void do_task(const Task& task, Texts& texts, const TextRules& rules) {
        task_ = task.index;
        out_ = nullptr;
        if (task.num_texts > 1) begin_place(static_cast<std::size_t>(task.num_bytes()) + task.num_texts);
        worker_.scanner().run(task, texts, rules, *this, encoding_.monitor);
        place_.end(out_);
    }

    void begin_block(std::size_t text, bool is_first, std::size_t num_bytes) {
        if (!out_) begin_place(num_bytes + 1);
        block_ids_ = out_;
        const TextMarks& marks = encoding_.marks;
        if (is_first && marks.before && !(text == 0 && marks.continued)) mark();
    }
    void end_block(std::size_t text, bool is_last) {
        const TextMarks& marks = encoding_.marks;
        if (is_last && !marks.before && !(text + 1 == encoding_.num_ids.size() && marks.unfinished)) mark();
        encoding_.num_ids[text].fetch_add(out_ - block_ids_, std::memory_order_relaxed);
    }
    void stretch(const Stretch& stretch, std::size_t text) {
        check_specials(encoding_.rule, stretch, text, encoding_.monitor);
    }
    void pieces(const PieceBatch& batch) { out_ = worker_.encode(batch, out_, encoding_.monitor); }
    void special(std::uint32_t index) { *out_++ = static_cast<Token>(encoding_.rule.allowed_id(index)); }

  private:
    // One id per byte, and one mark per text.
    void begin_place(std::size_t num_ids) { out_ = place_.begin(task_, num_ids + kIdSlack); }
    void mark() {
        if (encoding_.marks.end_of_text) *out_++ = static_cast<Token>(*encoding_.marks.end_of_text);
    }

    Worker<Token>& worker_;
    Encoding& encoding_;
    Place& place_;
    std::size_t task_ = 0;
    Token* out_ = nullptr;
    Token* block_ids_ = nullptr;  // start of the ids of the block
};

// One short text, with minimal overhead.
template <class Token>
struct ShortSink {
    Worker<Token>& worker;
    const SpecialRule& rule;
    const Monitor& monitor;
    Token* out;

    void pieces(const PieceBatch& batch) { out = worker.encode(batch, out, monitor); }
    void special(std::uint32_t index) { *out++ = static_cast<Token>(rule.allowed_id(index)); }
};

// BPE-dropout, piece by piece.
struct DropoutSink {
    const Bpe& bpe;
    const SpecialRule& rule;
    const double dropout;
    std::uint64_t random_state;
    const Monitor& monitor;
    Id* out;

    void pieces(const PieceBatch& batch) {
        const std::uint8_t* begin = batch.begin;
        for (std::size_t i = 0; i < batch.size; ++i) {
            const std::uint8_t* end = batch.base + batch.ends[i];
            const std::string_view piece(reinterpret_cast<const char*>(begin), static_cast<std::size_t>(end - begin));
            out += bpe.encode_dropout(piece, dropout, random_state, out, &monitor);
            begin = end;
        }
    }
    void special(std::uint32_t index) { *out++ = rule.allowed_id(index); }
};

// A text in memory without readable bytes after it.
Stretch stretch_of(std::string_view text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size(), text.size(), 0};
}

}  // namespace

SpecialRule::SpecialRule(const std::vector<IdOfBytes>& allowed, const std::vector<IdOfBytes>& disallowed)
    : allowed_(bytes_of(allowed)),
      disallowed_(bytes_of(disallowed)),
      all_(bytes_of(both(allowed, disallowed))),
      allowed_ids_(ids_of(allowed)),
      disallowed_ids_(ids_of(disallowed)) {}

struct Encoder::Impl {
    Impl(const VocabularyParts& parts, std::optional<Pattern> pattern, Kernel kernel, std::size_t cache_bytes)
        : tables(parts, pattern, kernel) {
        if (!cache_bytes) cache_bytes = kDefaultCacheBytes;
        if (tables.tokens.num_ids() <= kNarrowIds) {
            narrow = std::make_unique<WorkerPool<std::uint16_t>>(tables, cache_bytes);
        } else {
            wide = std::make_unique<WorkerPool<std::uint32_t>>(tables, cache_bytes);
        }
    }

    // Calls `call` with the pool that is in use.
    template <class Call>
    auto with_pool(const Call& call) const {
        return narrow ? call(*narrow) : call(*wide);
    }
    void need_pattern() const {
        if (!tables.pattern)
            throw std::invalid_argument("this encoder has no native pattern: split the text into pieces first");
    }

    TextRules rules(const SpecialRule& rule) const { return {rule.allowed(), Cutter(*tables.pattern, rule.all())}; }

    EncodeTables tables;
    std::unique_ptr<WorkerPool<std::uint16_t>> narrow;  // exactly one of the two is set
    std::unique_ptr<WorkerPool<std::uint32_t>> wide;
};

Encoder::Encoder(const VocabularyParts& parts, std::optional<Pattern> pattern, Kernel kernel, std::size_t cache_bytes)
    : impl_(std::make_unique<Impl>(parts, pattern, kernel, cache_bytes)) {}

Encoder::~Encoder() = default;

bool Encoder::is_narrow() const { return impl_->narrow != nullptr; }
std::size_t Encoder::num_ids() const { return impl_->tables.tokens.num_ids(); }
std::string_view Encoder::token_bytes(Id id) const { return impl_->tables.tokens.bytes(id); }

CacheStats Encoder::cache_stats() const {
    return impl_->with_pool([](auto& pool) { return pool.stats(); });
}

EncodedTexts Encoder::encode(Texts& texts, const SpecialRule& rule, const TextMarks& marks, unsigned num_threads,
                             Monitor& monitor) const {
    impl_->need_pattern();
    const TextRules rules = impl_->rules(rule);
    TaskQueue queue(texts, kTaskBytes);
    monitor.begin(Stage::encode, queue.num_bytes());
    Crew crew(queue.useful_threads(num_threads, kMinTasksPerThread), monitor);
    Encoding encoding{rule, marks, std::vector<std::atomic<std::int64_t>>(texts.size()), monitor};
    const std::size_t capacity = static_cast<std::size_t>(queue.num_bytes()) + texts.size() + kIdSlack;
    EncodedTexts result;
    result.ids = impl_->with_pool([&]<class Token>(WorkerPool<Token>& pool) {
        if (crew.size() == 1 && texts.size() > 1 && capacity <= kMaxCopiedIds) {
            const auto worker = pool.take();
            Token* const ids = worker->buffer(capacity);
            NextPlace<Token> place{ids};
            EncodeSink<Token, NextPlace<Token>> sink(*worker, encoding, place);
            drive(queue, crew, monitor, "encode block",
                  [&](unsigned) { return [&](const Task& task) { sink.do_task(task, texts, rules); }; });
            IdBuffer copy = IdBuffer::copy_of(ids, static_cast<std::size_t>(place.next - ids));
            worker->release_large_buffer();
            return copy;
        }
        OrderedOutput<Token> output(capacity);
        drive(queue, crew, monitor, "encode block", [&](unsigned) {
            return [&, worker = pool.take(), place = OrderedPlace<Token>{output}](const Task& task) mutable {
                EncodeSink<Token, OrderedPlace<Token>>(*worker, encoding, place).do_task(task, texts, rules);
            };
        });
        return output.finish();
    });
    result.ends.reserve(texts.size());
    std::int64_t end = 0;
    for (const auto& num_ids : encoding.num_ids) result.ends.push_back(end += num_ids.load(std::memory_order_relaxed));
    return result;
}

IdBuffer Encoder::encode(std::string_view text, const SpecialRule& rule, unsigned num_threads, Monitor& monitor) const {
    ViewTexts texts({text});
    return encode(texts, rule, {}, num_threads, monitor).ids;
}

std::uint64_t Encoder::count_tokens(std::string_view text, const SpecialRule& rule, unsigned num_threads,
                                    Monitor& monitor) const {
    impl_->need_pattern();
    ViewTexts texts({text});
    const TextRules rules = impl_->rules(rule);
    TaskQueue queue(texts, kTaskBytes);
    monitor.begin(Stage::encode, queue.num_bytes());
    Crew crew(queue.useful_threads(num_threads, kMinTasksPerThread), monitor);
    const TextMarks no_marks;
    Encoding encoding{rule, no_marks, std::vector<std::atomic<std::int64_t>>(1), monitor};
    impl_->with_pool([&]<class Token>(WorkerPool<Token>& pool) {
        drive(queue, crew, monitor, "encode block", [&](unsigned) {
            return [&, worker = pool.take()](const Task& task) {
                DiscardedPlace<Token> place{*worker};
                EncodeSink<Token, DiscardedPlace<Token>>(*worker, encoding, place).do_task(task, texts, rules);
            };
        });
    });
    return static_cast<std::uint64_t>(encoding.num_ids[0].load());
}

void Encoder::encode_short(std::string_view text, const SpecialRule& rule, UseIds use, void* context) const {
    impl_->need_pattern();
    const Monitor unwatched;
    check_specials(rule, stretch_of(text), 0, unwatched);
    impl_->with_pool([&]<class Token>(WorkerPool<Token>& pool) {
        const auto worker = pool.take();
        ShortSink<Token> sink{*worker, rule, unwatched, worker->buffer(text.size() + kIdSlack)};
        const Token* const ids = sink.out;
        worker->scanner().run_stretch(stretch_of(text), 0, rule.allowed(), sink, unwatched);
        use(context, ids, static_cast<std::size_t>(sink.out - ids));
    });
}

void Encoder::encode_piece(std::string_view piece, std::vector<Id>& ids, const Monitor& monitor) const {
    ids.resize(piece.size());
    if (!piece.empty()) ids.resize(impl_->tables.bpe.encode(piece, true, ids.data(), &monitor));
}

void Encoder::encode_piece_dropout(std::string_view piece, double dropout, std::uint64_t seed, std::vector<Id>& ids,
                                   const Monitor& monitor) const {
    ids.resize(piece.size());
    if (!piece.empty()) ids.resize(impl_->tables.bpe.encode_dropout(piece, dropout, seed, ids.data(), &monitor));
}

void Encoder::encode_dropout(std::string_view text, const SpecialRule& rule, double dropout, std::uint64_t seed,
                             std::vector<Id>& ids, const Monitor& monitor) const {
    impl_->need_pattern();
    check_specials(rule, stretch_of(text), 0, monitor);
    ids.resize(text.size());
    DropoutSink sink{impl_->tables.bpe, rule, dropout, seed, monitor, ids.data()};
    TextScanner(*impl_->tables.pattern, impl_->tables.kernel)
        .run_stretch(stretch_of(text), 0, rule.allowed(), sink, monitor);
    ids.resize(static_cast<std::size_t>(sink.out - ids.data()));
}

std::size_t Encoder::last_cut(std::string_view text, std::size_t start, const SpecialRule& rule) const {
    impl_->need_pattern();
    return impl_->rules(rule).cutter.last(text, start);
}

}  // namespace gristmill
