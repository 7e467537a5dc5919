/* The two-level step (CDNA3): products in binary32 and int32 lanes, their sum and the accumulator in binary64.
 *
 * First level as in fused.c: a product times 2^(product_fraction_bits - top), cut by the truncating conversion; the
 * sum of `terms` of them, each below 2^(product_fraction_bits + 2), stays in int32. Interleaved halves have a top
 * each; an arithmetic shift brings them to the larger one, downward.
 * Second level in units of 2^(E - sum_fraction_bits): sum and accumulator scaled and cut by floor, then added; all
 * below 2^50, so exact. The last cut is a floor in units of its own; the conversion to binary32 rounds.
 *
 * A -0 accumulator goes to the scalar code where zeros follow IEEE (its sum with zeros needs their signs).
 */
#include "hw_dot_panel.h"

enum {
    NOTHING = -1024,    /* the top of products that are all zero */
    HALF = LANES / 2,
    GROUP = 4
};

static inline vi vi_least(vi x, vi y)
{
    vi less = x < y;
    return (x & less) | (y & ~less);
}

static inline vl vl_all(int64_t x) { return (vl)vd_all(0) + x; }

static double power(int exponent)
{
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double x;
    memcpy(&x, &bits, 8);
    return x;
}

/* Sums of `count` products of each column and their tops. */
static inline __attribute__((always_inline)) void sum_products(const state *s, int vectors, int based, int count,
                                                               const float *a, const uint32_t *a_exponent,
                                                               const float *b, const int8_t *b_exponent, int a_base,
                                                               vi *sum, vi *tops, vi *bad)
{
    int F = s->unit->product_fraction_bits;
    _Alignas(64) int8_t bytes[WIDTH];
    vb top = vb_add_saturating((vb)vi_all((int32_t)a_exponent[0]), vb_load(b_exponent));
    for (int t = 1; t < count; t++)
        top = vb_max(top, vb_add_saturating((vb)vi_all((int32_t)a_exponent[t]), vb_load(b_exponent + t * WIDTH)));
    vb_store(bytes, top);
    vf scale[VECTORS];
    for (int v = 0; v < vectors; v++) {
        vi own = vi_from_bytes(bytes + v * LANES), none = own < NO_TERM, base = vi_all(0);
        if (based) {
            base = vi_load(s->b_base + v * LANES) + vi_all(a_base);
            own += base;
        }
        *bad |= (HIGH - own) & ~none;
        *bad |= (own < LOW) & ~none;
        vi factor = vi_max(vi_least(127 + F - own + base, vi_all(254)), vi_all(1));
        scale[v] = (vf)(factor << 23);
        tops[v] = (own & ~none) | (none & NOTHING);
        sum[v] = vi_all(0);
    }
    for (int t = 0; t < count; t++, a++, b += WIDTH) {
        vf row = vf_all(*a);
        for (int v = 0; v < vectors; v++)
            sum[v] += vi_truncate(row * vf_load(b + v * LANES) * scale[v]);
    }
}

