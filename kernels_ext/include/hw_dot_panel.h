/* Rows of A and panels of B as binary32 with their exponents in bytes: what the aligning units run on.
 *
 * Operands with 8 exponent bits (bf16, tf32) are scaled by a power of two per line, so that exponents relative to
 * the line's largest fit 8-bit lanes and products fit binary32. A step's products may be packed in another order
 * than that of k.
 *
 * Whatever leaves the lanes' range (infinities, NaNs, a line that spans too many binades, and what the unit's row
 * function finds) goes to the scalar code, for one row of one panel over one chunk of k. Included once per unit.
 */
#ifndef HW_DOT_PANEL_H
#define HW_DOT_PANEL_H

#include <stdlib.h>
#include "hw_dot_line.h"
#include "hw_dot_variant.h"
#include "hw_simd.h"

enum {
    LANES = HW_BYTES / 4,
    VECTORS = 4,
    WIDTH = VECTORS * LANES,    /* columns of a panel: one vector of bytes */
    DEPTH = 128,                /* longest packed chunk of k */
    ROWS_READ = 16,             /* rows of A that are read together */
    ROWS = 1024,
    SPAN = 45,                  /* binades of a line: sums of two reach -90, and 2^(F + 90) is a binary32 */
    NO_EXPONENT = -128,         /* of a zero operand */
    NO_TERM = -112,             /* byte sums below it come from a zero operand */
    LOW = -100, HIGH = 120      /* tops whose scalings are binary32 normal numbers, for F <= 25 */
};

typedef struct state {
    const hw_block *g;
    const hw_spec *unit;        /* whose steps the lanes run: of a composite unit the inner one */
    int packed;                 /* products of a step of g's spec as packed, in their order: */
    int16_t order[DEPTH];       /* places in the step, or -1 for a zero */
    int natural;                /* all of a step's products are packed, as they come */
    hw_lines a_lines, b_lines;
    int composite;
    int based;                  /* lines are scaled */
    int half;                   /* binary16 accumulator and result (held as binary32 in the lanes) */
    int lowest;                 /* top is not below it: the unit's floor, or LOW */
    int check_sum;              /* products and accumulator together may leave int32 */
    float *a, *b;
    uint32_t *a_exponent;       /* a byte, four times */
    int8_t *b_exponent;         /* [k][WIDTH], byte 4 * lane + vector */
    int32_t *a_base;
    uint8_t *a_wide;
    int32_t b_base[WIDTH];
    int b_wide;
    int16_t at[DEPTH];          /* order for a whole chunk; INT16_MAX for a zero */
} state;

/* The base of a line whose least and largest biased exponents these are, the largest 0: only zeros; *wide when the
 * lanes cannot hold it.
 */
static int base_of(const state *s, int low, int high, int *wide)
{
    *wide = high == 255 || (s->based && high && high - low > SPAN);
    return s->based && high ? (high > 253 ? 253 : high) - 127 : 0;
}

/* Bytes of the exponents e less a base, offset = 127 + base; NO_EXPONENT for zeros. */
static inline vi relative_exponents(vi e, vi offset)
{
    vi is_zero = e == 0;
    return (((e - offset) & ~is_zero) | (is_zero & NO_EXPONENT)) & 255;
}

