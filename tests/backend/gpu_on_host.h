/* What CUDA's sources need, for a C++ compiler of the host: threads in turn until they meet, roundings by the host's.
 *
 * It knows CUDA's names and no kernel.
 */
#pragma once
#include <cfenv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ucontext.h>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __shared__
#define __align__(x) __attribute__((aligned(x)))
struct double2 { double x, y; } __align__(16);
struct float2 { float x, y; } __align__(8);
struct uint2 { unsigned x, y; } __align__(8);
struct int2 { int x, y; } __align__(8);
struct int4 { int x, y, z, w; } __align__(16);
struct uint4 { unsigned x, y, z, w; } __align__(16);

template <class T> static T max(T a, T b) { return a > b ? a : b; }
template <class T, class F> static T bits_as(F from)
{
    T to;
    static_assert(sizeof to == sizeof from);
    memcpy(&to, &from, sizeof to);
    return to;
}
static uint32_t __float_as_uint(float x) { return bits_as<uint32_t>(x); }
static float __uint_as_float(uint32_t x) { return bits_as<float>(x); }
static long long __double_as_longlong(double x) { return bits_as<long long>(x); }
static double __longlong_as_double(long long x) { return bits_as<double>(x); }
static int __double2hiint(double x) { return (int)(bits_as<uint64_t>(x) >> 32); }
static int __double2loint(double x) { return (int)bits_as<uint64_t>(x); }
static double __hiloint2double(int high, int low) { return bits_as<double>((uint64_t)(uint32_t)high << 32 | (uint32_t)low); }

template <int MODE> __noinline__ static double rounded_fma(volatile double a, volatile double b, volatile double c)
{
    if (MODE != FE_TONEAREST)
        fesetround(MODE);
    volatile double result = std::fma(a, b, c);
    if (MODE != FE_TONEAREST)
        fesetround(FE_TONEAREST);
    return result;
}
static double __fma_rn(double a, double b, double c) { return rounded_fma<FE_TONEAREST>(a, b, c); }
static double __fma_ru(double a, double b, double c) { return rounded_fma<FE_UPWARD>(a, b, c); }
static double __fma_rd(double a, double b, double c) { return rounded_fma<FE_DOWNWARD>(a, b, c); }
static double __dadd_rn(double a, double b) { return a + b; }
static double __dadd_ru(double a, double b) { return __fma_ru(a, 1, b); }
static double __dadd_rd(double a, double b) { return __fma_rd(a, 1, b); }
static double __dsub_rn(double a, double b) { return a - b; }
static double __dmul_rn(double a, double b) { return a * b; }
static float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
static float __fmul_rn(float a, float b) { return a * b; }
static float __fadd_rn(float a, float b) { return a + b; }
static float __fsub_rn(float a, float b) { return a - b; }
static float __double2float_rn(double x) { return (float)x; }
static float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
static float mul_rn_ftz(float a, float b) { return flushed(flushed(a) * flushed(b)); }
static float add_rn_ftz(float a, float b) { return flushed(flushed(a) + flushed(b)); }

static uint32_t add_max(uint32_t a, uint32_t b, uint32_t c)
{
    return (uint16_t)max((int16_t)(uint16_t)(a + b), (int16_t)(uint16_t)c);
}
static uint32_t __viaddmax_s16x2(uint32_t a, uint32_t b, uint32_t c)
{
    return add_max(a, b, c) | add_max(a >> 16, b >> 16, c >> 16) << 16;
}
static int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 32; i += 8)
        c += (int8_t)(a >> i) * (int8_t)(b >> i);
    return c;
}
template <class T> static void atomicMax(T *to, T x) { *to = x > *to ? x : *to; }
template <class T> static void atomicMin(T *to, T x) { *to = x < *to ? x : *to; }
template <class T> static void atomicOr(T *to, T x) { *to |= x; }
template <class T> static void atomicAdd(T *to, T x) { *to += x; }
/* What a warp votes: the expression names its `lane`. */
#define __ballot_sync(mask, ...) [&] { uint32_t votes = 0; for (int lane = 0; lane < 32; lane++) \
    votes |= (uint32_t)(bool)(__VA_ARGS__) << lane; return votes; }()

static struct { int x, y, z; } threadIdx, blockIdx, blockDim = {1, 1, 1}, gridDim = {1, 1, 1};
alignas(64) char room[1 << 18];
static ucontext_t scheduler;
static std::vector<ucontext_t> threads;
static void __syncthreads() { swapcontext(&threads[threadIdx.x], &scheduler); }

/* A block of threads, each as far as the next place where all meet, in turn. */
static void run_block(int count, void (*body)())
{
    enum { STACK = 1 << 17 };
    static std::vector<char> stacks((size_t)count * STACK);
    static std::vector<char> is_done;
    static void (*work)();
    work = body;
    threads.resize(count), is_done.assign(count, 0);
    memset(room, 0xab, sizeof room);
    for (int i = 0; i < count; i++) {
        getcontext(&threads[i]);
        threads[i].uc_stack.ss_sp = &stacks[(size_t)i * STACK];
        threads[i].uc_stack.ss_size = STACK;
        threads[i].uc_link = &scheduler;
        makecontext(&threads[i], [] { work(), is_done[threadIdx.x] = 1; }, 0);
    }
    for (bool is_running = true; is_running;) {
        is_running = false;
        for (int i = 0; i < count; i++)
            if (!is_done[i]) {
                is_running = true;
                threadIdx.x = i;
                swapcontext(&scheduler, &threads[i]);
            }
    }
}
