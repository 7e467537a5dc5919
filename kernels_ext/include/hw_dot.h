/* The contract between the dot kernels' parts: a unit with its formats, and one block of a product.
 *
 * The Python twin of hw_spec is hwsim.numerics.units.DotSpec. Knows nothing of devices.
 */
#ifndef HW_DOT_H
#define HW_DOT_H

#include <stddef.h>
#include "hw_format.h"

enum hw_model {
    HW_EXACT, HW_FMA_CHAIN, HW_FUSED, HW_PAIRWISE, HW_TWO_LEVEL, HW_INTEGER_MODEL, HW_COMPOSITE,
    HW_BLOCK_SCALED, HW_MODELS
};

/* Longest step, and that of the exact unit; they bound the arrays of the scalar steps. */
#ifndef HW_ON_GPU
enum { HW_MAX_TERMS = 256, HW_MAX_EXACT_TERMS = 4096 };
#endif

typedef struct hw_spec {
    hw_format a, b, c, d;
    hw_format result;           /* what the sum is rounded to: d, or narrower within d's word */
    int model;
    int terms;
    int rounding;
    int fraction_bits;
    int floor_exponent;
    int saturate_operands;
    int saturate_overflow;
    int ieee_zero;
    int flush_operands;
    int flush_results;
    uint64_t nan_code;
    char nan_order[4];          /* fma_chain: operands ("bca") whose NaN passes on, the first one; empty: nan_code */
    /* two_level */
    int product_fraction_bits, sum_fraction_bits, accumulator_fraction_bits, final_fraction_bits;
    int interleaved;
    int accumulator_drop_bits;  /* negative: never dropped */
    /* composite: the unit of its inner steps, and for each of them a mask of k mod modulus */
    struct hw_spec *inner;
    int modulus;
    int selections;
    uint64_t selection[8];
    /* block scales: their format, and how many k share one (0: there are none) */
    hw_format scale;
    int scale_block;
    /* block_scaled: products of a group, and the exponent of a group of zeros */
    int group;
    int zero_exponent;
} hw_spec;

/* out (m, n) holds the accumulator in, in d's format, and the result out; strides in bytes. k is any
 * number; products missing from the last step are +0. b strides: b_row along k, b_column along n.
 */
typedef struct hw_block {
    const hw_spec *spec;
    const char *a, *b;
    char *out;
    ptrdiff_t a_row, a_column, b_row, b_column, out_row;
    ptrdiff_t m, n, k;
    /* codes of block scales, (m, blocks) and (blocks, n); unused without */
    const char *a_scale, *b_scale;
    ptrdiff_t a_scale_row, a_scale_column, b_scale_row, b_scale_column;
    /* For each step the places by which the accumulator is divided before it, exactly: it counts times 2^-places,
     * with the format's exponents as much lower. 0: nobody is. */
    const uint8_t *divide;
    const struct hw_promotion *promotion;   /* hw_dot_promote.h; NULL: one chain over all of K. Not for hw_gemm */
} hw_block;

/* The next place for vectors: a multiple of 64 bytes, up to 63 bytes on. */
static inline void *hw_align(void *p) { return (void *)(((uintptr_t)p + 63) & ~(uintptr_t)63); }

/* The step from `step` on, below `steps`, before which the accumulator is divided next; or `steps`. */
static inline ptrdiff_t hw_next_division(const hw_block *block, ptrdiff_t step, ptrdiff_t steps)
{
    while (block->divide && step < steps && !block->divide[step])
        step++;
    return block->divide ? step : steps;
}

/* Scales of one step's blocks; beyond the last of k they are 1. given: products of the step that are no padding. */
typedef struct hw_scales {
    const hw_num *a, *b;
    int given;
} hw_scales;

/* One step: codes of the accumulator in and out; a, b hold spec->terms numbers. */
typedef uint64_t hw_step(const hw_spec *spec, const hw_num *a, const hw_num *b, const hw_scales *scales,
                         const hw_format *c_format, uint64_t c);

extern hw_step *const hw_steps[HW_MODELS];

/* Truth for every model: integers only. Returns 0, or -1 without memory. c_format: of the accumulator
 * that stands in `c` (strides c_row, element stride its storage width) for the first step; c may be out. */
int hw_scalar_block(const hw_block *block);
int hw_scalar_first_step(const hw_block *block, const char *c, ptrdiff_t c_row, ptrdiff_t c_column);

/* A build for one instruction set. */
typedef int hw_gemm(const hw_block *block);
typedef struct hw_variant {
    const char *name;
    hw_gemm *gemm;
} hw_variant;

extern const hw_variant hw_scalar_variant;        /* no fast path at all */
int hw_variants(const hw_variant **table);       /* those this machine can run, the best last */
int hw_gemm_threads(const hw_variant *variant, const hw_block *block, ptrdiff_t batches, const ptrdiff_t *a_offset,
                    const ptrdiff_t *b_offset, const ptrdiff_t *out_offset, const ptrdiff_t *a_scale_offset,
                    const ptrdiff_t *b_scale_offset, int threads);

#endif
