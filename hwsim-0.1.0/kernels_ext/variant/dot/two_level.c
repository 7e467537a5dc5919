/* The two-level step (CDNA3): products, their sum and the accumulator in binary32 and int32 lanes.
 *
 * First level as in fused.c: a product times 2^(F - top), F = product_fraction_bits, cut by the truncating conversion;
 * the sum S stays in int32. Interleaved halves have a top each; an arithmetic shift brings them to the larger one,
 * downward.
 *
 * Second level, with E the larger of top and the accumulator's exponent, d = E - top, and the parameters that the
 * lanes take: F = 24 bits of products and accumulator, 32 of the sum, 31 of the total.
 *   The accumulator, down to 2^(E - 24), is an integer of at most 26 bits; where d > 0 that cut drops nothing.
 *   S, down to 2^(E - 32): for d <= 8 nothing is dropped, above the d - 8 last bits are. What is left of it is an
 *   integer in units of 2^(E - 24) and, below, 8 bits: with the accumulator `high` and `low`, total = high + low/256.
 *   The total, down to 31 bits below its own leading place: with 2^24 or more in magnitude the last bit of `low` goes,
 *   with 2^25 or more the last two. From 2^26 on more would, but there they are zeros: high is at most
 *   2^25 + |S| 2^-d and |S| < 2^30, so that a total of 2^(24 + j), j > 1, has d < 7 - j and 8 - d zeros.
 *   Rounding: the total is a multiple of 4096 (at most 19 bits) plus 12 + 8 bits, both exact in binary32; one
 *   addition, nearest even, joins them, and a power of two scales the result. That is exact:
 *   the total is a multiple of 2^(LOW - 32).
 *
 * To the scalar code go accumulators of -0 (under IEEE rules the sum of zeros needs their signs), tiny, huge, infinite
 * and NaN ones; hw_dot_panel.h does the same with operands. With formats of 5 exponent bits only the first accumulators
 * can be such: a step's result is the old one or a multiple of 2^(-30 - 32), and a chunk adds less than 2^45.
 */
#include "hw_dot_panel.h"

enum {
    SUM_BITS = 24,                  /* of S, of the accumulator */
    EXTRA = 8,                      /* that the sum keeps beyond */
    TOP_BIAS = 127,                 /* exponents are biased from here on */
    LEAST = LOW + TOP_BIAS,         /* of an E: its scalings are binary32 normal numbers */
    FAR = 100,                      /* more places below E than the accumulator's cut keeps */
    NOTHING = -1024                 /* the top of products that are all zero */
};

static inline vi shift_right(vi x, int places) { return (vi)((vui)x >> places); }

/* Sums of `count` products of each column and their tops, biased. */
static inline __attribute__((always_inline)) void sum_products(const state *s, int vectors, int based, int count,
                                                               const float *a, const uint32_t *a_exponent,
                                                               const float *b, const int8_t *b_exponent, int a_base,
                                                               vi *sum, vi *tops, vi *bad)
{
    _Alignas(64) int8_t bytes[WIDTH];
    vb top = vb_add_saturating((vb)vi_all((int32_t)a_exponent[0]), vb_load(b_exponent));
    for (int t = 1; t < count; t++)
        top = vb_max(top, vb_add_saturating((vb)vi_all((int32_t)a_exponent[t]), vb_load(b_exponent + t * WIDTH)));
    vb_store(bytes, top);
    vf scale[VECTORS];
    for (int v = 0; v < vectors; v++) {
        vi own = vi_from_bytes(bytes + v * LANES);
        /* Where all products are zero any finite factor will do: own is below NO_TERM, and this one is negative. */
        scale[v] = (vf)((TOP_BIAS + SUM_BITS - own) << 23);
        tops[v] = own + TOP_BIAS;
        if (based) {
            vi none = own < NO_TERM;
            tops[v] += vi_load(s->b_base + v * LANES) + vi_all(a_base);
            *bad |= ((HIGH + TOP_BIAS - tops[v]) | (tops[v] - LEAST)) & ~none;
            tops[v] = (tops[v] & ~none) | (none & NOTHING);
        }
        sum[v] = vi_all(0);
    }
    for (int t = 0; t < count; t++, a++, b += WIDTH) {
        vf row = vf_all(*a);
        for (int v = 0; v < vectors; v++)
            sum[v] += vi_truncate(row * vf_load(b + v * LANES) * scale[v]);
    }
}

