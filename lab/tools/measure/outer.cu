// Rate of FFMA in the inner loop of a product: fragments by 128-bit ld.shared, TM x TN accumulators per thread.
#include <cstdio>
#include <cuda_runtime.h>
template <int TM, int TN, bool SHARED>
__global__ void __launch_bounds__(256) outer(float *out, int steps, long long *cycles)
{
    extern __shared__ float s[];
    constexpr int M = 16 * TM, N = 16 * TN, DEPTH = 8;  // 256 threads as 16 x 16 (warps of 4 x 8)
    for (int i = threadIdx.x; i < (M + N) * DEPTH; i += blockDim.x) s[i] = 1.0f / (i + 1);
    __syncthreads();
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int row = (warp & 3) * 4 + (lane >> 3), col = (warp >> 2) * 8 + (lane & 7);
    float acc[TM][TN] = {}, a[2][TM], b[2][TN];
    const float *pa = s + row * 4, *pb = s + M * DEPTH + col * 4;
#define LOAD(at, d) { for (int i = 0; i < TM; i += 4) { float4 v = *(const float4 *)(pa + (d) * M + i * 16); a[at][i] = v.x; a[at][i+1] = v.y; a[at][i+2] = v.z; a[at][i+3] = v.w; } \
    for (int j = 0; j < TN; j += 4) { float4 v = *(const float4 *)(pb + (d) * N + j * 16); b[at][j] = v.x; b[at][j+1] = v.y; b[at][j+2] = v.z; b[at][j+3] = v.w; } }
    LOAD(0, 0) LOAD(1, 1)
    long long begin = clock64();
    for (int t = 0; t < steps; t++) {
        _Pragma("unroll") for (int d = 0; d < DEPTH; d++) {
            if (SHARED) { asm volatile("" ::: "memory"); LOAD((d + 1) & 1, (d + 1) & 7) }
            _Pragma("unroll") for (int i = 0; i < TM; i++)
                _Pragma("unroll") for (int j = 0; j < TN; j++) acc[i][j] = fmaf(a[d & 1][i], b[d & 1][j], acc[i][j]);
        }
        if (SHARED) __syncthreads();
    }
    long long end = clock64();
    float sum = 0;
    for (int i = 0; i < TM; i++) for (int j = 0; j < TN; j++) sum += acc[i][j];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    if (threadIdx.x == 0) cycles[blockIdx.x] = end - begin;
}
template <int TM, int TN, bool SHARED> void go(const char *name, int per_sm)
{
    float *out; long long *c; cudaMalloc(&out, 4 * 1024 * 256 * 4); cudaMallocManaged(&c, 8 * 1024);
    int bytes = (TM + TN) * 16 * 8 * 4;
    long long t[2];
    int steps[2] = {500, 2500};
    for (int r = 0; r < 2; r++) for (int i = 0; i < 2; i++) { outer<TM, TN, SHARED><<<132 * per_sm, 256, bytes>>>(out, steps[i], c); cudaDeviceSynchronize(); t[i] = c[0]; }
    double per = double(t[1] - t[0]) / 2000;
    printf("\"%s, %d blocks\": {\"fma_per_cycle_per_sm\": %.2f}, %s\n", name, per_sm, per_sm * 256.0 * TM * TN * 8 / per, cudaGetErrorString(cudaGetLastError()));
    cudaFree(out); cudaFree(c);
}
int main()
{
    cudaDeviceProp p; cudaGetDeviceProperties(&p, 0); printf("l2 %d bytes, %s\n", p.l2CacheSize, p.name);
    go<8, 8, false>("8x8, registers", 1);
    go<8, 8, true>("8x8, shared", 1);
    go<16, 8, false>("16x8, registers", 1); go<16, 8, true>("16x8, shared", 1);
    go<8, 16, true>("8x16, shared", 1);
}
