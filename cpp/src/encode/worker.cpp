#include "encode/worker.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "pretokenize/unicode.hpp"

namespace gristmill {
namespace {

// Longer pieces, or parts of them, are encoded each time: they hardly ever come again.
constexpr std::size_t kMaxCachedBytes = 256;
// A longer piece looks at the monitor so often.
constexpr std::uint32_t kPollBytes = 16 << 10;
constexpr std::uint64_t kPartTag = std::uint64_t{0x10} << 56;
// Buffers that grew beyond this for one text are not kept for the next.
constexpr std::size_t kKeptBytes = std::size_t{4} << 20;
// Address space for one id a byte of a batch of documents; no more of it is touched than there are ids.
constexpr std::size_t kKeptBufferBytes = std::size_t{20} << 20;
// Ids of a short text.
constexpr std::size_t kFirstBuffer = 8192;

}  // namespace

template <class Token>
Worker<Token>::Worker(const EncodeTables& tables, const PieceCache<Token>& seeded)
    : tables_(tables), part_tag_(tables.bpe.has_whole_pieces() ? kPartTag : 0), cache_(seeded) {
    if (tables.pattern) scanner_.emplace(*tables.pattern, tables.kernel);
    buffer(kFirstBuffer);
}

template <class Token>
Token* Worker<Token>::buffer(std::size_t size) {
    if (buffer_.size() < size) {
        buffer_.clear();
        buffer_.resize(size);
    }
    return buffer_.data();
}

template <class Token>
void Worker<Token>::release_large_buffer() {
    if (buffer_.size() * sizeof(Token) > kKeptBufferBytes) buffer_ = LargeVector<Token>();
}

template <class Token>
Token* Worker<Token>::encode(const PieceBatch& batch, Token* out, const Monitor& monitor) {
    // The first piece may have begun in an earlier batch, any distance back.
    const std::uint8_t* first_end = batch.base + batch.ends[0];
    out = encode_piece(batch.begin, static_cast<std::size_t>(first_end - batch.begin), out, monitor);
    for (std::size_t from = 0; from + 1 < batch.size; from += kGroup) {
        const std::size_t num_pieces = std::min(kGroup, batch.size - 1 - from);
        out = encode_group(batch.base, batch.ends + from, num_pieces, out, monitor);
    }
    return out;
}

// Piece i runs from ends[i] to ends[i + 1].
template <class Token>
Token* Worker<Token>::encode_group(const std::uint8_t* base, const std::uint16_t* ends, std::size_t num_pieces,
                                   Token* out, const Monitor& monitor) {
    typename PieceCache<Token>::Home home = cache_.home();
    Probe* probe = probes_;
    for (std::size_t i = 0; i < num_pieces; ++i) {
        const std::uint32_t begin = ends[i], size = ends[i + 1] - begin;
        if (size > kMaxKeyBytes) [[unlikely]] {
            num_probes_ = static_cast<std::size_t>(probe - probes_);
            out = add_long(base, begin, begin + size, out, monitor);
            probe = probes_ + num_probes_;
            home = cache_.home();
            continue;
        }
        const PieceKey key = inline_key(base + begin, size);
        const std::uint32_t slot = home.slot_of(key);
        home.prefetch(slot);
        *probe++ = {key, slot, begin};
    }
    num_probes_ = static_cast<std::size_t>(probe - probes_);
    return flush(base, ends[num_pieces], out);
}

template <class Token>
Token* Worker<Token>::encode_piece(const std::uint8_t* piece, std::size_t size, Token* out, const Monitor& monitor) {
    if (size >= kPartBit) throw std::length_error("a piece of 2 GiB or more cannot be encoded");
    const auto end = static_cast<std::uint32_t>(size);
    if (size <= kMaxKeyBytes) {
        add(cache_.key_of(piece, size), 0, false);
    } else {
        out = add_long(piece, 0, end, out, monitor);
    }
    return flush(piece, end, out);
}

// Adds a piece, or a part of one, of any length to the group.
template <class Token>
inline void Worker<Token>::add(PieceKey key, std::uint32_t begin, bool is_part) {
    key.high |= is_part ? part_tag_ : 0;
    const std::uint32_t slot = cache_.home().slot_of(key);
    cache_.home().prefetch(slot);
    probes_[num_probes_++] = {key, slot, begin | (is_part ? kPartBit : 0)};
}

// A piece too long to be its own key: part by part, if it can be split.
template <class Token>
Token* Worker<Token>::add_long(const std::uint8_t* base, std::uint32_t begin, std::uint32_t end, Token* out,
                               const Monitor& monitor) {
    const std::uint8_t* piece = base + begin;
    const std::uint32_t size = end - begin;
    std::uint32_t part = 0;
    // kPieceBytes are readable from the begin of a piece, not from the begin of its last part.
    const auto key_of_part = [&](std::uint32_t part_size) {
        if (size - part >= kPieceBytes) return cache_.key_of(piece + part, part_size);
        std::uint8_t copy[kPieceBytes] = {};
        std::memcpy(copy, piece + part, part_size);
        return cache_.key_of(copy, part_size);
    };
    const auto add_part = [&](std::uint32_t to) {
        const std::uint32_t part_size = to - part;
        const bool is_part = part_size != size;
        if (part_size <= kMaxCachedBytes) {
            add(key_of_part(part_size), begin + part, is_part);
            if (num_probes_ >= kMaxProbes - kGroup) out = flush(base, begin + to, out);  // the others need room too
        } else {
            out = flush(base, begin + part, out);
            out = encode_uncached(piece + part, part_size, !is_part, out, monitor);
        }
        part = to;
    };
    for (std::uint32_t at = 1; at < size;) {
        if (at > kPollBytes) monitor.check();
        for (const std::uint32_t until = std::min(size, at + kPollBytes); at < until; ++at) {
            if (is_continuation(piece[at])) continue;  // the parts of a character are nearly always in some token
            if (tables_.splits.may_split(piece, size, at)) add_part(at);
        }
    }
    add_part(size);
    return out;
}

template <class Token>
Token* Worker<Token>::flush(const std::uint8_t* base, std::uint32_t end, Token* out) {
    const auto* entries = cache_.home().entries;
    const std::size_t num_probes = num_probes_;
    probes_[num_probes].begin = end;
    for (std::size_t i = 0; i < num_probes; ++i) {
        const Probe& probe = probes_[i];
        const auto* entry = entries + probe.slot;
        entry += !(entry->key == probe.key);  // the other entry of the cache line
        if ((entry->key == probe.key) & !entry->ids.is_place()) [[likely]] {
            out = entry->ids.write(out);
        } else {
            out = look_up(base, probe, probes_[i + 1].begin & ~kPartBit, out);
        }
    }
    num_probes_ = 0;
    if (!cache_.has_room(kMaxProbes)) cache_.make_room();
    return out;
}

// A piece that is new, or lies elsewhere than in its first cache line, or has many ids.
template <class Token>
[[gnu::noinline]] Token* Worker<Token>::look_up(const std::uint8_t* base, const Probe& probe, std::uint32_t end,
                                                Token* out) {
    const std::uint32_t begin = probe.begin & ~kPartBit;
    const std::string_view piece(reinterpret_cast<const char*>(base) + begin, end - begin);
    if (const auto* entry = cache_.find(probe.key, probe.slot, piece)) return cache_.copy_ids(*entry, out);
    Id ids[kMaxCachedBytes];
    const std::size_t num_ids = tables_.bpe.encode(piece, !(probe.begin & kPartBit), ids, nullptr, &sweep_state_);
    cache_.insert(probe.key, probe.slot, piece, ids, num_ids);
    return std::copy(ids, ids + num_ids, out);
}

template <class Token>
Token* Worker<Token>::encode_uncached(const std::uint8_t* piece, std::size_t size, bool is_whole, Token* out,
                                      const Monitor& monitor) {
    if (long_ids_.size() < size) long_ids_.resize(size);
    const std::string_view bytes(reinterpret_cast<const char*>(piece), size);
    const std::size_t num_ids = tables_.bpe.encode(bytes, is_whole, long_ids_.data(), &monitor, &sweep_state_);
    const Poll poll(&monitor);
    for (std::size_t i = 0; i < num_ids; ++i) {
        poll();
        *out++ = static_cast<Token>(long_ids_[i]);
    }
    if (long_ids_.size() > kKeptBytes / sizeof(Id)) long_ids_ = LargeVector<Id>();
    return out;
}

template <class Token>
PieceCache<Token> seeded_cache(const EncodeTables& tables, std::size_t limit_bytes) {
    using Cache = PieceCache<Token>;
    std::size_t num_seeds = 0;
    for (Id id = 0; id < tables.tokens.num_ids(); ++id) {
        const std::size_t size = tables.tokens.bytes(id).size();
        num_seeds += size > 0 && size <= kMaxKeyBytes;
    }
    Cache cache(HashSeed::random(), num_seeds, limit_bytes);
    for (Id id = 0; id < tables.tokens.num_ids(); ++id) {
        const std::string_view token = tables.tokens.bytes(id);
        if (token.empty() || token.size() > kMaxKeyBytes) continue;
        std::uint8_t padded[16] = {};
        std::memcpy(padded, token.data(), token.size());
        Id ids[kMaxKeyBytes];
        const std::size_t num_ids = tables.bpe.encode(token, true, ids);
        // One that is not itself is rare; a special may even be spelled as another token is.
        if (num_ids == 1 && ids[0] == id) cache.seed(inline_key(padded, token.size()), token, ids, num_ids);
    }
    return cache;
}

template class Worker<std::uint16_t>;
template class Worker<std::uint32_t>;
template PieceCache<std::uint16_t> seeded_cache(const EncodeTables&, std::size_t);
template PieceCache<std::uint32_t> seeded_cache(const EncodeTables&, std::size_t);

}  // namespace gristmill
