// merge on the GPU: exact batched rounds. The entry points of the module.
//
// A run is lay_out() and enter_pairs() once, then merge_rounds() until its outcome is final. Between the launches, the
// host reports progress, and grows what is full: grow() moves the pairs to a larger table.
#include "rounds.cuh"
#include "start.cuh"

// A module has one type of symbols and one tie-break: -DGRISTMILL_SYMBOL=u16 -DGRISTMILL_TIE_BREAK=smallest_ids. The
// C++ tests define neither, and call the functions below themselves.
#ifdef GRISTMILL_SYMBOL
using namespace gristmill::gpu;

// What the host must know to prepare a launch.
extern "C" __global__ void describe(u64* sizes) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    sizes[0] = sizeof(MergeState);
    sizes[1] = sizeof(BlockState);
    sizes[2] = kHotLog;
    sizes[3] = kBins;
    sizes[4] = kMostInBatch;
    sizes[5] = kMostCandidates;
}

extern "C" __global__ void __launch_bounds__(1024, 1)
    lay_out(MergeState* g, const u8* bytes, const u64* offsets, const u64* counts, u64 num_words, u64* byte_pairs) {
    lay_out_words<GRISTMILL_SYMBOL>(*g, bytes, offsets, counts, num_words, byte_pairs,
                                    *reinterpret_cast<BlockState*>(dynamic_shared()));
}

extern "C" __global__ void enter_pairs(MergeState* g, const u64* byte_pairs) { enter_byte_pairs(*g, byte_pairs); }

extern "C" __global__ void grow(MergeState* g, const Entry* entries, u64 size) { move_pairs(*g, entries, size); }

extern "C" __global__ void __launch_bounds__(1024, 1) merge_rounds(MergeState* g, u32 most_rounds) {
    BlockState& s = *reinterpret_cast<BlockState*>(dynamic_shared());
    // The words before the block's first one have at most first_word / 32 words of bits, and one more per block.
    u32* hit_bits = g->hit_bits ? g->hit_bits + g->regions[blockIdx.x].first_word / 32 + blockIdx.x
                                : reinterpret_cast<u32*>(&s + 1);
    Rounds<GRISTMILL_SYMBOL, TieBreak::GRISTMILL_TIE_BREAK>(*g, s, hit_bits).run(most_rounds);
}
#endif