static inline __attribute__((always_inline)) int run_row(const state *s, int vectors, int based, int interleaved,
                                                         ptrdiff_t padded, const float *a, const uint32_t *a_exponent,
                                                         int a_base, float *c)
{
    const hw_spec *spec = s->unit;
    int terms = spec->terms, half = terms / 2, F = spec->product_fraction_bits;
    int drop = spec->accumulator_drop_bits < 0 ? 1 << 20 : spec->accumulator_drop_bits;
    const float *b = s->b;
    const int8_t *b_exponent = s->b_exponent;
    vi bad = vi_all(0), signed_zero = vi_all(spec->ieee_zero ? -1 : 0);
    /* Powers of two in binary64 are multiplied by adding their bits, less one bias of 1023. */
    vd sum_scale = vd_all(power(spec->sum_fraction_bits - F));
    vd c_unit = vd_all(power(spec->sum_fraction_bits - spec->accumulator_fraction_bits));
    vl c_scale = vl_all((int64_t)(2046 + spec->accumulator_fraction_bits) << 52);
    vl least = vl_all((int64_t)(2046 + spec->sum_fraction_bits - 126) << 52);
    vl last = vl_all((int64_t)(2046 + spec->final_fraction_bits) << 52);
    vl result_scale = vl_all((int64_t)(1023 + spec->sum_fraction_bits + spec->final_fraction_bits) << 52);
    vl exponents = vl_all((int64_t)0x7FF << 52);
    float plus_zero = spec->ieee_zero ? -0.0f : 0.0f;
    for (ptrdiff_t step = 0; step < padded; step += terms) {
        vi sum[VECTORS], tops[VECTORS];
        if (interleaved) {
            vi odd[VECTORS], odd_tops[VECTORS];
            sum_products(s, vectors, based, half, a, a_exponent, b, b_exponent, a_base, sum, tops, &bad);
            sum_products(s, vectors, based, half, a + half, a_exponent + half, b + half * WIDTH,
                         b_exponent + half * WIDTH, a_base, odd, odd_tops, &bad);
            for (int v = 0; v < vectors; v++) {
                vi top = vi_max(tops[v], odd_tops[v]);
                sum[v] = (sum[v] >> vi_least(top - tops[v], vi_all(31)))
                    + (odd[v] >> vi_least(top - odd_tops[v], vi_all(31)));
                tops[v] = top;
            }
        } else {
            sum_products(s, vectors, based, terms, a, a_exponent, b, b_exponent, a_base, sum, tops, &bad);
        }
        a += terms;
        a_exponent += terms;
        b += terms * WIDTH;
        b_exponent += terms * WIDTH;
        _Alignas(64) int32_t sums[WIDTH];
        _Alignas(64) float tops_less[WIDTH], largest[WIDTH], old[WIDTH];
        for (int v = 0; v < vectors; v++) {
            vi code = vi_load(c + v * LANES), own = vi_max(((code & 0x7FFFFFFF) >> 23) - 127, vi_all(-126));
            vi E = vi_max(own, tops[v]);
            bad |= 127 - own;
            bad |= (code == INT32_MIN) & signed_zero;
            code &= ~(own < E - drop);
            /* Powers of two as binary32: of E, and of top - E (at -126 nothing but the sign is left). */
            vi_store(sums + v * LANES, sum[v]);
            vf_store(tops_less + v * LANES, (vf)((vi_max(tops[v] - E, vi_all(-126)) + 127) << 23));
            vf_store(largest + v * LANES, (vf)((E + 127) << 23));
            vf_store(old + v * LANES, (vf)code);
        }
        /* GROUP halves of vectors at a time: one alone is a long chain. */
        for (int h = 0; h < vectors * LANES; h += GROUP * HALF) {
            vl top[GROUP], own_power[GROUP];
            vd products[GROUP], total[GROUP];
            for (int g = 0; g < GROUP; g++) {
                top[g] = (vl)vd_from_floats(largest + h + g * HALF);
                products[g] = vd_from_ints(sums + h + g * HALF)
                    * (vd_from_floats(tops_less + h + g * HALF) * sum_scale);
            }
            for (int g = 0; g < GROUP; g++)
                total[g] = vd_from_floats(old + h + g * HALF) * (vd)(c_scale - top[g]);
            for (int g = 0; g < GROUP; g++)
                total[g] = vd_floor(total[g]) * c_unit + vd_floor(products[g]);
            for (int g = 0; g < GROUP; g++)
                own_power[g] = (vl)vd_max((vd)((vl)total[g] & exponents), (vd)(least - top[g]));
            for (int g = 0; g < GROUP; g++)
                total[g] = vd_floor(total[g] * (vd)(last - own_power[g]));
            for (int g = 0; g < GROUP; g++)
                vd_to_floats(old + h + g * HALF, total[g] * (vd)(own_power[g] + (top[g] - result_scale)));
        }
        for (int v = 0; v < vectors; v++)
            vf_store(c + v * LANES, vf_load(old + v * LANES) + vf_all(plus_zero));
    }
    return vi_any_negative(bad);
}

static int run(const state *s, int columns, ptrdiff_t padded, const float *a, const uint32_t *a_exponent, int a_base,
               float *c)
{
    int vectors = (columns + LANES - 1) / LANES;
#define ROW(count, based, interleaved) run_row(s, count, based, interleaved, padded, a, a_exponent, a_base, c)
    if (s->unit->interleaved)
        return vectors <= 2 ? ROW(2, 0, 1) : ROW(4, 0, 1);
    if (s->based)
        return vectors <= 2 ? ROW(2, 1, 0) : ROW(4, 1, 0);
    return vectors <= 2 ? ROW(2, 0, 0) : ROW(4, 0, 0);
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
    /* Widths: int32 of the products' sum; 2^50 of everything in binary64. */
    double sum = (double)spec->terms * (double)(4ull << spec->product_fraction_bits);
    if (!hw_is(&spec->d, "fp32") || spec->rounding != HW_RNE || spec->saturate_operands || spec->saturate_overflow
        || spec->flush_operands || spec->flush_results || g->k == 0 || spec->terms > DEPTH || sum > 0x1p31
        || spec->product_fraction_bits > 25 || spec->sum_fraction_bits < spec->accumulator_fraction_bits
        || spec->sum_fraction_bits < spec->product_fraction_bits
        || spec->sum_fraction_bits - spec->product_fraction_bits + 32 > 49 || spec->sum_fraction_bits > 46
        || spec->final_fraction_bits > 46 || spec->final_fraction_bits < 24
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
