/* The block-scaled step: a group's products and their sum in int32 lanes, scales and the alignment in binary64.
 *
 * Operands are small multiples of their format's last place; pairs of them are multiplied and added as 16-bit
 * integers. A group's sum times its scales is exact in binary64 (31 bits and two significands of up to 4), in units
 * of 2^(top - F) it is cut by truncation, and the sum of a step's groups and of the accumulator stays below 2^52. The
 * result is that sum without the bits below the 24 leading ones.
 *
 * To the scalar code go NaN scales, infinite and NaN accumulators, and results below binary32's normal numbers.
 */
#include <math.h>
#include "hw_dot_scaled.h"
#include "hw_dot_variant.h"
#include "hw_simd.h"

enum {
    LANES = HW_BYTES / 4,
    HALF = LANES / 2,
    VECTORS = 4,
    WIDTH = VECTORS * LANES,
    PAIR = 2,               /* vectors that share a row's broadcasts */
    GROUPS = 16,            /* most groups of a step */
    DROPPED = 29            /* bits of a binary64 significand that binary32's has not */
};

typedef int32_t vhi __attribute__((vector_size(HW_BYTES / 2)));

typedef struct state {
    const hw_spec *spec;
    int16_t a[256], b[256]; /* codes as multiples of their format's last place */
    double scales[256];     /* values; NaN */
    int exponents[256];
    double place;           /* value of the products' last place */
    int pairs, groups;
    ptrdiff_t row_bytes, panel_bytes;       /* of a packed step */
    ptrdiff_t row_groups, panel_groups;     /* where its group records begin */
} state;

/* After the pairs of a step stand, per group: values of scales, which products are not zero (bits), exponents. */
typedef struct row_group {
    double scale;
    int32_t terms, exponent;
} row_group;

typedef struct panel_group {
    double scale[WIDTH];
    int32_t terms[WIDTH], exponent[WIDTH];
} panel_group;

static int pack_row(const void *unit, char *to, const hw_block *part)
{
    const state *s = unit;
    const hw_spec *spec = s->spec;
    ptrdiff_t steps = (part->k + spec->terms - 1) / spec->terms;
    int wide = 0;
    memset(to, 0, (size_t)(steps * s->row_bytes));
    for (ptrdiff_t step = 0; step < steps; step++, to += s->row_bytes) {
        int16_t *values = (int16_t *)to;
        row_group *groups = (row_group *)(to + s->row_groups);
        for (int t = 0; t < spec->terms; t++) {
            ptrdiff_t k = step * spec->terms + t;
            if (k >= part->k)
                break;
            row_group *group = &groups[t / spec->group];
            if (t % spec->group == 0) {
                uint8_t code = *(const uint8_t *)(part->a_scale + k / spec->scale_block * part->a_scale_column);
                group->scale = s->scales[code] * s->place;
                group->exponent = s->exponents[code];
                wide |= isnan(group->scale);
            }
            values[t] = s->a[*(const uint8_t *)(part->a + k * part->a_column)];
            group->terms |= (values[t] && group->scale != 0) << t % spec->group;
        }
    }
    return wide;
}

static int pack_panel(const void *unit, char *to, const hw_block *part)
{
    const state *s = unit;
    const hw_spec *spec = s->spec;
    ptrdiff_t steps = (part->k + spec->terms - 1) / spec->terms;
    int wide = 0;
    memset(to, 0, (size_t)(steps * s->panel_bytes));
    for (ptrdiff_t step = 0; step < steps; step++, to += s->panel_bytes) {
        int16_t *values = (int16_t *)to;
        panel_group *groups = (panel_group *)(to + s->panel_groups);
        for (int t = 0; t < spec->terms; t++) {
            ptrdiff_t k = step * spec->terms + t;
            if (k >= part->k)
                break;
            panel_group *group = &groups[t / spec->group];
            if (t % spec->group == 0) {
                const char *scale = part->b_scale + k / spec->scale_block * part->b_scale_row;
                for (ptrdiff_t j = 0; j < part->n; j++) {
                    uint8_t code = *(const uint8_t *)(scale + j * part->b_scale_column);
                    group->scale[j] = s->scales[code];
                    group->exponent[j] = s->exponents[code];
                    wide |= isnan(group->scale[j]);
                }
            }
            const char *from = part->b + k * part->b_row;
            int16_t *place = values + 2 * (t / 2) * WIDTH + (t & 1);
            for (ptrdiff_t j = 0; j < part->n; j++) {
                int16_t value = s->b[*(const uint8_t *)(from + j * part->b_column)];
                place[2 * j] = value;
                group->terms[j] |= (value && group->scale[j] != 0) << t % spec->group;
            }
        }
    }
    return wide;
}

