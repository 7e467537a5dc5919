/* Encoding: binary32 or binary64 elements to codes, one rounding, any format.
 *
 * First one element (hw_convert_lane.h), then loops over a path's source and code types, then the choice
 * of the path by the format's fields. A format with the source's exponent range needs only a carry; a
 * narrower one is rounded by an addition in the source's own arithmetic, exact as stated there. What is
 * rare (unsigned, without zero, integer) goes through 64-bit lanes whatever the source.
 */
/* Nobody reads exception flags here; without this GCC makes branches around additions, and no vector code. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

#include <string.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

#include "hw_convert.h"

#define LANE 32
#include "hw_convert_lane.h"
#undef LANE
#undef WORD
#undef SIGNED
#undef REAL
#undef FRACTION
#undef INFINITY_WORD
#undef INLINE
#define LANE 64
#include "hw_convert_lane.h"

#define LOOP(bits, code_type, mode, round, finish)                                                       \
    case mode:                                                                                           \
        for (size_t i = 0; i < n; i++) {                                                                 \
            const uint##bits##_t word = as_word_##bits(x[i]);                                             \
            const uint##bits##_t negative = 0 - (word >> (bits - 1));                                    \
            const uint##bits##_t magnitude = word & (UINT##bits##_MAX >> 1);                             \
            const uint##bits##_t rounded = round(&l, magnitude, negative, mode);                         \
            codes[i] = (code_type)finish(mode);                                                          \
        }                                                                                                \
        return;

#define PATH(name, bits, source_type, code_type, round, finish)                                          \
    static void name(const hw_encoder *e, const source_type *restrict x, code_type *restrict codes, size_t n) \
    {                                                                                                    \
        const lane_##bits l = lane_of_##bits(e);                                                           \
        switch (e->rounding) {                                                                           \
            LOOP(bits, code_type, HW_RNE, round, finish)                                                 \
            LOOP(bits, code_type, HW_RNA, round, finish)                                                 \
            LOOP(bits, code_type, HW_RZ, round, finish)                                                  \
            LOOP(bits, code_type, HW_RU, round, finish)                                                  \
            LOOP(bits, code_type, HW_RD, round, finish)                                                  \
        }                                                                                                \
    }

#define SHORT_LOOP(code_type, mode, round, ignored, nan_overflow)                                        \
    case mode:                                                                                           \
        for (size_t i = 0; i < n; i++) {                                                                 \
            const uint32_t word = as_word_32(x[i]);                                                      \
            const uint32_t magnitude = word & INT32_MAX;                                                 \
            const uint32_t rounded = round(&l, cut_32(&l, magnitude), mode);                             \
            codes[i] = (code_type)finish_short_32(&l, word, magnitude, rounded, mode, ignored, nan_overflow); \
        }                                                                                                \
        return;

/* Try the short way first; it has no loops for RU and RD. */
#define SHORT_PATH(name, code_type, round, ignored, otherwise)                                           \
    static void name(const hw_encoder *e, const float *restrict x, code_type *restrict codes, size_t n)  \
    {                                                                                                    \
        lane_32 l = lane_of_32(e);                                                                       \
        const enum way_32 way = shorten_32(&l, e);                                                       \
        if (way == SHORT_32)                                                                             \
            switch (e->rounding) {                                                                       \
                SHORT_LOOP(code_type, HW_RNE, round, ignored, 0)                                         \
                SHORT_LOOP(code_type, HW_RNA, round, ignored, 0)                                         \
                SHORT_LOOP(code_type, HW_RZ, round, ignored, 0)                                          \
            }                                                                                            \
        if (way == SHORT_NAN_32)                                                                         \
            switch (e->rounding) {                                                                       \
                SHORT_LOOP(code_type, HW_RNE, round, ignored, 1)                                         \
                SHORT_LOOP(code_type, HW_RNA, round, ignored, 1)                                         \
                SHORT_LOOP(code_type, HW_RZ, round, ignored, 1)                                          \
            }                                                                                            \
        otherwise(e, x, codes, n);                                                                       \
    }

/* bf16, where infinity and finite overflow take the sign of the number: the carry of the rounding runs through
 * sign and exponent of the word itself, and only what it cannot give is put right: NaNs, and the saturated infinity. */
#define BF16_LOOP(increment, cut)                                                                        \
    for (size_t i = 0; i < n; i++) {                                                                     \
        const uint32_t word = as_word_32(x[i]);                                                          \
        const uint32_t rounded = (word + (increment)) >> 16;                                             \
        const uint32_t magnitude = rounded & 0x7fff;                                                     \
        const uint32_t kept = (cut) ? (word >> 16 & 0x8000) | (magnitude < ceiling ? magnitude : ceiling) : rounded; \
        codes[i] = (uint16_t)((int32_t)(word & INT32_MAX) > 0x7f800000 ? nan : kept);                    \
    }

