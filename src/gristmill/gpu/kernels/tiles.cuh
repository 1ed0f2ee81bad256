// Counts the pieces of a text, one tile per block at a time.
//
//   1. load     the tile and some bytes after it into shared memory, and find the classes of its bytes
//   2. walk     every thread finds the first certain start of a piece in its segment, and marks the starts of all
//   pieces
//               from there to the first certain start after its segment, where another thread has begun
//   3. list     the starts of all pieces, in order
//   4. count    one thread per piece: in shared memory if the word is frequent, otherwise in the table
//
// A piece that does not end in the bytes that are loaded, and everything up to the next certain start, is left to the
// host.
#pragma once

#include "classes.cuh"
#include "patterns.cuh"
#include "word_table.cuh"

namespace gristmill::gpu {

// kSegment is an odd number of words of 4 bytes, so that the threads of a warp, when they read the same place of their
// segments, read from different banks.
template <u32 kThreadsOfBlock, u32 kSegmentBytes>
struct TileShape {
    static constexpr u32 kThreads = kThreadsOfBlock;
    static constexpr u32 kSegment = kSegmentBytes;
    static constexpr u32 kBytes = kThreads * kSegment;
    static constexpr u32 kBefore = 16, kAfter = 256;  // bytes around it, whose classes are known
    static constexpr u32 kClassed = kBefore + kBytes + kAfter;
    static constexpr u32 kLoaded = kClassed + 32;
    static constexpr u32 kBitWords = kClassed / 32 + 1;
    static_assert(kBytes % 16 == 0 && kClassed < 65536);
};

struct CachedWord {
    u64 tail, head;
};

template <class Shape>
struct TileState {
    CachedWord cache[kCacheLines];
    u32 cache_counts[kCacheLines];
    u32 cache_entries[kCacheLines];
    uint4 bytes[Shape::kLoaded / 16];
    u32 classes[Shape::kLoaded / 4];
    u32 bits[Shape::kBitWords];  // a start of a piece, or an end
    u16 starts[Shape::kClassed + 1];
    u8 ascii[128];
    u64 position;  // of the first loaded byte, if no gap in the loaded bytes came before it
    u32 tile, num_starts, num_new, first_start;
    u32 num_gaps;  // in the loaded bytes
    u32 first_gap;
    u32 scratch[40];
};

__device__ inline u32 num_gaps_before(const CountState& g, u64 place) {
    u64 low = 0, high = g.num_gaps;
    while (low < high) {
        const u64 middle = (low + high) / 2;
        if (g.gaps[middle] < place)
            low = middle + 1;
        else
            high = middle;
    }
    return static_cast<u32>(low);
}

template <class Pattern, class Shape>
class Tiles {
  public:
    __device__ Tiles(CountState& g, TileState<Shape>& s)
        : g_(g), s_(s), table_(g), text_{reinterpret_cast<u8*>(s.bytes), reinterpret_cast<u8*>(s.classes)} {}

    __device__ void run() {
        load_cache();
        for (u32 i = threadIdx.x; i < 128; i += blockDim.x) s_.ascii[i] = g_.classes[i];
        u64 num_pieces = 0;
        while (take_tile()) {
            load();
            walk();
            list_starts();
            num_pieces += count();
        }
        save_cache();
        for (u32 by = 16; by; by /= 2) num_pieces += __shfl_xor_sync(kAllLanes, num_pieces, by);
        if (lane_of_thread() == 0 && num_pieces) atomicAdd(&g_.num_pieces, num_pieces);
    }

  private:
    static constexpr u32 kTileEnd = Shape::kBefore + Shape::kBytes;

    // A block takes no tile unless the words of the tiles that are being counted have room, whatever they are.
    __device__ bool take_tile() {
        __syncthreads();
        if (threadIdx.x == 0) {
            s_.tile = ~0u;
            const bool has_room = __ldcg(&g_.num_words) < g_.most_words && __ldcg(&g_.arena_used) < g_.most_arena;
            if (has_room && __ldcg(&g_.next_tile) < g_.stop_tile) {
                const u64 tile = atomicAdd(&g_.next_tile, u64{1});
                if (tile < g_.stop_tile) s_.tile = static_cast<u32>(tile);
            }
            s_.num_new = 0;
            s_.first_start = ~0u;
        }
        __syncthreads();
        return s_.tile != ~0u;
    }

    __device__ u64 place_of(u32 p) const { return static_cast<u64>(s_.tile) * Shape::kBytes + p - Shape::kBefore; }

