#include <algorithm>
#include <atomic>
#include <cstring>
#include <variant>

#include "encode/ordered_output.hpp"
#include "encode/worker_pool.hpp"
#include "gristmill/pretokenize.hpp"
#include "threads.hpp"

namespace gristmill {
namespace {

// What one thread takes at a time. It and its ids stay in the second-level cache.
constexpr std::size_t kBlockBytes = 256 << 10;
// A thread is not worth starting for less.
constexpr std::size_t kMinBlocksPerThread = 2;
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

const std::uint8_t* begin_of(std::string_view text) { return reinterpret_cast<const std::uint8_t*>(text.data()); }

unsigned useful_threads(unsigned num_threads, std::size_t num_blocks) {
    return static_cast<unsigned>(
        std::clamp<std::size_t>(num_blocks / kMinBlocksPerThread, 1, std::max(1u, num_threads)));
}

// Whole texts, or a block of one text.
struct Task {
    std::size_t first_text, num_texts;
    std::uint64_t begin, end;  // where it is one text: the block of it
    std::size_t num_bytes() const { return static_cast<std::size_t>(end - begin); }
};

std::vector<Task> plan(const std::vector<std::string_view>& texts) {
    std::vector<Task> tasks;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        const std::size_t size = texts[i].size();
        if (size > kBlockBytes) {
            for (std::size_t begin = 0; begin < size; begin += kBlockBytes)
                tasks.push_back({i, 1, begin, std::min(begin + kBlockBytes, size)});
        } else if (!tasks.empty() && tasks.back().first_text + tasks.back().num_texts == i && tasks.back().begin == 0 &&
                   tasks.back().end + size <= kBlockBytes) {
            ++tasks.back().num_texts;  // begin and end of several texts are only their size
            tasks.back().end += size;
        } else {
            tasks.push_back({i, 1, 0, size});
        }
    }
    return tasks;
}

}  // namespace

SpecialRule::SpecialRule(const std::vector<IdOfBytes>& allowed, const std::vector<IdOfBytes>& disallowed)
    : allowed_(bytes_of(allowed)),
      disallowed_(bytes_of(disallowed)),
      all_(bytes_of(both(allowed, disallowed))),
      allowed_ids_(ids_of(allowed)),
      disallowed_ids_(ids_of(disallowed)) {
    for (const auto& [bytes, id] : both(allowed, disallowed)) longest_ = std::max(longest_, bytes.size());
}

void SpecialRule::check(const std::uint8_t* text, std::size_t size, std::uint64_t text_index,
                        std::uint64_t position) const {
    const SpecialFinder::Match match = disallowed_.find(text, size, 0);
    if (match.index != SpecialFinder::kNone)
        throw ForgedSpecial(text_index, position + match.position, disallowed_ids_[match.index]);
}

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

    // Calls `call` with the pool there is.
    template <class Call>
    auto with_pool(const Call& call) const {
        return narrow ? call(*narrow) : call(*wide);
    }
    void need_pattern() const {
        if (!tables.pattern)
            throw std::invalid_argument("this encoder has no native pattern: cut the text into pieces first");
    }

    EncodeTables tables;
    std::unique_ptr<WorkerPool<std::uint16_t>> narrow;  // one of the two
    std::unique_ptr<WorkerPool<std::uint32_t>> wide;
};

namespace {

// Runs tasks on threads, in order as they are handed out. ForgedSpecial of the earliest place wins: a task that is
// under way when one fails is finished, so that no earlier place can be missed.
template <class Token, class Run>
void run_tasks(WorkerPool<Token>& pool, std::size_t num_tasks, unsigned num_threads, const Run& run) {
    std::atomic<std::size_t> next{0};
    std::atomic<bool> failed{false};
    std::mutex forged_mutex;
    std::optional<ForgedSpecial> forged;
    run_threads(num_threads, [&](unsigned) {
        try {
            const auto worker = pool.take();
            for (std::size_t task; !failed && (task = next.fetch_add(1)) < num_tasks;) run(*worker, task);
        } catch (const ForgedSpecial& found) {
            failed = true;
            const std::lock_guard lock(forged_mutex);
            if (!forged || std::pair(found.text, found.position) < std::pair(forged->text, forged->position))
                forged.emplace(found);
        } catch (...) {
            failed = true;
            throw;
        }
    });
    if (forged) throw *forged;
}

// The first place in [at, limit) where `text` may be cut; `limit` if there is none.
std::size_t first_cut(std::string_view text, std::size_t at, std::size_t limit, Pattern pattern,
                      const SpecialRule& rule) {
    while (at < limit && (at = find_cut(pattern, begin_of(text), limit, at)) != kNoCut) {
        if (!rule.all().may_span(begin_of(text), text.size(), at)) return at;
        ++at;
    }
    return limit;
}

// The part of `text` that belongs to the block [begin, end): blocks agree on where that is, as load_block() says. Empty
// if it has no cut.
std::string_view block_of(std::string_view text, std::uint64_t begin, std::uint64_t end, Pattern pattern,
                          const SpecialRule& rule, std::size_t& position) {
    const auto from = static_cast<std::size_t>(begin), to = static_cast<std::size_t>(end);
    position = from ? first_cut(text, from, to, pattern, rule) : 0;
    if (position == to) return {};
    return text.substr(position, first_cut(text, to, text.size(), pattern, rule) - position);
}

template <class Token>
Token* encode_block(Worker<Token>& worker, std::string_view block, bool padded, const SpecialRule& rule,
                    std::size_t text_index, std::uint64_t position, Token* out, Monitor& monitor) {
    rule.check(begin_of(block), block.size(), text_index, position);
    if (padded) return worker.encode(begin_of(block), block.size(), rule, out, monitor);
    return worker.encode_unpadded(block, rule, out, monitor);
}

}  // namespace

