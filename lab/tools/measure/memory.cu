// L2 and HBM as the SMs see them: loads, stores, and the bulk copy engine (TMA).
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "common.cuh"
#include "table.h"

extern __shared__ __align__(1024) uint8_t smem[];

// The i-th of `lines` places (a power of two), in an order without streams that a prefetcher could follow.
static __device__ __forceinline__ uint32_t scattered(uint32_t i, uint32_t lines) {
  return (i * 2654435761u + 12345u) & (lines - 1);
}

// Dependent 4-byte loads (the last value, zero, is or-ed to the address: one instruction on the path) over `bytes` at `in` (zeros), one every p[0] bytes, starting at place p[1] + block * p[2].
#define CHASE(NAME, OP) \
  KERNEL(NAME, 32) { \
    uint32_t lines = (uint32_t)(a.bytes / a.p[0]), v = 0, first = (uint32_t)(a.p[1] + blockIdx.x * a.p[2]); \
    START \
    _Pragma("unroll 4") for (uint32_t i = 0; i < (uint32_t)a.iterations; i++) { \
      uint64_t at = (uint64_t)a.in + (uint64_t)scattered(first + i, lines) * (uint32_t)a.p[0]; \
      asm volatile("{.reg .b32 l, h; .reg .b64 t; mov.b64 {l, h}, %1; or.b32 l, l, %0; mov.b64 t, {l, h}; " OP \
                   " %0, [t];}" : "+r"(v) : "l"(at) : "memory"); \
    } \
    STOP keep(a, v); \
  }
CHASE(chase_l1, "ld.global.ca.u32")
CHASE(chase_l2, "ld.global.cg.u32")

// One line per launch: `in` + p[0], from every block's SM.
KERNEL(line_latency, 32) {
  const char *at = a.in + a.p[0];
  uint32_t v = 0, sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(at + v) : "memory");
  START
#pragma unroll 4
  for (int64_t i = 0; i < a.iterations; i++)
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(at + v) : "memory");
  STOP
  if (threadIdx.x == 0) a.out[(size_t)blockIdx.x * 8 + 4] = sm;
  keep(a, v);
}

// Which chunk of the footprint comes next. kind 0: the blocks take chunks in turn; 1: every block the same chunks;
// 2: each block walks its own contiguous part.
struct Walk {
  uint32_t at, step, chunks, first;
  __device__ Walk(const Args &a, uint32_t size, int64_t kind) {
    chunks = (uint32_t)(a.bytes / size), first = 0;
    if (kind == 2) chunks /= gridDim.x, first = blockIdx.x * chunks;
    at = kind == 0 ? blockIdx.x % chunks : 0;
    step = kind == 0 ? gridDim.x % chunks : 0;
    if (step == 0) step = 1;
  }
  __device__ __forceinline__ uint32_t next() {
    uint32_t now = first + at;
    at += step;
    if (at >= chunks) at -= chunks;
    return now;
  }
};

// Streams: `iterations` chunks per block of blockDim * 16 * 8 bytes; p[0]: kind of walk.
KERNEL(ldg_read, 1024) {
  uint32_t size = blockDim.x * 128, sum = 0;
  uint64_t row = blockDim.x * 16;
  Walk walk(a, size, a.p[0]);
  START
#pragma unroll 1
  for (int64_t i = 0; i < a.iterations; i++) {
    const char *at = a.in + (uint64_t)walk.next() * size + threadIdx.x * 16;
    uint4 v[8];
#define OUT(U) "=r"(v[U].x), "=r"(v[U].y), "=r"(v[U].z), "=r"(v[U].w)
    // One statement, so that all eight are under way before the first is used.
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%32];\n\tld.global.cg.v4.u32 {%4, %5, %6, %7}, [%33];\n\t"
                 "ld.global.cg.v4.u32 {%8, %9, %10, %11}, [%34];\n\tld.global.cg.v4.u32 {%12, %13, %14, %15}, [%35];\n\t"
                 "ld.global.cg.v4.u32 {%16, %17, %18, %19}, [%36];\n\tld.global.cg.v4.u32 {%20, %21, %22, %23}, [%37];\n\t"
                 "ld.global.cg.v4.u32 {%24, %25, %26, %27}, [%38];\n\tld.global.cg.v4.u32 {%28, %29, %30, %31}, [%39];"
                 : OUT(0), OUT(1), OUT(2), OUT(3), OUT(4), OUT(5), OUT(6), OUT(7)
                 : "l"(at), "l"(at + row), "l"(at + 2 * row), "l"(at + 3 * row), "l"(at + 4 * row), "l"(at + 5 * row),
                   "l"(at + 6 * row), "l"(at + 7 * row));
