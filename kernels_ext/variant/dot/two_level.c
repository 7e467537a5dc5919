/* The two-level step (CDNA3): products, their sum and the accumulator in binary32 and int32 lanes.
 *
 * First level as in fused.c: a product times 2^(F - top), F = product_fraction_bits, cut by the truncating conversion;
 * the sum S stays in int32. Interleaved halves have a top each; an arithmetic shift brings them to the larger one,
 * downward.
 *
 * Second level, with E the larger of top and the accumulator's exponent, d = E - top, and the parameters that the
 * lanes take: F = 24 bits of products and accumulator, 32 of the sum, 31 of the total.
 *   The accumulator, down to 2^(E - 24), is its significand times 2, shifted downward by E less its exponent: at most
 *   25 bits and a sign.
 *   S, down to 2^(E - 32): for d <= 8 nothing is dropped, above the d - 8 last bits are. What is left of it is an
 *   integer in units of 2^(E - 24) and, below, 8 bits: with the accumulator `high` and `low`, total = high + low/256.
 *   A d above 31 may count as 31: the accumulator is then even and 2^24 or more in magnitude, and S, below 2^30, is at
 *   most one half. That is less than half way to the next binary32, or just below 2^24 a tie that goes to 2^24.
 *   The total, down to 31 bits below its own leading place: with 2^24 or more in magnitude the last bit of `low` goes,
 *   with 2^25 or more the last two. From 2^26 on more would, but there they are zeros: high is at most
 *   2^25 + |S| 2^-d and |S| < 2^30, so that a total of 2^(24 + j), j > 1, has d < 7 - j and 8 - d zeros. `cut` has j + 1
 *   places there.
 *   Rounding: the total is a multiple of 4096 (at most 19 bits) plus 12 + 8 bits, both exact in binary32; one
 *   addition, nearest even, joins them, and a power of two scales the result. That is exact: the total is a multiple
 *   of 2^(E - 32), and of 2^(top - 24), as S is.
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
#include "hw_dot_panel.h"

enum {
    SUM_BITS = 24,                  /* of S, of the accumulator */
    EXTRA = 8,                      /* that the sum keeps beyond */
    TOP_BIAS = 127,                 /* exponents are biased from here on */
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

/* As integers, biased. Without products LOW: E is not below it, and any finite scale will do. */
static inline __attribute__((always_inline)) void bias_tops(vb top, int vectors, vi *tops)
{
    _Alignas(64) uint8_t bytes[WIDTH];
    vub biased = (vub)vb_max(top, vb_all(LOW)) + (vub)vb_all(TOP_BIAS);
    vb_store(bytes, (vb)biased);
    for (int v = 0; v < vectors; v++)
        tops[v] = vi_from_unsigned_bytes(bytes + v * LANES);
}

/* Sums of `count` products of each column. */
static inline __attribute__((always_inline)) void sum_products(int vectors, int count, const vi *tops, const float *a,
                                                               const float *b, vi *sum)
{
    vf scale[VECTORS];
    for (int v = 0; v < vectors; v++) {
        scale[v] = (vf)((2 * TOP_BIAS + SUM_BITS - tops[v]) << 23);
        sum[v] = vi_all(0);
    }
    for (int t = 0; t < count; t++, a++, b += WIDTH) {
        vf row = vf_all(*a);
        for (int v = 0; v < vectors; v++)
            sum[v] += vi_truncate(row * vf_load(b + v * LANES) * scale[v]);
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

/* The second level. */
static inline __attribute__((always_inline)) vf join(vi sum, vi top, vf accumulator, int drop)
{
    vi code = (vi)accumulator, twice = (vi)((vui)code + (vui)code), own = (vi)((vui)twice >> 24), E = vi_max(own, top);
    vi significand = vi_with_sign((twice & 0xFFFFFE) | 0x1000000, code);    /* that of a zero will be shifted out */
    if (drop >= 0)
        significand &= ~(own < E - drop);
    vi distance = vi_min(E - top, vi_all(31));
    vi high = vi_shift_right(significand, E - own) + (sum >> distance);
    vi low = (vi)((vui)vi_shift_left(sum, 32 - distance) >> (32 - EXTRA));
    vi size = high ^ (high >> 31);      /* below 2^24 and 2^25 exactly where the total's magnitude is */
    vi cut = (size >> 24) | (size >> 25);
    vi last = ((high << EXTRA) & 0xFFF00) | (low & ~cut);
    vf total = vf_add_product(vf_from_int(last), vf_all(0x1p-8f), vf_from_int(high & ~0xFFF));
    return total * (vf)((E - SUM_BITS) << 23);
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
            bias_tops(top_of(half, a_exponent, b_exponent), vectors, tops);
            sum_products(vectors, half, tops, a, b, sum);
            bias_tops(top_of(half, a_exponent + half, b_exponent + half * WIDTH), vectors, odd_tops);
            sum_products(vectors, half, odd_tops, a + half, b + half * WIDTH, odd);
            for (int v = 0; v < vectors; v++) {
                vi top = vi_max(tops[v], odd_tops[v]);
                sum[v] = vi_shift_right(sum[v], top - tops[v]) + vi_shift_right(odd[v], top - odd_tops[v]);
                tops[v] = top;
            }
        } else {
            vb top = top_of(terms, a_exponent, b_exponent);
            if (based)
                least = vub_min(least, (vub)top - (vub)vb_all(NO_TERM));
            bias_tops(top, vectors, tops);
            sum_products(vectors, terms, tops, a, b, sum);
        }
        a += terms;
        a_exponent += terms;
        b += terms * WIDTH;
        b_exponent += terms * WIDTH;
        for (int v = 0; v < vectors; v++)
            c[v] = join(sum[v], tops[v], c[v], drop);
    }
    _Alignas(64) uint8_t bytes[WIDTH];
    vb_store(bytes, (vb)least);
    for (int v = 0; v < vectors; v++) {
        if (based) {
            vi scale = vi_load(s->b_base + v * LANES) + a_base;
            bad |= odd_products(vi_from_unsigned_bytes(bytes + v * LANES) + NO_TERM, scale);
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
        return terms == 8 ? ROW(4, 8, 1, 0, -1) : ROW(4, terms, 1, 0, -1);
    return terms == 8 ? ROW(4, 8, 0, 0, -1) : ROW(4, terms, 0, 0, -1);
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
    /* |S| below 2^30. */
    double sum = (double)spec->terms * (double)(4ull << SUM_BITS);
    if (!hw_is(&spec->d, "fp32") || spec->rounding != HW_RNE || spec->saturate_operands || spec->saturate_overflow
        || spec->flush_operands || spec->flush_results || g->k == 0 || spec->terms > DEPTH || sum > 0x1p30
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
