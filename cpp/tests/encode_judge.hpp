// Shared by the tests of encoding: vocabularies of every kind, texts, and the judge, a plain loop that computes the ids
// of a text.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "gristmill/encode.hpp"

namespace gristmill::test {

using Ids = std::vector<Id>;
using Random = std::mt19937;
using Tokens = std::vector<IdOfBytes>;

inline constexpr std::size_t kBlock = 256 << 10;  // of the encoder: threads divide a text at multiples of this
inline const std::vector<std::string> kLetters = {"a", "b", "c"};
inline const std::vector<std::string> kCharacters = {"a", "é", "中", "文", "ไ", "😀", "́", "\xff", "\xe4\xb8", "\x80"};
inline const std::vector<std::string> kWords = {"the",       "mill",     "of",   "rye", "中文字",
                                                "e\xcc\x81", "\xff\xfe", "1234", "?!"};

inline const std::vector<Kernel>& kernels() {
    static const std::vector<Kernel> supported = [] {
        std::vector<Kernel> kernels;
        for (const Kernel kernel : kAllKernels) {
            if (kernel_supported(kernel)) kernels.push_back(kernel);
        }
        return kernels;
    }();
    return supported;
}

template <class T>
const T& any_of(Random& random, const std::vector<T>& values) {
    return values[random() % values.size()];
}

inline std::string random_bytes(Random& random, std::size_t size) {
    std::string bytes;
    while (bytes.size() < size) bytes += static_cast<char>(random());
    return bytes;
}

inline std::string joined(Random& random, const std::vector<std::string>& units, std::size_t num_units) {
    std::string text;
    for (; num_units; --num_units) text += any_of(random, units);
    return text;
}

// Words with spaces and line breaks, at least `num_bytes` in total.
inline std::string random_text(Random& random, std::size_t num_bytes, const std::vector<std::string>& words = kWords) {
    static const std::vector<std::string> kBetween = {" ", " ", " ", " ", "\n", "  ", "", " \r\n", "\xc2\xa0"};
    std::string text;
    while (text.size() < num_bytes) {
        text += joined(random, words, 1 + random() % 3);
        text += any_of(random, kBetween);
    }
    return text;
}

// How a vocabulary may differ from a freshly trained one.
struct Layout {
    std::size_t num_merges = 20;
    bool permuted_bytes = false;
    bool shuffled_ranks = false;  // ranks are not in learning order
    Id first_id = 0;
    std::size_t num_others = 0;  // tokens that no merge makes
    bool whole_pieces = false;
};

// The following ids need 17 bits, or exceed 20 bits among the merges.
inline constexpr Id kWideIds = 65500, kMillionIds = (1 << 20) - 270;

inline Layout random_layout(Random& random) {
    const Id first_ids[] = {0, 0, 0, kWideIds, kWideIds, kMillionIds};
    return {random() % 40,           random() % 2 == 0, random() % 3 == 0,
            first_ids[random() % 6], random() % 4,      random() % 2 == 0};
}

// Merges of any two existing tokens: many are never used, several make the same token.
inline VocabularyParts random_parts(Random& random, const std::vector<std::string>& units, const Layout& layout) {
    VocabularyParts parts;
    std::iota(parts.byte_ids.begin(), parts.byte_ids.end(), layout.first_id);
    if (layout.permuted_bytes) std::shuffle(parts.byte_ids.begin(), parts.byte_ids.end(), random);
    parts.whole_pieces = layout.whole_pieces;
    Id next = layout.first_id + 256;
    std::map<std::string, Id> id_of;
    std::vector<std::string> tokens;
    std::set<std::pair<Id, Id>> pairs;
    const auto add = [&](const std::string& token) {
        if (!id_of.contains(token)) {
            id_of[token] = token.size() == 1 ? parts.byte_ids[static_cast<std::uint8_t>(token[0])] : next;
            if (token.size() > 1) next += 1 + random() % 3;
            tokens.push_back(token);
        }
        return id_of[token];
    };
    const auto merge = [&](const std::string& left, const std::string& right) {
        if (left.size() + right.size() > 60 || !pairs.emplace(id_of[left], id_of[right]).second) return;
        parts.merges.push_back({id_of[left], id_of[right], add(left + right)});
    };
    for (const std::string& unit : units) {
        for (const char byte : unit) add(std::string(1, byte));
    }
    for (std::size_t tries = 0; tries < layout.num_merges; ++tries) {
        const std::string& unit = any_of(random, units);
        const std::size_t cut = unit.size() > 1 ? 1 + random() % (unit.size() - 1) : 0;
        // Half of them inside a unit, so that whole characters become tokens.
        if (cut && id_of.contains(unit.substr(0, cut)) && id_of.contains(unit.substr(cut)) && random() % 2) {
            merge(unit.substr(0, cut), unit.substr(cut));
        } else {
            const std::string left = any_of(random, tokens), right = any_of(random, tokens);
            merge(left, right);
        }
    }
    for (std::size_t tries = 0; tries < layout.num_others; ++tries) {
        const std::string token = joined(random, units, 2 + random() % 10);
        if (token.size() > 1 && !id_of.contains(token)) parts.others.push_back({token, add(token)});
    }
    if (!parts.others.empty()) {  // a merge of a token that is never made never applies
        const std::string left = parts.others[0].bytes;
        if (!id_of.contains(left + left)) merge(left, left);
    }
    if (layout.shuffled_ranks) std::shuffle(parts.merges.begin(), parts.merges.end(), random);
    return parts;
}

// The plain rule of BPE.
class Judge {
  public:
    explicit Judge(const VocabularyParts& parts) : parts_(parts) {
        for (Id rank = 0; rank < parts.merges.size(); ++rank)
            rank_of_.emplace(pair_key(parts.merges[rank].left, parts.merges[rank].right), rank);
    }

