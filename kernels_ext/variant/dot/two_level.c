/* The two-level step (CDNA3): products, their sum and the accumulator in binary32 and int32 lanes.
 *
 * First level as in fused.c: a product times 2^(F - top), F = product_fraction_bits, cut by the truncating conversion;
 * the sum S stays in int32. Interleaved halves have a top each; an arithmetic shift brings them to the larger one,
 * downward.
 *
 * Second level, with the parameters that the lanes take: F = 24 bits of products and accumulator, 32 of the sum, 31 of
 * the total. With own, the accumulator's exponent, E is the larger of own and top, and U that of own - HEAD and top.
 * Sums count in units of 2^(U - 24):
 *   The accumulator, below 2^(HEAD + 25), is cut downward to an integer. It is one already where own is the larger;
 *   else U = E.
 *   S, below 2^30, is shifted right by `places` = U - top. Their total fits int32.
 *   Without places the unit's other cuts drop nothing: S has no bits below 2^(E - 24 - HEAD).
 *   With places own is E. The accumulator is 2^29 or more and S below MOST_SUM * 2^24 before the shift, so the total's
 *   leading place is 25 or higher. Of the bits that the shift drops the unit keeps those down to 31 below that place,
 *   and down to 2^(E - 32), three below the unit. Both are the same: a leading place below 28 comes with one dropped
 *   bit. The total is rounded at its second bit or higher, so a kept bit that is set counts as the total's last bit.
 *   With the dropped bits at the head of a word, a kept one is set where the word's leading place is above that of the
 *   total's magnitude. (Just above -2^n the unit's leading place is n - 1; all there rounds to -2^n.) Beyond 32 places
 *   the word holds anything: the accumulator is a multiple of 64, so that a last bit more or less is rounded away.
 *   Rounding: the conversion to binary32, nearest even; a power of two scales the result. That is exact: a result is 0
 *   or at least 2^(U - 24).
 *
 * With scaled lines the accumulator is scaled as its products are, by a power of two for each chunk, row and column.
 * It counts as the unscaled one does as long as neither leaves binary32's normal numbers: a chunk adds less than
 * 2^(scale + 9), and a result is the old one or a multiple of 2^(top - 24). So the least top is looked at.
 *
 * To the scalar code go first accumulators of -0 (under IEEE rules the sum of zeros needs their signs), tiny, huge,
 * infinite and NaN ones; hw_dot_panel.h does the same with operands. Later ones are none of these, or tiny with no
 * bits below 2^(LOW - 24), the last place that the cut keeps: tops are -2 SPAN or more, and -30 to 30 where lines are
 * not scaled. Units that drop such accumulators are not for the lanes (LEAST_DROP).
 */
#include <math.h>
#include "hw_dot_panel.h"

enum {
    SUM_BITS = 24,                  /* of S, of the accumulator */
    EXTRA = 8,                      /* that the sum keeps beyond */
    MOST_SUM = 60,                  /* S in 2^24 is below: its products' significands */
    TOP_BIAS = 127,                 /* exponents are biased from here on */
    HEAD = 5,                       /* places that an accumulator has above top, before S is shifted */
    APART = 200,                    /* more than any two exponents are apart */
    LEAST = LOW + TOP_BIAS,         /* of an E: its scalings are binary32 normal numbers */
    /* Of scaled lines: the least top, without the scale, whose results are 0 or normal numbers; the largest scale,
     * for DEPTH products below 4. */
    LEAST_UNSCALED = -126 + SUM_BITS,
    MOST_SCALE = HIGH - 8,
    /* Fewer drop bits could drop an accumulator below 2^LOW in a step without products, whose top counts as LOW. */
    LEAST_DROP = LOW + 2 * SPAN + SUM_BITS
};

/* The largest exponent among `count` products of each column; below NO_TERM where all are zero. */
static inline __attribute__((always_inline)) vb top_of(int count, const uint32_t *a_exponent, const int8_t *b_exponent)
{
    vb top = vb_add_saturating((vb)vi_all((int32_t)a_exponent[0]), vb_load(b_exponent));
    for (int t = 1; t < count; t++)
        top = vb_max(top, vb_add_saturating((vb)vi_all((int32_t)a_exponent[t]), vb_load(b_exponent + t * WIDTH)));
    return top;
}

