/* Any machine: 16-byte vectors of the compiler's own, no fused multiply-add. */
#include <math.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define HW_BYTES 16
#define HW_HAS_FMA 0
#define HW_HAS_HALF 0      /* conversions from and to binary16 */
typedef float vf __attribute__((vector_size(16)));
#if defined(__SSE2__)
typedef double vhf;         /* the bits of two floats */
#else
typedef float vhf __attribute__((vector_size(8)));
#endif
typedef int32_t vi __attribute__((vector_size(16)));
typedef uint32_t vui __attribute__((vector_size(16)));
typedef double vd __attribute__((vector_size(16)));
typedef int64_t vl __attribute__((vector_size(16)));
typedef int8_t vb __attribute__((vector_size(16)));
typedef uint8_t vub __attribute__((vector_size(16)));

static inline vf vf_all(float x) { return (vf){x, x, x, x}; }
static inline vd vd_all(double x) { return (vd){x, x}; }
static inline vi vi_all(int32_t x) { return (vi){x, x, x, x}; }
static inline vd vd_min(vd x, vd y)
{
    vl less = (vl)(x < y);
    return (vd)(((vl)x & less) | ((vl)y & ~less));
}
#if defined(__SSE2__)
static inline vd vd_widen(vhf x) { return (vd)_mm_cvtps_pd(_mm_castpd_ps(_mm_set_sd(x))); }
static inline vhf vd_narrow(vd x) { return _mm_cvtsd_f64(_mm_castps_pd(_mm_cvtpd_ps((__m128d)x))); }
#else
static inline vd vd_widen(vhf x) { return __builtin_convertvector(x, vd); }
static inline vhf vd_narrow(vd x) { return __builtin_convertvector(x, vhf); }
#endif
static inline vi vi_truncate(vf x) { return __builtin_convertvector(x, vi); }
static inline vi vi_max(vi x, vi y)
{
    vi more = x > y;
    return (x & more) | (y & ~more);
}
static inline vb vb_max(vb x, vb y)
{
    vb more = x > y;
    return (x & more) | (y & ~more);
}
static inline vb vb_add_saturating(vb x, vb y)
{
#if defined(__SSE2__)
    return (vb)_mm_adds_epi8((__m128i)x, (__m128i)y);
#else
    for (int i = 0; i < 16; i++) {
        int sum = x[i] + y[i];
        x[i] = (int8_t)(sum < -128 ? -128 : sum > 127 ? 127 : sum);
    }
    return x;
#endif
}
static inline int vi_any_negative(vi x) { return ((x[0] | x[1]) | (x[2] | x[3])) < 0; }
static inline vi vi_from_bytes(const int8_t *p) { return (vi){p[0], p[1], p[2], p[3]}; }
/* Toward zero: exact in binary64, where 29 low bits are dropped (zero keeps them all zero). */
static inline vf vf_from_int_rz(vi x)
{
    vf y;
    for (int i = 0; i < 4; i++) {
        double d = x[i];
        uint64_t bits;
        memcpy(&bits, &d, 8);
        bits &= ~0x1FFFFFFFull;
        memcpy(&d, &bits, 8);
        y[i] = (float)d;
    }
    return y;
}
static inline vf vf_from_int_cut(vi x) { return vf_from_int_rz(x); }
/* Of pairs of 16-bit integers: the sum of the two products, modulo 2^32. */
static inline vi vi_multiply_pairs(vi x, vi y)
{
#if defined(__SSE2__)
    return (vi)_mm_madd_epi16((__m128i)x, (__m128i)y);
#else
    vi low = ((x << 16) >> 16) * ((y << 16) >> 16), high = (x >> 16) * (y >> 16);
    return (vi)((vui)low + (vui)high);
#endif
}
static inline vd vd_max(vd x, vd y)
{
    vl more = (vl)(x > y);
    return (vd)(((vl)x & more) | ((vl)y & ~more));
}
/* For magnitudes below 2^51, to nearest first. */
static inline vd vd_cut(vd x)
{
    vl bits = (vl)x, sign = bits & INT64_MIN;
    vd size = (vd)(bits & INT64_MAX), near = (size + 0x1p52) - 0x1p52;
    return (vd)((vl)(near - (vd)((vl)(near > size) & (vl)vd_all(1))) | sign);
}
static inline vi vi_min(vi x, vi y)
{
    vi less = x < y;
    return (x & less) | (y & ~less);
}
/* Shifts by any number of places in each lane; from 32 on the sign, or zero, is left, below 0 anything. */
static inline vi vi_shift_right(vi x, vi places) { return x >> vi_min(places, vi_all(31)); }
static inline vi vi_shift_left(vi x, vi places)
{
    return (vi)((vui)x << (vui)(places & 31)) & (places < 32);
}
/* Toward minus infinity. */
static inline vi vi_floor(vf x)
{
    vi cut = vi_truncate(x);
    return cut + (__builtin_convertvector(cut, vf) > x);
}
static inline vi vi_magnitude(vi x)
{
    vi negative = x >> 31;
    return (vi)((vui)(x ^ negative) - (vui)negative);
}
/* x - y, or 0 where y is larger, of multiples of 2^16 that are not negative. */
static inline vi vi_excess(vi x, vi y) { return (x - y) & (x > y); }
/* x | 1 where y, without a sign, is above z, which is not negative; else x. */
static inline vi vi_set_last_where_above(vi x, vi y, vi z) { return x | (vi)((vui)((y > z) | y) >> 31); }
static inline vub vub_min(vub x, vub y)
{
    vub less = (vub)(x < y);
    return (x & less) | (y & ~less);
}
/* Half a vector of integers, as doubles. */
static inline vd vd_from_ints(const int32_t *p) { return (vd){p[0], p[1]}; }
static inline vf vf_max(vf x, vf y)
{
    vi more = x > y;
    return (vf)(((vi)x & more) | ((vi)y & ~more));
}
static inline vf vf_min(vf x, vf y)
{
    vi less = x < y;
    return (vf)(((vi)x & less) | ((vi)y & ~less));
}
/* The larger magnitude, without its sign. */
static inline vf vf_larger_magnitude(vf x, vf y)
{
    vi keep = vi_all(0x7FFFFFFF);
    return vf_max((vf)((vi)x & keep), (vf)((vi)y & keep));
}
static inline vd vd_larger_magnitude(vd x, vd y)
{
    vl keep = (vl)vd_all(-0.0);
    return vd_max((vd)((vl)x & ~keep), (vd)((vl)y & ~keep));
}
/* 16-bit integers. */
#if defined(__SSE2__)
#define vs_max(x, y) ((vs)_mm_max_epi16((__m128i)(x), (__m128i)(y)))
#define vs_add_saturating(x, y) ((vs)_mm_adds_epi16((__m128i)(x), (__m128i)(y)))
#else
#define vs_max(x, y) ({ vs p_ = (x), q_ = (y), more_ = p_ > q_; (p_ & more_) | (q_ & ~more_); })
/* Only used where HW_HAS_CUT; the sums wrap. */
#define vs_add_saturating(x, y) ((vs)(x) + (vs)(y))
#endif
#if defined(__SSE2__)
static inline unsigned hw_lanes_enter(enum hw_lanes mode)
{
    unsigned old = _mm_getcsr();
    _mm_setcsr(hw_lanes_control[mode == HW_TOWARD_ZERO ? HW_NEAREST : mode]);
    return old;
}
static inline void hw_lanes_leave(unsigned old) { _mm_setcsr(old); }
#else
static inline unsigned hw_lanes_enter(enum hw_lanes mode) { (void)mode; return 0; }
static inline void hw_lanes_leave(unsigned old) { (void)old; }
#endif
