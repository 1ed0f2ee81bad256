// Marks the bytes of a text that are in no piece: special tokens, and the gaps between two texts.
#pragma once

#include "count_state.cuh"

namespace gristmill::gpu {

// Special tokens, the longest first. Bit b of `first_bytes` is set if one begins with byte b.
struct Specials {
    const u8* bytes;
    const u32* offsets;  // num + 1
    const u32* first_bytes;
    u32 num;
};

__device__ inline u32 longest_special_at(const CountState& g, const Specials& specials, u64 place) {
    for (u32 i = 0; i < specials.num; ++i) {
        const u32 size = specials.offsets[i + 1] - specials.offsets[i];
        if (place + size > g.size) continue;
        const u8* bytes = specials.bytes + specials.offsets[i];
        u32 k = 0;
        while (k < size && g.text[place + k] == bytes[k]) ++k;
        if (k == size) return size;
    }
    return 0;
}

// Where no special overlaps another, all of them are found from left to right. Otherwise the host counts the text. A
// gap is 0xFF, which is in no special, so no special crosses one.
__device__ inline void mark_special_at(CountState& g, const Specials& specials, u64 place) {
    u32 size = longest_special_at(g, specials, place);
    while (size) {
        const u32 bit = static_cast<u32>(place % 32), num = min(size, 32 - bit);
        const u32 bits = (num == 32 ? ~0u : (1u << num) - 1) << bit;
        if (atomicOr(&g.no_text[place / 32], bits) & bits) g.specials_overlap = 1;
        place += num;
        size -= num;
    }
}

__device__ inline void mark_all_specials(CountState& g, const Specials& specials) {
    for (u64 at = (static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x) * 16; at < g.size;
         at += static_cast<u64>(gridDim.x) * blockDim.x * 16) {
        const uint4 loaded = *reinterpret_cast<const uint4*>(g.text + at);
        const u32 words[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
        for (u32 w = 0; w < 4; ++w)
            for (u32 k = 0; k < 4; ++k) {
                const u32 byte = words[w] >> 8 * k & 255;
                if (__ldg(&specials.first_bytes[byte / 32]) >> byte % 32 & 1)
                    mark_special_at(g, specials, at + 4 * w + k);
            }
    }
}

__device__ inline void mark_all_gaps(CountState& g) {
    for (u64 i = blockIdx.x * blockDim.x + threadIdx.x; i < g.num_gaps; i += gridDim.x * blockDim.x)
        atomicOr(&g.no_text[g.gaps[i] / 32], 1u << g.gaps[i] % 32);
}

}  // namespace gristmill::gpu
