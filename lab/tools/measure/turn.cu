// wgmma on tf32 with A through registers, as the kernels of cuBLAS have it whose operand does not run along K: four 32-bit
// ld.shared per thread and m64k8 from a tile with 128-byte swizzle, the next step's before this step's products, two
// groups in flight; beside it bulk copies that fill the stages. Cycles for each stage of 32 of K on one SM.
#include <cstdio>
#include "common.cuh"

enum { STAGES = 4, SWIZZLED = 0, SPREAD = 1, NONE = 2, SHARED = 3 };  // how A is read; SHARED: by wgmma itself

#define R8(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])
#define R64(c) R8(c, 0), R8(c, 8), R8(c, 16), R8(c, 24), R8(c, 32), R8(c, 40), R8(c, 48), R8(c, 56)
#define R128(c) R64(c), R8(c, 64), R8(c, 72), R8(c, 80), R8(c, 88), R8(c, 96), R8(c, 104), R8(c, 112), R8(c, 120)

#define FIRST "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SECOND ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// m64nNk8: c += a b, with the words of A in registers (rs) or its tile in shared memory (ss). LIST names the registers of
// C, A0 to A3 and B what follows them.
template <int N> struct Product;
#define PRODUCT(N, LIST, C, A0, A1, A2, A3, B) \
  template <> struct Product<N> { \
    static __device__ __forceinline__ void rs(float *c, const uint32_t *a, uint64_t b) { \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 {" LIST "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " B ", 1, 1, 1;" \
                   : C(c) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
    } \
    static __device__ __forceinline__ void ss(float *c, uint64_t a, uint64_t b) { \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 {" LIST "}, " A0 ", " A1 ", 1, 1, 1;" : C(c) : "l"(a), "l"(b)); \
    } \
  };
PRODUCT(128, FIRST, R64, "%64", "%65", "%66", "%67", "%68")
PRODUCT(256, FIRST SECOND, R128, "%128", "%129", "%130", "%131", "%132")

// The four words of a thread's fragment of m64k8: rows g, g + 8 of its warp's 16, k t, t + 4. A's tile: blocks of 32 rows,
// in each 32 of K, a line of 128 bytes for each K; 128-byte swizzle, or (SPREAD) an order without bank conflicts.
template <int HOW> __device__ __forceinline__ void fragment(uint32_t *a, uint32_t tile, int k) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3, g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int m = 16 * warp + g + 8 * (i & 1), line = 8 * k + t + 4 * (i >> 1);
    uint32_t at = m / 32 * 4096 + line * 128;
    at += HOW == SWIZZLED ? (m % 32 / 4 ^ line % 8) * 16 + m % 4 * 4 : (lane * 4 + 32 * i) % 128;
    if (HOW == SWIZZLED || HOW == SPREAD) asm volatile("ld.shared.b32 %0, [%1];" : "=r"(a[i]) : "r"(tile + at));
  }
}

// GROUPS warp groups, each PARTS of m64 rows and N columns; fill: whether copies fill the stages as they become free.
template <int N, int PARTS, int GROUPS, int HOW>
__global__ void __launch_bounds__(128 * (GROUPS + 1)) turn(uint64_t *out, const char *in, int stages, int fill) {
  extern __shared__ __align__(1024) char shared[];
  constexpr int A = 64 * PARTS * GROUPS * 128, B = N * 128;
  uint32_t base = (shared_address(shared) + 1023) & ~1023u, bar = base + STAGES * (A + B);
  for (int i = threadIdx.x; i < STAGES * (A + B) / 4; i += blockDim.x) ((uint32_t *)(shared + (base - shared_address(shared))))[i] = 0;
  if (!threadIdx.x) {
    for (int s = 0; s < STAGES; s++) { barrier_init(bar + 16 * s, 1); barrier_init(bar + 16 * s + 8, GROUPS); }
    barrier_fence();
  }
  __syncthreads();
  uint64_t begin = clock_now();
  int group = threadIdx.x / 128 - 1;
  if (group < 0) {
    if constexpr (GROUPS == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (!threadIdx.x && fill)
      for (int s = 0; s < stages; s++) {
        uint32_t at = base + s % STAGES * (A + B), full = bar + 16 * (s % STAGES);
        if (s >= STAGES) barrier_wait(full + 8, (s / STAGES - 1) & 1);
        barrier_expect(full, A + B);
        bulk_load(at, in + s % 8 * 65536, A, full);
        bulk_load(at + A, in + s % 8 * 65536 + A, B, full);
      }
  } else {
    if constexpr (GROUPS == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
    float c[PARTS][N / 2] = {};
    uint32_t a[4][PARTS][4] = {};
    for (int s = 0; s < stages; s++) {
      uint32_t at = base + s % STAGES * (A + B), full = bar + 16 * (s % STAGES);
      uint32_t own = at + 64 * PARTS * group * 128;
      if (fill) barrier_wait(full, s / STAGES & 1);
      if (s == 0 && HOW != SHARED)
        for (int p = 0; p < PARTS; p++) fragment<HOW>(a[0][p], own + p * 8192, 0);
#pragma unroll
      for (int k = 0; k < 4; k++) {
        if (HOW != SHARED && (k < 3 || s + 1 < stages)) {
          uint32_t next = k < 3 ? own : base + (s + 1) % STAGES * (A + B) + 64 * PARTS * group * 128;
          if (k == 3 && fill) barrier_wait(bar + 16 * ((s + 1) % STAGES), (s + 1) / STAGES & 1);
#pragma unroll
          for (int p = 0; p < PARTS; p++) fragment<HOW>(a[(k + 1) % 4][p], next + p * 8192, (k + 1) % 4);
        }
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int p = 0; p < PARTS; p++)
          if (HOW == SHARED) Product<N>::ss(c[p], tile_descriptor(own + p * 8192 + 32 * k), tile_descriptor(at + A + 32 * k));
          else Product<N>::rs(c[p], a[k][p], tile_descriptor(at + A + 32 * k));
        asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 2;" ::: "memory");
        if (k == 2 && s && fill && !(threadIdx.x & 127)) barrier_arrive(bar + 16 * ((s - 1) % STAGES) + 8);
      }
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    float sum = 0;
    for (int p = 0; p < PARTS; p++) for (int i = 0; i < N / 2; i++) sum += c[p][i];
    if (sum != 0) out[2] = 1;
  }
  __syncthreads();
  if (!threadIdx.x) { out[0] = begin; out[1] = clock_now(); }
}

template <int N, int PARTS, int GROUPS, int HOW> void go(const char *how, const char *in, uint64_t *out) {
  auto kernel = turn<N, PARTS, GROUPS, HOW>;
  int bytes = STAGES * (64 * PARTS * GROUPS + N) * 128 + 2048;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  for (int fill = 0; fill < 2; fill++) {
    double least = 1e30;
    for (int turn = 0; turn < 5; turn++) {
      double cycles[2];
      for (int i = 0; i < 2; i++) {
        uint64_t host[3] = {};
        cudaMemset(out, 0, 24);
        kernel<<<1, 128 * (GROUPS + 1), bytes>>>(out, in, i ? 4000 : 1000, fill);
        cudaMemcpy(host, out, 24, cudaMemcpyDeviceToHost);
        cycles[i] = double(host[1] - host[0]);
      }
      double each = (cycles[1] - cycles[0]) / 3000;
      least = each < least ? each : least;
    }
    cudaError_t error = cudaGetLastError();
    printf("  \"%d x m64n%d of %d warp groups, A %s%s\": {\"cycles_per_stage\": %.1f, \"cycles_by_products\": %d}%s\n", PARTS, N, GROUPS, how,
           fill ? ", stages filled" : "", least, PARTS * GROUPS * N * 2, error ? cudaGetErrorString(error) : ",");
    fflush(stdout);
  }
}

#define ALL(N, PARTS, GROUPS) \
  go<N, PARTS, GROUPS, SHARED>("in shared memory", in, out); \
  go<N, PARTS, GROUPS, NONE>("in registers", in, out); \
  go<N, PARTS, GROUPS, SWIZZLED>("by ld.shared", in, out); \
  go<N, PARTS, GROUPS, SPREAD>("by ld.shared without bank conflicts", in, out);

int main() {
  char *in;
  uint64_t *out;
  cudaMalloc(&in, 1 << 21);
  cudaMemset(in, 0, 1 << 21);
  cudaMalloc(&out, 64);
  printf("{\n");
  ALL(128, 1, 1)
  ALL(128, 2, 1)
  ALL(128, 1, 2)
  ALL(128, 2, 2)
  ALL(256, 1, 1)
  ALL(256, 1, 2)
  printf("  \"end\": {}\n}\n");
}
