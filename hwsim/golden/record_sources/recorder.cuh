// Fragments, shared-memory tiles and the C interface of the recorder. The kernels themselves, one per matrix
// instruction, are written by generate.py from its table and include this file.
//
// Memory of one case: a is m rows of k codes, b is n rows of k codes (the columns of B), c and d are m rows of n
// codes. Codes take the storage width of their format; 4- and 6-bit formats one byte each.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

namespace record {

// Lane of the warp, its group of four and its place in the group: how PTX states the fragments of mma.sync.
__device__ __forceinline__ int lane() { return threadIdx.x & 31; }
__device__ __forceinline__ int group() { return lane() >> 2; }
__device__ __forceinline__ int place() { return lane() & 3; }

// A fragment of `REGS` words: word `place` of every 16-byte (fp64: 32-byte) chunk of a row. In a 16-row tile
// registers alternate between the rows `group` and `group + 8`; WORDS is the length of a row.
template <int ROWS, int WORDS, int REGS, typename W>
__device__ __forceinline__ void load_a(W (&r)[REGS], const W* a) {
#pragma unroll
  for (int i = 0; i < REGS; i++) {
    int row = group() + (ROWS == 16 ? 8 * (i & 1) : 0), chunk = ROWS == 16 ? i >> 1 : i;
    r[i] = a[row * WORDS + chunk * 4 + place()];
  }
}

template <int WORDS, int REGS, typename W>
__device__ __forceinline__ void load_b(W (&r)[REGS], const W* b) {
#pragma unroll
  for (int i = 0; i < REGS; i++) r[i] = b[group() * WORDS + i * 4 + place()];
}

// Word of the accumulator tile that register i of this lane holds; N columns, one word per element (or per two
// of 16 bits: HALF). Eight columns after eight columns, rows `group` and `group + 8` within each.
template <int N, bool HALF>
__device__ __forceinline__ int c_word(int i) {
  if (HALF) return (group() + 8 * (i & 1)) * (N / 2) + (i >> 1) * 4 + place();
  return (group() + 8 * ((i >> 1) & 1)) * N + (i >> 2) * 8 + place() * 2 + (i & 1);
}

template <int N, bool HALF, int REGS, typename W>
__device__ __forceinline__ void load_c(W (&r)[REGS], const W* c) {
#pragma unroll
  for (int i = 0; i < REGS; i++) r[i] = c[c_word<N, HALF>(i)];
}

template <int N, bool HALF, int REGS, typename W>
__device__ __forceinline__ void store_d(W* d, const W (&r)[REGS]) {
#pragma unroll
  for (int i = 0; i < REGS; i++) d[c_word<N, HALF>(i)] = r[i];
}

// mma.m8n8k4 on fp16 runs four times per warp, once by each pair of quads (lanes 4q.. and 16 + 4q..). Thread t of
// the eight holds row t of A, column t of B; of an fp32 accumulator the elements below, of an fp16 one row t.
__device__ __forceinline__ int quad_pair() { return (lane() & 15) >> 2; }
__device__ __forceinline__ int pair_thread() { return (lane() & 3) + (lane() >> 4) * 4; }
template <bool HALF>
__device__ __forceinline__ int pair_c_word(int i) {
  int t = pair_thread();
  if (HALF) return t * 4 + i;
  return ((t & 1) + (i & 2) + (t & 4)) * 8 + (i & 1) + (t & 2) + (i & 4);
}

// A row-major tile of 32-byte rows, laid out for the matrix descriptors without swizzle: cores of 8 rows x 16
// bytes, contiguous; the two cores of a row block follow one another, then the next 8 rows.
__device__ __forceinline__ void tile_to_shared(uint32_t* shared, const uint32_t* tile, int rows) {
  for (int i = threadIdx.x; i < rows * 8; i += blockDim.x) {
    int row = i >> 3, word = i & 7;
    shared[(row >> 3) * 64 + (word >> 2) * 32 + (row & 7) * 4 + (word & 3)] = tile[i];
  }
}

// The same for formats of 4 or 6 bits, one code per byte in memory. tcgen05 wants 16 elements packed at the start
// of every 16 bytes, padding behind them.
__device__ __forceinline__ void narrow_to_shared(uint32_t* shared, const uint8_t* tile, int rows, int bits) {
  for (int i = threadIdx.x; i < rows * 2; i += blockDim.x) {
    int row = i >> 1, core = i & 1;
    uint32_t words[4] = {0, 0, 0, 0};
    for (int k = 0; k < 16; k++) {
      uint64_t code = (uint64_t)(tile[row * 32 + core * 16 + k] & ((1 << bits) - 1)) << (k * bits & 31);
      words[k * bits >> 5] |= (uint32_t)code;
      if (code >> 32) words[(k * bits >> 5) + 1] |= (uint32_t)(code >> 32);
    }
    for (int w = 0; w < 4; w++) shared[(row >> 3) * 64 + core * 32 + (row & 7) * 4 + w] = words[w];
  }
}

// Matrix descriptor of such a tile: 128 bytes from one core to the next in k, 256 to the next 8 rows.
__device__ __forceinline__ uint64_t descriptor(const void* tile) {
  uint64_t address = (uint64_t)__cvta_generic_to_shared(tile);
  return ((address & 0x3FFFF) >> 4) | ((uint64_t)(128 >> 4) << 16) | ((uint64_t)(256 >> 4) << 32);
}

__device__ __forceinline__ void shared_written() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  __syncthreads();
}

