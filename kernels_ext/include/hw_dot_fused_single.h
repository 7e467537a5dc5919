/* Chains of fused steps in binary32 lanes: one row of A with the columns of a panel.
 *
 * The largest exponent of a step's products comes from 8-bit lanes: a saturating addition and a maximum for HW_BYTES
 * columns at a time. Byte v of a 32-bit lane belongs to vector v: shifted to a binary32's exponent, with other bytes'
 * bits below it, it is a number whose magnitude can be compared with the accumulator's as it stands.
 *
 * int32: a product costs a multiplication (exact: significands of at most 24 bits together), a scaling by
 *   2^(F - top) (exact, or below 1), a truncating conversion and an integer addition. A step's products are below
 *   2^(F + 2) each and the accumulator below 2^(F + 1); together they stay within int32 because of
 *   terms * 2^(F + 2) + 2^(F + 1) <= 2^31 or, where a row's heavy_sum is checked,
 *   sum of |a|'s significands * 2^(F + 1) + 2^(F + 1) <= 2^31.
 *
 * by sign (F <= 16): magnitudes are added to 2^(top + 23 - F), toward zero: the addition itself cuts the product to
 *   F places. Positive and negative products have sums of their own; each stays below 2^(top + 24 - F) because of
 *   4 * terms + 2 <= 2^(23 - F). A product costs one fused multiply-add in two sums, of which one adds zero.
 *
 * Both with accumulators c relative to the lines' bases, in lanes that round toward zero.
 */
#ifndef HW_DOT_FUSED_SINGLE_H
#define HW_DOT_FUSED_SINGLE_H

#include "hw_dot_fused.h"

typedef struct chain {
    ptrdiff_t padded;
    int terms, fraction_bits, keep;     /* keep: places of the result */
    const float *a;
    const uint32_t *a_exponent;
    const int32_t *a_side;
    const float *b;
    const int8_t *b_exponent;
} chain;

/* 2^top of each lane, top being the largest exponent of the step's products and the accumulator, or LOWEST. */
static inline __attribute__((always_inline)) void largest_powers(int vectors, int terms, const uint32_t *a,
                                                                 const int8_t *b, const vf *c, vi *power)
{
    /* Two maxima: shorter chains of dependences. */
    vb top = (vb)vi_all((int32_t)(((LOWEST - 1) & 255) * 0x01010101u)), other = top;
    int t = 0;
    for (; t + 2 <= terms; t += 2, b += 2 * WIDTH) {
        top = vb_max(top, vb_add_saturating((vb)vi_all((int32_t)a[t]), vb_load(b)));
        other = vb_max(other, vb_add_saturating((vb)vi_all((int32_t)a[t + 1]), vb_load(b + WIDTH)));
    }
    for (; t < terms; t++, b += WIDTH)
        top = vb_max(top, vb_add_saturating((vb)vi_all((int32_t)a[t]), vb_load(b)));
    vi tops = (vi)vb_max(top, other) ^ (int32_t)0x80808080;     /* biased by 127 */
    for (int v = 0; v < vectors; v++) {
        vi own = v < 3 ? tops << (23 - 8 * v) : (vi)((vui)tops >> 1);
        power[v] = (vi)vf_larger_magnitude((vf)own, c[v]) & 0x7F800000;
    }
}

static inline __attribute__((always_inline)) void run_integers(const chain *g, int vectors, int terms, int cut, vf *c)
{
    const float *a = g->a, *b = g->b;
    const uint32_t *a_exponent = g->a_exponent;
    const int8_t *b_exponent = g->b_exponent;
    vi keep = vi_all(g->keep), inverse = vi_all((254 + g->fraction_bits) << 23);
    for (ptrdiff_t step = 0; step < g->padded; step += terms) {
        vi total[VECTORS], power[VECTORS];
        vf scale[VECTORS];
        largest_powers(vectors, terms, a_exponent, b_exponent, c, power);
        for (int v = 0; v < vectors; v++) {
            scale[v] = (vf)((vui)inverse - (vui)power[v]);   /* bits: may wrap */
            total[v] = vi_truncate(c[v] * scale[v]);
        }
#pragma GCC unroll 4
        for (int t = 0; t < terms; t++, a++, b += WIDTH) {
            vf row = vf_all(*a);
            for (int v = 0; v < vectors; v++)
                total[v] += vi_truncate(row * vf_load(b + v * LANES) * scale[v]);
        }
        for (int v = 0; v < vectors; v++) {
            vf unit = (vf)(vi_all(254 << 23) - (vi)scale[v]);
#if HW_HAS_CUT
            vf value = vf_from_int(total[v]);
#else
            vf value = vf_from_int_cut(total[v]);
#endif
            c[v] = value * unit;
            if (cut)
                c[v] = (vf)((vi)c[v] & keep);
        }
        a_exponent += terms;
        b_exponent += terms * WIDTH;
    }
}

#if HW_HAS_CUT
static inline __attribute__((always_inline)) void run_signs(const chain *g, int vectors, vf *c)
{
    int terms = g->terms;
    const float *a = g->a, *b = g->b;
    const int32_t *side = g->a_side;
    const uint32_t *a_exponent = g->a_exponent;
    const int8_t *b_exponent = g->b_exponent;
    vi keep = vi_all(g->keep), up = vi_all((23 - g->fraction_bits) << 23);
    for (ptrdiff_t step = 0; step < g->padded; step += terms) {
        vi power[VECTORS];
        vf plus[VECTORS], minus[VECTORS];
        largest_powers(vectors, terms, a_exponent, b_exponent, c, power);
        for (int v = 0; v < vectors; v++) {
            vf start = (vf)(power[v] + up);
            plus[v] = start + vf_max(c[v], vf_all(0));
            minus[v] = start - vf_min(c[v], vf_all(0));
        }
        for (int t = 0; t < terms; t++, b += 2 * WIDTH) {
            vf row = vf_all(a[t]);
            const float *first = b + side[t], *second = b + (side[t] ^ WIDTH);
            for (int v = 0; v < vectors; v++) {
                plus[v] = vf_add_product(row, vf_load(first + v * LANES), plus[v]);
                minus[v] = vf_add_product(row, vf_load(second + v * LANES), minus[v]);
            }
        }
        for (int v = 0; v < vectors; v++)
            c[v] = (vf)((vi)(plus[v] - minus[v]) & keep);
        a += terms;
        side += terms;
        a_exponent += terms;
        b_exponent += terms * WIDTH;
    }
}
#endif

