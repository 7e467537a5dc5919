// What every kernel of the microbenchmarks shares: its arguments, its clocks, barriers and copies as PTX has them.
#pragma once
#include <cstdint>
#include <cuda.h>
#include <cuda_runtime.h>

struct Args {
  uint64_t *out;        // 8 words per block: clock at start, at end, global timer (ns) at start, at end, 4 of its own
  char *in, *to;        // operands or source; destination
  int64_t iterations;
  int64_t bytes;        // footprint
  int64_t p[8];         // the kernel's own parameters
};

#define KERNEL(NAME, THREADS) \
  extern "C" __global__ void __launch_bounds__(THREADS) NAME(const Args a, const __grid_constant__ CUtensorMap map)

__device__ __forceinline__ uint64_t clock_now() {
  uint64_t t;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(t)::"memory");
  return t;
}
__device__ __forceinline__ uint64_t timer_now() {
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
  return t;
}

// START and STOP stand where all threads of the block pass; what lies between is timed by thread 0. It reads the
// clocks before the barrier that lets the others go: after it, its warp may get no issue slot until they are done.
#define START \
  __syncthreads(); \
  uint64_t timer0 = timer_now(), clock0 = clock_now(); \
  __syncthreads();
#define STOP \
  __syncthreads(); \
  record(a, clock0, clock_now(), timer0, timer_now());

__device__ __forceinline__ void record(const Args &a, uint64_t c0, uint64_t c1, uint64_t t0, uint64_t t1) {
  if (threadIdx.x) return;
  uint64_t *o = a.out + (size_t)blockIdx.x * 8;
  o[0] = c0; o[1] = c1; o[2] = t0; o[3] = t1;
}
// Keeps a value alive; never stores, since no host passes this parameter.
__device__ __forceinline__ void keep(const Args &a, uint32_t value) {
  if (a.p[7] == 0x7fffffff12345678) a.out[0] = value;
}

__device__ __forceinline__ uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void barrier_init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ bool barrier_try(uint32_t bar, uint32_t parity) {
  uint32_t done;
  asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
               : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  return done;
}
__device__ __forceinline__ bool barrier_test(uint32_t bar, uint32_t parity) {
  uint32_t done;
  asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
               : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  return done;
}
// Gives up after many tries: a benchmark with a mistake must end, not hang.
__device__ __forceinline__ bool barrier_wait(uint32_t bar, uint32_t parity) {
  for (int i = 0; i < 20000; i++)
    if (barrier_try(bar, parity)) return true;
  return false;
}
__device__ __forceinline__ void bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(bar) : "memory");
}
// The same by one lane of a warp that runs together: the compiler then needs no loop over lanes.
__device__ __forceinline__ void bulk_load_elected(uint32_t to, const void *from, uint32_t bytes, uint32_t bar) {
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff;"
               "@p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];}" ::"r"(to),
               "l"(from), "r"(bytes), "r"(bar) : "memory");
}
__device__ __forceinline__ void tensor_load(uint32_t to, const CUtensorMap *map, int x, int y, uint32_t bar) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
               ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(bar) : "memory");
}
__device__ __forceinline__ void async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Descriptor of a K-major tile of 128-byte rows, 128-byte swizzle: eight rows are 1024 bytes (PTX, wgmma descriptors).
__device__ __forceinline__ uint64_t tile_descriptor(uint32_t address) {
  return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}
