// Runs CUDA kernels on the CPU, so that machines without a GPU can test them: the small part of CUDA that
// src/gristmill/gpu/kernels uses. A block is an operating system thread, and its threads are fibers that switch at
// barriers and warp operations. Dynamic shared memory starts with garbage, as on a GPU.
//
// Limits: warp operations need all lanes of the warp, every thread of a block must reach every barrier, and a block has
// a multiple of 32 threads. A kernel that breaks these rules ends the process with a message.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define GRISTMILL_CUDA_EMULATOR 1
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static thread_local  // a block is an operating system thread
#define __launch_bounds__(...)

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_emulator {

#if defined(__x86_64__)
// Saves the callee-saved registers on the stack and continues on another stack.
extern "C" void gristmill_switch_stack(void** from, void* to);
asm(R"(
    .text
    .p2align 4
    .type gristmill_switch_stack, @function
gristmill_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size gristmill_switch_stack, .-gristmill_switch_stack
)");

class Context {
  public:
    void prepare(void (*entry)(), char* stack, std::size_t size) {
        auto top = reinterpret_cast<std::uintptr_t>(stack + size) & ~std::uintptr_t{15};
        auto* at = reinterpret_cast<void**>(top);
        *--at = nullptr;  // alignment: a function starts with the stack at 8 modulo 16
        *--at = reinterpret_cast<void*>(entry);
        for (int i = 0; i < 6; ++i) *--at = nullptr;
        stack_ = at;
    }
    void switch_to(Context& other) { gristmill_switch_stack(&stack_, other.stack_); }

  private:
    void* stack_ = nullptr;
};
#else
class Context {
  public:
    void prepare(void (*entry)(), char* stack, std::size_t size) {
        getcontext(&context_);
        context_.uc_stack.ss_sp = stack;
        context_.uc_stack.ss_size = size;
        context_.uc_link = nullptr;
        makecontext(&context_, entry, 0);
    }
    void switch_to(Context& other) { swapcontext(&context_, &other.context_); }

  private:
    ucontext_t context_{};
};
#endif

[[noreturn]] inline void fail(const char* why) {
    std::fprintf(stderr, "CUDA emulator: %s (block %u, thread %u)\n", why, blockIdx.x, threadIdx.x);
    std::abort();
}

// A barrier for fibers, which also hands a value of each to all.
template <unsigned kMost>
struct Meeting {
    std::uint64_t values[2][kMost] = {};
    unsigned arrived = 0;
    std::uint64_t generation = 0;
};

class Block {
  public:
    Block(unsigned num_threads, std::size_t shared_bytes, const std::function<void()>& body)
        : body_(body),
          num_threads_(num_threads),
          shared_(shared_bytes + 128, char(0xAB)),
          fibers_(num_threads),
          warps_(num_threads / 32) {
        if (num_threads % 32 || num_threads > kMostThreads)
            fail("a block needs a multiple of 32 threads, at most 1024");
    }

    void run() {
        current_block() = this;
        for (unsigned t = 0; t < num_threads_; ++t) {
            fibers_[t].stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
            fibers_[t].context.prepare(&Block::enter, fibers_[t].stack.get(), kStackBytes);
        }
        current_ = 0;
        threadIdx = {0, 0, 0};
        main_.switch_to(fibers_[0].context);
    }

    static Block*& current_block() {
        static thread_local Block* block = nullptr;
        return block;
    }

    void* shared() {
        return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(shared_.data()) + 127) & ~std::uintptr_t{127});
    }

    const std::uint64_t* meet_warp(std::uint64_t value) {
        return meet(warps_[current_ / 32], current_ % 32, 32, value);
    }
    const std::uint64_t* meet_block(std::uint64_t value) { return meet(block_, current_, num_threads_, value); }
    unsigned num_threads() const { return num_threads_; }

  private:
    static constexpr std::size_t kStackBytes = 32 << 10;
    static constexpr unsigned kMostThreads = 1024;

    struct Fiber {
        Context context;
        std::unique_ptr<char[]> stack;
        bool is_done = false;
    };

    static void enter() {
        Block& self = *current_block();
        self.body_();
        self.fibers_[self.current_].is_done = true;
        self.yield();
        fail("a finished thread continued");
    }

    // A fiber reads the values before it can arrive at the next meeting, so two sets of values are enough.
    template <unsigned kMost>
    const std::uint64_t* meet(Meeting<kMost>& meeting, unsigned self, unsigned num, std::uint64_t value) {
        const std::uint64_t generation = meeting.generation;
        std::uint64_t* values = meeting.values[generation & 1];
        values[self] = value;
        if (++meeting.arrived == num) {
            meeting.arrived = 0;
            ++meeting.generation;
            idle_ = 0;
        } else {
            while (meeting.generation == generation) yield();
        }
        return values;
    }

    void yield() {
        const unsigned from = current_;
        unsigned next = from;
        do {
            next = next + 1 == num_threads_ ? 0 : next + 1;
        } while (fibers_[next].is_done && next != from);
        if (fibers_[next].is_done) {
            fibers_[from].context.switch_to(main_);
            return;
        }
        if (next == from || ++idle_ > 64ull * num_threads_) fail("deadlock: not all threads reach a barrier");
        current_ = next;
        threadIdx.x = next;
        fibers_[from].context.switch_to(fibers_[next].context);
    }

    const std::function<void()>& body_;
    unsigned num_threads_;
    std::vector<char> shared_;
    std::vector<Fiber> fibers_;
    std::vector<Meeting<32>> warps_;
    Meeting<kMostThreads> block_;
    Context main_;
    unsigned current_ = 0;
    std::uint64_t idle_ = 0;  // switches since the last meeting was complete
};

