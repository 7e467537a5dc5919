/* One step of each model on decoded numbers, in integers of stated width: the portable truth.
 *
 * Twin of hwsim/numerics; every rule's source is named there.
 */
#include "hw_dot_terms.h"

/* exact, fma_chain: all products and the accumulator in one sum, rounded once. All padding is one product of +0. */
static uint64_t step_exact(const hw_spec *s, const hw_num *a, const hw_num *b, const hw_scales *scales,
                         const hw_format *c_format, uint64_t c)
{
    hw_term terms[HW_MAX_EXACT_TERMS + 1];
    int count = scales->given < s->terms ? scales->given + 1 : s->terms;
    for (int i = 0; i < count; i++)
        terms[i] = hw_multiply(s, &a[i], &b[i]);
    terms[count] = hw_accumulator(s, c_format, c);
    return hw_add_rounded(s, terms, count + 1);
}

/* A NaN as a quiet one of d: its sign, and its payload's leading bits. */
static uint64_t quiet_nan(const hw_spec *s, const hw_format *from, const hw_num *x)
{
    int wider = s->d.fraction_bits - from->fraction_bits;
    uint64_t payload = wider >= 0 ? x->sig << wider : x->sig >> -wider;
    return hw_default_nan(&s->d) | payload << s->d.pad
        | hw_sign_code(&s->d, from->special != HW_FNUZ && x->sign);
}

/* fma_chain: an exact step of one product; a NaN operand may pass on. */
static uint64_t step_fma(const hw_spec *s, const hw_num *a, const hw_num *b, const hw_scales *scales,
                         const hw_format *c_format, uint64_t c)
{
    for (const char *name = s->nan_order; *name; name++) {
        hw_num x = *name == 'a' ? *a : *name == 'b' ? *b : hw_read(s, c_format, c);
        if (x.kind == HW_NAN)
            return quiet_nan(s, *name == 'a' ? &s->a : *name == 'b' ? &s->b : c_format, &x);
    }
    return step_exact(s, a, b, scales, c_format, c);
}

/* The product of a block's two scales. */
static hw_term scale_of(const hw_spec *s, const hw_scales *scales, int block)
{
    const hw_num *x = &scales->a[block], *y = &scales->b[block];
    hw_term t = {(hw_u128)x->sig * y->sig, x->lsb + y->lsb, 0, 0, HW_NORMAL};
    t.exponent = t.lsb + 2 * s->scale.fraction_bits;
    if (x->kind == HW_NAN || y->kind == HW_NAN)
        t.kind = HW_NAN;
    else if (x->kind == HW_ZERO || y->kind == HW_ZERO)
        t.kind = HW_ZERO;
    return t;
}

/* Width: a product of operands of at most 16 bits and scales of at most 8, below 2^(24 + 10). */
static hw_term times_scale(const hw_term *x, const hw_term *scale)
{
    hw_term t = {x->sig * scale->sig, x->lsb + scale->lsb, x->exponent + scale->exponent, x->sign, x->kind};
    if (scale->kind == HW_NAN || (x->kind == HW_INF && scale->kind == HW_ZERO))
        t.kind = HW_NAN;
    else if (scale->kind == HW_ZERO && x->kind == HW_NORMAL)
        t.kind = HW_ZERO;
    return t;
}

/* Terms aligned to the largest exponent, or to `top` where that is larger, each cut toward zero fraction_bits below it,
 * and added. The sum counts in units of 2^last_place.
 */
static inline hw_i128 sum_aligned(const hw_spec *s, const hw_term *terms, int count, int top, int *last_place)
{
    for (int i = 0; i < count; i++)
        if (terms[i].kind == HW_NORMAL && terms[i].exponent > top)
            top = terms[i].exponent;
    *last_place = top - s->fraction_bits;
    hw_i128 sum = 0;
    for (int i = 0; i < count; i++) {
        if (terms[i].kind != HW_NORMAL || !terms[i].sig)
            continue;
        int shift = *last_place - terms[i].lsb;
        hw_u128 magnitude = shift >= 128 ? 0 : shift >= 0 ? terms[i].sig >> shift : terms[i].sig << -shift;
        sum += terms[i].sign ? -(hw_i128)magnitude : (hw_i128)magnitude;
    }
    return sum;
}

