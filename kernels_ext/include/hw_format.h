/* Number formats in C: the table, and exact decoding and rounding of one code.
 *
 * Knows bit layouts only; nothing of units or devices. The Python table is hwsim/formats.py; a test
 * compares the two. value = (-1)^sign * sig * 2^lsb for every finite code.
 */
#ifndef HW_FORMAT_H
#define HW_FORMAT_H

#include <stdint.h>
#include <string.h>

typedef unsigned __int128 hw_u128;
typedef __int128 hw_i128;

enum hw_special {
    HW_IEEE,    /* top exponent: infinity and NaN */
    HW_FN,      /* no infinity; NaN is all ones (e4m3, ue4m3, ue8m0) */
    HW_FNUZ,    /* no infinity, no -0; NaN is the code of -0 */
    HW_FINITE,  /* every code is a number */
    HW_INTEGER  /* two's complement or unsigned */
};

typedef struct hw_format {
    const char *name;
    int storage_bits;   /* of one array element: 8, 16, 32, 64 */
    int exponent_bits;
    int fraction_bits;
    int bias;
    int pad;            /* low bits of the word that the format ignores (tf32: 13) */
    int is_signed;      /* 0: the sign position is ignored, or there is none */
    enum hw_special special;
} hw_format;

#ifndef HW_ON_GPU    /* there a program has its own unit's formats alone */
static const hw_format hw_formats[] = {
    /* name      word exp frac bias pad sign special */
    {"fp64",      64, 11, 52, 1023,  0, 1, HW_IEEE},
    {"fp32",      32,  8, 23,  127,  0, 1, HW_IEEE},
    {"tf32",      32,  8, 10,  127, 13, 1, HW_IEEE},
    {"hf32",      32,  8, 11,  127, 12, 1, HW_IEEE},
    {"e8m13",     32,  8, 13,  127, 10, 1, HW_IEEE},
    {"fp16",      16,  5, 10,   15,  0, 1, HW_IEEE},
    {"bf16",      16,  8,  7,  127,  0, 1, HW_IEEE},
    {"e4m3",       8,  4,  3,    7,  0, 1, HW_FN},
    {"e5m2",       8,  5,  2,   15,  0, 1, HW_IEEE},
    {"e4m3fnuz",   8,  4,  3,    8,  0, 1, HW_FNUZ},
    {"e5m2fnuz",   8,  5,  2,   16,  0, 1, HW_FNUZ},
    {"e3m2",       8,  3,  2,    3,  0, 1, HW_FINITE},
    {"e2m3",       8,  2,  3,    1,  0, 1, HW_FINITE},
    {"e2m1",       8,  2,  1,    1,  0, 1, HW_FINITE},
    {"ue8m0",      8,  8,  0,  127,  0, 0, HW_FN},
    {"ue4m3",      8,  4,  3,    7,  0, 0, HW_FN},
    {"int32",     32,  0, 32,    0,  0, 1, HW_INTEGER},
    {"int16",     16,  0, 16,    0,  0, 1, HW_INTEGER},
    {"int8",       8,  0,  8,    0,  0, 1, HW_INTEGER},
    {"uint8",      8,  0,  8,    0,  0, 0, HW_INTEGER},
    {"int4",       8,  0,  4,    0,  0, 1, HW_INTEGER},
};

static inline const hw_format *hw_format_find(const char *name)
{
    for (size_t i = 0; i < sizeof hw_formats / sizeof *hw_formats; i++)
        if (!strcmp(hw_formats[i].name, name))
            return &hw_formats[i];
    return 0;
}
#endif

enum hw_kind { HW_ZERO, HW_NORMAL, HW_INF, HW_NAN };
enum hw_rounding { HW_RNE, HW_RNA, HW_RZ, HW_RU, HW_RD };

typedef struct hw_num {
    uint64_t sig;   /* below 2^(fraction_bits + 1) <= 2^53; of an IEEE NaN its fraction field */
    int32_t lsb;    /* exponent of the unit of sig; the format's exponent is lsb + fraction_bits */
    uint8_t sign;
    uint8_t kind;
    uint8_t subnormal;
} hw_num;

static inline int hw_emin(const hw_format *f) { return 1 - f->bias; }

static inline uint64_t hw_mask(int bits) { return bits >= 64 ? ~0ull : (1ull << bits) - 1; }

/* Code of the largest finite magnitude, without pad and sign. */
static inline uint64_t hw_max_finite(const hw_format *f)
{
    uint64_t all = hw_mask(f->exponent_bits + f->fraction_bits);
    switch (f->special) {
    case HW_IEEE: return all - (1ull << f->fraction_bits);
    case HW_FN: return all - 1;
    default: return all;
    }
}

static inline uint64_t hw_default_nan(const hw_format *f)
{
    uint64_t all = hw_mask(f->exponent_bits + f->fraction_bits);
    switch (f->special) {
    case HW_IEEE: return ((all - hw_mask(f->fraction_bits)) | (1ull << (f->fraction_bits - 1))) << f->pad;
    case HW_FN: return all << f->pad;
    case HW_FNUZ: return 1ull << (f->exponent_bits + f->fraction_bits);
    default: return 0;
    }
}