// Runs a cooperative launch: all blocks at the same time.
inline void launch(unsigned num_blocks, unsigned num_threads, std::size_t shared_bytes,
                   const std::function<void()>& body) {
    std::vector<std::thread> blocks;
    for (unsigned b = 0; b < num_blocks; ++b)
        blocks.emplace_back([=, &body] {
            gridDim = {num_blocks, 1, 1};
            blockDim = {num_threads, 1, 1};
            blockIdx = {b, 0, 0};
            Block(num_threads, shared_bytes, body).run();
        });
    for (std::thread& block : blocks) block.join();
}

inline Block& block() { return *Block::current_block(); }

template <class T>
std::uint64_t to_bits(T value) {
    static_assert(sizeof(T) <= 8);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T>
T from_bits(std::uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline unsigned lane() { return threadIdx.x % 32; }

}  // namespace cuda_emulator

inline void __syncthreads() { cuda_emulator::block().meet_block(0); }
inline int __syncthreads_count(int wanted) {
    const std::uint64_t* values = cuda_emulator::block().meet_block(wanted != 0);
    int count = 0;
    for (unsigned t = 0; t < cuda_emulator::block().num_threads(); ++t) count += static_cast<int>(values[t]);
    return count;
}
inline int __syncthreads_or(int wanted) { return __syncthreads_count(wanted) != 0; }
inline void __syncwarp(unsigned = ~0u) { cuda_emulator::block().meet_warp(0); }

template <class T>
T __shfl_sync(unsigned, T value, int from, int width = 32) {
    const int base = static_cast<int>(cuda_emulator::lane()) & ~(width - 1);
    return cuda_emulator::from_bits<T>(
        cuda_emulator::block().meet_warp(cuda_emulator::to_bits(value))[base + (from & (width - 1))]);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
    const int at = static_cast<int>(cuda_emulator::lane()) & (width - 1);
    return __shfl_sync(mask, value, at < static_cast<int>(by) ? at : at - static_cast<int>(by), width);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
    const int at = static_cast<int>(cuda_emulator::lane()) & (width - 1);
    return __shfl_sync(mask, value, at + static_cast<int>(by) >= width ? at : at + static_cast<int>(by), width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32) {
    return __shfl_sync(mask, value, (static_cast<int>(cuda_emulator::lane()) & (width - 1)) ^ with, width);
}
inline unsigned __ballot_sync(unsigned, int wanted) {
    const std::uint64_t* values = cuda_emulator::block().meet_warp(wanted != 0);
    unsigned bits = 0;
    for (unsigned i = 0; i < 32; ++i) bits |= static_cast<unsigned>(values[i]) << i;
    return bits;
}
inline int __any_sync(unsigned mask, int wanted) { return __ballot_sync(mask, wanted) != 0; }
inline int __all_sync(unsigned mask, int wanted) { return __ballot_sync(mask, wanted) == ~0u; }

template <class T, class V>
T atomicAdd(T* at, V value) {
    return __atomic_fetch_add(at, static_cast<T>(value), __ATOMIC_RELAXED);
}
template <class T, class V>
T atomicOr(T* at, V value) {
    return __atomic_fetch_or(at, static_cast<T>(value), __ATOMIC_RELAXED);
}
template <class T, class V>
T atomicExch(T* at, V value) {
    return __atomic_exchange_n(at, static_cast<T>(value), __ATOMIC_RELAXED);
}
template <class T, class V, class W>
T atomicCAS(T* at, V expected, W value) {
    T seen = static_cast<T>(expected);
    __atomic_compare_exchange_n(at, &seen, static_cast<T>(value), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return seen;
}
template <class T, class V>
T atomicMax(T* at, V value) {
    T seen = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (seen < static_cast<T>(value) &&
           !__atomic_compare_exchange_n(at, &seen, static_cast<T>(value), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return seen;
}
template <class T, class V>
T atomicMin(T* at, V value) {
    T seen = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (seen > static_cast<T>(value) &&
           !__atomic_compare_exchange_n(at, &seen, static_cast<T>(value), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return seen;
}
template <class T>
T __ldcg(const T* at) {
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}
template <class T>
T __ldg(const T* at) {
    return *at;
}
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __nanosleep(unsigned) { std::this_thread::yield(); }

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(unsigned x) { return std::countl_zero(x); }
inline int __clzll(unsigned long long x) { return std::countl_zero(x); }
inline int __ffs(unsigned x) { return x ? std::countr_zero(x) + 1 : 0; }
inline std::uint64_t __umul64hi(std::uint64_t a, std::uint64_t b) {
    const std::uint64_t low_a = a & 0xFFFFFFFFu, high_a = a >> 32, low_b = b & 0xFFFFFFFFu, high_b = b >> 32;
    const std::uint64_t middle = high_a * low_b + (low_a * low_b >> 32);
    return high_a * high_b + (middle >> 32) + ((low_a * high_b + (middle & 0xFFFFFFFFu)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return static_cast<unsigned>((static_cast<std::uint64_t>(high) << 32 | low) >> (by & 31));
}
template <class T>
T min(T a, T b) {
    return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
    return a < b ? b : a;
}
