/* Exponents of a line of binary32 values, in lanes. It knows no unit. */
#ifndef HW_DOT_LINE_H
#define HW_DOT_LINE_H

#include "hw_simd.h"

/* The format's exponents of binary32 values, biased by 127; 0 for zeros, 255 for infinities and NaNs. least: of its
 * normal numbers.
 */
static inline vi exponents_of(vi bits, int least)
{
    vi magnitude = bits & 0x7FFFFFFF;
    return vi_max(magnitude >> 23, vi_all(least)) & (magnitude > 0);
}

/* Least and largest biased exponents of what is not zero; 255 and 0 where all is. */
typedef struct span {
    vi low, high;
} span;

static inline span span_of_nothing(void) { return (span){vi_all(255), vi_all(0)}; }

static inline span span_with(span range, vi e)
{
    return (span){-vi_max(-range.low, -(e | ((e == 0) & 255))), vi_max(range.high, e)};
}

#endif