#pragma unroll
    for (int u = 0; u < 8; u++) sum ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  STOP
  keep(a, sum);
}
KERNEL(stg_write, 1024) {
  uint32_t size = blockDim.x * 128;
  Walk walk(a, size, a.p[0]);
  uint4 v = make_uint4(threadIdx.x, 1, 2, 3);
  START
#pragma unroll 1
  for (int64_t i = 0; i < a.iterations; i++) {
    char *at = a.to + (uint64_t)walk.next() * size + threadIdx.x * 16;
#pragma unroll
    for (int u = 0; u < 8; u++) *(uint4 *)(at + (uint64_t)u * blockDim.x * 16) = v;
  }
  STOP
}
KERNEL(copy, 1024) {
  uint32_t size = blockDim.x * 128;
  Walk walk(a, size, a.p[0]);
  START
#pragma unroll 1
  for (int64_t i = 0; i < a.iterations; i++) {
    uint64_t off = (uint64_t)walk.next() * size + threadIdx.x * 16;
    uint4 v[8];
#pragma unroll
    for (int u = 0; u < 8; u++) v[u] = __ldcs((const uint4 *)(a.in + off + (uint64_t)u * blockDim.x * 16));
#pragma unroll
    for (int u = 0; u < 8; u++) __stcs((uint4 *)(a.to + off + (uint64_t)u * blockDim.x * 16), v[u]);
  }
  STOP
}

// TMA. Every warp of the block has a ring of its own: p[0] bytes a transfer, p[1] transfers in flight (stages), p[2]:
// kind of walk, whose "blocks" here are the rings. One iteration is one transfer of each ring.
#define RING_SETUP \
  uint32_t warp = threadIdx.x / 32, base = shared_address(smem) + warp * 64, s = 0, parity = 0; \
  uint32_t bytes = (uint32_t)a.p[0], stages = (uint32_t)a.p[1]; \
  uint32_t data = ((shared_address(smem) + 2047) & ~1023u) + warp * stages * bytes; \
  if (threadIdx.x % 32 == 0) { \
    for (uint32_t k = 0; k < stages; k++) barrier_init(base + k * 8, 1); \
    barrier_fence(); \
  } \
  START
#define RING_LOOP \
  if (threadIdx.x % 32 == 0) { \
    for (uint32_t k = 0; k < stages && k < a.iterations; k++) load(k); \
    _Pragma("unroll 1") for (int64_t i = 0; i < a.iterations; i++) { \
      if (!barrier_wait(base + s * 8, parity)) return; \
      if (i + stages < a.iterations) load(s); \
      if (++s == stages) s = 0, parity ^= 1; \
    } \
  } \
  STOP
