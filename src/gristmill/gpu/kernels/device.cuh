// What all kernels share: types, shared memory, and the barrier of a cooperative launch.
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
#ifdef GRISTMILL_CUDA_EMULATOR
using u64 = std::uint64_t;
#define GRISTMILL_UNROLL
#else
using u64 = unsigned long long;
#define GRISTMILL_UNROLL _Pragma("unroll")
#endif

namespace gristmill::gpu {

constexpr u32 kAllLanes = 0xffffffffu;

#ifdef GRISTMILL_CUDA_EMULATOR
inline u8* dynamic_shared() { return static_cast<u8*>(cuda_emulator::block().shared()); }
inline u32 load_acquire(const u32* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
inline u64 load_acquire(const u64* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
#else
__device__ __forceinline__ u8* dynamic_shared() {
    extern __shared__ uint4 shared_memory[];
    return reinterpret_cast<u8*>(shared_memory);
}
__device__ __forceinline__ u32 load_acquire(const u32* at) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}
__device__ __forceinline__ u64 load_acquire(const u64* at) {
    u64 value;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}
#endif

__device__ __forceinline__ u32 lane_of_thread() { return threadIdx.x & 31; }

// A barrier of all blocks of a cooperative launch. `arrived` is 0 when the launch starts, and is never reset.
class GridBarrier {
  public:
    __device__ explicit GridBarrier(u32* arrived) : arrived_(arrived) {}

    __device__ void wait() {
        arrive();
        await();
    }

    // Between arrive() and await(), a block neither reads what other blocks write, nor writes what they read.
    __device__ void arrive() {
        __syncthreads();
        target_ += gridDim.x;
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(arrived_, 1u);
        }
    }
    __device__ void await() {
        if (threadIdx.x == 0) {
            while (load_acquire(arrived_) < target_) __nanosleep(20);
            __threadfence();
        }
        __syncthreads();
    }

  private:
    u32* arrived_;
    u32 target_ = 0;
};

// Hands out the next places of a list in shared memory to the threads that want one. All lanes of the warp call this.
__device__ __forceinline__ u32 place_in_block(bool wants, u32* num) {
    const u32 wanting = __ballot_sync(kAllLanes, wants);
    if (!wanting) return 0;
    u32 first = 0;
    if (lane_of_thread() == 0) first = atomicAdd(num, static_cast<u32>(__popc(wanting)));
    return __shfl_sync(kAllLanes, first, 0) + __popc(wanting & ((1u << lane_of_thread()) - 1));
}

// The sum of the values of the lower lanes; `total` becomes the sum of all lanes.
__device__ __forceinline__ u32 sum_before_in_warp(u32 value, u32& total) {
    u32 sum = value;
    for (u32 by = 1; by < 32; by *= 2) {
        const u32 other = __shfl_up_sync(kAllLanes, sum, by);
        if (lane_of_thread() >= by) sum += other;
    }
    total = __shfl_sync(kAllLanes, sum, 31);
    return sum - value;
}

// The same for the threads of a block. `scratch` has room for 33 numbers in shared memory.
__device__ inline u32 sum_before_in_block(u32 value, u32& total, u32* scratch) {
    const u32 warp = threadIdx.x / 32, num_warps = blockDim.x / 32;
    u32 warp_total;
    const u32 before = sum_before_in_warp(value, warp_total);
    if (lane_of_thread() == 0) scratch[warp] = warp_total;
    __syncthreads();
    if (warp == 0) {
        u32 sum;
        const u32 mine = lane_of_thread() < num_warps ? scratch[lane_of_thread()] : 0;
        const u32 earlier = sum_before_in_warp(mine, sum);
        scratch[lane_of_thread()] = earlier;
        if (lane_of_thread() == 0) scratch[32] = sum;
    }
    __syncthreads();
    const u32 result = scratch[warp] + before;
    total = scratch[32];
    __syncthreads();
    return result;
}

}  // namespace gristmill::gpu
