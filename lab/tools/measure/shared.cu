// Shared memory, barriers, clusters: latency and rate seen from one block.
#include "common.cuh"
#include "table.h"

extern __shared__ __align__(1024) uint8_t smem[];

static __device__ __forceinline__ void clear(int bytes) {
  for (int i = threadIdx.x; i < bytes / 16; i += blockDim.x) ((uint4 *)smem)[i] = make_uint4(0, 0, 0, 0);
  __syncthreads();
}

// Each load's address depends on the last value (which is zero).
#define LDS_LATENCY(NAME, TYPE, WORDS, PTX, OUTS) \
  KERNEL(NAME, 1024) { \
    clear(32768); \
    uint32_t at = shared_address(smem) + threadIdx.x % 32 * WORDS * 4, v[WORDS]; \
    START \
    _Pragma("unroll 1") for (int64_t i = 0; i < a.iterations; i++) { \
      _Pragma("unroll") for (int u = 0; u < 16; u++) { \
        asm volatile(PTX : OUTS : "r"(at) : "memory"); \
        at += v[0]; \
      } \
    } \
    STOP keep(a, at); \
  }
#define OUT1 "=r"(v[0])
#define OUT2 "=r"(v[0]), "=r"(v[1])
#define OUT4 "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
LDS_LATENCY(lds32_latency, uint32_t, 1, "ld.shared.u32 %0, [%1];", OUT1)
LDS_LATENCY(lds64_latency, uint2, 2, "ld.shared.v2.u32 {%0, %1}, [%2];", OUT2)
LDS_LATENCY(lds128_latency, uint4, 4, "ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];", OUT4)
LDS_LATENCY(ldmatrix4_latency, uint4, 4, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];", OUT4)

// Independent loads, volatile: others may be taken out of the loop. p[0]: bytes between neighbouring threads' addresses.
#define LDS_RATE(NAME, WORDS, PTX, OUTS, SUM) \
  KERNEL(NAME, 1024) { \
    clear(65536); \
    uint32_t at = shared_address(smem) + (threadIdx.x * (uint32_t)a.p[0]) % 32768, v[WORDS], sum = 0; \
    START \
    _Pragma("unroll 1") for (int64_t i = 0; i < a.iterations; i++) { \
      _Pragma("unroll") for (int u = 0; u < 16; u++) { \
        asm volatile(PTX : OUTS : "r"(at + u * 1024) : "memory"); \
        sum ^= SUM; \
      } \
    } \
    STOP keep(a, sum); \
  }
LDS_RATE(lds32_rate, 1, "ld.volatile.shared.u32 %0, [%1];", OUT1, v[0])
LDS_RATE(lds64_rate, 2, "ld.volatile.shared.v2.u32 {%0, %1}, [%2];", OUT2, v[0] ^ v[1])
LDS_RATE(lds128_rate, 4, "ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];", OUT4, v[0] ^ v[1] ^ v[2] ^ v[3])
LDS_RATE(ldmatrix1_rate, 1, "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];", OUT1, v[0])
LDS_RATE(ldmatrix2_rate, 2, "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];", OUT2, v[0] ^ v[1])
LDS_RATE(ldmatrix4_rate, 4, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];", OUT4,
         v[0] ^ v[1] ^ v[2] ^ v[3])
LDS_RATE(ldmatrix4_trans_rate, 4, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];", OUT4,
         v[0] ^ v[1] ^ v[2] ^ v[3])

#define STS_RATE(NAME, PTX, INS) \
  KERNEL(NAME, 1024) { \
    clear(65536); \
    uint32_t at = shared_address(smem) + (threadIdx.x * (uint32_t)a.p[0]) % 32768, v = threadIdx.x; \
    START \
    _Pragma("unroll 1") for (int64_t i = 0; i < a.iterations; i++) { \
      _Pragma("unroll") for (int u = 0; u < 16; u++) asm volatile(PTX::"r"(at + u * 1024), INS : "memory"); \
    } \
    STOP \
  }
STS_RATE(sts32_rate, "st.shared.u32 [%0], %1;", "r"(v))
STS_RATE(sts64_rate, "st.shared.v2.u32 [%0], {%1, %1};", "r"(v))
STS_RATE(sts128_rate, "st.shared.v4.u32 [%0], {%1, %1, %1, %1};", "r"(v))
STS_RATE(stmatrix4_rate, "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %1, %1, %1};", "r"(v))