KERNEL(tma_ring, 256) {
  RING_SETUP
  uint32_t rings = blockDim.x / 32 * gridDim.x, ring = blockIdx.x * (blockDim.x / 32) + warp;
  uint32_t chunks = (uint32_t)(a.bytes / bytes), step = a.p[2] == 1 ? blockDim.x / 32 : rings;
  uint32_t at = (a.p[2] == 1 ? warp : ring) % chunks;
  step %= chunks;
  if (step == 0) step = 1;
  auto load = [&](uint32_t k) {
    barrier_expect(base + k * 8, bytes);
    bulk_load(data + k * bytes, a.in + (uint64_t)at * bytes, bytes, base + k * 8);
    at += step;
    if (at >= chunks) at -= chunks;
  };
  RING_LOOP
}
// The same with boxes of 64 two-byte columns (128-byte swizzle) and p[3] rows of a matrix of p[4] columns, p[5] rows;
// a ring walks along the columns of its own row panel (p[2] = 0), or every block's along the same (p[2] = 1).
KERNEL(tma_tensor_ring, 256) {
  RING_SETUP
  uint32_t warps = blockDim.x / 32, across = (uint32_t)a.p[4] / 64, panels = (uint32_t)(a.p[5] / a.p[3]);
  uint32_t x = 0, panel = ((a.p[2] == 1 ? 0 : blockIdx.x * warps) + warp) % panels;
  uint32_t next = (a.p[2] == 1 ? warps : gridDim.x * warps) % panels;
  auto load = [&](uint32_t k) {
    barrier_expect(base + k * 8, bytes);
    tensor_load(data + k * bytes, &map, x * 64, panel * (uint32_t)a.p[3], base + k * 8);
    if (++x == across) {
      x = 0, panel += next;
      if (panel >= panels) panel -= panels;
    }
  };
  RING_LOOP
}
// One transfer of p[0] bytes at a time, scattered over the footprint at multiples of p[1], from place p[2] on.
KERNEL(tma_latency, 32) {
  uint32_t base = shared_address(smem), lines = (uint32_t)(a.bytes / a.p[1]);
  if (threadIdx.x == 0) barrier_init(base, 1), barrier_fence();
  START
  if (threadIdx.x == 0)
#pragma unroll 1
    for (uint32_t i = 0; i < (uint32_t)a.iterations; i++) {
      barrier_expect(base, (uint32_t)a.p[0]);
      const char *at = a.in + (uint64_t)scattered((uint32_t)a.p[2] + i, lines) * a.p[1];
      bulk_load(base + 1024, at, (uint32_t)a.p[0], base);
      if (!barrier_wait(base, i & 1)) return;
    }
  STOP
}
KERNEL(tma_tensor_latency, 32) {  // boxes of p[0] bytes, 64 columns, p[3] rows of a matrix of p[4] columns, p[5] rows
  uint32_t base = shared_address(smem), data = (base + 2047) & ~1023u;
  uint32_t across = (uint32_t)a.p[4] / 64, panels = (uint32_t)(a.p[5] / a.p[3]);
  if (threadIdx.x == 0) barrier_init(base, 1), barrier_fence();
  START
  if (threadIdx.x == 0)
#pragma unroll 1
    for (uint32_t i = 0; i < (uint32_t)a.iterations; i++) {
      uint32_t place = scattered((uint32_t)a.p[1] + i, across * panels);
      barrier_expect(base, (uint32_t)a.p[0]);
      tensor_load(data, &map, place % across * 64, place / across * (uint32_t)a.p[3], base);
      if (!barrier_wait(base, i & 1)) return;
    }
  STOP
}
// `iterations` transfers of p[0] bytes issued at once; out[4]: cycles until the last was issued.
KERNEL(tma_issue, 32) {
  uint32_t base = shared_address(smem), n = (uint32_t)a.iterations;
  if (threadIdx.x == 0) barrier_init(base, 1), barrier_fence();
  START
  uint64_t issued = 0;
  if (threadIdx.x == 0) {
    barrier_expect(base, n * (uint32_t)a.p[0]);
#pragma unroll 4
    for (uint32_t i = 0; i < n; i++) bulk_load(base + 1024, a.in + i % 64 * a.p[0], (uint32_t)a.p[0], base);
    issued = clock_now() - clock0;
    barrier_wait(base, 0);
    a.out[(size_t)blockIdx.x * 8 + 4] = issued;
  }
  STOP
}
// The same by an elected lane; every warp issues as many, to its own barrier.
KERNEL(tma_issue_elected, 256) {
  uint32_t bar = shared_address(smem) + threadIdx.x / 32 * 8, n = (uint32_t)a.iterations, bytes = (uint32_t)a.p[0];
  uint32_t to = shared_address(smem) + 1024;
  if (threadIdx.x % 32 == 0) barrier_init(bar, 1), barrier_fence();
  START
  if (threadIdx.x % 32 == 0) barrier_expect(bar, n * bytes);
  __syncwarp();
#pragma unroll 8
  for (uint32_t i = 0; i < n; i++) bulk_load_elected(to, a.in + i % 64 * bytes, bytes, bar);
  uint64_t issued = clock_now() - clock0;
  barrier_wait(bar, 0);
  STOP
  if (threadIdx.x == 0) a.out[(size_t)blockIdx.x * 8 + 4] = issued;
}
KERNEL(tma_store_ring, 128) {  // p[0] bytes a transfer, four in flight
  uint32_t base = shared_address(smem), bytes = (uint32_t)a.p[0];
  Walk walk(a, bytes, a.p[2]);
  START
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (int64_t i = 0; i < a.iterations; i++) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                   ::"l"(a.to + (uint64_t)walk.next() * bytes), "r"(base + 1024), "r"(bytes) : "memory");
      asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 3;" ::: "memory");
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
  STOP
}
KERNEL(atomic_latency, 32) {
  uint32_t v = 0;
  START
#pragma unroll 4
  for (int64_t i = 0; i < a.iterations; i++)
    asm volatile("atom.global.add.u32 %0, [%1], 0;" : "=r"(v) : "l"(a.to + v) : "memory");
  STOP
  keep(a, v);
}