/* Fields of binary32 exponents, HEAD higher. Without products LOW: E is not below it, and any finite scale will do. */
static inline __attribute__((always_inline)) void fields_of(vb top, int vectors, vi *fields)
{
    vui biased = (vui)((vub)vb_max(top, vb_all(LOW)) + (vub)vb_all(TOP_BIAS + HEAD));
    for (int v = 0; v < vectors; v++)
        fields[v] = (vi)(v < 3 ? biased << (23 - 8 * v) : biased >> 1) & 0x7F800000;
}

/* 2^(F - top) */
static inline vi scale_field(vi top)
{
    return (vi)((vui)vi_all((int32_t)((uint32_t)(2 * TOP_BIAS + HEAD + SUM_BITS) << 23)) - (vui)top);
}

/* Sums of `count` products of each column. */
static inline __attribute__((always_inline)) void sum_products(int vectors, int count, const vi *tops, const float *a,
                                                               const float *b, vi *sum)
{
    vf scale[VECTORS];
    for (int v = 0; v < vectors; v++) {
        scale[v] = (vf)scale_field(tops[v]);
        sum[v] = vi_truncate(vf_all(*a) * vf_load(b + v * LANES) * scale[v]);
    }
#pragma GCC unroll 4
    for (int t = 1; t < count; t++) {
        vf row = vf_all(a[t]);
        for (int v = 0; v < vectors; v++)
            sum[v] += vi_truncate(row * vf_load(b + t * WIDTH + v * LANES) * scale[v]);
    }
}

/* The accumulator divided by 2^scale; sign bits in *bad where it is not for the lanes. */
static inline vf scale_accumulator(vf accumulator, vi scale, vi *bad)
{
    vi code = (vi)accumulator, nonzero = code != 0, own = (code & 0x7FFFFFFF) >> 23, scaled = own - scale;
    vi outside = (own - 1) | (HIGH + TOP_BIAS - scaled) | (scaled - LEAST);
    *bad |= (HIGH + TOP_BIAS - own) | (outside & nonzero);
    return (vf)((vui)code - ((vui)(scale & nonzero) << 23));
}

static inline vf unscale_accumulator(vf accumulator, vi scale)
{
    vi code = (vi)accumulator;
    return (vf)((vui)code + ((vui)(scale & (code != 0)) << 23));
}

/* Sign bits where products leave the range of scaled lines; least: the least top, above 127 without products. */
static inline vi odd_products(vi least, vi scale)
{
    return ((least + scale - LEAST_UNSCALED) | (MOST_SCALE - scale)) & (least - 128);
}

/* The second level; top: a field. */
static inline __attribute__((always_inline)) vf join(vi sum, vi top, vf accumulator, int drop)
{
    vi own = (vi)accumulator & 0x7F800000, raised = vi_excess(own, top), places = (vi)((vui)raised >> 23);
    vi scale = scale_field(top) - raised;
    vi start = vi_floor(accumulator * (vf)scale);
    if (drop >= 0)
        start &= ~(own < top - ((HEAD + (drop < APART ? drop : APART)) << 23));
    vui total = (vui)start + (vui)vi_shift_right(sum, places);
    vi size = vi_magnitude((vi)total), dropped = vi_shift_left(sum, 32 - places);
    vi jammed = vi_set_last_where_above((vi)total, dropped & ~size, size);
    return vf_from_int(jammed) * (vf)(vi_all(254 << 23) - scale);
}

