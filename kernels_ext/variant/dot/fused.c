/* The fused step in binary32 and int32 lanes; the result binary32 toward zero, or binary16 to nearest even.
 *
 * Of 16 products each costs a multiplication (exact: two significands of at most 11 and 12 bits), a scaling by
 * 2^(F - top) (exact, or below 1), a truncating conversion and an integer addition. top comes from the operands'
 * exponents in 8-bit lanes: a saturating addition and a maximum for HW_BYTES outputs at a time.
 *
 * A sum above int32 and a top near either end of binary32 leave the lanes' range (hw_dot_panel.h).
 *
 * A composite unit with fused inner steps runs here too: its operands are sorted by selection when they are
 * packed, and the lanes round to nearest, which only the last addition needs: no sum of the inner steps is so
 * small that its scaling would round (products of formats with 5 exponent bits, no accumulator from outside).
 */
#include "hw_dot_panel.h"

/* One row of the panel's first `vectors` vectors over whole steps, chained through c; `fresh`: the chain begins
 * with zeros. Gathers what lies out of range in *found, as a sign bit.
 */
static inline __attribute__((always_inline)) void run_chain(const state *s, int vectors, int based, int half, int fresh,
                                                            ptrdiff_t padded, const float *a,
                                                            const uint32_t *a_exponent, const float *b,
                                                            const int8_t *b_exponent, int a_base, float *c, vi *found)
{
    const hw_spec *spec = s->unit;
    int terms = spec->terms, F = spec->fraction_bits;
    vi keep = vi_all((int32_t)~hw_mask(spec->result.pad));
    vi bad = *found, check = vi_all(s->check_sum ? -1 : 0);
    for (ptrdiff_t step = 0; step < padded; step += terms) {
        vb top = vb_add_saturating((vb)vi_all((int32_t)a_exponent[0]), vb_load(b_exponent));
        for (int t = 1; t < terms; t++)
            top = vb_max(top, vb_add_saturating((vb)vi_all((int32_t)a_exponent[t]), vb_load(b_exponent + t * WIDTH)));
        a_exponent += terms;
        b_exponent += terms * WIDTH;

        vf scale[VECTORS];
        vi sum[VECTORS], largest[VECTORS];
        for (int v = 0; v < vectors; v++) {
            vi own = (vi)((vui)(vi)top << (24 - 8 * v)) >> 24, code = vi_all(0);
            if (!fresh || step)
                code = vi_load(c + v * LANES);
            vi base = vi_all(0);
            if (based) {
                base = vi_load(s->b_base + v * LANES) + vi_all(a_base);
                own += base + ((own < NO_TERM) & -1024);
            }
            vi magnitude = code & 0x7FFFFFFF, exponent = (magnitude >> 23) - 127;
            if (half)   /* a subnormal accumulator has the format's least exponent, zero none */
                exponent = vi_max(exponent, ((magnitude > 0) & (-14 + 127)) - 127);
            vi e = vi_max(own, exponent);
            /* Below LOW everything must be zero. */
            bad |= HIGH - e;
            bad |= (e < LOW) & ((magnitude > 0) | (own > (based ? -700 : NO_TERM)));
            e = vi_max(e, vi_all(s->lowest));
            largest[v] = e;
            vi factor = 127 + F - e;
            sum[v] = vi_truncate((vf)code * (vf)(factor << 23));
            if (based)
                factor = vi_max(factor + base, vi_all(1));
            scale[v] = (vf)(factor << 23);
        }
        vi total[VECTORS];
        for (int v = 0; v < vectors; v++)
            total[v] = vi_all(0);
        for (int t = 0; t < terms; t++, a++, b += WIDTH) {
            vf row = vf_all(*a);
            for (int v = 0; v < vectors; v++)
                total[v] += vi_truncate(row * vf_load(b + v * LANES) * scale[v]);
        }
        for (int v = 0; v < vectors; v++) {
            vi both = total[v] + sum[v];
            bad |= (total[v] ^ both) & (sum[v] ^ both) & check;
            vf value = fresh ? vf_from_int_cut(both) : vf_from_int_rz(both), unit = (vf)((largest[v] + (127 - F)) << 23);
#if HW_HAS_HALF
            if (half) {
                /* To odd in binary32, then to nearest in binary16; a result that rounds to -0 is +0. */
                vi cut = vi_truncate(value) != both;
                value = (vf)((vi)value | (cut & 1)) * unit;
                vf_store(c + v * LANES, vf_round_half(value) + vf_all(0));
                continue;
            }
#endif
            vi_store(c + v * LANES, (vi)(value * unit) & keep);
        }
    }
    *found = bad;
}

static inline __attribute__((always_inline)) int run_row(const state *s, int vectors, int based, int half,
                                                         ptrdiff_t padded, const float *a, const uint32_t *a_exponent,
                                                         int a_base, float *c)
{
    vi bad = vi_all(0);
    run_chain(s, vectors, based, half, 0, padded, a, a_exponent, s->b, s->b_exponent, a_base, c, &bad);
    return vi_any_negative(bad);
}