static int bf16_is_plain(const hw_encoder *e)
{
    return (e->rounding == HW_RNE || e->rounding == HW_RZ) && e->fraction_bits == 7 && e->infinity[0] < e->sign_bit &&
           e->infinity[1] == (e->infinity[0] | e->sign_bit) &&
           (e->rounding == HW_RZ || e->overflow[0] == e->infinity[0]);
}

static void bf16_plain(const hw_encoder *e, const float *restrict x, uint16_t *restrict codes, size_t n)
{
    const uint32_t ceiling = (uint32_t)e->infinity[0], nan = (uint32_t)e->nan;
    const int saturates = ceiling < 0x7f80;
    if (e->rounding == HW_RNE && saturates)
        BF16_LOOP(0x7fff + (word >> 16 & 1), 1)
    else if (e->rounding == HW_RNE)
        BF16_LOOP(0x7fff + (word >> 16 & 1), 0)
    else if (saturates)
        BF16_LOOP(0, 1)
    else
        BF16_LOOP(0, 0)
}

/* binary64 to binary32 to nearest is one conversion of the processor's (the caller's rounding mode was set aside). */
static int fp32_is_plain(const hw_encoder *e)
{
    return e->rounding == HW_RNE && e->exponent_bits == 8 && e->fraction_bits == 23 && !e->ignored_bits &&
           e->infinity[0] < e->sign_bit && e->infinity[1] == (e->infinity[0] | e->sign_bit) &&
           e->overflow[0] == e->infinity[0];
}

static void fp32_plain(const hw_encoder *e, const double *restrict x, uint32_t *restrict codes, size_t n)
{
    const int32_t ceiling = (int32_t)e->infinity[0];
    const uint32_t nan = (uint32_t)e->nan;
    for (size_t i = 0; i < n; i++) {
        const uint32_t word = as_word_32((float)x[i]);
        const int32_t magnitude = (int32_t)(word & INT32_MAX);
        const uint32_t cut = (uint32_t)(magnitude < ceiling ? magnitude : ceiling);
        codes[i] = magnitude > 0x7f800000 ? nan : (word & ~(uint32_t)INT32_MAX) | cut;
    }
}

#define FINISH32(mode) finish_32(&l, magnitude, negative, rounded, mode, 1)
#define FINISH32_FNUZ(mode) finish_32(&l, magnitude, negative, rounded, mode, 0)
#define FINISH64(mode) finish_64(&l, magnitude, negative, rounded, mode, 0)
#define FINISH64_ANY(mode) finish_any_64(&l, magnitude, negative, rounded)
#define FINISH64_INTEGER(mode) finish_integer_64(&l, magnitude, negative, rounded)

PATH(same32_u16, 32, float, uint16_t, round_same_32, FINISH32)
PATH(same32_u32, 32, float, uint32_t, round_same_32, FINISH32)
PATH(narrow32_u8, 32, float, uint8_t, round_narrow_32, FINISH32)
PATH(narrow32_u8_fnuz, 32, float, uint8_t, round_narrow_32, FINISH32_FNUZ)
PATH(narrow32_u16, 32, float, uint16_t, round_narrow_32, FINISH32)
SHORT_PATH(short_same_u16, uint16_t, round_same_short_32, 0, same32_u16)
SHORT_PATH(short_same_u32, uint32_t, round_same_short_32, 1, same32_u32)
SHORT_PATH(short_narrow_u8, uint8_t, round_narrow_short_32, 0, narrow32_u8)
SHORT_PATH(short_narrow_u16, uint16_t, round_narrow_short_32, 0, narrow32_u16)
PATH(narrow64_u8, 64, double, uint8_t, round_narrow_64, FINISH64)
PATH(narrow64_u16, 64, double, uint16_t, round_narrow_64, FINISH64)
PATH(narrow64_u32, 64, double, uint32_t, round_narrow_64, FINISH64)
PATH(same64_u64, 64, double, uint64_t, round_same_64, FINISH64)
PATH(widened_u64, 64, float, uint64_t, round_same_64, FINISH64)
PATH(any32_u8, 64, float, uint8_t, round_narrow_64, FINISH64_ANY)
PATH(any64_u8, 64, double, uint8_t, round_narrow_64, FINISH64_ANY)
PATH(integer32_u8, 64, float, uint8_t, round_narrow_64, FINISH64_INTEGER)
PATH(integer32_u16, 64, float, uint16_t, round_narrow_64, FINISH64_INTEGER)
PATH(integer32_u32, 64, float, uint32_t, round_narrow_64, FINISH64_INTEGER)
PATH(integer64_u8, 64, double, uint8_t, round_narrow_64, FINISH64_INTEGER)
PATH(integer64_u16, 64, double, uint16_t, round_narrow_64, FINISH64_INTEGER)
PATH(integer64_u32, 64, double, uint32_t, round_narrow_64, FINISH64_INTEGER)