static void pack_rows(state *s, const char *from, ptrdiff_t rows, ptrdiff_t depth, ptrdiff_t padded)
{
    const hw_block *g = s->g;
    int least = hw_emin(&s->unit->a) + 127;
    enum { LONG = DEPTH + LANES };      /* room for whole vectors */
    _Alignas(64) float read[ROWS_READ * LONG], sorted[LONG] = {0};
    _Alignas(64) int32_t bytes[LONG];
    for (ptrdiff_t i = 0; i < rows; i++) {
        float *x = read + i % ROWS_READ * LONG;
        if (i % ROWS_READ == 0)
            hw_lines_read_block(&s->a_lines, read, LONG, 1, from + i * g->a_row, g->a_row, g->a_column,
                                rows - i < ROWS_READ ? rows - i : ROWS_READ, depth);
        memset(x + depth, 0, sizeof(float) * (size_t)(LONG - depth));
        if (!s->natural) {
            for (ptrdiff_t k = 0; k < padded; k++)
                sorted[k] = s->at[k] < depth ? x[s->at[k]] : 0;
            memcpy(x, sorted, sizeof sorted);
        }
        span range = span_of_nothing();
        for (ptrdiff_t k = 0; k < padded; k += LANES)
            range = span_with(range, exponents_of(vi_load(x + k), least));
        int low = 255, high = 0, wide;
        for (int j = 0; j < LANES; j++) {
            low = range.low[j] < low ? range.low[j] : low;
            high = range.high[j] > high ? range.high[j] : high;
        }
        int base = base_of(s, low, high, &wide);
        vi offset = vi_all(127 + base);
        vf scale = vf_all(hw_power_of_two(-base));
        for (ptrdiff_t k = 0; k < padded; k += LANES) {
            vi e = relative_exponents(exponents_of(vi_load(x + k), least), offset);
            e |= e << 8;
            vi_store(bytes + k, e | e << 16);
            vf_store(x + k, vf_load(x + k) * scale);
        }
        memcpy(s->a + i * padded, x, sizeof(float) * (size_t)padded);
        memcpy(s->a_exponent + i * padded, bytes, sizeof(int32_t) * (size_t)padded);
        s->a_base[i] = base;
        s->a_wide[i] = (uint8_t)wide;
    }
}

static void pack_columns(state *s, const char *from, int columns, ptrdiff_t depth, ptrdiff_t padded)
{
    const hw_block *g = s->g;
    int least = hw_emin(&s->unit->b) + 127;
    if (columns < WIDTH || !s->natural || depth < padded)
        memset(s->b, 0, sizeof(float) * (size_t)(WIDTH * padded));
    if (s->natural)
        hw_lines_read_block(&s->b_lines, s->b, 1, WIDTH, from, g->b_column, g->b_row, columns, depth);
    else {
        float lines[DEPTH * WIDTH];
        hw_lines_read_block(&s->b_lines, lines, 1, WIDTH, from, g->b_column, g->b_row, columns, depth);
        for (ptrdiff_t k = 0; k < padded; k++)
            if (s->at[k] < depth)
                memcpy(s->b + k * WIDTH, lines + s->at[k] * WIDTH, sizeof(float) * (size_t)columns);
    }
    span range[VECTORS];
    for (int v = 0; v < VECTORS; v++)
        range[v] = span_of_nothing();
    for (ptrdiff_t k = 0; k < padded; k++)
        for (int v = 0; v < VECTORS; v++)
            range[v] = span_with(range[v], exponents_of(vi_load(s->b + k * WIDTH + v * LANES), least));
    s->b_wide = 0;
    for (int j = 0; j < WIDTH; j++) {
        int wide;
        s->b_base[j] = base_of(s, range[j / LANES].low[j % LANES], range[j / LANES].high[j % LANES], &wide);
        s->b_wide |= wide;
    }
    vi offset[VECTORS];
    vf scale[VECTORS];
    for (int v = 0; v < VECTORS; v++) {
        offset[v] = vi_load(s->b_base + v * LANES) + 127;
        scale[v] = (vf)((254 - offset[v]) << 23);
    }
    for (ptrdiff_t k = 0; k < padded; k++) {
        vi together = vi_all(0);
        for (int v = 0; v < VECTORS; v++) {
            float *x = s->b + k * WIDTH + v * LANES;
            together |= (vi)((vui)relative_exponents(exponents_of(vi_load(x), least), offset[v]) << (8 * v));
            vf_store(x, vf_load(x) * scale[v]);
        }
        vi_store(s->b_exponent + k * WIDTH, together);
    }
}

/* A step as it comes. */
static void natural_order(state *s, const hw_spec *unit)
{
    s->unit = unit;
    s->packed = unit->terms;
    for (int k = 0; k < unit->terms; k++)
        s->order[k] = (int16_t)k;
}

/* The accumulator's codes as binary32, and back. */
static void load_row(const state *s, float *c, const char *from, int columns)
{
    if (!s->half && columns == WIDTH) {     /* a length that the compiler knows */
        memcpy(c, from, sizeof(float) * WIDTH);
        return;
    }
    memset(c, 0, sizeof(float) * WIDTH);
    if (!s->half)
        memcpy(c, from, (size_t)columns * 4);
#if HW_HAS_HALF
    else {
        uint16_t codes[WIDTH] = {0};
        memcpy(codes, from, (size_t)columns * 2);
        for (int v = 0; v < WIDTH; v += LANES)
            vf_from_half(c + v, codes + v);
    }
#endif
}

