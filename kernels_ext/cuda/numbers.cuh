/* Codes of the formats of a unit as numbers of the kernels' lanes: values as doubles, exponents, what is special.
 *
 * It knows the formats and the edges of SPEC, which the program's text defines before.
 */
#pragma once
#include "machine.cuh"

enum { NO_EXPONENT = -(1 << 20), NO_TERM = -12000, DOUBLE_EXPONENT_BITS = 11 };

struct Number {
    double value;
    int exponent;       /* the format's: of a subnormal the least; NO_EXPONENT: zero */
    bool is_special;    /* an infinity or a NaN, which the unit does not read as a number */
};

template <int BITS> __device__ __forceinline__ uint64_t load_code(const char *p)
{
    if constexpr (BITS == 8)
        return *(const uint8_t *)p;
    else if constexpr (BITS == 16)
        return *(const uint16_t *)p;
    else if constexpr (BITS == 32)
        return *(const uint32_t *)p;
    else
        return *(const uint64_t *)p;
}

template <int BITS> __device__ __forceinline__ void store_code(char *p, uint64_t code)
{
    if constexpr (BITS == 8)
        *(uint8_t *)p = (uint8_t)code;
    else if constexpr (BITS == 16)
        *(uint16_t *)p = (uint16_t)code;
    else if constexpr (BITS == 32)
        *(uint32_t *)p = (uint32_t)code;
    else
        *(uint64_t *)p = code;
}

__device__ __forceinline__ bool sign_of(const hw_format &f, uint64_t code)
{
    return f.is_signed && (code >> (f.exponent_bits + f.fraction_bits + f.pad) & 1);
}

/* The exact value of a finite code of a floating format. */
__device__ __forceinline__ double value_of_code(const hw_format &f, uint64_t code)
{
    const int p = f.fraction_bits, w = f.exponent_bits;
    const uint64_t magnitude = (code >> f.pad) & hw_mask(w + p), biased = magnitude >> p, fraction = magnitude & hw_mask(p);
    const bool sign = sign_of(f, code);
    double value;
    if (w == 11)
        value = __longlong_as_double((long long)magnitude);
    else if (biased)
        value = __longlong_as_double((long long)((biased - f.bias + BIAS) << 52 | fraction << (52 - p)));
    else
        value = (double)fraction * power_of_two(hw_emin(&f) - p);
    return sign ? -value : value;
}

/* A number of a short floating format by its magnitude's word: in the place of a double's exponent and fraction it is the
 * number times a power of two, subnormal or not.
 */
__device__ __forceinline__ Number short_number(const hw_format &f, uint32_t word, bool sign)
{
    const int p = f.fraction_bits;
    const uint32_t biased = word >> p, infinite = (uint32_t)hw_mask(f.exponent_bits) << p;
    const bool is_special = f.special == HW_IEEE ? word >= infinite
        : f.special == HW_FN ? word == (uint32_t)hw_mask(f.exponent_bits + p) : f.special == HW_FNUZ && sign && !word;
    const bool is_none = is_special || (SPEC.flush_operands && !biased);
    const uint32_t high = is_none ? 0 : word << (EXPONENT_SHIFT - p) | (sign ? SIGN_WORD : 0);
    const int exponent = max((int)biased, 1) - f.bias;
    return {__dmul_rn(from_words(high, 0), power_of_two(BIAS - f.bias)), is_none || !word ? NO_EXPONENT : exponent, is_special};
}

__device__ __forceinline__ Number read_number(const hw_format &f, uint64_t code)
{
    const int p = f.fraction_bits, w = f.exponent_bits;
    if (f.special == HW_INTEGER)
        return Number{(double)hw_decode_integer(&f, code), 0, false};
    if (w < DOUBLE_EXPONENT_BITS && p <= EXPONENT_SHIFT && !SPEC.saturate_operands)
        return short_number(f, (uint32_t)(code >> f.pad) & (uint32_t)hw_mask(w + p), sign_of(f, code));
    const uint64_t magnitude = (code >> f.pad) & hw_mask(w + p), biased = magnitude >> p;
    const bool sign = sign_of(f, code);
    const bool is_infinite = f.special == HW_IEEE && magnitude == hw_mask(w) << p;
    const bool is_nan = (f.special == HW_IEEE && magnitude > hw_mask(w) << p)
        || (f.special == HW_FN && magnitude == hw_mask(w + p)) || (f.special == HW_FNUZ && sign && !magnitude);
    Number x = {0, NO_EXPONENT, false};
    if (is_infinite || is_nan) {
        if (!SPEC.saturate_operands) {
            x.is_special = true;
            return x;
        }
        if (is_nan)
            return x;
        code = hw_largest(&f, sign);
        x.value = value_of_code(f, code);
        x.exponent = (int)(hw_max_finite(&f) >> p) - f.bias;
        return x;
    }
    if (SPEC.flush_operands && !biased)
        return x;
    x.value = value_of_code(f, code);
    if (magnitude)
        x.exponent = biased ? (int)biased - f.bias : hw_emin(&f);
    return x;
}

/* The code of a number of D_FORMAT; of zeros +0. */
__device__ __forceinline__ uint64_t code_of_result(double x)
{
    if constexpr (D_FORMAT.fraction_bits == 23 && D_FORMAT.exponent_bits == 8)
        return __float_as_uint((float)x);
    const uint64_t bits = (uint64_t)__double_as_longlong(x) & ~(1ull << 63);
    return !bits ? 0 : hw_round(&D_FORMAT, HW_RNE, 0, x < 0, (bits & hw_mask(52)) | 1ull << 52, (int)(bits >> 52) - BIAS - 52, 0);
}

/* Operands as a unit reads them. */
struct Operands {
    __device__ __forceinline__ static Number read(const hw_format &f, uint64_t code) { return read_number(f, code); }
};

#if HAS_SCALES
/* Times a block's scale, a power of two; its NaN makes a line special. */
__device__ __forceinline__ Number scaled(Number x, uint8_t code)
{
    const int exponent = (int)code - SPEC.scale.bias;
    x.is_special |= code == 255;
    x.value *= power_of_two(exponent);
    x.exponent = x.exponent == NO_EXPONENT ? NO_EXPONENT : x.exponent + exponent;
    return x;
}
#endif
