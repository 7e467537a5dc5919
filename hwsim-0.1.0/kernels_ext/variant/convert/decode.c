/* Decoding: codes to the binary32 or binary64 numbers they stand for, exactly; a NaN keeps its sign only.
 *
 * Storage of 8 bits goes through a table of all codes, made per call by `value_of`; fp16 and the formats
 * that are the upper bits of binary32 have loops of their own.
 */
/* Nobody reads exception flags here; without this GCC makes branches around additions, and no vector code. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

#include <math.h>
#include <string.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

#include "hw_convert.h"

enum { CHUNK = 512, QUIET_NAN = 0x7fc00000, INFINITE = 0x7f800000 };

static inline float float_of(uint32_t word)
{
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static inline uint32_t word_of(float value)
{
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    return word;
}

/* Value of one code of at most 32 bits; exact in binary64 for every format with such codes. */
static double value_of(const hw_decoder *d, uint64_t code)
{
    const int magnitude_bits = d->exponent_bits + d->fraction_bits;
    const uint64_t word = code >> d->ignored_bits;
    const uint64_t magnitude = word & (((uint64_t)1 << magnitude_bits) - 1);
    const int sign = d->is_signed ? (int)(word >> magnitude_bits & 1) : 0;
    double value;

    if (!d->exponent_bits)
        return sign ? (double)magnitude - (double)((uint64_t)1 << magnitude_bits) : (double)magnitude;
    if (d->minus_zero_is_nan && sign && !magnitude)
        value = NAN;
    else if (magnitude > d->largest)
        value = d->has_infinity && magnitude == d->largest + 1 ? INFINITY : NAN;
    else {
        const int biased = (int)(magnitude >> d->fraction_bits);
        const uint64_t fraction = magnitude & (((uint64_t)1 << d->fraction_bits) - 1);
        const uint64_t hidden = d->subnormals && !biased ? 0 : (uint64_t)1 << d->fraction_bits;
        const int exponent = hidden ? biased - d->bias : d->min_exponent;
        value = ldexp((double)(hidden + fraction), exponent - d->fraction_bits);
    }
    return copysign(value, sign ? -1.0 : 1.0);
}

static inline __attribute__((always_inline)) uint32_t quiet(uint32_t word)
{
    const uint32_t magnitude = word & 0x7fffffff;
    return (int32_t)magnitude > INFINITE ? (word ^ magnitude) | QUIET_NAN : word;
}

static void from_bytes(const hw_decoder *d, const uint8_t *restrict codes, float *restrict values, size_t n)
{
    float table[256];
    if (n < 32) {
        for (size_t i = 0; i < n; i++)
            values[i] = (float)value_of(d, codes[i]);
        return;
    }
    for (int code = 0; code < 256; code++)
        table[code] = (float)value_of(d, (uint64_t)code);
    for (size_t i = 0; i < n; i++)
        values[i] = table[codes[i]];
}

/* A subnormal gets the exponent field of 2^-14, from which 2^-14 is then subtracted, exactly. */
static void from_fp16(const uint16_t *restrict codes, float *restrict values, size_t n)
{
    size_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8) {
        const __m256 raw = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(codes + i)));
        const __m256 quiet_nan = _mm256_or_ps(_mm256_and_ps(raw, _mm256_set1_ps(-0.0f)), _mm256_set1_ps(NAN));
        _mm256_storeu_ps(values + i, _mm256_blendv_ps(raw, quiet_nan, _mm256_cmp_ps(raw, raw, _CMP_UNORD_Q)));
    }
#endif
    for (; i < n; i++) {
        const uint32_t magnitude = (uint32_t)(codes[i] & 0x7fff) << 13;
        const uint32_t sign = (uint32_t)(codes[i] & 0x8000) << 16;
        const float lifted = float_of(magnitude + (113u << 23)) - 0x1p-14f;
        uint32_t word = (int32_t)magnitude < 1 << 23 ? word_of(lifted) : magnitude + (112u << 23);
        word = (int32_t)magnitude >= 31 << 23 ? magnitude + (224u << 23) : word;
        values[i] = float_of(quiet(word | sign));
    }
}

static void from_halves(const uint16_t *restrict codes, float *restrict values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        values[i] = float_of(quiet((uint32_t)codes[i] << 16));
}

static void from_words(const hw_decoder *d, const uint32_t *restrict codes, float *restrict values, size_t n)
{
    const uint32_t mask = UINT32_MAX << d->ignored_bits;
    for (size_t i = 0; i < n; i++)
        values[i] = float_of(quiet(codes[i] & mask));
}

static void from_int16(const int16_t *restrict codes, float *restrict values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        values[i] = (float)codes[i];
}

static void to_float(const hw_decoder *d, const void *codes, float *values, size_t n)
{
    if (d->code_bits == 8)
        from_bytes(d, codes, values, n);
    else if (d->code_bits == 32)
        from_words(d, codes, values, n);
    else if (!d->exponent_bits)
        from_int16(codes, values, n);
    else if (d->exponent_bits == 8)
        from_halves(codes, values, n);
    else
        from_fp16(codes, values, n);
}

static void from_int32(const int32_t *restrict codes, double *restrict values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        values[i] = (double)codes[i];
}

static void from_fp64(const uint64_t *restrict codes, double *restrict values, size_t n)
{
    const uint64_t infinite = 0x7ff0000000000000, quiet_nan = 0x7ff8000000000000;
    for (size_t i = 0; i < n; i++) {
        const uint64_t magnitude = codes[i] & INT64_MAX;
        const uint64_t word = (int64_t)magnitude > (int64_t)infinite ? (codes[i] ^ magnitude) | quiet_nan : codes[i];
        memcpy(&values[i], &word, sizeof word);
    }
}

static void to_double(const hw_decoder *d, const char *codes, double *restrict values, size_t n)
{
    float chunk[CHUNK];
    for (size_t first = 0; first < n; first += CHUNK) {
        const size_t length = n - first < CHUNK ? n - first : CHUNK;
        to_float(d, codes + first * (size_t)(d->code_bits / 8), chunk, length);
        for (size_t i = 0; i < length; i++)
            values[first + i] = (double)chunk[i];
    }
}

void HW_NAME(decode)(const hw_decoder *d, const void *codes, void *values, size_t n)
{
    if (d->value_bits == 32)
        to_float(d, codes, values, n);
    else if (d->code_bits == 64)
        from_fp64(codes, values, n);
    else if (d->code_bits == 32 && !d->exponent_bits)
        from_int32(codes, values, n);
    else
        to_double(d, codes, values, n);
}