static inline __attribute__((always_inline)) int run_row(const state *s, int vectors, int terms, int based,
                                                         int interleaved, int drop, ptrdiff_t padded, const float *a,
                                                         const uint32_t *a_exponent, int a_base, float *to)
{
    int half = terms / 2;
    const float *b = s->b;
    const int8_t *b_exponent = s->b_exponent;
    vi bad = vi_all(0);
    vub least = (vub)vb_all(-1);
    vf c[VECTORS];
    for (int v = 0; v < vectors; v++)
        c[v] = scale_accumulator(vf_load(to + v * LANES), based ? vi_load(s->b_base + v * LANES) + a_base : vi_all(0),
                                 &bad);
    for (ptrdiff_t step = 0; step < padded; step += terms) {
        vi sum[VECTORS], tops[VECTORS];
        if (interleaved) {
            vi odd[VECTORS], odd_tops[VECTORS];
            fields_of(top_of(half, a_exponent, b_exponent), vectors, tops);
            sum_products(vectors, half, tops, a, b, sum);
            fields_of(top_of(half, a_exponent + half, b_exponent + half * WIDTH), vectors, odd_tops);
            sum_products(vectors, half, odd_tops, a + half, b + half * WIDTH, odd);
            for (int v = 0; v < vectors; v++) {
                vi top = vi_max(tops[v], odd_tops[v]);
                sum[v] = vi_shift_right(sum[v], (top - tops[v]) >> 23)
                    + vi_shift_right(odd[v], (top - odd_tops[v]) >> 23);
                tops[v] = top;
            }
        } else {
            vb top = top_of(terms, a_exponent, b_exponent);
            if (based)
                least = vub_min(least, (vub)top - (vub)vb_all(NO_TERM));
            fields_of(top, vectors, tops);
            sum_products(vectors, terms, tops, a, b, sum);
        }
        a += terms;
        a_exponent += terms;
        b += terms * WIDTH;
        b_exponent += terms * WIDTH;
        for (int v = 0; v < vectors; v++)
            c[v] = join(sum[v], tops[v], c[v], drop);
    }
    for (int v = 0; v < vectors; v++) {
        if (based) {
            vi scale = vi_load(s->b_base + v * LANES) + a_base;
            bad |= odd_products((vi)((vui)least >> (8 * v) & 255) + NO_TERM, scale);
            c[v] = unscale_accumulator(c[v], scale);
        }
        vf_store(to + v * LANES, c[v]);
    }
    return vi_any_negative(bad);
}

static int run(const state *s, int columns, ptrdiff_t padded, const float *a, const uint32_t *a_exponent, int a_base,
               float *c)
{
    const hw_spec *spec = s->unit;
    int few = columns <= 2 * LANES, terms = spec->terms, drop = spec->accumulator_drop_bits;
#define ROW(count, terms, based, interleaved, drop)                                                                    \
    run_row(s, count, terms, based, interleaved, drop, padded, a, a_exponent, a_base, c)
    if (few)
        return ROW(2, terms, s->based, spec->interleaved, drop);
    if (spec->interleaved && terms == 16)
        return ROW(4, 16, 0, 1, drop);
    if (drop >= 0 || spec->interleaved)
        return ROW(4, terms, s->based, spec->interleaved, drop);
    if (s->based)
        return terms == 8 ? ROW(4, 8, 1, 0, -1) : terms == 4 ? ROW(4, 4, 1, 0, -1) : ROW(4, terms, 1, 0, -1);
    return terms == 8 ? ROW(4, 8, 0, 0, -1) : terms == 4 ? ROW(4, 4, 0, 0, -1) : ROW(4, terms, 0, 0, -1);
#undef ROW
}

int hw_two_level(const hw_block *g)
{
    const hw_spec *spec = g->spec;
    state s;
    memset(&s, 0, offsetof(state, a_lines));
    s.g = g;
    s.half = 0;
    s.based = spec->a.exponent_bits > 5 || spec->b.exponent_bits > 5;
    double sum = (double)spec->terms * (2 - ldexp(1, -spec->a.fraction_bits)) * (2 - ldexp(1, -spec->b.fraction_bits));
    if (!hw_is(&spec->d, "fp32") || spec->rounding != HW_RNE || spec->saturate_operands || spec->saturate_overflow
        || spec->flush_operands || spec->flush_results || g->k == 0 || spec->terms > DEPTH || sum >= MOST_SUM
        || spec->product_fraction_bits != SUM_BITS || spec->accumulator_fraction_bits != SUM_BITS
        || spec->sum_fraction_bits != SUM_BITS + EXTRA || spec->final_fraction_bits != SUM_BITS + EXTRA - 1
        || (spec->interleaved && (s.based || spec->terms % 2))
        || (s.based && spec->accumulator_drop_bits >= 0 && spec->accumulator_drop_bits < LEAST_DROP)
        || spec->a.fraction_bits + spec->b.fraction_bits + 2 > 24
        || hw_lines_open(&s.a_lines, &spec->a, spec) || hw_lines_open(&s.b_lines, &spec->b, spec))
        return 1;
    natural_order(&s, spec);
    if (spec->interleaved)
        for (int k = 0; k < spec->terms; k++)
            s.order[k] = (int16_t)(k < spec->terms / 2 ? 2 * k : 2 * (k - spec->terms / 2) + 1);
    return run_blocks(&s, g, run, HW_NEAREST);
}
