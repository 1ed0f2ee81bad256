// A module of the GPU kernels as a library for the CPU. -DGRISTMILL_SOURCE=\"kernels/merge.cu\" names the source; the
// macros of a variant are those of nvcc.
#include "cuda_emulator.hpp"
//
#include <type_traits>
#include <utility>

#include GRISTMILL_SOURCE

namespace {

template <class T>
T argument(u64 bits) {
    if constexpr (std::is_pointer_v<T>)
        return reinterpret_cast<T>(bits);
    else
        return static_cast<T>(bits);
}

// Returns how many arguments the kernel has; with another number of them, it does not start.
template <class... Arguments, std::size_t... kPlaces>
unsigned launch(void (*kernel)(Arguments...), std::index_sequence<kPlaces...>, const u64* bits, unsigned num,
                unsigned blocks, unsigned threads, u64 shared_bytes) {
    if (num == sizeof...(Arguments))
        cuda_emulator::launch(blocks, threads, shared_bytes, [&] { kernel(argument<Arguments>(bits[kPlaces])...); });
    return sizeof...(Arguments);
}

template <class... Arguments>
unsigned launch(void (*kernel)(Arguments...), const u64* bits, unsigned num, unsigned blocks, unsigned threads,
                u64 shared_bytes) {
    return launch(kernel, std::index_sequence_for<Arguments...>{}, bits, num, blocks, threads, shared_bytes);
}

}  // namespace

#define KERNEL(name)                                                                                    \
    extern "C" unsigned launch_##name(const u64* bits, unsigned num, unsigned blocks, unsigned threads, \
                                      u64 shared_bytes) {                                               \
        return launch(name, bits, num, blocks, threads, shared_bytes);                                  \
    }

KERNEL(describe)
KERNEL(grow)
#ifdef GRISTMILL_SYMBOL
KERNEL(lay_out)
KERNEL(enter_pairs)
KERNEL(merge_rounds)
#else
KERNEL(prepare_classes)
KERNEL(mark_specials)
KERNEL(mark_gaps)
KERNEL(count_tiles)
KERNEL(choose_cached)
KERNEL(add_words)
KERNEL(measure)
KERNEL(list)
KERNEL(order_sizes)
KERNEL(order_bytes)
#endif