// ---- operands. p[0]: 0 zeros, 1 fp16, 2 bf16, 3 fp32, 4 e4m3, 5 fp64 (normal, deviation 1), 6 random bits.
static __device__ __forceinline__ uint32_t hash(uint64_t x) {
  x ^= x >> 31; x *= 0x7fb5d329728ea185ull; x ^= x >> 27; x *= 0x81dadef4bc2dd44dull; x ^= x >> 33;
  return (uint32_t)x;
}
static __device__ float normal(uint64_t i) {
  float u = (hash(2 * i) + 1.0f) * 2.3283064e-10f, v = hash(2 * i + 1) * 2.3283064e-10f;
  return sqrtf(-2.0f * logf(u)) * cosf(6.2831853f * v);
}
KERNEL(fill, 1024) {
  uint64_t n = a.bytes / 8, stride = (uint64_t)gridDim.x * blockDim.x;
  for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    uint64_t word = 0;
    switch (a.p[0]) {
      case 1: for (int j = 0; j < 4; j++) word |= (uint64_t)__half_as_ushort(__float2half(normal(i * 4 + j))) << 16 * j;
        break;
      case 2:
        for (int j = 0; j < 4; j++)
          word |= (uint64_t)__bfloat16_as_ushort(__float2bfloat16(normal(i * 4 + j))) << 16 * j;
        break;
      case 3: for (int j = 0; j < 2; j++) word |= (uint64_t)__float_as_uint(normal(i * 2 + j)) << 32 * j; break;
      case 4:
        for (int j = 0; j < 8; j++)
          word |= (uint64_t)__nv_cvt_float_to_fp8(normal(i * 8 + j), __NV_SATFINITE, __NV_E4M3) << 8 * j;
        break;
      case 5: word = (uint64_t)__double_as_longlong((double)normal(i) + 1e-9 * normal(i + n)); break;
      case 6: word = (uint64_t)hash(2 * i) << 32 | hash(2 * i + 1); break;
    }
    ((uint64_t *)a.to)[i] = word;
  }
}

#define ROW(NAME, WORK) {#NAME, (const void *)NAME, WORK}
extern const Entry memory_kernels[] = {
    ROW(chase_l1, 1), ROW(chase_l2, 1), ROW(line_latency, 1), ROW(ldg_read, 1), ROW(stg_write, 1), ROW(copy, 1),
    ROW(tma_ring, 1), ROW(tma_tensor_ring, 1), ROW(tma_latency, 1),
    ROW(tma_tensor_latency, 1), ROW(tma_issue, 1), ROW(tma_issue_elected, 1), ROW(tma_store_ring, 1), ROW(atomic_latency, 1), ROW(fill, 1)};
extern const int memory_kernels_count = sizeof(memory_kernels) / sizeof(Entry);