/* fused: align to the largest exponent, cut, add, round once.
 * Width: a cut term is below 2^(F + 2) in magnitude (a product's significand is below 4), so the sum of
 * terms + 1 of them stays below 2^(F + 2 + 9) <= 2^127 for F <= 116 and HW_MAX_TERMS = 2^8.
 */
static uint64_t step_fused(const hw_spec *s, const hw_num *a, const hw_num *b, const hw_scales *scales,
                         const hw_format *c_format, uint64_t c)
{
    hw_term terms[HW_MAX_TERMS + 1];
    int count = s->terms + 1, top = s->floor_exponent;
    for (int i = 0; i < s->terms; i++) {
        terms[i] = hw_multiply(s, &a[i], &b[i]);
        if (scales && s->scale_block) {
            hw_term scale = scale_of(s, scales, i / s->scale_block);
            terms[i] = times_scale(&terms[i], &scale);
        }
    }
    terms[s->terms] = hw_accumulator(s, c_format, c);
    uint64_t special;
    if (hw_special_sum(s, terms, count, &special))
        return special;
    int last_place;
    hw_i128 sum = sum_aligned(s, terms, count, top, &last_place);
    if (!sum)
        return hw_zero(s, terms, count);
    return hw_pack(s, sum < 0, sum < 0 ? -(hw_u128)sum : (hw_u128)sum, last_place, 0);
}

/* pairwise: products and sums of neighbours each rounded to d, then the accumulator plus the root. */
static uint64_t step_pairwise(const hw_spec *s, const hw_num *a, const hw_num *b, const hw_scales *scales,
                         const hw_format *c_format, uint64_t c)
{
    (void)scales;
    uint64_t level[HW_MAX_TERMS];
    hw_term pair[2];
    int count = s->terms;
    for (int i = 0; i < count; i++) {
        pair[0] = hw_multiply(s, &a[i], &b[i]);
        level[i] = hw_add_rounded(s, pair, 1);
    }
    while (count > 1) {
        int half = count / 2;
        for (int i = 0; i < half; i++) {
            pair[0] = hw_plain(&s->d, level[2 * i]);
            pair[1] = hw_plain(&s->d, level[2 * i + 1]);
            level[i] = hw_add_rounded(s, pair, 2);
        }
        if (count & 1)
            level[half] = level[count - 1];
        count = half + (count & 1);
    }
    pair[0] = hw_accumulator(s, c_format, c);
    pair[1] = hw_plain(&s->d, level[0]);
    return hw_add_rounded(s, pair, 2);
}

/* integer: exact products added to the accumulator, wrapping or saturating once per step.
 * Width: products of two 16-bit integers, 2^8 of them and an int32: below 2^40.
 */
static uint64_t step_integer(const hw_spec *s, const hw_num *a, const hw_num *b, const hw_scales *scales,
                         const hw_format *c_format, uint64_t c)
{
    (void)scales;
    int64_t sum = hw_decode_integer(c_format, c);
    for (int i = 0; i < s->terms; i++)
        sum += (int64_t)a[i].sig * (int64_t)b[i].sig;
    int bits = s->d.fraction_bits;
    if (s->saturate_overflow) {
        int64_t high = (int64_t)hw_mask(s->d.is_signed ? bits - 1 : bits), low = s->d.is_signed ? -high - 1 : 0;
        sum = sum > high ? high : sum < low ? low : sum;
    }
    return (uint64_t)sum & hw_mask(bits);
}

hw_step hw_step_two_level;