    // 1. load
    __device__ void load() {
        const u64 tile_begin = static_cast<u64>(s_.tile) * Shape::kBytes;
        for (u32 i = threadIdx.x; i < Shape::kLoaded / 16; i += blockDim.x) {
            const u64 place = tile_begin + i * 16;  // + kBefore: the text of the first tile has no bytes before it
            uint4 loaded{0, 0, 0, 0};
            if (place >= Shape::kBefore && place - Shape::kBefore < g_.size) {
                loaded = *reinterpret_cast<const uint4*>(g_.text + (place - Shape::kBefore));
                const u64 num = g_.size - (place - Shape::kBefore);
                if (num < 16) {
                    u32* words = &loaded.x;
                    for (u32 k = 0; k < 4; ++k)
                        words[k] &= num >= 4 * k + 4 ? ~0u : num <= 4 * k ? 0u : ~0u >> (32 - 8 * (num - 4 * k));
                }
            }
            s_.bytes[i] = loaded;
        }
        for (u32 i = threadIdx.x; i < Shape::kBitWords; i += blockDim.x) s_.bits[i] = 0;
        if (threadIdx.x == 0) {
            s_.first_gap = g_.num_gaps ? num_gaps_before(g_, tile_begin) : 0;
            s_.num_gaps =
                g_.num_gaps ? num_gaps_before(g_, tile_begin + Shape::kBytes + Shape::kAfter) - s_.first_gap : 0;
            s_.position = g_.position + tile_begin - Shape::kBefore - s_.first_gap;
        }
        __syncthreads();
        const u32* words = reinterpret_cast<const u32*>(s_.bytes);
        for (u32 i = threadIdx.x; i < Shape::kLoaded / 4; i += blockDim.x) s_.classes[i] = classes_of_word(words, i);
        __syncthreads();
    }

    // The classes of four bytes.
    __device__ u32 classes_of_word(const u32* words, u32 i) const {
        if (s_.tile == 0 && 4 * i < Shape::kBefore) return 0;
        const u64 place = place_of(4 * i);
        if (place >= g_.size) return 0;
        if (i >= Shape::kClassed / 4) return kNotLoaded * 0x01010101u;
        const u32 word = words[i];
        u32 result = 0;
        if (!(word & 0x80808080u)) {
            result = s_.ascii[word & 127] | s_.ascii[word >> 8 & 127] << 8 | s_.ascii[word >> 16 & 127] << 16 |
                     static_cast<u32>(s_.ascii[word >> 24]) << 24;
        } else if (i > 0) {  // nothing before the first four bytes is loaded, and their classes are not used
            for (u32 k = 0; k < 4; ++k) {
                const u32 byte = word >> 8 * k & 255;
                const u8 c = byte < 128 ? s_.ascii[byte] : class_of_high_byte(g_, text_.bytes + 4 * i + k);
                result |= static_cast<u32>(c) << 8 * k;
            }
        }
        if (g_.size - place < 4) result &= ~0u >> (32 - 8 * static_cast<u32>(g_.size - place));
        if (g_.no_text)
            for (u32 bits = g_.no_text[place / 32] >> place % 32 & 15; bits; bits &= bits - 1)
                result &= ~(0xFFu << 8 * (__ffs(bits) - 1));
        return result;
    }

    __device__ bool is_start(u32 p) const {
        u32 q = p - 1;
        while (text_.classes[q] == kInside) --q;
        return Pattern::is_start(text_.classes[q], text_.classes[p], text_.bytes[p]);
    }

    __device__ void mark(u32 p) { atomicOr(&s_.bits[p / 32], 1u << p % 32); }

    // 2. walk
    __device__ void walk() {
        u32 p = Shape::kBefore + threadIdx.x * Shape::kSegment;
        const u32 end = p + Shape::kSegment;
        u32 before = p - 1;
        while (text_.classes[before] == kInside) --before;
        u8 before_class = text_.classes[before];
        for (; p < end; ++p) {
            const u8 c = text_.classes[p];
            if (c == kInside) continue;
            if (Pattern::is_start(before_class, c, text_.bytes[p])) break;
            before_class = c;
        }
        if (p < end) {
            atomicMin(&s_.first_start, p);
            mark_pieces(p, end);
        }
        __syncthreads();
        if (threadIdx.x == 0)
            g_.first_starts[s_.tile] = s_.first_start == ~0u ? ~0u : static_cast<u32>(place_of(s_.first_start));
    }