typedef void (*Kernel)(const void* a, const void* b, const void* c, void* d, int cases, int scale_d);

// What an instruction needs: bytes of one case, threads of a block, cases that a block runs.
struct Instruction {
  const char* name;
  Kernel kernel;
  int m, n, k;
  size_t a_bytes, b_bytes, c_bytes, d_bytes;
  int threads, cases_per_block, largest_scale_d;
};

extern const Instruction table[];
extern const int table_size;

struct Buffers {
  char* pointer[4] = {nullptr, nullptr, nullptr, nullptr};
  size_t bytes[4] = {0, 0, 0, 0};
  cudaError_t hold(int i, size_t wanted) {
    if (bytes[i] >= wanted) return cudaSuccess;
    cudaFree(pointer[i]);
    pointer[i] = nullptr;
    bytes[i] = 0;
    cudaError_t error = cudaMalloc(&pointer[i], wanted);
    if (error == cudaSuccess) bytes[i] = wanted;
    return error;
  }
};

}  // namespace record

// The C interface. Not for several threads at once.
extern "C" {
int record_count() { return record::table_size; }

const char* record_name(int i) { return i < 0 || i >= record::table_size ? nullptr : record::table[i].name; }

// m, n, k, bytes of a case of a, b, c, d, largest scale-input-d.
int record_shape(int i, int64_t* out) {
  if (i < 0 || i >= record::table_size) return -1;
  const record::Instruction& t = record::table[i];
  int64_t all[8] = {t.m, t.n, t.k, (int64_t)t.a_bytes, (int64_t)t.b_bytes, (int64_t)t.c_bytes, (int64_t)t.d_bytes,
                    t.largest_scale_d};
  memcpy(out, all, sizeof all);
  return 0;
}

// Name of the GPU; numbers: compute capability * 10, CUDA version of the driver and of the runtime.
int record_device(char* name, int length, int* numbers) {
  cudaDeviceProp properties;
  int error = (int)cudaGetDeviceProperties(&properties, 0);
  if (error) return error;
  snprintf(name, length, "%s", properties.name);
  numbers[0] = properties.major * 10 + properties.minor;
  error = (int)cudaDriverGetVersion(&numbers[1]);
  return error ? error : (int)cudaRuntimeGetVersion(&numbers[2]);
}

const char* record_error(int code) { return cudaGetErrorString((cudaError_t)code); }

// Host arrays in and out. Returns 0, -1 for a bad index or scale, or a CUDA error.
int record_run(int i, const void* a, const void* b, const void* c, void* d, int64_t cases, int scale_d) {
  static record::Buffers held;
  if (i < 0 || i >= record::table_size || cases < 0) return -1;
  const record::Instruction& t = record::table[i];
  if (scale_d < 0 || scale_d > t.largest_scale_d) return -1;
  const char* in[3] = {(const char*)a, (const char*)b, (const char*)c};
  const size_t bytes[4] = {t.a_bytes, t.b_bytes, t.c_bytes, t.d_bytes};
  int64_t most = (int64_t)((size_t)1 << 28) / (int64_t)(t.a_bytes + t.b_bytes + t.c_bytes + t.d_bytes);
  if (most > 1 << 20) most = 1 << 20;
  for (int64_t first = 0; first < cases; first += most) {
    int64_t count = cases - first < most ? cases - first : most;
    cudaError_t error = cudaSuccess;
    for (int x = 0; x < 4; x++)
      if ((error = held.hold(x, bytes[x] * count))) return (int)error;
    for (int x = 0; x < 3; x++)
      if ((error = cudaMemcpy(held.pointer[x], in[x] + bytes[x] * first, bytes[x] * count, cudaMemcpyHostToDevice)))
        return (int)error;
    int blocks = (int)((count + t.cases_per_block - 1) / t.cases_per_block);
    t.kernel<<<blocks, t.threads>>>(held.pointer[0], held.pointer[1], held.pointer[2], held.pointer[3], (int)count,
                                    scale_d);
    if ((error = cudaGetLastError())) return (int)error;
    if ((error = cudaMemcpy((char*)d + bytes[3] * first, held.pointer[3], bytes[3] * count, cudaMemcpyDeviceToHost)))
      return (int)error;
  }
  return 0;
}
}
