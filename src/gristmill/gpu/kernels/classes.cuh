// The classes of the bytes of a text.
#pragma once

#include "count_state.cuh"

namespace gristmill::gpu {

// The flags of the core's tables (cpp/src/pretokenize/unicode.hpp) as the flags of the kernels.
__device__ inline u8 class_of_flags(u8 flags) {
    constexpr u8 kUpperFlag = 8, kLowerFlag = 16, kMarkFlag = 32, kNewlineFlag = 64, kBlankFlag = 128;
    u8 result = flags & (kLetter | kNumber | kSpace);
    if (!result) result = kOther;
    if (flags & kNewlineFlag) result |= kNewline;
    if (flags & kBlankFlag) result |= kBlank;
    if (flags & kMarkFlag) result |= kCaseless;
    if (flags & kLetter) result |= flags & kUpperFlag ? kCapital : flags & kLowerFlag ? kSmall : kCaseless;
    return result;
}

__device__ inline void convert_class_table(u8* classes, u64 size) {
    for (u64 i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += gridDim.x * blockDim.x)
        classes[i] = class_of_flags(classes[i]);
}

__device__ __forceinline__ bool is_continuation(u8 byte) { return (byte & 0xC0) == 0x80; }

// The size of the valid UTF-8 sequence at p[0] >= 0x80, or 0. Three more bytes are readable.
__device__ inline u32 sequence_size(const u8* p) {
    if (p[0] < 0xC2 || p[0] > 0xF4) return 0;
    if (p[0] < 0xE0) return is_continuation(p[1]) ? 2 : 0;
    const u8 least = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    const u8 most = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < least || p[1] > most || !is_continuation(p[2])) return 0;
    if (p[0] < 0xF0) return 3;
    return is_continuation(p[3]) ? 4 : 0;
}

__device__ inline u32 code_point_of(const u8* p, u32 size) {
    if (size == 2) return (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
    if (size == 3) return (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    return (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

// The class of a byte >= 0x80, with three readable bytes on both sides. A byte that is in no valid sequence is a
// character of class "other", as on the CPU.
__device__ inline u8 class_of_high_byte(const CountState& g, const u8* p) {
    if (is_continuation(*p)) {
        for (u32 back = 1; back <= 3; ++back) {
            if (is_continuation(*(p - back))) continue;
            return *(p - back) >= 0x80 && sequence_size(p - back) > back ? kInside : kOther;
        }
        return kOther;
    }
    const u32 size = sequence_size(p);
    if (size == 0) return kOther;
    const u32 code_point = code_point_of(p, size);
    return g.classes[g.class_rows[code_point >> 6] * 64 + (code_point & 63)];
}

}  // namespace gristmill::gpu