    __device__ void mark_pieces(u32 p, u32 end) {
        for (;;) {
            mark(p);
            const u32 next = Pattern::piece_end(text_, p);
            if (next == kNotInReach) {
                const u64 to = atomicAdd(&g_.num_spans, u64{1});
                g_.spans[to] = {static_cast<u32>(place_of(p)), s_.tile};
                return;
            }
            p = next;
            if (text_.classes[p] == kNoText) {
                mark(p);
                while (p < end && text_.classes[p] == kNoText) ++p;
                if (p >= end) return;
            } else if (p >= end && is_start(p)) {
                mark(p);
                return;
            }
        }
    }

    // 3. list
    __device__ void list_starts() {
        __syncthreads();
        constexpr u32 kWords = (Shape::kBitWords + Shape::kThreads - 1) / Shape::kThreads;
        const u32 first = threadIdx.x * kWords;
        u32 num = 0;
        for (u32 i = first; i < first + kWords && i < Shape::kBitWords; ++i) num += __popc(s_.bits[i]);
        u32 total;
        u32 to = sum_before_in_block(num, total, s_.scratch);
        for (u32 i = first; i < first + kWords && i < Shape::kBitWords; ++i)
            for (u32 bits = s_.bits[i]; bits; bits &= bits - 1)
                s_.starts[to++] = static_cast<u16>(i * 32 + __ffs(bits) - 1);
        if (threadIdx.x == 0) s_.num_starts = total;
        __syncthreads();
    }

    // 4. count
    __device__ u64 count() {
        u32 num_pieces = 0;
        for (u32 i = threadIdx.x; i + 1 < s_.num_starts; i += blockDim.x) {
            const u32 begin = s_.starts[i];
            if (text_.classes[begin] == kNoText) continue;
            ++num_pieces;
            count_piece(begin, s_.starts[i + 1] - begin);
        }
        __syncthreads();
        if (threadIdx.x == 0 && s_.num_new) atomicAdd(&g_.num_words, static_cast<u64>(s_.num_new));
        return num_pieces;
    }

    __device__ void count_piece(u32 begin, u32 size) {
        const LoadedBytes bytes{reinterpret_cast<const u32*>(s_.bytes), begin};
        bool is_new = false;
        u64 entry;
        const u64 first = bytes.eight_at(0);
        if (size > kKeyBytes || (size >= 8 && first == 0)) {
            entry = table_.add_long(bytes, size, 1, is_new);
        } else {
            const u64 tail = size < 8 ? low_bytes(first, size) | static_cast<u64>(size) << 56
                                      : low_bytes(bytes.eight_at(8), size - 8) | static_cast<u64>(size) << 56;
            const u64 head = size < 8 ? 0 : first;
            const u32 line = line_of(tail, head);
            if (s_.cache[line].tail == tail && s_.cache[line].head == head) {
                atomicAdd(&s_.cache_counts[line], 1u);
                return;
            }
            entry = table_.add(tail, head, 1, is_new);
        }
        if (is_new) atomicAdd(&s_.num_new, 1u);
        see(entry, begin);
    }

    // Gaps before it move a piece back. Their exact number is needed only for a new word, or an earlier occurrence.
    __device__ void see(u64 entry, u32 begin) {
        const u64 latest = s_.position + begin;
        if (s_.num_gaps == 0) {
            table_.see_at(entry, latest);
        } else if (__ldcg(&g_.table[entry].before) < ~(latest - min(latest, static_cast<u64>(s_.num_gaps)))) {
            table_.see_at(entry, latest + s_.first_gap - num_gaps_before(g_, place_of(begin)));
        }
    }

    __device__ u32 line_of(u64 tail, u64 head) const {
        return static_cast<u32>(table_.hash_of(tail, head) >> 8) % kCacheLines;
    }

    __device__ void load_cache() {
        for (u32 i = threadIdx.x; i < kCacheLines; i += blockDim.x) {
            const u32 entry = static_cast<u32>(g_.cache[i]);
            s_.cache[i] = {0, 0};
            s_.cache_counts[i] = 0;
            s_.cache_entries[i] = entry;
            if (g_.cache[i]) s_.cache[i] = {g_.table[entry].tail, g_.table[entry].head};
        }
    }

    __device__ void save_cache() {
        __syncthreads();
        for (u32 i = threadIdx.x; i < kCacheLines; i += blockDim.x)
            if (s_.cache_counts[i])
                atomicAdd(&g_.table[s_.cache_entries[i]].count, static_cast<u64>(s_.cache_counts[i]));
    }

    CountState& g_;
    TileState<Shape>& s_;
    const WordTable table_;
    const LoadedText text_;
};

}  // namespace gristmill::gpu
