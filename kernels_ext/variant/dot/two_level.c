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

enum { NOTHING = -1024 };       /* the top of products that are all zero */

static inline vi vi_least(vi x, vi y)
{
    vi less = x < y;
    return (x & less) | (y & ~less);
}

static inline vd power_of(vl exponent) { return (vd)((exponent + 1023) << 52); }

static inline vd inverse(vd power) { return (vd)(((vl)vd_all(0) + ((int64_t)2046 << 52)) - (vl)power); }

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
    vd sum_scale = vd_all(power(spec->sum_fraction_bits - F)), c_scale = vd_all(power(spec->accumulator_fraction_bits));
    vd c_unit = vd_all(power(spec->sum_fraction_bits - spec->accumulator_fraction_bits));
    vd least = vd_all(power(spec->sum_fraction_bits - 126)), last = vd_all(power(spec->final_fraction_bits));
    vd result_scale = vd_all(power(-spec->sum_fraction_bits - spec->final_fraction_bits));
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
        for (int v = 0; v < vectors; v++) {
            _Alignas(64) int32_t sums[LANES], tops_less[LANES], largest[LANES], codes[LANES];
            vi code = vi_load(c + v * LANES), own = vi_max(((code & 0x7FFFFFFF) >> 23) - 127, vi_all(-126));
            vi E = vi_max(own, tops[v]);
            bad |= 127 - own;
            bad |= (code == INT32_MIN) & signed_zero;
            code &= ~(own < E - drop);
            vi_store(sums, sum[v]);
            vi_store(tops_less, vi_max(tops[v] - E, vi_all(-300)));
            vi_store(largest, E);
            vi_store(codes, code);
            for (int h = 0; h < 2; h++) {
                enum { HALF = LANES / 2 };
                float old[HALF];
                memcpy(old, codes + h * HALF, sizeof old);
                vd top = power_of(vl_from_ints(largest + h * HALF)), below = inverse(top);
                vd products = vd_floor(vd_from_ints(sums + h * HALF)
                                       * (power_of(vl_from_ints(tops_less + h * HALF)) * sum_scale));
                vd total = vd_floor(vd_from_floats(old) * (below * c_scale)) * c_unit + products;
                vd own_power = vd_max((vd)((vl)total & ((int64_t)0x7FF << 52)), below * least);
                total = vd_floor(total * (inverse(own_power) * last)) * (own_power * top * result_scale);
                vd_to_floats(old, total);
                memcpy(codes + h * HALF, old, sizeof old);
            }
            vf_store(c + v * LANES, (vf)vi_load(codes) + vf_all(plus_zero));
        }
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