    const Ids& piece(std::string_view piece) {
        const auto [known, is_new] = known_.try_emplace(std::string(piece));
        if (is_new) known->second = encode(piece);
        return known->second;
    }
    // Specials first, the leftmost, then the longest; pieces from the scalar scanner.
    Ids text(std::string_view text, Pattern pattern, const Tokens& allowed = {}) {
        Ids ids;
        std::size_t begin = 0;
        for (std::size_t at = 0; at < text.size();) {
            const IdOfBytes* longest = nullptr;
            for (const IdOfBytes& special : allowed) {
                if (text.substr(at).starts_with(special.bytes) &&
                    (!longest || special.bytes.size() > longest->bytes.size()))
                    longest = &special;
            }
            if (!longest) {
                ++at;
                continue;
            }
            append_plain(text.substr(begin, at - begin), pattern, ids);
            ids.push_back(longest->id);
            begin = at += longest->bytes.size();
        }
        append_plain(text.substr(begin), pattern, ids);
        return ids;
    }

  private:
    static std::uint64_t pair_key(Id left, Id right) { return std::uint64_t{left} << 32 | right; }

    Ids encode(std::string_view piece) const {
        if (parts_.whole_pieces) {
            for (const IdOfBytes& other : parts_.others) {
                if (other.bytes == piece) return {other.id};
            }
        }
        Ids ids;
        for (const char byte : piece) ids.push_back(parts_.byte_ids[static_cast<std::uint8_t>(byte)]);
        for (;;) {
            Id best_rank = static_cast<Id>(-1);
            std::size_t best = 0;
            for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
                const auto found = rank_of_.find(pair_key(ids[i], ids[i + 1]));
                if (found != rank_of_.end() && found->second < best_rank) best_rank = found->second, best = i;
            }
            if (best_rank == static_cast<Id>(-1)) return ids;
            ids[best] = parts_.merges[best_rank].made;
            ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
        }
    }

    void append_plain(std::string_view text, Pattern pattern, Ids& ids) {
        std::vector<std::uint8_t> padded(text.begin(), text.end());
        padded.resize(text.size() + kTextPadding);
        const auto scanner = make_scanner(pattern, Kernel::scalar);
        scanner->start(padded.data(), text.size());
        const std::uint8_t* begin = padded.data();
        while (scanner->next()) {
            for (std::size_t i = 0; i < scanner->size(); ++i) {
                const std::uint8_t* end = scanner->base() + scanner->ends()[i];
                const Ids& more = piece({reinterpret_cast<const char*>(begin), static_cast<std::size_t>(end - begin)});
                ids.insert(ids.end(), more.begin(), more.end());
                begin = end;
            }
        }
    }

    const VocabularyParts& parts_;
    std::unordered_map<std::uint64_t, Id> rank_of_;
    std::unordered_map<std::string, Ids> known_;
};

inline Ids to_ids(IdBuffer buffer) {
    if (buffer.width() == 2) return {buffer.data<std::uint16_t>(), buffer.data<std::uint16_t>() + buffer.size()};
    return {buffer.data<std::uint32_t>(), buffer.data<std::uint32_t>() + buffer.size()};
}

inline const SpecialRule& no_specials() {
    static const SpecialRule rule({}, {});
    return rule;
}

inline Ids encoded(const Encoder& encoder, std::string_view text, const SpecialRule& rule = no_specials(),
                   unsigned num_threads = 1) {
    Monitor monitor;
    return to_ids(encoder.encode(text, rule, num_threads, monitor));
}

inline Ids encoded_shortly(const Encoder& encoder, std::string_view text, const SpecialRule& rule = no_specials()) {
    struct Context {
        bool narrow;
        Ids ids;
    } context{encoder.is_narrow(), {}};
    const auto use = [](void* pointer, const void* ids, std::size_t size) {
        auto& to = *static_cast<Context*>(pointer);
        if (to.narrow) {
            const auto* from = static_cast<const std::uint16_t*>(ids);
            to.ids.assign(from, from + size);
        } else {
            const auto* from = static_cast<const std::uint32_t*>(ids);
            to.ids.assign(from, from + size);
        }
    };
    encoder.encode_short(text, rule, use, &context);
    return context.ids;
}

inline Ids encoded_piece(const Encoder& encoder, std::string_view piece) {
    Ids ids;
    encoder.encode_piece(piece, ids);
    return ids;
}

inline std::string decoded(const Encoder& encoder, const Ids& ids) {
    std::string bytes;
    for (const Id id : ids) bytes += encoder.token_bytes(id);
    return bytes;
}

// A text in memory of exactly its size, so that AddressSanitizer detects a read after its end.
class Exact {
  public:
    explicit Exact(std::string_view text) : size_(text.size()), bytes_(new char[text.size()]) {
        std::copy(text.begin(), text.end(), bytes_.get());
    }
    std::string_view view() const { return {bytes_.get(), size_}; }

  private:
    std::size_t size_;
    std::unique_ptr<char[]> bytes_;
};

}  // namespace gristmill::test
