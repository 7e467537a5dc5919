/* Terms of a step: products and accumulators with the exponent that an aligner sees, and their exact sum.
 *
 * Knows the edges of a unit (hw_spec's specials), no model.
 */
#ifndef HW_DOT_TERMS_H
#define HW_DOT_TERMS_H

#include "hw_dot.h"

typedef struct hw_term {
    hw_u128 sig;        /* at most 106 bits: two significands of 53 */
    int lsb;
    int exponent;       /* the format's exponent, or the operands' added; not normalised */
    uint8_t sign, kind;
} hw_term;

/* The number that a unit reads: saturation of infinities, flushing of subnormals (hwsim.numerics.terms). */
static inline hw_num hw_settled(const hw_spec *s, const hw_format *f, hw_num x)
{
    if (s->saturate_operands && x.kind >= HW_INF)
        x = hw_decode(f, x.kind == HW_NAN ? 0 : hw_largest(f, x.sign));
    if (s->flush_operands && (x.kind == HW_ZERO || x.subnormal)) {
        x.sig = 0;
        x.sign = 0;
        x.kind = HW_ZERO;
    }
    return x;
}

static inline hw_num hw_read(const hw_spec *s, const hw_format *f, uint64_t code)
{
    return hw_settled(s, f, hw_decode(f, code));
}

/* The same value in a wider format, with that format's exponent. */
static inline hw_num hw_renormalise(const hw_format *to, const hw_num *x)
{
    hw_num y = *x;
    if (x->kind == HW_NORMAL) {
        int lead = x->lsb + hw_bits128(x->sig) - 1;
        int exponent = lead < hw_emin(to) ? hw_emin(to) : lead;
        int up = x->lsb - (exponent - to->fraction_bits);   /* >= 0: `to` holds the value */
        y.sig = x->sig << up;
        y.lsb = x->lsb - up;
        y.subnormal = lead < hw_emin(to);
    }
    return y;
}

static inline hw_term hw_multiply(const hw_spec *s, const hw_num *a, const hw_num *b)
{
    hw_term t = {0, 0, 0, (uint8_t)(a->sign ^ b->sign), HW_ZERO};
    if (a->kind == HW_NORMAL && b->kind == HW_NORMAL) {
        t.sig = (hw_u128)a->sig * b->sig;
        t.lsb = a->lsb + b->lsb;
        t.exponent = t.lsb + s->a.fraction_bits + s->b.fraction_bits;
        t.kind = HW_NORMAL;
    } else if (a->kind == HW_NAN || b->kind == HW_NAN) {
        t.kind = HW_NAN;
    } else if (a->kind == HW_INF || b->kind == HW_INF) {
        t.kind = a->kind == HW_ZERO || b->kind == HW_ZERO ? HW_NAN : HW_INF;
    }
    return t;
}

static inline hw_term hw_term_of(const hw_format *f, hw_num x)
{
    hw_term t = {x.sig, x.lsb, x.lsb + f->fraction_bits, x.sign, x.kind};
    return t;
}

static inline hw_term hw_plain(const hw_format *f, uint64_t code) { return hw_term_of(f, hw_decode(f, code)); }

static inline hw_term hw_accumulator(const hw_spec *s, const hw_format *f, uint64_t code)
{
    return hw_term_of(f, hw_read(s, f, code));
}

/* NaN and infinities among the terms: 1 and their code, or 0 when all are finite. */
static inline int hw_special_sum(const hw_spec *s, const hw_term *terms, int count, uint64_t *code)
{
    int infinities = 0;
    for (int i = 0; i < count; i++) {
        if (terms[i].kind == HW_NAN)
            infinities |= 3;
        else if (terms[i].kind == HW_INF)
            infinities |= 1 << terms[i].sign;
    }
    if (!infinities)
        return 0;
    *code = infinities == 3 ? s->nan_code : hw_beyond(&s->result, s->saturate_overflow, infinities == 2);
    return 1;
}

/* Code of zero; a format without -0 has one. */
static inline uint64_t hw_zero_code(const hw_format *f, unsigned sign)
{
    return f->special == HW_FNUZ ? 0 : hw_sign_code(f, sign);
}

/* Code of a sum that is zero. IEEE: the sign that all terms have when all are zeros, else that of x - x. */
static inline uint64_t hw_zero(const hw_spec *s, const hw_term *terms, int count)
{
    if (!s->ieee_zero)
        return 0;
    int all_minus = 1, all_plus = 1;
    for (int i = 0; i < count; i++) {
        if (terms[i].kind != HW_ZERO || terms[i].sign)
            all_plus = 0;
        if (terms[i].kind != HW_ZERO || !terms[i].sign)
            all_minus = 0;
    }
    return hw_zero_code(&s->d, all_minus || (s->rounding == HW_RD && !all_plus));
}

/* The last stage: round a sum that is not zero to the result format, in d's word. */
static inline uint64_t hw_pack(const hw_spec *s, unsigned sign, hw_u128 m, int lsb, int sticky)
{
    const hw_format *r = &s->result;
    uint64_t code = hw_round(r, (enum hw_rounding)s->rounding, s->saturate_overflow, sign, m, lsb, sticky);
    uint64_t magnitude = (code >> r->pad) & hw_mask(r->exponent_bits + r->fraction_bits);
    if (!magnitude || (s->flush_results && !(magnitude >> r->fraction_bits)))
        return r->special == HW_FNUZ && code == hw_default_nan(r) ? code : hw_zero_code(&s->d, s->ieee_zero && sign);
    return code;
}

/* Exact sum, rounded once. Returns the code in d. */
uint64_t hw_add_rounded(const hw_spec *s, const hw_term *terms, int count);

#endif