static inline __attribute__((always_inline)) void run_chain(const state *s, const chain *g, int vectors, vf *c)
{
#if HW_HAS_CUT
    if (s->signs) {
        run_signs(g, vectors, c);
        return;
    }
#endif
    if (~g->keep)
        run_integers(g, vectors, g->terms, 1, c);
    else if (g->terms == 16)
        run_integers(g, vectors, 16, 0, c);
    else if (g->terms == 8)
        run_integers(g, vectors, 8, 0, c);
    else if (g->terms == 4)
        run_integers(g, vectors, 4, 0, c);
    else
        run_integers(g, vectors, g->terms, 0, c);
}

/* Accumulators, relative to the bases, times 2^-places. Returns whether one leaves the range. */
static inline __attribute__((always_inline)) int divide_vectors(const state *s, int vectors, int a_base, int places,
                                                                vf *c)
{
    vi bad = vi_all(0);
    vf factor = vf_all(hw_power_of_two(-places));
    for (int v = 0; v < vectors; v++) {
        vi least = vi_all(0), magnitude = (vi)c[v] & 0x7FFFFFFF;
        if (s->based)   /* where the bases are negative, the lane's number is larger than the accumulator */
            least = vi_max(-(vi_load(s->b_base + v * LANES) + a_base), least);
        bad |= (magnitude - ((least + (PRODUCT_LOW + 127 + places)) << 23)) & (magnitude > 0);
        c[v] *= factor;
    }
    return vi_any_negative(bad);
}

/* The chain over whole steps, with the divisions of the row's block between them. */
static inline __attribute__((always_inline)) int run_divided(const state *s, const chain *g, const hw_block *row,
                                                             int vectors, int a_base, vf *c)
{
    chain part = *g;
    ptrdiff_t steps = g->padded / g->terms, wide = s->signs ? 2 * WIDTH : WIDTH;
    for (ptrdiff_t step = 0, next; step < steps; step = next) {
        if (row->divide[step] && divide_vectors(s, vectors, a_base, row->divide[step], c))
            return 1;
        next = hw_next_division(row, step + 1, steps);
        part.padded = (next - step) * g->terms;
        run_chain(s, &part, vectors, c);
        part.a += part.padded;
        part.a_side += part.padded;
        part.a_exponent += part.padded;
        part.b += part.padded * wide;
        part.b_exponent += part.padded * WIDTH;
    }
    return 0;
}

/* Row i, whose results are at `out`. Returns 1, and leaves them, when an accumulator is out of range. */
static inline __attribute__((always_inline)) int run_vectors(const state *s, const chain *g, const hw_block *row,
                                                             int vectors, int a_base, float *out)
{
    vf c[VECTORS];
    vi bad = vi_all(0), low = vi_all((PRODUCT_LOW + 127) << 23), high = vi_all((SUM_HIGH + 127) << 23);
    for (int v = 0; v < vectors; v++) {
        c[v] = vf_load(out + v * LANES);
        vi magnitude = (vi)c[v] & 0x7FFFFFFF, range = (magnitude - low) | (high - magnitude);
        if (s->based) {
            c[v] *= (vf)((127 - a_base - vi_load(s->b_base + v * LANES)) << 23);
            vi relative = (vi)c[v] & 0x7FFFFFFF;
            range |= (relative - low) | (vi_all((RELATIVE_HIGH + 127) << 23) - relative);
        } else
            range |= vi_all((RELATIVE_HIGH + 127) << 23) - magnitude;
        bad |= range & (magnitude > 0);
    }
    if (vi_any_negative(bad))
        return 1;
    if (!row->divide)
        run_chain(s, g, vectors, c);
    else if (run_divided(s, g, row, vectors, a_base, c))
        return 1;
    for (int v = 0; v < vectors; v++) {
        if (s->based)
            c[v] *= (vf)((127 + a_base + vi_load(s->b_base + v * LANES)) << 23);
        vf_store(out + v * LANES, c[v]);
    }
    return 0;
}

static __attribute__((noinline)) int run_single(const state *s, const hw_block *row, int columns, ptrdiff_t padded,
                                                ptrdiff_t i, char *out)
{
    chain g = {padded, s->spec->terms, s->spec->fraction_bits, (int32_t)~hw_mask(s->spec->result.pad),
               s->a + i * padded, s->a_exponent + i * padded, s->a_side + i * padded, s->b, s->b_exponent};
    int a_base = s->a_line[i].base;
    if (columns == WIDTH)
        return run_vectors(s, &g, row, VECTORS, a_base, (float *)(void *)out);
    _Alignas(64) float c[WIDTH] = {0};
    memcpy(c, out, 4 * (size_t)columns);
    if (columns <= LANES ? run_vectors(s, &g, row, 1, a_base, c)
        : columns <= 2 * LANES ? run_vectors(s, &g, row, 2, a_base, c) : run_vectors(s, &g, row, VECTORS, a_base, c))
        return 1;
    memcpy(out, c, 4 * (size_t)columns);
    return 0;
}

#endif