/* A composite unit's row: for each of its steps a chain from zero, then the accumulator plus that, to nearest. */
static inline __attribute__((always_inline)) int run_composite(const state *s, int vectors, int half,
                                                               ptrdiff_t padded, const float *a,
                                                               const uint32_t *a_exponent, float *c)
{
    vi bad = vi_all(0);
    for (ptrdiff_t k = 0; k < padded; k += s->packed) {
        _Alignas(64) float partial[WIDTH] = {0};
        run_chain(s, vectors, 0, half, 1, s->packed, a + k, a_exponent + k, s->b + k * WIDTH,
                  s->b_exponent + k * WIDTH, 0, partial, &bad);
        for (int v = 0; v < vectors; v++) {
            vf sum = vf_load(c + v * LANES) + vf_load(partial + v * LANES);
#if HW_HAS_HALF
            if (half)   /* of two binary16 numbers: binary32 is wide enough for the second rounding to do no harm */
                sum = vf_round_half(sum);
#endif
            vf_store(c + v * LANES, sum);
        }
    }
    return vi_any_negative(bad);
}

static int run(const state *s, int columns, ptrdiff_t padded, const float *a, const uint32_t *a_exponent, int a_base,
               float *c)
{
    int vectors = (columns + LANES - 1) / LANES;
#define ROW(count, based, half) run_row(s, count, based, half, padded, a, a_exponent, a_base, c)
#define COMPOSITE(count, half) run_composite(s, count, half, padded, a, a_exponent, c)
    if (s->composite) {
        if (s->half)
            return vectors == 1 ? COMPOSITE(1, 1) : vectors == 2 ? COMPOSITE(2, 1) : COMPOSITE(4, 1);
        return vectors == 1 ? COMPOSITE(1, 0) : vectors == 2 ? COMPOSITE(2, 0) : COMPOSITE(4, 0);
    }
    if (s->half)
        return vectors == 1 ? ROW(1, 0, 1) : vectors == 2 ? ROW(2, 0, 1) : ROW(4, 0, 1);
    if (s->based)
        return vectors == 1 ? ROW(1, 1, 0) : vectors == 2 ? ROW(2, 1, 0) : ROW(4, 1, 0);
    return vectors == 1 ? ROW(1, 0, 0) : vectors == 2 ? ROW(2, 0, 0) : ROW(4, 0, 0);
#undef ROW
#undef COMPOSITE
}

/* A step's products sorted by selection, each padded to an inner step. */
static int composite_order(state *s, const hw_spec *spec)
{
    s->unit = spec->inner;
    s->packed = spec->selections * spec->inner->terms;
    if (s->packed > DEPTH || spec->terms > DEPTH || spec->saturate_operands || spec->saturate_overflow
        || spec->flush_operands || spec->flush_results || spec->ieee_zero)
        return 0;
    for (int i = 0; i < s->packed; i++)
        s->order[i] = -1;
    for (int step = 0; step < spec->selections; step++) {
        int at = step * spec->inner->terms;
        for (int k = 0; k < spec->terms; k++)
            if (spec->selection[step] >> (k % spec->modulus) & 1)
                s->order[at++] = (int16_t)k;
    }
    return 1;
}

static int takes(state *s, const hw_block *g)
{
    const hw_spec *spec = g->spec;
    s->g = g;
    s->composite = spec->model == HW_COMPOSITE;
    if (!s->composite)
        natural_order(s, spec);
    else if (!composite_order(s, spec))
        return 0;
    const hw_spec *unit = s->unit;
    if (unit->terms > DEPTH)
        return 0;
    double sum = (double)unit->terms * (double)(4ull << unit->fraction_bits);
    s->check_sum = sum + (double)(2ull << unit->fraction_bits) > 0x1p31;
    s->based = unit->a.exponent_bits > 5 || unit->b.exponent_bits > 5;
    s->half = HW_HAS_HALF && hw_is(&unit->d, "fp16") && unit->rounding == HW_RNE && !s->based;
    s->lowest = unit->floor_exponent > LOW ? unit->floor_exponent : LOW;
    if (!s->half && !(hw_is(&unit->d, "fp32") && unit->rounding == HW_RZ && unit->floor_exponent <= LOW))
        return 0;
    return unit->floor_exponent < HIGH && !unit->saturate_overflow && !unit->ieee_zero && !unit->flush_operands
        && !unit->flush_results && !unit->saturate_operands && unit->fraction_bits <= 25 && sum <= 0x1p31
        && !(s->composite && s->based) && g->k > 0
        && unit->a.fraction_bits + unit->b.fraction_bits + 2 <= 24
        && !hw_lines_open(&s->a_lines, &spec->a, spec) && !hw_lines_open(&s->b_lines, &spec->b, spec);
}

int hw_fused_float(const hw_block *g)
{
    state s;
    if (!takes(&s, g))
        return 1;
    int status = run_blocks(&s, g, run, s.composite ? HW_NEAREST : HW_TOWARD_ZERO);
    if (!status && s.composite)
        hw_canonical_nans(g);     /* of ordinary additions */
    return status;
}
