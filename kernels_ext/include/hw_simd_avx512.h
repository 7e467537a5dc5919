/* AVX-512 F, BW, DQ, VL. */
#include <immintrin.h>

#define HW_BYTES 64
#define HW_HAS_FMA 1
#define HW_HAS_HALF 1      /* conversions from and to binary16 */
typedef float vf __attribute__((vector_size(64)));
typedef float vhf __attribute__((vector_size(32)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef double vd __attribute__((vector_size(64)));
typedef int64_t vl __attribute__((vector_size(64)));
typedef int8_t vb __attribute__((vector_size(64)));
typedef uint8_t vub __attribute__((vector_size(64)));

static inline vf vf_all(float x) { return (vf)_mm512_set1_ps(x); }
static inline vd vd_all(double x) { return (vd)_mm512_set1_pd(x); }
static inline vi vi_all(int32_t x) { return (vi)_mm512_set1_epi32(x); }
static inline vf vf_fma(vf a, vf b, vf c) { return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
static inline vd vd_fma(vd a, vd b, vd c) { return (vd)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
static inline vd vd_min(vd x, vd y) { return (vd)_mm512_min_pd((__m512d)x, (__m512d)y); }
static inline vd vd_widen(vhf x) { return (vd)_mm512_cvtps_pd((__m256)x); }
static inline vhf vd_narrow(vd x) { return (vhf)_mm512_cvtpd_ps((__m512d)x); }
static inline vi vi_truncate(vf x) { return (vi)_mm512_cvttps_epi32((__m512)x); }
static inline vi vi_max(vi x, vi y) { return (vi)_mm512_max_epi32((__m512i)x, (__m512i)y); }
static inline vb vb_max(vb x, vb y) { return (vb)_mm512_max_epi8((__m512i)x, (__m512i)y); }
static inline vb vb_add_saturating(vb x, vb y) { return (vb)_mm512_adds_epi8((__m512i)x, (__m512i)y); }
static inline int vi_any_negative(vi x) { return _mm512_movepi32_mask((__m512i)x) != 0; }
static inline vi vi_from_bytes(const int8_t *p)
{
    return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
/* Toward zero, between hw_lanes_enter(HW_TOWARD_ZERO) and hw_lanes_leave. */
static inline vf vf_from_int_rz(vi x) { return (vf)_mm512_cvtepi32_ps((__m512i)x); }
static inline void vf_from_half(float *to, const uint16_t *from)
{
    _mm512_storeu_ps(to, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from)));
}
static inline void vf_to_half(uint16_t *to, vf x)
{
    _mm256_storeu_si256((__m256i *)(void *)to, _mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
/* Rounded to binary16, nearest even whatever the control register says. */
static inline vf vf_round_half(vf x)
{
    return (vf)_mm512_cvtph_ps(_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
/* Toward zero in every mode. */
static inline vf vf_from_int_cut(vi x)
{
    return (vf)_mm512_cvt_roundepi32_ps((__m512i)x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}
/* Of pairs of 16-bit integers: the sum of the two products, modulo 2^32. */
static inline vi vi_multiply_pairs(vi x, vi y) { return (vi)_mm512_madd_epi16((__m512i)x, (__m512i)y); }
static inline vd vd_max(vd x, vd y) { return (vd)_mm512_max_pd((__m512d)x, (__m512d)y); }
static inline vd vd_cut(vd x)
{
    return (vd)_mm512_roundscale_pd((__m512d)x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}
static inline vi vi_min(vi x, vi y) { return (vi)_mm512_min_epi32((__m512i)x, (__m512i)y); }
/* Shifts by any number of places in each lane; from 32 on the sign, or zero, is left, below 0 anything. */
static inline vi vi_shift_right(vi x, vi places) { return (vi)_mm512_srav_epi32((__m512i)x, (__m512i)places); }
static inline vi vi_shift_left(vi x, vi places) { return (vi)_mm512_sllv_epi32((__m512i)x, (__m512i)places); }
/* Toward minus infinity. */
static inline vi vi_floor(vf x)
{
    return (vi)_mm512_cvt_roundps_epi32((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
static inline vi vi_magnitude(vi x) { return (vi)_mm512_abs_epi32((__m512i)x); }
/* x - y, or 0 where y is larger, of multiples of 2^16 that are not negative. */
static inline vi vi_excess(vi x, vi y) { return (vi)_mm512_subs_epu16((__m512i)x, (__m512i)y); }
/* x | 1 where y, without a sign, is above z, which is not negative; else x. */
static inline vi vi_set_last_where_above(vi x, vi y, vi z)
{
    return (vi)_mm512_mask_or_epi32((__m512i)x, _mm512_cmpgt_epu32_mask((__m512i)y, (__m512i)z), (__m512i)x,
                                    _mm512_set1_epi32(1));
}
static inline vub vub_min(vub x, vub y) { return (vub)_mm512_min_epu8((__m512i)x, (__m512i)y); }
/* Half a vector of integers, as doubles. */
static inline vd vd_from_ints(const int32_t *p)
{
    return (vd)_mm512_cvtepi32_pd(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline vf vf_max(vf x, vf y) { return (vf)_mm512_max_ps((__m512)x, (__m512)y); }
static inline vf vf_min(vf x, vf y) { return (vf)_mm512_min_ps((__m512)x, (__m512)y); }
/* The larger magnitude, without its sign. */
static inline vf vf_larger_magnitude(vf x, vf y) { return (vf)_mm512_range_ps((__m512)x, (__m512)y, 11); }
static inline vd vd_larger_magnitude(vd x, vd y) { return (vd)_mm512_range_pd((__m512d)x, (__m512d)y, 11); }
/* 16-bit integers. */
#define vs_max(x, y) ((vs)_mm512_max_epi16((__m512i)(x), (__m512i)(y)))
#define vs_add_saturating(x, y) ((vs)_mm512_adds_epi16((__m512i)(x), (__m512i)(y)))
/* The control register of the lanes; no traps. */
static inline unsigned hw_lanes_enter(enum hw_lanes mode)
{
    unsigned old = _mm_getcsr();
    _mm_setcsr(hw_lanes_control[mode]);
    return old;
}
static inline void hw_lanes_leave(unsigned old) { _mm_setcsr(old); }