Encoder::Encoder(const VocabularyParts& parts, std::optional<Pattern> pattern, Kernel kernel, std::size_t cache_bytes)
    : impl_(std::make_unique<Impl>(parts, pattern, kernel, cache_bytes)) {}

Encoder::~Encoder() = default;

bool Encoder::is_narrow() const { return impl_->narrow != nullptr; }
std::size_t Encoder::num_ids() const { return impl_->tables.tokens.num_ids(); }
std::string_view Encoder::token_bytes(Id id) const { return impl_->tables.tokens.bytes(id); }

CacheStats Encoder::cache_stats() const {
    return impl_->with_pool([](auto& pool) { return pool.stats(); });
}

IdBuffer Encoder::encode(std::string_view text, const SpecialRule& rule, unsigned num_threads, Monitor& monitor) const {
    std::vector<std::int64_t> offsets;
    return encode_batch({text}, rule, num_threads, offsets, monitor);
}

IdBuffer Encoder::encode_batch(const std::vector<std::string_view>& texts, const SpecialRule& rule,
                               unsigned num_threads, std::vector<std::int64_t>& offsets, Monitor& monitor) const {
    impl_->need_pattern();
    const Pattern pattern = *impl_->tables.pattern;
    const std::vector<Task> tasks = plan(texts);
    std::size_t num_bytes = 0;
    for (const std::string_view text : texts) num_bytes += text.size();
    monitor.begin(Stage::encode, num_bytes);
    std::vector<std::atomic<std::int64_t>> counts(texts.size());  // several tasks may work on one text
    IdBuffer ids = impl_->with_pool([&]<class Token>(WorkerPool<Token>& pool) {
        OrderedOutput<Token> output(num_bytes + Worker<Token>::kSlack);
        run_tasks(pool, tasks.size(), useful_threads(num_threads, tasks.size()), [&](auto& worker, std::size_t index) {
            const Task& task = tasks[index];
            std::string_view block = texts[task.first_text];
            std::size_t position = 0;
            if (task.num_texts == 1) block = block_of(block, task.begin, task.end, pattern, rule, position);
            const std::size_t capacity = task.num_texts == 1 ? block.size() : task.num_bytes();
            auto place = output.begin(index, capacity + Worker<Token>::kSlack);
            Token* out = place.out;
            for (std::size_t i = task.first_text; i < task.first_text + task.num_texts; ++i) {
                if (task.num_texts > 1) block = texts[i];
                Token* end = encode_block(worker, block, false, rule, i, position, out, monitor);
                counts[i].fetch_add(end - out, std::memory_order_relaxed);
                out = end;
            }
            const auto num_ids = static_cast<std::size_t>(out - place.out);
            output.end(std::move(place), num_ids);
            monitor.advance(task.num_bytes());
        });
        return output.finish();
    });
    offsets.assign(1, 0);
    for (const auto& count : counts) offsets.push_back(offsets.back() + count.load());
    return ids;
}

DocumentIds Encoder::encode_documents(const Spans& documents, const SpecialRule& rule, const DocumentMarks& marks,
                                      Monitor& monitor) const {
    impl_->need_pattern();
    std::size_t capacity = 2 * documents.size;  // the marks
    for (std::size_t i = 0; i < documents.size; ++i) capacity += documents[i].size();
    DocumentIds result;
    result.ends.reserve(documents.size);
    impl_->with_pool([&]<class Token>(WorkerPool<Token>& pool) {
        const auto worker = pool.take();
        // In the worker's own buffer, which is warm, and copied when the size is known.
        Token* const ids = worker->buffer(capacity + Worker<Token>::kSlack);
        Token* out = ids;
        for (std::size_t i = 0; i < documents.size; ++i) {
            const std::string_view document = documents[i];
            if (marks.end_of_text && marks.before && !(i == 0 && marks.continued))
                *out++ = static_cast<Token>(*marks.end_of_text);
            const auto behind = documents.text.size() - static_cast<std::size_t>(documents.ends[i]);
            const bool padded = behind >= kTextPadding;
            out = encode_block(*worker, document, padded, rule, i, 0, out, monitor);
            if (marks.end_of_text && !marks.before && !(i + 1 == documents.size && marks.unfinished))
                *out++ = static_cast<Token>(*marks.end_of_text);
            result.ends.push_back(out - ids);
        }
        result.num_ids = static_cast<std::size_t>(out - ids);
        result.width = sizeof(Token);
        result.ids.reset(new std::uint8_t[result.num_ids * sizeof(Token)]);
        std::memcpy(result.ids.get(), ids, result.num_ids * sizeof(Token));
        worker->release_large_buffer();
    });
    return result;
}

