// What L2 gives where several SMs read the same bytes at the same time. Blocks stand in a grid of rows x columns, one on each
// SM; at every step a block takes a chunk that its row shares and one that its column shares into a ring of stages, as the
// tiles of a GEMM do. Blocks of a row are neighbours in launch order ("rows") or blocks of a column are ("columns").
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include "common.cuh"

enum { STAGES = 6, MOST = 24 << 20 };  // MOST: bytes of all chunks together, so that L2 holds them

struct Case { int rows, columns, by_columns, row_bytes, column_bytes, steps, loops; };

// Waits in a loop of two instructions.
static __device__ __forceinline__ void barrier_hold(uint32_t bar, uint32_t parity) {
  asm volatile("{.reg .pred p; HOLD: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra HOLD;}" ::"r"(bar), "r"(parity) : "memory");
}

__global__ void __launch_bounds__(64) stream(const char *in, Case c, uint64_t *out) {
  extern __shared__ __align__(1024) char shared[];
  int id = blockIdx.x, row = c.by_columns ? id % c.rows : id / c.columns, column = c.by_columns ? id / c.rows : id % c.columns;
  uint32_t size = c.row_bytes + c.column_bytes, base = shared_address(shared), bar = base + STAGES * size;
  if (!threadIdx.x) {
    for (int s = 0; s < 2 * STAGES; s++) barrier_init(bar + 8 * s, 1);
    barrier_fence();
  }
  __syncthreads();
  uint64_t begin = timer_now();
  const char *a = in + (size_t)row * c.steps * c.row_bytes;
  const char *b = in + (size_t)c.rows * c.steps * c.row_bytes + (size_t)column * c.steps * c.column_bytes;
  // Counters instead of divisions: the loop of the one thread that asks must not be what limits.
  if (threadIdx.x == 0) {
    for (int i = c.steps * c.loops, k = 0, s = 0, parity = 1; i; i--) {
      uint32_t full = bar + 16 * s, to = base + s * size;
      barrier_hold(full + 8, parity);  // at first at once: no phase has ended
      barrier_expect(full, size);
      bulk_load(to, a + (size_t)k * c.row_bytes, c.row_bytes, full);
      if (c.column_bytes) bulk_load(to + c.row_bytes, b + (size_t)k * c.column_bytes, c.column_bytes, full);
      if (++k == c.steps) k = 0;
      if (++s == STAGES) s = 0, parity ^= 1;
    }
  } else if (threadIdx.x == 32) {
    for (int i = c.steps * c.loops, s = 0, parity = 0; i; i--) {
      barrier_hold(bar + 16 * s, parity);
      barrier_arrive(bar + 16 * s + 8);
      if (++s == STAGES) s = 0, parity ^= 1;
    }
  }
  __syncthreads();
  if (!threadIdx.x) { out[2 * id] = begin; out[2 * id + 1] = timer_now(); }
}

static void check(cudaError_t error) {
  if (error != cudaSuccess) { fprintf(stderr, "%s\n", cudaGetErrorString(error)); exit(1); }
}

// Bytes per second that all blocks receive together: the median of four runs after one that fills L2.
static double rate(const Case &c, const char *in, uint64_t *out) {
  int blocks = c.rows * c.columns;
  std::vector<uint64_t> times(2 * blocks);
  std::vector<double> found;
  for (int run = 0; run < 5; run++) {
    stream<<<blocks, 64, STAGES * (c.row_bytes + c.column_bytes + 16)>>>(in, c, out);
    check(cudaDeviceSynchronize());
    check(cudaMemcpy(times.data(), out, 16 * blocks, cudaMemcpyDeviceToHost));
    uint64_t first = ~0ull, last = 0;
    for (int i = 0; i < blocks; i++) first = std::min(first, times[2 * i]), last = std::max(last, times[2 * i + 1]);
    if (run) found.push_back((double)blocks * (c.row_bytes + c.column_bytes) * c.steps * c.loops / (last - first) * 1e9);
  }
  std::sort(found.begin(), found.end());
  return (found[1] + found[2]) / 2;
}

int main() {
  char *in;
  uint64_t *out;
  check(cudaMalloc(&in, MOST));
  check(cudaMalloc(&out, 16 * 132));
  check(cudaMemset(in, 0, MOST));
  check(cudaFuncSetAttribute(stream, cudaFuncAttributeMaxDynamicSharedMemorySize, 220 << 10));
  const int grids[][2] = {{132, 1}, {66, 2}, {44, 3}, {33, 4}, {26, 5}, {22, 6}, {18, 7}, {14, 9}, {12, 11}, {11, 12}, {9, 14}, {6, 22}, {4, 33}, {2, 66}, {1, 132}};
  const int sizes[][2] = {{32768, 0}, {8192, 24576}, {16384, 16384}, {24576, 8192}};
  bool first = true;
  printf("{\n");
  for (auto &size : sizes)
    for (auto &grid : grids)
      for (int by_columns : {0, 1}) {
        int each = grid[0] * size[0] + grid[1] * size[1], steps = std::min(256, MOST / each);
        Case c{grid[0], grid[1], by_columns, size[0], size[1], steps, 1024 / steps};
        printf("%s  \"%d x %d blocks, row %d, column %d bytes, neighbours in %s\": {\"bytes_per_second\": %.4g}", first ? "" : ",\n",
               c.rows, c.columns, c.row_bytes, c.column_bytes, by_columns ? "columns" : "rows", rate(c, in, out));
        first = false;
      }
  printf("\n}\n");
}