static void store_row(const state *s, char *to, const float *c, int columns)
{
    if (!s->half && columns == WIDTH)
        memcpy(to, c, sizeof(float) * WIDTH);
    else if (!s->half)
        memcpy(to, c, (size_t)columns * 4);
#if HW_HAS_HALF
    else {
        uint16_t codes[WIDTH];
        for (int v = 0; v < WIDTH; v += LANES)
            vf_to_half(codes + v, vf_load(c + v));
        memcpy(to, codes, (size_t)columns * 2);
    }
#endif
}

/* One row over `padded` products of whole steps; c: WIDTH accumulators. Returns 1 when a lane left its range. */
typedef int run_columns(const state *s, int columns, ptrdiff_t padded, const float *a, const uint32_t *a_exponent,
                        int a_base, float *c);

static int run_blocks(state *given, const hw_block *g, run_columns *run, enum hw_lanes mode)
{
    state s = *given;
    ptrdiff_t terms = g->spec->terms, steps = (g->k + terms - 1) / terms;
    ptrdiff_t most = DEPTH / (terms > s.packed ? terms : s.packed);
    ptrdiff_t chunk = (steps < most ? steps : most) * s.packed, natural = (steps < most ? steps : most) * terms;
    s.natural = s.packed == terms;
    for (ptrdiff_t k = 0; k < chunk; k++) {
        int place = s.order[k % s.packed];
        s.at[k] = (int16_t)(place < 0 ? INT16_MAX : k / s.packed * terms + place);
        s.natural &= s.at[k] == k;
    }
    ptrdiff_t rows = g->m < ROWS ? g->m : ROWS;
    char *memory = malloc((size_t)((rows * 8 + WIDTH * 5) * chunk + rows * 5 + 512));
    if (!memory)
        return -1;
    s.b = hw_align(memory);
    s.b_exponent = hw_align(s.b + WIDTH * chunk);
    s.a = hw_align(s.b_exponent + WIDTH * chunk);
    s.a_exponent = (uint32_t *)(s.a + rows * chunk);
    s.a_base = (int32_t *)(s.a_exponent + rows * chunk);
    s.a_wide = (uint8_t *)(s.a_base + rows);
    unsigned control = hw_lanes_enter(mode);
    int status = 0;
    for (ptrdiff_t i0 = 0; i0 < g->m; i0 += rows) {
        ptrdiff_t m = g->m - i0 < rows ? g->m - i0 : rows;
        for (ptrdiff_t k = 0; k < g->k; k += natural) {
            ptrdiff_t depth = g->k - k < natural ? g->k - k : natural, padded = (depth + terms - 1) / terms * s.packed;
            pack_rows(&s, g->a + i0 * g->a_row + k * g->a_column, m, depth, padded);
            for (ptrdiff_t j = 0; j < g->n; j += WIDTH) {
                int columns = g->n - j < WIDTH ? (int)(g->n - j) : WIDTH;
                pack_columns(&s, g->b + k * g->b_row + j * g->b_column, columns, depth, padded);
                for (ptrdiff_t i = 0; i < m && !status; i++) {
                    char *out = g->out + (i0 + i) * g->out_row + j * (s.half ? 2 : 4);
                    _Alignas(64) float c[WIDTH];
                    load_row(&s, c, out, columns);
                    if (!s.b_wide && !s.a_wide[i]
                        && !run(&s, columns, padded, s.a + i * padded, s.a_exponent + i * padded, s.a_base[i], c)) {
                        store_row(&s, out, c, columns);
                        continue;
                    }
                    hw_block part = *g;
                    part.a += (i0 + i) * g->a_row + k * g->a_column;
                    part.b += k * g->b_row + j * g->b_column;
                    part.out = out;
                    part.m = 1;
                    part.n = columns;
                    part.k = depth;
                    status = hw_scalar_block(&part);
                }
            }
        }
    }
    hw_lanes_leave(control);
    free(memory);
    return status;
}

#endif