/* Joins the groups' sums to one vector of accumulators. Adds to *bad what the lanes cannot take, as sign bits. */
static inline __attribute__((always_inline)) void join(const state *s, int groups, const vi *sums,
                                                       const row_group *rows, const panel_group *columns,
                                                       ptrdiff_t at, float *c, vi *bad, vl *bad_half)
{
    const hw_spec *spec = s->spec;
    int F = spec->fraction_bits;
    vi magnitude = vi_load(c + at) & 0x7FFFFFFF, field = magnitude >> 23;
    vi lowest = vi_all(spec->floor_exponent), zero = magnitude == 0, top = vi_max(field, vi_all(1)) - 127;
    *bad |= 254 - field;
    top = vi_max(lowest, (top & ~zero) | (lowest & zero));
    for (int g = 0; g < groups; g++) {
        vi own = vi_all(rows[g].exponent) + vi_load(columns[g].exponent + at);
        vi none = (vi_all(rows[g].terms) & vi_load(columns[g].terms + at)) == 0;
        top = vi_max(top, (own & ~none) | (lowest & none));
    }
    _Alignas(64) int32_t tops[LANES], integers[GROUPS][LANES];
    vi_store(tops, top);
    for (int g = 0; g < groups; g++)
        vi_store(integers[g], sums[g]);
    for (int h = 0; h < LANES; h += HALF) {
        vhi narrow;
        memcpy(&narrow, tops + h, sizeof narrow);
        /* 2^(F - top) and its inverse, by their bits. */
        vl up = ((int64_t)(1023 + F) - __builtin_convertvector(narrow, vl)) << 52;
        vd total = vd_cut(vd_from_floats(c + at + h) * (vd)up) + vd_all(0);
        for (int g = 0; g < groups; g++) {
            vd scale = vd_all(rows[g].scale) * vd_load(columns[g].scale + at + h) * (vd)up;
            total += vd_cut(vd_from_ints(integers[g] + h) * scale);
        }
        total *= (vd)(((int64_t)2046 << 52) - up);
        vl bits = (vl)total, size = (bits & INT64_MAX) - 1;
        *bad_half |= (size - (((int64_t)(1023 - 126) << 52) - 1)) & ~size;
        vd_to_floats(c + at + h, (vd)(bits & -((int64_t)1 << DROPPED)));
    }
}

static inline __attribute__((always_inline)) int run_row(const state *s, int vectors, int groups, int pairs,
                                                         ptrdiff_t steps, const char *a, const char *b, float *c)
{
    int each = pairs / groups;
    vi bad = vi_all(0);
    vl bad_half = (vl)vi_all(0);
    for (ptrdiff_t step = 0; step < steps; step++, a += s->row_bytes, b += s->panel_bytes)
        for (int v = 0; v < vectors; v += PAIR) {
            vi sums[PAIR][GROUPS];
            for (int g = 0; g < groups; g++) {
                const int32_t *x = (const int32_t *)a + g * each, *y = (const int32_t *)b + g * each * WIDTH;
                for (int w = 0; w < PAIR; w++)
                    sums[w][g] = vi_all(0);
                for (int p = 0; p < each; p++) {
                    vi row = vi_all(x[p]);
                    for (int w = 0; w < PAIR; w++)
                        sums[w][g] += vi_multiply_pairs(row, vi_load(y + p * WIDTH + (v + w) * LANES));
                }
            }
            for (int w = 0; w < PAIR; w++)
                join(s, groups, sums[w], (const row_group *)(a + s->row_groups),
                     (const panel_group *)(b + s->panel_groups), (v + w) * LANES, c, &bad, &bad_half);
        }
    return vi_any_negative(bad | (vi)(bad_half & INT64_MIN));
}

