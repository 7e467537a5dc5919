// Rate of FFMA in the inner loop of a product by warps of a block and blocks of an SM: fragments by 128-bit ld.shared.
#include <cstdio>
#include <cuda_runtime.h>
template <int WM, int WN, int TM, int TN>
__global__ void __launch_bounds__(32 * WM * WN) outer(float *out, int steps)
{
    extern __shared__ float s[];
    constexpr int M = WM * 4 * TM, N = WN * 8 * TN, DEPTH = 8;
    for (int i = threadIdx.x; i < (M + N) * DEPTH; i += blockDim.x) s[i] = 1.0f / (i + 1);
    __syncthreads();
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int row = (warp % WM) * 4 + (lane >> 3), col = (warp / WM) * 8 + (lane & 7);
    float acc[TM][TN] = {}, a[2][TM], b[2][TN];
    const float *pa = s + row * 4, *pb = s + M * DEPTH + col * 4;
#define LOAD(at, d) { for (int i = 0; i < TM; i += 4) { float4 v = *(const float4 *)(pa + (d) * M + i * 4 * WM); a[at][i] = v.x; a[at][i+1] = v.y; a[at][i+2] = v.z; a[at][i+3] = v.w; } \
    for (int j = 0; j < TN; j += 4) { float4 v = *(const float4 *)(pb + (d) * N + j * 8 * WN); b[at][j] = v.x; b[at][j+1] = v.y; b[at][j+2] = v.z; b[at][j+3] = v.w; } }
    LOAD(0, 0) LOAD(1, 1)
    for (int t = 0; t < steps; t++) {
        _Pragma("unroll") for (int d = 0; d < DEPTH; d++) {
            asm volatile("" ::: "memory"); LOAD((d + 1) & 1, (d + 1) & 7)
            _Pragma("unroll") for (int i = 0; i < TM; i++)
                _Pragma("unroll") for (int j = 0; j < TN; j++) acc[i][j] = fmaf(a[d & 1][i], b[d & 1][j], acc[i][j]);
        }
        __syncthreads();
    }
    float sum = 0;
    for (int i = 0; i < TM; i++) for (int j = 0; j < TN; j++) sum += acc[i][j];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
template <int WM, int WN, int TM, int TN> void go()
{
    float *out; cudaMalloc(&out, 4 * 132 * 16 * 256);
    int bytes = (WM * 4 * TM + WN * 8 * TN) * 8 * 4, most = 0;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&most, outer<WM, WN, TM, TN>, 32 * WM * WN, bytes);
    cudaEvent_t e0, e1; cudaEventCreate(&e0); cudaEventCreate(&e1);
    cudaFuncAttributes at; cudaFuncGetAttributes(&at, outer<WM, WN, TM, TN>);
    for (int per = 1; per <= most && per <= 6; per++) {
        // the rest of the shared memory is asked for, so that no SM takes more blocks than `per`
        int shared = 227 * 1024 / per - 1024 - 1024; shared = shared / 1024 * 1024;
        cudaFuncSetAttribute(outer<WM, WN, TM, TN>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
        float ms[2], best = 1e9; int steps[2] = {2000, 10000};
        for (int r = 0; r < 4; r++) {
            for (int i = 0; i < 2; i++) { cudaEventRecord(e0); outer<WM, WN, TM, TN><<<132 * per, 32 * WM * WN, shared>>>(out, steps[i]); cudaEventRecord(e1); cudaEventSynchronize(e1); cudaEventElapsedTime(&ms[i], e0, e1); }
            if (ms[1] - ms[0] < best) best = ms[1] - ms[0];
        }
        double cycles = best * 1e-3 * 1980e6;
        printf("\"%dx%d warps, %dx%d per thread, %d blocks per SM\": {\"fma_per_cycle_per_sm\": %.2f, \"registers\": %d, \"spill\": %d},  %s\n", WM, WN, TM, TN, per,
               per * 32.0 * WM * WN * TM * TN * 8 * 8000 / cycles, at.numRegs, (int)at.localSizeBytes, cudaGetErrorString(cudaGetLastError()));
    }
    cudaFree(out);
}
int main()
{
    go<4, 2, 16, 8>(); go<4, 2, 8, 8>(); go<4, 2, 8, 16>(); go<2, 4, 16, 8>(); go<2, 4, 8, 16>();
    go<2, 2, 16, 8>(); go<2, 2, 8, 16>(); go<2, 2, 8, 8>(); go<4, 1, 8, 8>(); go<1, 4, 8, 8>(); go<1, 4, 16, 4>();
    go<2, 2, 8, 4>(); go<1, 2, 8, 4>(); go<1, 2, 8, 8>(); go<1, 4, 16, 8>(); go<4, 1, 16, 8>();
}
