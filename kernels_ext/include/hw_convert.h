/* Array conversions between float arrays and codes: what Python prepares and the kernels read.
 *
 * A kernel knows the fields below and nothing of formats' names, policies or Python. All numbers about
 * overflow, infinities and NaNs are final codes, found by Python from the one rule in hwsim/formats.py.
 */
#ifndef HW_CONVERT_H
#define HW_CONVERT_H

#include <stddef.h>
#include <stdint.h>

enum hw_rounding { HW_RNE, HW_RNA, HW_RZ, HW_RU, HW_RD };

/* Bits of a code word in memory: 8, 16, 32 or 64; a source or result is binary32 or binary64. */
typedef struct {
    int rounding;
    int source_bits;          /* 32 or 64 */
    int code_bits;            /* 8, 16, 32 or 64 */
    int exponent_bits;        /* 0: an integer format */
    int fraction_bits;
    int min_exponent;
    int ignored_bits;
    uint64_t hidden;          /* taken from the magnitude: 2^fraction_bits without subnormals, else 0 */
    uint64_t largest;         /* magnitude field of the largest finite value (integers: largest positive) */
    uint64_t sign_bit;        /* in the code; 0 for unsigned formats */
    uint64_t code_mask;       /* bits of the storage width */
    uint64_t nan;             /* code of a NaN; also of a negative value of an unsigned floating format */
    uint64_t zero[2];         /* code of a zero source, by sign */
    uint64_t small[2];        /* code of a non-zero source whose magnitude field becomes 0, by sign */
    uint64_t overflow[2];     /* code of a finite source that rounds beyond the largest, by sign */
    uint64_t infinity[2];     /* code of an infinite source, by sign */
    uint64_t negative_is_nan; /* all ones for an unsigned floating format, else 0 */
} hw_encoder;

typedef struct {
    int code_bits;
    int value_bits;           /* 32 or 64 */
    int exponent_bits;        /* 0: an integer format */
    int fraction_bits;
    int min_exponent;
    int ignored_bits;
    int is_signed;
    int bias;
    int subnormals;           /* 0: biased exponent 0 is an exponent like any other */
    int has_infinity;         /* magnitude largest + 1 is infinity, all above NaN; else all above are NaN */
    int minus_zero_is_nan;
    uint64_t largest;
} hw_decoder;

/* What the steps of a split do with infinities and NaNs. */
typedef struct {
    double scale;             /* power of two, a number of the source's type */
    int saturate;             /* infinity becomes the largest finite value */
    int zero_nan;             /* NaN becomes +0 */
} hw_step;

/* One build of the kernels. `n` elements, contiguous, no alignment beyond the element's own. */
typedef struct {
    const char *name;
    void (*encode)(const hw_encoder *, const void *source, void *codes, size_t n);
    void (*decode)(const hw_decoder *, const void *codes, void *values, size_t n);
    /* rest = source * scale, where the source may be the rest itself; rest = rest - piece. Each is one operation,
     * nearest even; [0] binary32, [1] binary64. */
    void (*scale[2])(const hw_step *, const void *source, void *rest, size_t n);
    void (*subtract[2])(const hw_step *, void *rest, const void *piece, size_t n);
    /* The largest word without its sign: of the largest magnitude; a NaN's is above infinity's. */
    uint64_t (*largest[2])(const void *source, size_t n);
} hw_convert_kernels;

#define HW_JOIN_(a, b) a##_##b
#define HW_JOIN(a, b) HW_JOIN_(a, b)
#define HW_NAME(name) HW_JOIN(hw_convert_##name, HWSIM_VARIANT)

/* The source of a job: rows x cols elements, byte strides; its results are in C order. */
typedef struct {
    const char *data;
    size_t rows, cols;
    ptrdiff_t row_stride, col_stride;
    int bits;
} hw_source;

typedef struct {
    hw_step step;
    hw_encoder encoder;
    hw_decoder decoder;
    void *codes;
} hw_piece;

/* NULL when this build or this processor has no such variant. */
const hw_convert_kernels *hw_convert_find(const char *variant);

/* Results do not depend on `threads`, nor on whether the system has that many to give. */
void hw_convert_encode(const hw_convert_kernels *, const hw_encoder *, const hw_source *, void *codes, int threads);
void hw_convert_decode(const hw_convert_kernels *, const hw_decoder *, const hw_source *, void *values, int threads);
/* clamp: infinities of the source become its type's largest finite value before the first step. */
void hw_convert_split(const hw_convert_kernels *, const hw_piece *, int pieces, int clamp, const hw_source *,
                      int threads);
/* The source's elements, times step.scale, as one operation each. The result may be the source itself, in C order. */
void hw_convert_scale(const hw_convert_kernels *, const hw_step *, const hw_source *, void *result, int threads);
/* The word of the largest magnitude, as of the kernel; 0 of no elements. */
uint64_t hw_convert_largest(const hw_convert_kernels *, const hw_source *, int threads);

#endif