static inline hw_num hw_decode(const hw_format *f, uint64_t code)
{
    hw_num x = {0, 0, 0, HW_ZERO, 0};
    int p = f->fraction_bits, w = f->exponent_bits;
    uint64_t magnitude = (code >> f->pad) & hw_mask(w + p);
    uint64_t fraction = magnitude & hw_mask(p), biased = magnitude >> p;
    uint64_t top = hw_mask(w);
    x.sign = f->is_signed ? (uint8_t)((code >> (w + p + f->pad)) & 1) : 0;
    if (f->special == HW_IEEE && biased == top) {
        x.sig = fraction;
        x.kind = fraction ? HW_NAN : HW_INF;
        return x;
    }
    if (f->special == HW_FN && magnitude == hw_mask(w + p)) {
        x.kind = HW_NAN;
        return x;
    }
    if (f->special == HW_FNUZ && x.sign && !magnitude) {
        x.kind = HW_NAN;
        return x;
    }
    if (p == 0) {               /* ue8m0: a power of two, never zero */
        x.sig = 1;
        x.lsb = (int)biased - f->bias;
        x.kind = HW_NORMAL;
        return x;
    }
    if (biased) {
        x.sig = fraction | (1ull << p);
        x.lsb = (int)biased - f->bias - p;
        x.kind = HW_NORMAL;
    } else {
        x.sig = fraction;
        x.lsb = hw_emin(f) - p;
        x.kind = fraction ? HW_NORMAL : HW_ZERO;
        x.subnormal = fraction != 0;
    }
    return x;
}

static inline int64_t hw_decode_integer(const hw_format *f, uint64_t code)
{
    int bits = f->fraction_bits;
    code &= hw_mask(bits);
    if (f->is_signed && (code >> (bits - 1)))
        return (int64_t)(code | ~hw_mask(bits));
    return (int64_t)code;
}

static inline int hw_bits128(hw_u128 m)
{
    uint64_t high = (uint64_t)(m >> 64), low = (uint64_t)m;
    return high ? 128 - __builtin_clzll(high) : low ? 64 - __builtin_clzll(low) : 0;
}

static inline uint64_t hw_sign_code(const hw_format *f, unsigned sign)
{
    return sign && f->is_signed ? 1ull << (f->exponent_bits + f->fraction_bits + f->pad) : 0;
}

static inline uint64_t hw_infinity(const hw_format *f, unsigned sign)
{
    return hw_sign_code(f, sign) | ((hw_max_finite(f) + 1) << f->pad);
}

static inline uint64_t hw_largest(const hw_format *f, unsigned sign)
{
    return hw_sign_code(f, sign) | (hw_max_finite(f) << f->pad);
}

/* Code for a magnitude above the largest finite one: infinity, or what stands for it in the format. */
static inline uint64_t hw_beyond(const hw_format *f, int saturate, unsigned sign)
{
    if (saturate || f->special == HW_FINITE)
        return hw_largest(f, sign);
    return f->special == HW_IEEE ? hw_infinity(f, sign) : hw_default_nan(f);
}

/* Rounds (-1)^sign * (m + tail) * 2^lsb to a code, 0 <= tail < 1, tail > 0 when sticky.
 * Needs m > 0, and m >= 2^(fraction_bits + 2) when sticky. An overflow gives infinity (the NaN of a
 * format without one) whatever the rounding, or the largest finite value when saturate is set.
 */
static inline uint64_t hw_round(const hw_format *f, enum hw_rounding rounding, int saturate, unsigned sign,
                                hw_u128 m, int lsb, int sticky)
{
    int p = f->fraction_bits, emin = hw_emin(f);
    int lead = lsb + hw_bits128(m) - 1;
    int exponent = lead < emin ? emin : lead;
    int shift = exponent - p - lsb;
    hw_u128 kept, half, rest;
    if (shift <= 0) {
        kept = m << -shift;     /* m has at most p + 1 bits here: no overflow */
        half = 0;
        rest = sticky != 0;
    } else if (shift > 128) {
        kept = half = 0;
        rest = 1;
    } else {
        kept = shift == 128 ? 0 : m >> shift;
        half = (m >> (shift - 1)) & 1;
        rest = (m & (((hw_u128)1 << (shift - 1)) - 1)) != 0 || sticky;
    }
    int up = 0;
    switch (rounding) {
    case HW_RNE: up = half && (rest || (kept & 1)); break;
    case HW_RNA: up = half != 0; break;
    case HW_RZ: break;
    case HW_RU: up = !sign && (half || rest); break;
    case HW_RD: up = sign && (half || rest); break;
    }
    /* A carry out of the significand moves into the exponent field by itself. */
    hw_u128 magnitude = ((hw_u128)(uint64_t)(exponent - emin) << p) + kept + (hw_u128)up;
    if (magnitude > hw_max_finite(f))
        return hw_beyond(f, saturate, sign);
    if (!magnitude && f->special == HW_FNUZ)
        sign = 0;
    return hw_sign_code(f, sign) | ((uint64_t)magnitude << f->pad);
}

static inline uint64_t hw_load_code(const void *p, int storage_bits)
{
    switch (storage_bits) {
    case 8: return *(const uint8_t *)p;
    case 16: { uint16_t x; memcpy(&x, p, 2); return x; }
    case 32: { uint32_t x; memcpy(&x, p, 4); return x; }
    default: { uint64_t x; memcpy(&x, p, 8); return x; }
    }
}

static inline void hw_store_code(void *p, int storage_bits, uint64_t code)
{
    switch (storage_bits) {
    case 8: *(uint8_t *)p = (uint8_t)code; break;
    case 16: { uint16_t x = (uint16_t)code; memcpy(p, &x, 2); break; }
    case 32: { uint32_t x = (uint32_t)code; memcpy(p, &x, 4); break; }
    default: memcpy(p, &code, 8);
    }
}

#endif