#ifdef __F16C__
/* The processor's own conversion to fp16, which rounds by its operand and ignores flush-to-zero. What it
 * gives for finite overflow is IEEE's; `ceiling` cuts an infinity to the largest finite value where the
 * policy saturates. */
#ifdef __AVX512BW__
#define F16C_LOOP(immediate)                                                                             \
    for (; i + 16 <= n; i += 16) {                                                                       \
        const __m512 value = _mm512_loadu_ps(x + i);                                                     \
        const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);                         \
        __m256i raw = _mm512_cvtps_ph(value, immediate);                                                 \
        if (saturates)                                                                                   \
            raw = _mm256_or_si256(_mm256_min_epi16(_mm256_andnot_si256(sign, raw), ceiling),             \
                                  _mm256_and_si256(raw, sign));                                          \
        _mm256_storeu_si256((__m256i *)(codes + i), _mm256_mask_mov_epi16(raw, is_nan, nan));            \
    }
#else
#define F16C_LOOP(immediate)                                                                             \
    for (; i + 16 <= n; i += 16) {                                                                       \
        const __m128i low = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), immediate);                          \
        const __m128i high = _mm256_cvtps_ph(_mm256_loadu_ps(x + i + 8), immediate);                     \
        const __m256i raw = _mm256_set_m128i(high, low);                                                 \
        const __m256i magnitude = _mm256_andnot_si256(sign, raw);                                        \
        const __m256i is_nan = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7c00));                 \
        const __m256i cut = !saturates ? raw                                                             \
            : _mm256_or_si256(_mm256_min_epi16(magnitude, ceiling), _mm256_and_si256(raw, sign));        \
        _mm256_storeu_si256((__m256i *)(codes + i), _mm256_blendv_epi8(cut, nan, is_nan));               \
    }
#endif

static void fp16_by_processor(const hw_encoder *e, const float *x, uint16_t *codes, size_t n)
{
    const __m256i sign = _mm256_set1_epi16(INT16_MIN), ceiling = _mm256_set1_epi16((short)e->infinity[0]);
    const __m256i nan = _mm256_set1_epi16((short)e->nan);
    const int saturates = e->infinity[0] < 0x7c00;
    size_t i = 0;
    if (e->rounding == HW_RNE) {
        F16C_LOOP(_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
    } else {
        F16C_LOOP(_MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)
    }
    short_narrow_u16(e, x + i, codes + i, n - i);
}

static int processor_has(const hw_encoder *e)
{
    /* Toward zero the processor stops at the largest finite value; "infinity" wants more. */
    return e->rounding == HW_RNE || (e->rounding == HW_RZ && e->overflow[0] == e->largest);
}
#endif

void HW_NAME(encode)(const hw_encoder *e, const void *x, void *codes, size_t n)
{
    const int wide = e->source_bits == 64;
    const int plain = e->sign_bit && !e->hidden;
    const int has_minus_zero = e->small[0] != e->small[1];

    if (!e->exponent_bits) {
        if (e->code_bits == 8)
            wide ? integer64_u8(e, x, codes, n) : integer32_u8(e, x, codes, n);
        else if (e->code_bits == 16)
            wide ? integer64_u16(e, x, codes, n) : integer32_u16(e, x, codes, n);
        else
            wide ? integer64_u32(e, x, codes, n) : integer32_u32(e, x, codes, n);
    } else if (!plain) {
        wide ? any64_u8(e, x, codes, n) : any32_u8(e, x, codes, n);
    } else if (e->code_bits == 64) {
        wide ? same64_u64(e, x, codes, n) : widened_u64(e, x, codes, n);
    } else if (wide) {
        if (e->code_bits == 8)
            narrow64_u8(e, x, codes, n);
        else if (e->code_bits == 16)
            narrow64_u16(e, x, codes, n);
        else
            fp32_is_plain(e) ? fp32_plain(e, x, codes, n) : narrow64_u32(e, x, codes, n);
    } else if (e->exponent_bits == 8 && e->code_bits == 16 && bf16_is_plain(e)) {
        bf16_plain(e, x, codes, n);
    } else if (e->exponent_bits == 8) {
        e->code_bits == 16 ? short_same_u16(e, x, codes, n) : short_same_u32(e, x, codes, n);
#ifdef __F16C__
    } else if (e->code_bits == 16 && processor_has(e)) {
        fp16_by_processor(e, x, codes, n);
#endif
    } else if (e->code_bits == 16) {
        short_narrow_u16(e, x, codes, n);
    } else {
        has_minus_zero ? short_narrow_u8(e, x, codes, n) : narrow32_u8_fnuz(e, x, codes, n);
    }
}
