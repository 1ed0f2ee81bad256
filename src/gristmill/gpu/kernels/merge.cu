// merge on the GPU: exact batched rounds. The entry points of the module.
//
// A run is lay_out() and enter_pairs() once, then merge_rounds() until its outcome is final. Between the launches, the
// host reports progress, and grows what is full: grow() moves the pairs to a larger table.
#include "rounds.cuh"
#include "start.cuh"

#ifndef GRISTMILL_CUDA_EMULATOR
// A module has one type of symbols and one tie-break: -DGRISTMILL_SYMBOL=u16 -DGRISTMILL_TIE_BREAK=smallest_ids.
using namespace gristmill::gpu;

extern "C" __global__ void __launch_bounds__(1024, 1)
    lay_out(MergeState* g, const u8* bytes, const u64* offsets, const u64* counts, u64 num_words, u64* byte_pairs) {
    lay_out_words<GRISTMILL_SYMBOL>(*g, bytes, offsets, counts, num_words, byte_pairs,
                                    *reinterpret_cast<BlockState*>(dynamic_shared()));
}

extern "C" __global__ void enter_pairs(MergeState* g, const u64* byte_pairs) { enter_byte_pairs(*g, byte_pairs); }

extern "C" __global__ void grow(MergeState* g, const Entry* entries, u64 size) { move_pairs(*g, entries, size); }

extern "C" __global__ void __launch_bounds__(1024, 1) merge_rounds(MergeState* g, u32 most_rounds) {
    BlockState& s = *reinterpret_cast<BlockState*>(dynamic_shared());
    Rounds<GRISTMILL_SYMBOL, TieBreak::GRISTMILL_TIE_BREAK>(*g, s, reinterpret_cast<u32*>(&s + 1)).run(most_rounds);
}
#endif
