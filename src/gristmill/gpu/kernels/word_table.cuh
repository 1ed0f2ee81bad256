// The table of all words: open addressing in device memory, filled by all blocks at once.
#pragma once

#include "count_state.cuh"

namespace gristmill::gpu {

__device__ __forceinline__ u64 low_bytes(u64 value, u32 num) { return num ? value & (~u64{0} >> (64 - 8 * num)) : 0; }
__device__ __forceinline__ u64 round_up_to_8(u64 value) { return (value + 7) & ~u64{7}; }

// The lower half of a product of 128 bits, xor the upper half. Every bit of it depends on all bits of both factors.
__device__ __forceinline__ u64 folded_product(u64 a, u64 b) { return a * b ^ __umul64hi(a, b); }

// The bytes of a word in shared memory; `first` is its offset, and up to 15 more bytes after the word are readable.
struct LoadedBytes {
    const u32* text;
    u32 first;

    __device__ u64 eight_at(u32 i) const {
        const u32 at = (first + i) / 4, by = (first + i) % 4 * 8;
        const u32 a = text[at], b = text[at + 1], c = text[at + 2];
        return static_cast<u64>(__funnelshift_r(b, c, by)) << 32 | __funnelshift_r(a, b, by);
    }
};

// The bytes of a word in device memory.
struct StoredBytes {
    const u8* bytes;
    u64 size;

    __device__ u64 eight_at(u64 i) const {
        u64 result = 0;
        for (u32 k = 0; k < 8 && i + k < size; ++k) result |= static_cast<u64>(bytes[i + k]) << 8 * k;
        return result;
    }
};

class WordTable {
  public:
    __device__ explicit WordTable(CountState& g) : g_(g), table_(g.table), mask_(g.table_mask) {}

    // Both factors are secret. With a product of 64 bits, keys that differ only in their upper bits would have the same
    // lower bits of a hash, whatever the multiplier.
    __device__ u64 hash_of(u64 tail, u64 head) const {
        return folded_product(tail ^ g_.hash_seed, head ^ g_.hash_multiplier);
    }

    // Adds to the count of a word of at most 15 bytes. Returns its entry. `is_new`: whether it was not there.
    __device__ u64 add(u64 tail, u64 head, u64 count, bool& is_new) const {
        for (u64 at = hash_of(tail, head) & mask_;; at = (at + 1) & mask_) {
            Word& word = table_[at];
            u64 seen = __ldcg(&word.tail);
            if (seen == 0) {
                seen = atomicCAS(&word.tail, u64{0}, tail);
                if (seen == 0 && head == 0) is_new = true;
                if (seen == 0) seen = tail;
            }
            if (seen != tail) continue;
            if (head) {
                u64 other = __ldcg(&word.head);
                if (other == 0) {
                    other = atomicCAS(&word.head, u64{0}, head);
                    if (other == 0) is_new = true;
                    if (other == 0) other = head;
                }
                if (other != head) continue;
            }
            atomicAdd(&word.count, count);
            return at;
        }
    }

    // The same for a longer word.
    template <class Bytes>
    __device__ u64 add_long(const Bytes& bytes, u64 size, u64 count, bool& is_new) const {
        const u64 tail = hash_long(bytes, size);
        u64 mine = 0;  // 1 + the offset of a copy in the arena
        for (u64 at = hash_of(tail, 0) & mask_;; at = (at + 1) & mask_) {
            Word& word = table_[at];
            u64 seen = __ldcg(&word.tail);
            if (seen == 0) seen = atomicCAS(&word.tail, u64{0}, tail);
            if (seen != 0 && seen != tail) continue;
            u64 other = load_acquire(&word.head);
            if (other == 0) {
                if (mine == 0) mine = 1 + copy_to_arena(bytes, size);
                __threadfence();
                other = atomicCAS(&word.head, u64{0}, mine);
                if (other == 0) {
                    is_new = true;
                    atomicAdd(&word.count, count);
                    return at;
                }
                __threadfence();
            }
            if (!is_in_arena(other - 1, bytes, size)) continue;
            atomicAdd(&word.count, count);
            return at;
        }
    }

    // Records an occurrence at a position of the corpus.
    __device__ void see_at(u64 entry, u64 position) const {
        if (__ldcg(&table_[entry].before) < ~position) atomicMax(&table_[entry].before, ~position);
    }

    // Enters a word of another table, which is not in this one.
    __device__ void move(const Word& word) const {
        u64 at = hash_of(word.tail, word.tail >= kLongTag ? 0 : word.head) & mask_;
        while (atomicCAS(&table_[at].tail, u64{0}, word.tail) != 0) at = (at + 1) & mask_;
        table_[at].head = word.head;
        table_[at].count = word.count;
        table_[at].before = word.before;
    }

    __device__ u64 size_of(const Word& word) const {
        return word.tail < kLongTag ? word.tail >> 56 : *reinterpret_cast<const u64*>(g_.arena + word.head - 1);
    }

  private:
    template <class Bytes>
    __device__ u64 hash_long(const Bytes& bytes, u64 size) const {
        u64 hash = size ^ g_.hash_seed;
        for (u64 i = 0; i < size; i += 8)
            hash = folded_product(hash ^ low_bytes(bytes.eight_at(i), min(size - i, u64{8})), g_.hash_multiplier);
        return kLongTag | hash >> 8;
    }

    template <class Bytes>
    __device__ u64 copy_to_arena(const Bytes& bytes, u64 size) const {
        const u64 offset = atomicAdd(&g_.arena_used, 8 + round_up_to_8(size));
        u64* to = reinterpret_cast<u64*>(g_.arena + offset);
        *to++ = size;
        for (u64 i = 0; i < size; i += 8) *to++ = low_bytes(bytes.eight_at(i), min(size - i, u64{8}));
        return offset;
    }

    template <class Bytes>
    __device__ bool is_in_arena(u64 offset, const Bytes& bytes, u64 size) const {
        const u64* from = reinterpret_cast<const u64*>(g_.arena + offset);
        if (__ldcg(from++) != size) return false;
        for (u64 i = 0; i < size; i += 8)
            if (__ldcg(from++) != low_bytes(bytes.eight_at(i), min(size - i, u64{8}))) return false;
        return true;
    }

    CountState& g_;
    Word* table_;
    u64 mask_;
};

// Adds a word of any size.
template <class Bytes>
__device__ inline u64 add_word(const WordTable& table, const Bytes& bytes, u64 size, u64 count, bool& is_new) {
    if (size <= kKeyBytes) {
        const u64 first = bytes.eight_at(0);
        if (size < 8) return table.add(low_bytes(first, size) | size << 56, 0, count, is_new);
        if (first) return table.add(low_bytes(bytes.eight_at(8), size - 8) | size << 56, first, count, is_new);
    }
    return table.add_long(bytes, size, count, is_new);
}

}  // namespace gristmill::gpu