static int row(const void *unit, ptrdiff_t steps, int columns, const char *a, const char *b, char *c)
{
    const state *s = unit;
    int vectors = columns <= PAIR * LANES ? PAIR : VECTORS;
    if (s->groups == 4 && s->pairs == 32)
        return vectors == PAIR ? run_row(s, PAIR, 4, 32, steps, a, b, (float *)c)
                               : run_row(s, VECTORS, 4, 32, steps, a, b, (float *)c);
    return run_row(s, vectors, s->groups, s->pairs, steps, a, b, (float *)c);
}

/* The codes of a format without infinities and NaNs as integers of 12 bits or fewer; returns the largest, or 0 for any
 * other format.
 */
static double open_operand(int16_t *to, int *last_place, const hw_format *f)
{
    double largest = 0;
    if (f->storage_bits != 8 || f->special != HW_FINITE)
        return 0;
    *last_place = hw_emin(f) - f->fraction_bits;
    for (int code = 0; code < 256; code++) {
        hw_num x = hw_decode(f, (uint64_t)code);
        double value = ldexp((double)x.sig, x.lsb - *last_place);
        if (value >= 1 << 12)
            return 0;
        to[code] = (int16_t)(x.sign ? -value : value);
        largest = value > largest ? value : largest;
    }
    return largest;
}

static int takes(state *s, const hw_block *g)
{
    const hw_spec *spec = s->spec = g->spec;
    if (g->k == 0 || spec->model != HW_BLOCK_SCALED || !hw_is(&spec->d, "fp32") || spec->rounding != HW_RZ
        || spec->ieee_zero || spec->saturate_operands || spec->saturate_overflow || spec->flush_operands
        || spec->flush_results || spec->group % 2 || spec->group > 32 || spec->terms % spec->group
        || spec->terms / spec->group > GROUPS || spec->scale_block % spec->group
        || spec->zero_exponent > spec->floor_exponent || spec->floor_exponent < -600 || spec->fraction_bits > 50)
        return 0;
    int a_place = 0, b_place = 0, F = spec->fraction_bits;
    double product = open_operand(s->a, &a_place, &spec->a) * open_operand(s->b, &b_place, &spec->b);
    /* Groups below 2^31; with two scales' significands, each below 2, and the accumulator, sums below 2^52. */
    if (product == 0 || product * spec->group >= 0x1p31
        || ldexp(4 * product * spec->terms, a_place + b_place + F) + ldexp(2, F) >= 0x1p52)
        return 0;
    s->place = ldexp(1, a_place + b_place);
    for (int code = 0; code < 256; code++) {
        hw_num x = hw_decode(&spec->scale, (uint64_t)code);
        s->scales[code] = x.kind >= HW_INF ? NAN : ldexp((double)x.sig, x.lsb);
        s->exponents[code] = x.lsb + spec->scale.fraction_bits;
    }
    s->pairs = spec->terms / 2;
    s->groups = spec->terms / spec->group;
    s->row_groups = 4 * s->pairs;
    s->panel_groups = s->row_groups * WIDTH;
    s->row_bytes = (s->row_groups + (ptrdiff_t)sizeof(row_group) * s->groups + 63) / 64 * 64;
    s->panel_bytes = s->panel_groups + (ptrdiff_t)sizeof(panel_group) * s->groups;
    return 1;
}

int hw_block_scaled(const hw_block *g)
{
    state s;
    if (!takes(&s, g))
        return 1;
    hw_scaled unit = {WIDTH, s.row_bytes, s.panel_bytes, &s, pack_row, pack_panel, row};
    unsigned control = hw_lanes_enter(HW_NEAREST);
    int status = hw_scaled_run(g, &unit);
    hw_lanes_leave(control);
    return status;
}