/* Sign bits where an accumulator is not for the lanes. */
static inline vi odd_accumulator(vi code)
{
    vi own = (code & 0x7FFFFFFF) >> 23;
    return (HIGH + TOP_BIAS - own) | ((own - LEAST) & (code | (vi)-(vui)code));
}

/* The second level. */
static inline __attribute__((always_inline)) vf join(vi sum, vi top, vf accumulator, int drop)
{
    vi code = (vi)accumulator, own = (code & 0x7FFFFFFF) >> 23, E = vi_max(vi_max(own, top), vi_all(LEAST));
    if (drop >= 0)
        code &= ~(own < E - drop);
    /* An accumulator far below E is cut down to -1 or 0: any factor will do that keeps it from underflowing to zero. */
    vi from = vi_min(E, own + FAR);
    vi high = vi_floor((vf)code * (vf)((2 * TOP_BIAS + SUM_BITS - from) << 23));
    vi distance = E - top, kept = vi_min(distance, vi_all(EXTRA));
    sum >>= vi_min(distance - kept, vi_all(31));
    high = (vi)((vui)high + (vui)(sum >> kept));    /* wraps for accumulators that are not for the lanes */
    vi size = high ^ (high >> 31);      /* below 2^24 and 2^25 exactly where the total's magnitude is */
    vi cut = shift_right(0xFFFFFF - size, 31) | shift_right(0x1FFFFFF - size, 30);
    vi last = ((high << EXTRA) & 0xFFF00) | ((sum << (EXTRA - kept)) & 0xFF & ~cut);
    vf total = vf_from_int(high & ~0xFFF) + vf_from_int(last) * vf_all(0x1p-8f);
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
    vf c[VECTORS];
    for (int v = 0; v < vectors; v++) {
        c[v] = vf_load(to + v * LANES);
        bad |= odd_accumulator((vi)c[v]);
    }
    for (ptrdiff_t step = 0; step < padded; step += terms) {
        vi sum[VECTORS], tops[VECTORS];
        if (interleaved) {
            vi odd[VECTORS], odd_tops[VECTORS];
            sum_products(s, vectors, based, half, a, a_exponent, b, b_exponent, a_base, sum, tops, &bad);
            sum_products(s, vectors, based, half, a + half, a_exponent + half, b + half * WIDTH,
                         b_exponent + half * WIDTH, a_base, odd, odd_tops, &bad);
            for (int v = 0; v < vectors; v++) {
                vi top = vi_max(tops[v], odd_tops[v]);
                sum[v] = (sum[v] >> vi_min(top - tops[v], vi_all(31)))
                    + (odd[v] >> vi_min(top - odd_tops[v], vi_all(31)));
                tops[v] = top;
            }
        } else {
            sum_products(s, vectors, based, terms, a, a_exponent, b, b_exponent, a_base, sum, tops, &bad);
        }
        a += terms;
        a_exponent += terms;
        b += terms * WIDTH;
        b_exponent += terms * WIDTH;
        for (int v = 0; v < vectors; v++) {
            c[v] = join(sum[v], tops[v], c[v], drop);
            if (based)
                bad |= odd_accumulator((vi)c[v]);
        }
    }
    for (int v = 0; v < vectors; v++)
        vf_store(to + v * LANES, c[v]);
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
        || spec->a.fraction_bits + spec->b.fraction_bits + 2 > 24
        || hw_lines_open(&s.a_lines, &spec->a, spec) || hw_lines_open(&s.b_lines, &spec->b, spec))
        return 1;
    natural_order(&s, spec);
    if (spec->interleaved)
        for (int k = 0; k < spec->terms; k++)
            s.order[k] = (int16_t)(k < spec->terms / 2 ? 2 * k : 2 * (k - spec->terms / 2) + 1);
    return run_blocks(&s, g, run, HW_NEAREST);
}