// Another block's shared memory, cluster of blockDim's neighbours.
KERNEL(dsm_latency, 1024) {
  clear(32768);
  uint32_t at = shared_address(smem), rank, size, v;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  uint32_t other = (rank + 1) % size;
  asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(other));
  asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
  at += threadIdx.x % 32 * 4;
  START
#pragma unroll 1
  for (int64_t i = 0; i < a.iterations; i++)
#pragma unroll
    for (int u = 0; u < 16; u++) {
      asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
      at += v;
    }
  STOP
  asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
  keep(a, at);
}
KERNEL(dsm_rate, 1024) {
  clear(65536);
  uint32_t at = shared_address(smem), rank, size, v[4], sum = 0;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  uint32_t other = (rank + 1) % size;
  asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(other));
  asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
  at += threadIdx.x * 16 % 32768;
  START
#pragma unroll 1
  for (int64_t i = 0; i < a.iterations; i++)
#pragma unroll
    for (int u = 0; u < 16; u++) {
      asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : OUT4 : "r"(at + u * 1024) : "memory");
      sum ^= v[0] ^ v[1] ^ v[2] ^ v[3];
    }
  STOP
  asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
  keep(a, sum);
}

// ---- barriers
KERNEL(syncthreads, 1024) {
  START
#pragma unroll 1
  for (int64_t i = 0; i < a.iterations; i++)
#pragma unroll
    for (int u = 0; u < 16; u++) asm volatile("barrier.sync 0;" ::: "memory");
  STOP
}
KERNEL(cluster_sync, 1024) {
  START
#pragma unroll 1
  for (int64_t i = 0; i < a.iterations; i++)
#pragma unroll
    for (int u = 0; u < 16; u++) asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
  STOP
}
KERNEL(cluster_sync_relaxed, 1024) {  // without ordering memory
  START
#pragma unroll 1
  for (int64_t i = 0; i < a.iterations; i++)
#pragma unroll
    for (int u = 0; u < 16; u++) asm volatile("barrier.cluster.arrive.relaxed; barrier.cluster.wait;" ::: "memory");
  STOP
}
KERNEL(mbarrier_arrive, 1024) {  // each arrive completes a phase
  uint32_t bar = shared_address(smem);
  if (threadIdx.x == 0) barrier_init(bar, 1), barrier_fence();
  START
  if (threadIdx.x == 0)
#pragma unroll 1
    for (int64_t i = 0; i < a.iterations; i++)
#pragma unroll
      for (int u = 0; u < 16; u++) barrier_arrive(bar);
  STOP
}
KERNEL(mbarrier_try, 1024) {  // of a phase that is complete
  uint32_t bar = shared_address(smem), sum = 0;
  if (threadIdx.x == 0) barrier_init(bar, 1), barrier_fence();
  START
  if (threadIdx.x == 0)
#pragma unroll 1
    for (int64_t i = 0; i < a.iterations; i++)
#pragma unroll
      for (int u = 0; u < 16; u++) sum += barrier_try(bar, 1);
  STOP
  keep(a, sum);
}
KERNEL(mbarrier_arrive_wait, 1024) {  // one thread arrives, then waits for that phase
  uint32_t bar = shared_address(smem);
  if (threadIdx.x == 0) barrier_init(bar, 1), barrier_fence();
  START
  if (threadIdx.x == 0)
#pragma unroll 1
    for (int64_t i = 0; i < a.iterations; i++)
#pragma unroll
      for (int u = 0; u < 16; u++) {
        barrier_arrive(bar);
        if (!barrier_wait(bar, u & 1)) return;
      }
  STOP
}
KERNEL(mbarrier_arrive_test, 1024) {  // the same with test_wait, which does not suspend the thread
  uint32_t bar = shared_address(smem);
  if (threadIdx.x == 0) barrier_init(bar, 1), barrier_fence();
  START
  if (threadIdx.x == 0)
#pragma unroll 1
    for (int64_t i = 0; i < a.iterations; i++)
#pragma unroll
      for (int u = 0; u < 16; u++) {
        barrier_arrive(bar);
        for (int n = 0; n < 100000 && !barrier_test(bar, u & 1); n++) {}
      }
  STOP
}
KERNEL(mbarrier_ping_pong_test, 64) {
  uint32_t bar = shared_address(smem), w = threadIdx.x / 32;
  if (threadIdx.x == 0) barrier_init(bar, 1), barrier_init(bar + 8, 1), barrier_fence();
  START
#pragma unroll 1
  for (int64_t i = 0; i < a.iterations; i++) {
    if (w == 1)
      for (int n = 0; n < 100000 && !barrier_test(bar, i & 1); n++) {}
    if (threadIdx.x % 32 == 0) barrier_arrive(bar + w * 8);
    if (w == 0)
      for (int n = 0; n < 100000 && !barrier_test(bar + 8, i & 1); n++) {}
  }
  STOP
}
KERNEL(mbarrier_ping_pong, 64) {  // two warps answer each other: one iteration is there and back
  uint32_t bar = shared_address(smem), w = threadIdx.x / 32;
  if (threadIdx.x == 0) barrier_init(bar, 1), barrier_init(bar + 8, 1), barrier_fence();
  START
#pragma unroll 1
  for (int64_t i = 0; i < a.iterations; i++) {
    if (w == 1 && !barrier_wait(bar, i & 1)) return;
    if (threadIdx.x % 32 == 0) barrier_arrive(bar + w * 8);
    if (w == 0 && !barrier_wait(bar + 8, i & 1)) return;
  }
  STOP
}
KERNEL(fence_async, 1024) {
  START
#pragma unroll 1
  for (int64_t i = 0; i < a.iterations; i++)
#pragma unroll
    for (int u = 0; u < 16; u++) async_fence();
  STOP
}
KERNEL(empty, 1024) { record(a, clock_now(), clock_now(), timer_now(), timer_now()); }
KERNEL(nothing, 1024) {}
// Clock cycles per nanosecond, from an edge of the global timer to another at least p[0] ns later.
KERNEL(clock_rate, 32) {
  uint64_t t0 = timer_now(), t1, t2, c1, c2;
  do t1 = timer_now(), c1 = clock_now();
  while (t1 == t0);
  do t2 = timer_now(), c2 = clock_now();
  while (t2 < t1 + (uint64_t)a.p[0]);
  record(a, c1, c2, t1, t2);
}
KERNEL(timer_steps, 32) {  // smallest steps of the global timer
  uint64_t last = timer_now(), smallest = ~0ull, n = 0;
  for (int64_t i = 0; i < a.iterations; i++) {
    uint64_t t = timer_now();
    if (t != last) {
      if (t - last < smallest) smallest = t - last;
      last = t;
      n++;
    }
  }
  a.out[4] = smallest, a.out[5] = n;
  record(a, 0, 0, 0, 0);
}

