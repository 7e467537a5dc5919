/* What the C headers and the kernels need of a GPU: fixed-width types, two functions of GCC, words of doubles.
 *
 * Compiled by NVRTC with 128-bit integers, without contraction (--fmad=false), every function for the device.
 */
#pragma once

typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef unsigned long long uintptr_t;
#define INT32_MAX 0x7fffffff
#define INT32_MIN (-0x7fffffff - 1)
#define __builtin_clzll(x) __clzll((long long)(x))

__device__ __forceinline__ uint32_t high_word(double x) { return (uint32_t)__double2hiint(x); }
__device__ __forceinline__ double from_words(uint32_t high, uint32_t low) { return __hiloint2double((int)high, (int)low); }

constexpr uint32_t EXPONENT_WORD = 0x7ff00000, SIGN_WORD = 0x80000000, HALF_WORD = 0x80000;
enum { EXPONENT_SHIFT = 20, BIAS = 1023 };
#define INFINITY_OF_FLOATS __uint_as_float(0x7f800000u)

/* x with its sign changed where `change` has SIGN_WORD, else 0. */
__device__ __forceinline__ double with_sign_changed(double x, uint32_t change)
{
    return from_words(high_word(x) ^ change, (uint32_t)__double2loint(x));
}

/* 1.5 * 2^exponent of a high word that holds 2^exponent: sums added to it keep its last place. */
__device__ __forceinline__ double three_halves(uint32_t power) { return from_words(power | HALF_WORD, 0); }

__device__ __forceinline__ double power_of_two(int exponent)
{
    return from_words((uint32_t)(exponent + BIAS) << EXPONENT_SHIFT, 0);
}

/* x, without the conversion, which few lanes of a processor do. */
__device__ __forceinline__ double double_of(uint32_t x) { return __dsub_rn(from_words(0x43300000, x), 0x1p52); }

/* x + a, cut toward zero at the last place of x, which is positive and larger than a. */
__device__ __forceinline__ double add_cut(double a, double x)
{
    return high_word(a) & SIGN_WORD ? __dadd_ru(x, a) : __dadd_rd(x, a);
}

/* The sum of x and y, and what the rounding lost. */
__device__ __forceinline__ double two_sum(double x, double y, double *error)
{
    const double sum = __dadd_rn(x, y), part = __dsub_rn(sum, x);
    *error = __dadd_rn(__dsub_rn(x, __dsub_rn(sum, part)), __dsub_rn(y, part));
    return sum;
}

/* t + error rounded to odd; t is the double nearest to it. A later rounding to 51 bits or fewer is exact then. */
__device__ __forceinline__ double to_odd(double t, double error)
{
    const long long bits = __double_as_longlong(t);
    if (error == 0 || (bits & 1))
        return t;
    return __longlong_as_double(bits + ((__double_as_longlong(error) ^ bits) < 0 ? -1 : 1));
}
