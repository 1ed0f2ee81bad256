// count on the GPU: the entry points of the module.
//
// A chunk of text is mark_specials() and mark_gaps(), then count_tiles() until all tiles are counted. Between the
// launches, the host grows what is full (grow()), and chooses the words that blocks count in shared memory.
#include "specials.cuh"
#include "tiles.cuh"
#include "word_lists.cuh"

// A module has one pattern and one shape of tiles: -DGRISTMILL_PATTERN=gpt2 -DGRISTMILL_TILE_THREADS=512
// -DGRISTMILL_TILE_SEGMENT=28. The C++ tests define none of them, and call the functions below themselves.
#ifdef GRISTMILL_PATTERN
using namespace gristmill::gpu;
using Shape = TileShape<GRISTMILL_TILE_THREADS, GRISTMILL_TILE_SEGMENT>;

// What the host must know to prepare a launch.
extern "C" __global__ void describe(u64* sizes) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    sizes[0] = sizeof(CountState);
    sizes[1] = sizeof(TileState<Shape>);
    sizes[2] = Shape::kBytes;
    sizes[3] = Shape::kAfter;
    sizes[4] = kCacheLines;
}

extern "C" __global__ void prepare_classes(u8* classes, u64 size) { convert_class_table(classes, size); }

extern "C" __global__ void mark_specials(CountState* g, const u8* bytes, const u32* offsets, const u32* first_bytes,
                                         u32 num) {
    mark_all_specials(*g, {bytes, offsets, first_bytes, num});
}

extern "C" __global__ void mark_gaps(CountState* g) { mark_all_gaps(*g); }

extern "C" __global__ void __launch_bounds__(GRISTMILL_TILE_THREADS, 2) count_tiles(CountState* g) {
    Tiles<pattern::GRISTMILL_PATTERN, Shape>(*g, *reinterpret_cast<TileState<Shape>*>(dynamic_shared())).run();
}

extern "C" __global__ void choose_cached(CountState* g) { choose_cached_words(*g); }

extern "C" __global__ void grow(CountState* g, const Word* words, u64 size) { move_all_words(*g, words, size); }

extern "C" __global__ void add_words(CountState* g, u8* bytes, u64* offsets, u64* counts, u64* firsts, u64 num) {
    add_listed_words(*g, {bytes, offsets, counts, firsts}, num);
}

extern "C" __global__ void measure(CountState* g, u64 min_frequency, u64* totals) {
    measure_words(*g, min_frequency, totals);
}

extern "C" __global__ void list(CountState* g, u64 min_frequency, u8* bytes, u64* offsets, u64* counts, u64* firsts) {
    __shared__ u32 scratch[40];
    __shared__ u64 base;
    list_words(*g, min_frequency, {bytes, offsets, counts, firsts}, scratch, &base);
}

extern "C" __global__ void order_sizes(u64* offsets, u64* counts, u64* firsts, const u64* order, u64 num,
                                       u64* ordered_counts, u64* ordered_firsts, u64* sizes) {
    reorder_sizes({nullptr, offsets, counts, firsts}, order, num, {nullptr, nullptr, ordered_counts, ordered_firsts},
                  sizes);
}

extern "C" __global__ void order_bytes(u8* bytes, u64* offsets, const u64* order, u64 num, u8* ordered_bytes,
                                       u64* ordered_offsets) {
    reorder_bytes({bytes, offsets, nullptr, nullptr}, order, num, {ordered_bytes, ordered_offsets, nullptr, nullptr});
}
#endif