/* composite: inner fused steps over selections of k, from +0, then one IEEE addition of the accumulator. */
static uint64_t step_composite(const hw_spec *s, const hw_num *a, const hw_num *b, const hw_scales *scales,
                         const hw_format *c_format, uint64_t c)
{
    (void)scales;
    const hw_spec *inner = s->inner;
    hw_num chosen_a[HW_MAX_TERMS], chosen_b[HW_MAX_TERMS];
    const hw_num zero = {0, 0, 0, HW_ZERO, 0};
    uint64_t partial = 0;
    for (int step = 0; step < s->selections; step++) {
        int count = 0;
        for (int k = 0; k < s->terms; k++)
            if (s->selection[step] >> (k % s->modulus) & 1) {
                chosen_a[count] = hw_settled(inner, &inner->a, hw_renormalise(&inner->a, &a[k]));
                chosen_b[count++] = hw_settled(inner, &inner->b, hw_renormalise(&inner->b, &b[k]));
            }
        for (; count < inner->terms; count++)
            chosen_a[count] = chosen_b[count] = zero;
        partial = step_fused(inner, chosen_a, chosen_b, 0, &inner->d, partial);
    }
    hw_term pair[2] = {hw_plain(&s->d, partial), hw_accumulator(s, c_format, c)};
    hw_spec addition = *s;
    addition.rounding = HW_RNE;
    return hw_add_rounded(&addition, pair, 2);
}

/* block_scaled: groups of products added exactly, times their scales, then aligned and cut as in fused.
 * Width: operands of at most 8 bits have products of at most 2^32 in steps of 2^-34, a group of 2^8 of them and two
 * scales' significands fit 2^(66 + 8 + 10); cut, they are below 2^(F + 2 + 32 + 8) <= 2^106 for F <= 64.
 */
static uint64_t step_block_scaled(const hw_spec *s, const hw_num *a, const hw_num *b, const hw_scales *scales,
                                  const hw_format *c_format, uint64_t c)
{
    hw_term terms[HW_MAX_TERMS + 1], groups[HW_MAX_TERMS + 1];
    int count = 0;
    for (int i = 0; i < s->terms; i++)
        terms[i] = hw_multiply(s, &a[i], &b[i]);
    for (int first = 0; first < scales->given; first += s->group) {
        hw_term scale = scale_of(s, scales, first / s->scale_block), sum = {0, 0, s->zero_exponent, 0, HW_NORMAL};
        int last = first + s->group < s->terms ? first + s->group : s->terms, low = INT32_MAX, nans = 0;
        for (int i = first; i < last; i++) {
            hw_term scaled = times_scale(&terms[i], &scale);
            nans |= scaled.kind == HW_NAN ? 3 : scaled.kind == HW_INF ? 1 << scaled.sign : 0;
            if (terms[i].kind == HW_NORMAL && terms[i].lsb < low)
                low = terms[i].lsb;
        }
        if (nans) {
            sum.kind = nans == 3 ? HW_NAN : HW_INF;
            sum.sign = nans == 2;
        } else if (low != INT32_MAX && scale.kind != HW_ZERO) {
            hw_i128 total = 0;
            for (int i = first; i < last; i++)
                if (terms[i].kind == HW_NORMAL) {
                    hw_i128 m = (hw_i128)(terms[i].sig << (terms[i].lsb - low));
                    total += terms[i].sign ? -m : m;
                }
            sum.sign = total < 0;
            sum.sig = (total < 0 ? -(hw_u128)total : (hw_u128)total) * scale.sig;
            sum.lsb = low + scale.lsb;
            sum.exponent = scale.exponent;
        }
        groups[count++] = sum;
    }
    terms[s->terms] = groups[count++] = hw_accumulator(s, c_format, c);
    uint64_t special;
    if (hw_special_sum(s, groups, count, &special))
        return special;
    int last_place;
    hw_i128 sum = sum_aligned(s, groups, count, s->floor_exponent, &last_place);
    if (!sum)
        return hw_zero(s, terms, s->terms + 1);
    return hw_pack(s, sum < 0, sum < 0 ? -(hw_u128)sum : (hw_u128)sum, last_place, 0);
}

#ifndef HW_ON_GPU    /* there a unit is known when its kernels are compiled */
hw_step *const hw_steps[HW_MODELS] = {
    [HW_EXACT] = step_exact,
    [HW_FMA_CHAIN] = step_fma,
    [HW_FUSED] = step_fused,
    [HW_PAIRWISE] = step_pairwise,
    [HW_TWO_LEVEL] = hw_step_two_level,
    [HW_INTEGER_MODEL] = step_integer,
    [HW_COMPOSITE] = step_composite,
    [HW_BLOCK_SCALED] = step_block_scaled,
};
#endif
