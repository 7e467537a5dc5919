/* One two-level step (CDNA3): products first, then the accumulator, cut toward minus infinity. */
#include "hw_dot_terms.h"

typedef struct { hw_i128 value; int last_place; } fixed;

/* Toward minus infinity at 2^last_place: an arithmetic shift. */
static fixed cut_down(fixed x, int last_place)
{
    if (x.last_place >= last_place)
        return x;
    int shift = last_place - x.last_place;
    x.value >>= shift > 127 ? 127 : shift;
    x.last_place = last_place;
    return x;
}

/* Exact. Width: a sum of products has at most product_fraction_bits + 2 + 8 bits and both summands are cut
 * at places that differ by less than 64, so the result stays below 2^127.
 */
static fixed add(fixed x, fixed y)
{
    if (!x.value)
        return y;
    if (!y.value)
        return x;
    int low = x.last_place < y.last_place ? x.last_place : y.last_place;
    fixed sum = {(hw_i128)(((hw_u128)x.value << (x.last_place - low)) + ((hw_u128)y.value << (y.last_place - low))),
                 low};
    return sum;
}

static fixed sum_products(const hw_spec *s, const hw_term *terms, int first, int stride, int *largest)
{
    int top = INT32_MIN;
    for (int i = first; i < s->terms; i += stride)
        if (terms[i].kind == HW_NORMAL && terms[i].exponent > top)
            top = terms[i].exponent;
    fixed sum = {0, 0};
    if (top == INT32_MIN)
        return sum;
    sum.last_place = top - s->product_fraction_bits;
    for (int i = first; i < s->terms; i += stride) {
        if (terms[i].kind != HW_NORMAL)
            continue;
        int shift = sum.last_place - terms[i].lsb;
        hw_u128 m = shift >= 128 ? 0 : shift >= 0 ? terms[i].sig >> shift : terms[i].sig << -shift;
        sum.value += terms[i].sign ? -(hw_i128)m : (hw_i128)m;
    }
    *largest = top > *largest ? top : *largest;
    return sum;
}

hw_step hw_step_two_level;

uint64_t hw_step_two_level(const hw_spec *s, const hw_num *a, const hw_num *b, const hw_scales *scales,
                           const hw_format *c_format, uint64_t c)
{
    (void)scales;
    hw_term terms[HW_MAX_TERMS + 1];
    int count = s->terms + 1, emin = hw_emin(&s->d);
    int emax = (int)(hw_max_finite(&s->d) >> s->d.fraction_bits) - s->d.bias;
    for (int i = 0; i < s->terms; i++) {
        terms[i] = hw_multiply(s, &a[i], &b[i]);
        if (terms[i].kind == HW_NORMAL && terms[i].lsb + hw_bits128(terms[i].sig) - 1 > emax)
            terms[i].kind = HW_INF;
    }
    hw_term acc = terms[s->terms] = hw_accumulator(s, c_format, c);
    uint64_t special;
    if (hw_special_sum(s, terms, count, &special))
        return special;

    int largest = INT32_MIN;
    fixed sum;
    if (s->interleaved) {
        fixed even = sum_products(s, terms, 0, 2, &largest), odd = sum_products(s, terms, 1, 2, &largest);
        int low = largest == INT32_MIN ? 0 : largest - s->product_fraction_bits;
        sum = add(cut_down(even, low), cut_down(odd, low));
    } else {
        sum = sum_products(s, terms, 0, 1, &largest);
    }

    int own = acc.kind == HW_ZERO || acc.exponent < emin ? emin : acc.exponent;
    int top = own > largest ? own : largest;
    fixed cut_acc = {0, 0};
    if (acc.kind == HW_NORMAL && !(s->accumulator_drop_bits >= 0 && own < top - s->accumulator_drop_bits)) {
        cut_acc.value = acc.sign ? -(hw_i128)acc.sig : (hw_i128)acc.sig;
        cut_acc.last_place = acc.lsb;
        cut_acc = cut_down(cut_acc, top - s->accumulator_fraction_bits);
    }
    fixed total = add(cut_down(sum, top - s->sum_fraction_bits), cut_acc);
    if (!total.value)
        return hw_zero(s, terms, count);
    hw_u128 magnitude = total.value < 0 ? -(hw_u128)total.value : (hw_u128)total.value;
    int exponent = hw_bits128(magnitude) - 1 + total.last_place;
    total = cut_down(total, (exponent < emin ? emin : exponent) - s->final_fraction_bits);
    if (!total.value)
        return hw_zero(s, terms, count);
    magnitude = total.value < 0 ? -(hw_u128)total.value : (hw_u128)total.value;
    return hw_pack(s, total.value < 0, magnitude, total.last_place, 0);
}
