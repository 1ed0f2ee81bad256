#include "encode/worker.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "pretokenize/unicode.hpp"

namespace gristmill {
namespace {

// Longer pieces, or parts of them, are encoded each time, because they hardly ever repeat.
constexpr std::size_t kMaxCachedBytes = 256;
// Bytes of a long piece between two checks of the monitor.
constexpr std::uint32_t kPollBytes = 16 << 10;
constexpr std::uint64_t kPartTag = std::uint64_t{0x10} << 56;
// Larger buffers, grown for one text, are freed afterwards.
constexpr std::size_t kKeptBytes = std::size_t{4} << 20;
// Address space for one id per byte of a batch of documents; only the part with ids is touched.
constexpr std::size_t kKeptBufferBytes = std::size_t{20} << 20;
// Ids of a short text.
constexpr std::size_t kFirstBuffer = 8192;
constexpr std::size_t kMaxPieceBytes = 0x7fffffff;
// Longer pieces of text that is not ASCII are split although they fit a key: they have many ids and seldom repeat.
constexpr std::size_t kMaxNonAsciiBytes = 8;

// Number of ends after the last one that kernels may read.
constexpr std::size_t kReadableEnds = 64;

// Whether more than one eighth of the bytes are not ASCII, according to a sample.
bool has_many_non_ascii(const std::uint8_t* text, std::size_t size) {
    constexpr std::size_t kStep = 31;
    std::size_t num_high = 0;
    for (std::size_t i = 0; i < size; i += kStep) num_high += text[i] >> 7;
    return num_high * kStep > size / 8;
}

// Bit i: piece i, of up to 64, is longer than `most`.
std::uint64_t longer_pieces(const std::uint16_t* ends, std::size_t num_pieces, std::size_t most) {
    std::uint64_t found = 0;
#if defined(__SSE2__)
    const auto longer = [ends, most](std::size_t at) {
        const __m128i begin = _mm_loadu_si128(reinterpret_cast<const __m128i*>(ends + at));
        const __m128i end = _mm_loadu_si128(reinterpret_cast<const __m128i*>(ends + at + 1));
        const __m128i size = _mm_sub_epi16(end, begin);
        return _mm_cmpeq_epi16(_mm_subs_epu16(size, _mm_set1_epi16(static_cast<short>(most))), _mm_setzero_si128());
    };
    for (std::size_t i = 0; i < num_pieces; i += 16) {
        const __m128i both = _mm_packs_epi16(longer(i), longer(i + 8));
        found |= std::uint64_t{static_cast<std::uint16_t>(~_mm_movemask_epi8(both))} << i;
    }
    if (num_pieces < 64) found &= (std::uint64_t{1} << num_pieces) - 1;
#else
    for (std::size_t i = 0; i < num_pieces; ++i) found |= std::uint64_t{std::size_t{ends[i + 1]} - ends[i] > most} << i;
#endif
    return found;
}

const ProbeKernel& probe_kernel(Kernel kernel) {
#if defined(__x86_64__)
    if (kernel == Kernel::avx512) return kProbeAvx512;
#else
    (void)kernel;
#endif
    return kProbePortable;
}

}  // namespace

template <class Token>
Worker<Token>::Worker(const EncodeTables& tables, const SeedTable& seeds, std::size_t cache_bytes)
    : tables_(tables),
      part_tag_(tables.bpe.has_whole_pieces() ? kPartTag : 0),
      seeds_(seeds),
      kernel_(probe_kernel(tables.kernel)),
      cache_(kernel_, seeds.size(), cache_bytes) {
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
    // The first piece may have begun in an earlier batch, at any distance.
    const std::uint8_t* first_end = batch.base + batch.ends[0];
    out = encode_piece(batch.begin, static_cast<std::size_t>(first_end - batch.begin), out, monitor);
    std::size_t num_pieces = batch.size - 1;
    if (!num_pieces) return out;
    const std::uint16_t* ends = batch.ends;
    // The key of a part is read from kPieceBytes bytes, which requires another piece after it: the last piece is not
    // split.
    const std::uint8_t* last = batch.base + ends[num_pieces - 1];
    const std::size_t last_size = std::size_t{ends[num_pieces]} - ends[num_pieces - 1];
    num_pieces -= last_size > kMaxKeyBytes;
    if (!part_tag_) ends = split_long(batch.base, ends, num_pieces);
    for (std::size_t from = 0; from < num_pieces; from += kMaxGroup)
        out = encode_group(batch.base, ends + from, std::min(kMaxGroup, num_pieces - from), out, monitor);
    if (last_size > kMaxKeyBytes) out = encode_long(last, static_cast<std::uint32_t>(last_size), out, monitor);
    return out;
}

// Returns the ends, with the ends of the parts of long pieces inserted, so that parts are looked up together with whole
// pieces. Used only where a part is encoded like a whole piece.
template <class Token>
const std::uint16_t* Worker<Token>::split_long(const std::uint8_t* base, const std::uint16_t* ends,
                                               std::size_t& num_pieces) {
    if (!num_pieces) return ends;
    const std::size_t most =
        has_many_non_ascii(base + ends[0], std::size_t{ends[num_pieces]} - ends[0]) ? kMaxNonAsciiBytes : kMaxKeyBytes;
    std::uint16_t* bound = nullptr;
    std::size_t copied = 0;  // ends[0, copied) are in the bounds
    for (std::size_t from = 0; from < num_pieces; from += 64) {
        std::uint64_t left = longer_pieces(ends + from, std::min<std::size_t>(64, num_pieces - from), most);
        if (!left) continue;
        if (!bound) {
            const std::size_t num_bounds = std::size_t{ends[num_pieces]} - ends[0] + 1 + kReadableEnds;
            if (bounds_.size() < num_bounds) bounds_.resize(num_bounds);
            bound = bounds_.data();
        }
        for (; left; left &= left - 1) {
            const std::size_t i = from + static_cast<std::size_t>(std::countr_zero(left));
            const std::uint8_t* piece = base + ends[i];
            const std::size_t size = std::size_t{ends[i + 1]} - ends[i];
            if (size <= kMaxKeyBytes && (piece[size - 1] < 0x80 || i + 1 == num_pieces)) continue;
            bound = std::copy(ends + copied, ends + i + 1, bound);
            copied = i + 1;
            for (std::size_t at = 1; at < size; ++at) {
                if (is_continuation(piece[at])) continue;  // a split inside a character is rarely possible
                if (tables_.splits.may_split(piece, size, at)) *bound++ = static_cast<std::uint16_t>(ends[i] + at);
            }
        }
    }
    if (!bound) return ends;
    bound = std::copy(ends + copied, ends + num_pieces + 1, bound);
    num_pieces = static_cast<std::size_t>(bound - bounds_.data()) - 1;
    return bounds_.data();
}

// Piece i spans from ends[i] to ends[i + 1].
template <class Token>
Token* Worker<Token>::encode_group(const std::uint8_t* base, const std::uint16_t* ends, std::size_t num_pieces,
                                   Token* out, const Monitor& monitor) {
    if (!cache_.has_room(kMaxGroup)) cache_.make_room();
    kernel_.prepare(cache_.view(), base, ends, num_pieces, 0, group_);
    const std::uint64_t mask = cache_.view().mask;
    const auto offset_of = [&](std::size_t i) {  // a long piece may have made the table grow
        return cache_.view().mask == mask ? group_.offsets[i] : cache_.offset_of(group_.keys[i]);
    };
    for (std::size_t i = 0;; ++i) {
        const Written<Token> written = write(group_, i, num_pieces, out);
        i = written.num_pieces;
        out = written.out;
        if (i == num_pieces) return out;
        const std::uint8_t* piece = base + ends[i];
        const std::uint32_t size = std::uint32_t{ends[i + 1]} - ends[i];
        if (size <= kMaxKeyBytes) {
            out = look_up(group_.keys[i], offset_of(i), piece, size, false, out);
        } else if (part_tag_) {
            out = encode_long(piece, size, out, monitor);
        } else {
            out = encode_unsplit(piece, size, false, out, monitor);
        }
    }
}

template <class Token>
Token* Worker<Token>::encode_piece(const std::uint8_t* piece, std::size_t size, Token* out, const Monitor& monitor) {
    if (size > kMaxPieceBytes) throw std::length_error("pieces of 2 GiB or more cannot be encoded");
    if (!cache_.has_room(kMaxGroup)) cache_.make_room();
    if (size > kMaxKeyBytes) return encode_long(piece, static_cast<std::uint32_t>(size), out, monitor);
    const PieceKey key = cache_.key_of(piece, size);
    return look_up(key, cache_.offset_of(key), piece, size, false, out);
}

// Encodes a piece that is too long to be its own key, part by part if it can be split.
template <class Token>
Token* Worker<Token>::encode_long(const std::uint8_t* piece, std::uint32_t size, Token* out, const Monitor& monitor) {
    // Short parts are collected here, to be looked up together.
    std::uint16_t* const ends = part_ends_;
    std::size_t num_parts = 0;
    const std::uint8_t* base = piece;
    std::uint32_t part = 0;
    const auto add_part = [&](std::uint32_t to) {
        const std::uint32_t part_size = to - part;
        // kPieceBytes are readable from the start of a piece, but not from the start of its last parts.
        const bool is_short = part_size <= kMaxKeyBytes && size - part >= kPieceBytes;
        if (is_short) {
            if (!num_parts) base = piece + part;
            ends[++num_parts] = static_cast<std::uint16_t>(piece + to - base);
        }
        if (!is_short || num_parts == kMaxGroup) {
            out = encode_parts(base, ends, num_parts, out);
            num_parts = 0;
        }
        if (!is_short) out = encode_unsplit(piece + part, part_size, part_size != size, out, monitor);
        part = to;
    };
    for (std::uint32_t at = 1; at < size;) {
        if (at > kPollBytes) monitor.check();
        for (const std::uint32_t until = std::min(size, at + kPollBytes); at < until; ++at) {
            if (is_continuation(piece[at])) continue;  // a split inside a character is rarely possible
            if (tables_.splits.may_split(piece, size, at)) add_part(at);
        }
    }
    add_part(size);
    return encode_parts(base, ends, num_parts, out);
}

// Encodes a piece, or a part of one, that cannot be split. Reads nothing after it.
template <class Token>
Token* Worker<Token>::encode_unsplit(const std::uint8_t* piece, std::size_t size, bool is_part, Token* out,
                                     const Monitor& monitor) {
    if (size > kMaxCachedBytes) return encode_uncached(piece, size, !is_part, out, monitor);
    if (!cache_.has_room(kMaxGroup)) cache_.make_room();
    std::uint8_t copy[kPieceBytes] = {};
    if (size <= kMaxKeyBytes) std::memcpy(copy, piece, size);
    PieceKey key = cache_.key_of(size <= kMaxKeyBytes ? copy : piece, size);
    key.high |= is_part ? part_tag_ : 0;
    return look_up(key, cache_.offset_of(key), piece, size, is_part, out);
}

template <class Token>
Token* Worker<Token>::encode_parts(const std::uint8_t* base, const std::uint16_t* ends, std::size_t num_parts,
                                   Token* out) {
    if (!num_parts) return out;
    if (!cache_.has_room(kMaxGroup)) cache_.make_room();
    kernel_.prepare(cache_.view(), base, ends, num_parts, part_tag_, parts_);
    for (std::size_t i = 0;; ++i) {
        const Written<Token> written = write(parts_, i, num_parts, out);
        i = written.num_pieces;
        out = written.out;
        if (i == num_parts) return out;
        out = look_up(parts_.keys[i], parts_.offsets[i], base + ends[i], std::size_t{ends[i + 1]} - ends[i], true, out);
    }
}

template <class Token>
inline Written<Token> Worker<Token>::write(const PieceGroup& group, std::size_t from, std::size_t num_pieces,
                                           Token* out) const {
    if constexpr (sizeof(Token) == sizeof(std::uint16_t)) {
        return kernel_.write_narrow(cache_.view(), group, from, num_pieces, out);
    } else {
        return kernel_.write_wide(cache_.view(), group, from, num_pieces, out);
    }
}

// Looks up a piece that is new, is not in the entry where its search begins, or has many ids.
template <class Token>
[[gnu::noinline]] Token* Worker<Token>::look_up(const PieceKey& key, std::size_t offset, const std::uint8_t* piece,
                                                std::size_t size, bool is_part, Token* out) {
    const std::string_view bytes(reinterpret_cast<const char*>(piece), size);
    if (const auto* entry = cache_.find(key, offset, bytes)) return cache_.copy_ids(*entry, out);
    Id ids[kMaxCachedBytes];
    // If whole pieces can be tokens, a part that equals such a token may still have other ids.
    const bool may_be_seed = size <= kMaxKeyBytes && !(is_part && part_tag_);
    const std::size_t num_ids =
        may_be_seed && seeds_.find(key, ids[0]) ? 1 : tables_.bpe.encode(bytes, !is_part, ids, nullptr, &sweep_state_);
    cache_.insert(key, offset, bytes, ids, num_ids);
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

SeedTable make_seeds(const EncodeTables& tables, std::size_t limit_bytes) {
    const auto is_short = [](std::string_view token) { return !token.empty() && token.size() <= kMaxKeyBytes; };
    std::size_t num_seeds = 0;
    for (Id id = 0; id < tables.tokens.num_ids(); ++id) num_seeds += is_short(tables.tokens.bytes(id));
    SeedTable seeds(num_seeds, std::max(limit_bytes, PieceCache<std::uint16_t>::kMinBytes));
    for (Id id = 0; id < tables.tokens.num_ids(); ++id) {
        const std::string_view token = tables.tokens.bytes(id);
        if (!is_short(token)) continue;
        Id ids[kMaxKeyBytes];
        std::uint8_t padded[16] = {};
        std::memcpy(padded, token.data(), token.size());
        // Tokens that do not encode to themselves are rare; a special may even have the spelling of another token.
        if (tables.bpe.encode(token, true, ids) == 1 && ids[0] == id) seeds.add(inline_key(padded, token.size()), id);
    }
    return seeds;
}

template class Worker<std::uint16_t>;
template class Worker<std::uint32_t>;

}  // namespace gristmill
