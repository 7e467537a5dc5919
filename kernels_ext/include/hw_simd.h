/* Vectors of one instruction set: compiler vector types, with the few operations that need a name.
 *
 * Widths: HW_BYTES per vector. Operators (+ - * & ^ < ...) work on the types as they are.
 */
#ifndef HW_SIMD_H
#define HW_SIMD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* Modes of the lanes' control register. Flushing: a subnormal operand or result is a zero of its sign.
 * HW_TOWARD_ZERO is for code that rounds by itself where a build cannot (it stays at nearest in the baseline build);
 * the HW_CUT modes are toward zero in every build that has HW_HAS_CUT.
 */
enum hw_lanes { HW_NEAREST, HW_TOWARD_ZERO, HW_NEAREST_FLUSHING, HW_CUT, HW_CUT_FLUSHING };
static const unsigned hw_lanes_control[] = {0x1F80, 0x7F80, 0x9FC0, 0x7F80, 0xFFC0};
#if defined(__SSE2__)
#define HW_HAS_FLUSH 1
#define HW_HAS_CUT 1
#else
#define HW_HAS_FLUSH 0
#define HW_HAS_CUT 0
#endif

#if defined(__AVX512F__)
#include "hw_simd_avx512.h"
#elif defined(__AVX2__)
#include "hw_simd_avx2.h"
#else
#include "hw_simd_baseline.h"
#endif

typedef uint64_t vul __attribute__((vector_size(HW_BYTES)));
typedef uint32_t vui __attribute__((vector_size(HW_BYTES)));

typedef int16_t vs __attribute__((vector_size(HW_BYTES)));

static inline vs vs_load(const void *p) { vs x; memcpy(&x, p, sizeof x); return x; }
static inline vs vs_all(int16_t x) { return (vs)vi_all((int32_t)((uint32_t)(uint16_t)x * 0x10001u)); }
static inline vb vb_all(int x) { return (vb)vi_all((int32_t)((uint32_t)(x & 255) * 0x01010101u)); }
static inline vl vl_bits(int64_t x)
{
    double bits;
    memcpy(&bits, &x, 8);
    return (vl)vd_all(bits);
}
/* Integers to binary32, rounded as the control register says. */
static inline vf vf_from_int(vi x) { return __builtin_convertvector(x, vf); }
/* For exact products: with or without fusing the one rounding is the addition's. */
static inline vf vf_add_product(vf a, vf b, vf c)
{
#if HW_HAS_FMA
    return vf_fma(a, b, c);
#else
    return a * b + c;
#endif
}
static inline vd vd_add_product(vd a, vd b, vd c)
{
#if HW_HAS_FMA
    return vd_fma(a, b, c);
#else
    return a * b + c;
#endif
}

static inline vf vf_load(const float *p) { vf x; memcpy(&x, p, sizeof x); return x; }
static inline void vf_store(float *p, vf x) { memcpy(p, &x, sizeof x); }
static inline vd vd_load(const double *p) { vd x; memcpy(&x, p, sizeof x); return x; }
static inline void vd_store(double *p, vd x) { memcpy(p, &x, sizeof x); }
static inline vi vi_load(const void *p) { vi x; memcpy(&x, p, sizeof x); return x; }
static inline void vi_store(void *p, vi x) { memcpy(p, &x, sizeof x); }
static inline vb vb_load(const void *p) { vb x; memcpy(&x, p, sizeof x); return x; }
static inline void vb_store(void *p, vb x) { memcpy(p, &x, sizeof x); }

#if defined(__SSE__)
#include <xmmintrin.h>
#define HW_HAS_TRANSPOSE 1
/* Four times four numbers: to[k * step + i] = from[i * apart + k]. */
static inline void vq_transpose(float *to, ptrdiff_t step, const float *from, ptrdiff_t apart)
{
    __m128 x = _mm_loadu_ps(from), y = _mm_loadu_ps(from + apart), z = _mm_loadu_ps(from + 2 * apart),
           w = _mm_loadu_ps(from + 3 * apart);
    _MM_TRANSPOSE4_PS(x, y, z, w);
    _mm_storeu_ps(to, x);
    _mm_storeu_ps(to + step, y);
    _mm_storeu_ps(to + 2 * step, z);
    _mm_storeu_ps(to + 3 * step, w);
}
#else
#define HW_HAS_TRANSPOSE 0
#endif

/* Half a vector of floats, as doubles; and doubles rounded to floats (nearest even). */
static inline vd vd_from_floats(const float *p)
{
    vhf x;
    memcpy(&x, p, sizeof x);
    return vd_widen(x);
}

static inline void vd_to_floats(float *p, vd x)
{
    vhf y = vd_narrow(x);
    memcpy(p, &y, sizeof y);
}

static inline vd vd_round_float(vd x) { return vd_widen(vd_narrow(x)); }

/* Exact: x + y = sum + error (Knuth); for NaN or infinite sums the error is NaN or of no use. */
static inline vd vd_two_sum(vd x, vd y, vd *error)
{
    vd sum = x + y, part = sum - x;
    *error = (x - (sum - part)) + (y - part);
    return sum;
}

/* Round to odd: t is the double nearest to t + error. A later rounding to 51 bits or fewer is then the
 * rounding of t + error itself (Boldo and Melquiond). A NaN error leaves t alone.
 */
static inline vd vd_odd(vd t, vd error)
{
    vl bits = (vl)t, inexact = (vl)((error < 0) | (error > 0));
    vl toward_zero = (vl)((vul)((vl)error ^ bits) >> 63), step = 1 - (toward_zero + toward_zero);
    vl even = (bits & 1) - 1;
    return (vd)(bits + (step & inexact & even));
}

#endif
