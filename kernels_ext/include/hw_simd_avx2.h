/* AVX2 with FMA and F16C. */
#include <immintrin.h>

#define HW_BYTES 32
#define HW_HAS_FMA 1
#define HW_HAS_HALF 1      /* conversions from and to binary16 */
typedef float vf __attribute__((vector_size(32)));
typedef float vhf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(32)));
typedef double vd __attribute__((vector_size(32)));
typedef int64_t vl __attribute__((vector_size(32)));
typedef int8_t vb __attribute__((vector_size(32)));
typedef uint8_t vub __attribute__((vector_size(32)));

static inline vf vf_all(float x) { return (vf)_mm256_set1_ps(x); }
static inline vd vd_all(double x) { return (vd)_mm256_set1_pd(x); }
static inline vi vi_all(int32_t x) { return (vi)_mm256_set1_epi32(x); }
static inline vf vf_fma(vf a, vf b, vf c) { return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
static inline vd vd_fma(vd a, vd b, vd c) { return (vd)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
static inline vd vd_min(vd x, vd y) { return (vd)_mm256_min_pd((__m256d)x, (__m256d)y); }
static inline vd vd_widen(vhf x) { return (vd)_mm256_cvtps_pd((__m128)x); }
static inline vhf vd_narrow(vd x) { return (vhf)_mm256_cvtpd_ps((__m256d)x); }
static inline vi vi_truncate(vf x) { return (vi)_mm256_cvttps_epi32((__m256)x); }
static inline vi vi_max(vi x, vi y) { return (vi)_mm256_max_epi32((__m256i)x, (__m256i)y); }
static inline vb vb_max(vb x, vb y) { return (vb)_mm256_max_epi8((__m256i)x, (__m256i)y); }
static inline vb vb_add_saturating(vb x, vb y) { return (vb)_mm256_adds_epi8((__m256i)x, (__m256i)y); }
static inline int vi_any_negative(vi x) { return _mm256_movemask_ps((__m256)x) != 0; }
static inline vi vi_from_bytes(const int8_t *p)
{
    return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}
/* Toward zero, between hw_lanes_enter(HW_TOWARD_ZERO) and hw_lanes_leave. */
static inline vf vf_from_int_rz(vi x) { return (vf)_mm256_cvtepi32_ps((__m256i)x); }
static inline void vf_from_half(float *to, const uint16_t *from)
{
    _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from)));
}
static inline void vf_to_half(uint16_t *to, vf x)
{
    _mm_storeu_si128((__m128i *)(void *)to, _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
/* Rounded to binary16, nearest even whatever the control register says. */
static inline vf vf_round_half(vf x)
{
    return (vf)_mm256_cvtph_ps(_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
/* Toward zero in every mode: without the place behind the 24th the conversion never rounds up. */
static inline vf vf_from_int_cut(vi x)
{
    __m256i v = (__m256i)x, m = _mm256_abs_epi32(v);
    __m256 y = _mm256_cvtepi32_ps(_mm256_andnot_si256(_mm256_srli_epi32(m, 24), m));
    return (vf)_mm256_or_ps(y, _mm256_and_ps((__m256)v, _mm256_set1_ps(-0.0f)));
}
/* Of pairs of 16-bit integers: the sum of the two products, modulo 2^32. */
static inline vi vi_multiply_pairs(vi x, vi y) { return (vi)_mm256_madd_epi16((__m256i)x, (__m256i)y); }
static inline vd vd_max(vd x, vd y) { return (vd)_mm256_max_pd((__m256d)x, (__m256d)y); }
static inline vd vd_cut(vd x) { return (vd)_mm256_round_pd((__m256d)x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
static inline vi vi_min(vi x, vi y) { return (vi)_mm256_min_epi32((__m256i)x, (__m256i)y); }
/* Shifts by any number of places in each lane; from 32 on the sign, or zero, is left, below 0 anything. */
static inline vi vi_shift_right(vi x, vi places) { return (vi)_mm256_srav_epi32((__m256i)x, (__m256i)places); }
static inline vi vi_shift_left(vi x, vi places) { return (vi)_mm256_sllv_epi32((__m256i)x, (__m256i)places); }
/* Toward minus infinity. */
static inline vi vi_floor(vf x) { return (vi)_mm256_cvtps_epi32(_mm256_floor_ps((__m256)x)); }
static inline vi vi_magnitude(vi x) { return (vi)_mm256_abs_epi32((__m256i)x); }
/* x - y, or 0 where y is larger, of multiples of 2^16 that are not negative. */
static inline vi vi_excess(vi x, vi y) { return (vi)_mm256_subs_epu16((__m256i)x, (__m256i)y); }
/* x | 1 where y, without a sign, is above z, which is not negative; else x. */
static inline vi vi_set_last_where_above(vi x, vi y, vi z)
{
    return x | (vi)_mm256_srli_epi32((__m256i)((y > z) | y), 31);
}
static inline vub vub_min(vub x, vub y) { return (vub)_mm256_min_epu8((__m256i)x, (__m256i)y); }
/* Half a vector of integers, as doubles. */
static inline vd vd_from_ints(const int32_t *p)
{
    return (vd)_mm256_cvtepi32_pd(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static inline vf vf_max(vf x, vf y) { return (vf)_mm256_max_ps((__m256)x, (__m256)y); }
static inline vf vf_min(vf x, vf y) { return (vf)_mm256_min_ps((__m256)x, (__m256)y); }
/* The larger magnitude, without its sign. */
static inline vf vf_larger_magnitude(vf x, vf y)
{
    vi keep = vi_all(0x7FFFFFFF);
    return vf_max((vf)((vi)x & keep), (vf)((vi)y & keep));
}
static inline vd vd_larger_magnitude(vd x, vd y)
{
    __m256d sign = _mm256_set1_pd(-0.0);
    return (vd)_mm256_max_pd(_mm256_andnot_pd(sign, (__m256d)x), _mm256_andnot_pd(sign, (__m256d)y));
}
/* 16-bit integers. */
#define vs_max(x, y) ((vs)_mm256_max_epi16((__m256i)(x), (__m256i)(y)))
#define vs_add_saturating(x, y) ((vs)_mm256_adds_epi16((__m256i)(x), (__m256i)(y)))
/* The control register of the lanes; no traps. */
static inline unsigned hw_lanes_enter(enum hw_lanes mode)
{
    unsigned old = _mm_getcsr();
    _mm_setcsr(hw_lanes_control[mode]);
    return old;
}
static inline void hw_lanes_leave(unsigned old) { _mm_setcsr(old); }