#define ROW(NAME, WORK) {#NAME, (const void *)NAME, WORK}
extern const Entry shared_kernels[] = {
    ROW(lds32_latency, 16), ROW(lds64_latency, 16), ROW(lds128_latency, 16), ROW(ldmatrix4_latency, 16),
    ROW(lds32_rate, 16), ROW(lds64_rate, 16), ROW(lds128_rate, 16), ROW(ldmatrix1_rate, 16), ROW(ldmatrix2_rate, 16),
    ROW(ldmatrix4_rate, 16), ROW(ldmatrix4_trans_rate, 16), ROW(sts32_rate, 16), ROW(sts64_rate, 16),
    ROW(sts128_rate, 16), ROW(stmatrix4_rate, 16), ROW(dsm_latency, 16), ROW(dsm_rate, 16), ROW(syncthreads, 16),
    ROW(cluster_sync, 16), ROW(mbarrier_arrive, 16), ROW(mbarrier_try, 16), ROW(mbarrier_arrive_wait, 16),
    ROW(mbarrier_ping_pong, 1), ROW(mbarrier_ping_pong_test, 1), ROW(mbarrier_arrive_test, 16),
    ROW(cluster_sync_relaxed, 16), ROW(fence_async, 16), ROW(empty, 1), ROW(nothing, 1), ROW(clock_rate, 1),
    ROW(timer_steps, 1)};
extern const int shared_kernels_count = sizeof(shared_kernels) / sizeof(Entry);