IdBuffer Encoder::encode_file(const std::string& path, const SpecialRule& rule, unsigned num_threads,
                              Monitor& monitor) const {
    impl_->need_pattern();
    FileSource file(path, kBlockBytes);
    const auto size = static_cast<std::size_t>(file.size());
    monitor.begin(Stage::encode, size);
    const std::size_t num_blocks = std::max<std::size_t>(1, (size + kBlockBytes - 1) / kBlockBytes);
    return impl_->with_pool([&]<class Token>(WorkerPool<Token>& pool) {
        OrderedOutput<Token> output(size + Worker<Token>::kSlack);
        run_tasks(pool, num_blocks, useful_threads(num_threads, num_blocks), [&](auto& worker, std::size_t index) {
            const std::size_t begin = index * kBlockBytes, end = std::min(begin + kBlockBytes, size);
            BlockText block{nullptr, 0, 0};
            if (size) block = load_block(file, begin, end, *impl_->tables.pattern, rule.all(), worker.window());
            auto place = output.begin(index, block.size + Worker<Token>::kSlack);
            const std::string_view text(reinterpret_cast<const char*>(block.text), block.size);
            Token* out = encode_block(worker, text, true, rule, 0, block.position, place.out, monitor);
            const auto num_ids = static_cast<std::size_t>(out - place.out);
            output.end(std::move(place), num_ids);
            file.block_done();
            monitor.advance(end - begin);
        });
        return output.finish();
    });
}

std::uint64_t Encoder::count_tokens(std::string_view text, const SpecialRule& rule, unsigned num_threads,
                                    Monitor& monitor) const {
    impl_->need_pattern();
    const std::vector<Task> tasks = plan({text});
    monitor.begin(Stage::encode, text.size());
    std::atomic<std::uint64_t> total{0};
    impl_->with_pool([&]<class Token>(WorkerPool<Token>& pool) {
        run_tasks(pool, tasks.size(), useful_threads(num_threads, tasks.size()), [&](auto& worker, std::size_t index) {
            std::size_t position = 0;
            const std::string_view block =
                block_of(text, tasks[index].begin, tasks[index].end, *impl_->tables.pattern, rule, position);
            Token* out = worker.buffer(block.size() + Worker<Token>::kSlack);
            total +=
                static_cast<std::uint64_t>(encode_block(worker, block, false, rule, 0, position, out, monitor) - out);
            worker.release_large_buffer();
            monitor.advance(tasks[index].num_bytes());
        });
    });
    return total;
}

void Encoder::encode_short(std::string_view text, const SpecialRule& rule, UseIds use, void* context) const {
    impl_->need_pattern();
    rule.check(begin_of(text), text.size(), 0, 0);
    impl_->with_pool([&]<class Token>(WorkerPool<Token>& pool) {
        Monitor unwatched;
        const auto worker = pool.take();
        Token* ids = worker->buffer(text.size() + Worker<Token>::kSlack);
        const Token* end = worker->encode_unpadded(text, rule, ids, unwatched);
        use(context, ids, static_cast<std::size_t>(end - ids));
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
    ids.clear();
    if (text.empty()) return;
    rule.check(begin_of(text), text.size(), 0, 0);
    const std::unique_ptr<BoundaryScanner> scanner = make_scanner(*impl_->tables.pattern, impl_->tables.kernel);
    std::vector<std::uint8_t> padded(text.size() + kTextPadding);
    std::memcpy(padded.data(), text.data(), text.size());
    ids.resize(text.size());
    std::size_t num_ids = 0;
    const auto encode_plain = [&](std::size_t from, std::size_t to) {
        if (from == to) return;
        const std::uint8_t* begin = padded.data() + from;
        scanner->start(begin, to - from);
        while (scanner->next()) {
            for (std::size_t i = 0; i < scanner->size(); ++i) {
                const std::uint8_t* end = scanner->base() + scanner->ends()[i];
                const std::string_view piece(reinterpret_cast<const char*>(begin),
                                             static_cast<std::size_t>(end - begin));
                num_ids += impl_->tables.bpe.encode_dropout(piece, dropout, seed, ids.data() + num_ids, &monitor);
                begin = end;
            }
        }
    };
    for (std::size_t at = 0; at < text.size();) {
        const SpecialFinder::Match special = rule.allowed().find(padded.data(), text.size(), at);
        encode_plain(at, special.position);
        at = special.position;
        if (special.index == SpecialFinder::kNone) break;
        ids[num_ids++] = rule.allowed_id(special.index);
        at += rule.allowed().length(special.index);
    }
    ids.resize(num_ids);
}

std::size_t Encoder::last_cut(std::string_view text, std::size_t start, const SpecialRule& rule) const {
    impl_->need_pattern();
    return gristmill::last_cut(text, start, *impl_->tables.pattern, rule.all(), rule.longest());
}

}  // namespace gristmill
