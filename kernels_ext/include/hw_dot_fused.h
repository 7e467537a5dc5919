/* What the fused unit's lanes run on: rows of A and panels of B with their exponents, over a chunk of k.
 *
 * A line (row of A, column of B) is scaled by a power of two, its base, so that the largest exponent of a bf16 or tf32
 * line becomes 0: exponents then fit 8-bit lanes and products binary32. Formats with up to 5 exponent bits have base 0.
 * Sums stand relative to the bases of their row and column too; scaling them back is exact within the bounds below.
 *
 * Columns with infinities or NaNs are packed as zeros: their results are not used.
 * Included once, by variant/dot/fused_lanes.c.
 */
#ifndef HW_DOT_FUSED_H
#define HW_DOT_FUSED_H

#include <stdlib.h>
#include "hw_dot_line.h"
#include "hw_dot_variant.h"
#include "hw_simd.h"

enum {
    LANES = HW_BYTES / 4,
    VECTORS = 4,
    WIDTH = VECTORS * LANES,    /* columns of a panel: one vector of bytes */
    HALF = WIDTH / 2,           /* columns of a panel in binary64 */
    DEPTH = 128,                /* longest chunk of k */
    ROWS = 1024,
    SPAN = 45,                  /* binades of a line in bytes: exponents of products reach -90 below their bases */
    NO_TERM = -128,             /* a zero operand's exponent byte: the saturated sum is below every other */
    LOWEST = -100,              /* least exponent of the alignment, relative: with F <= 25 its scale is a binary32 */
    /* Where chains in binary32 stay normal numbers: products' exponents, not scaled; the largest accumulator. */
    PRODUCT_LOW = -100, PRODUCT_HIGH = 110, SUM_HIGH = 120,
    RELATIVE_HIGH = 100         /* largest accumulator relative to the bases */
};

/* What a line asks for. */
enum { LINE_SPECIAL = 1, LINE_WIDE = 2, LINE_HEAVY = 4 };

typedef struct line {
    int32_t base;
    int16_t low, high;          /* exponents of what is not zero; 0 for a line of zeros */
    uint8_t flags;
    uint8_t doubled;            /* the row's binary64 form is there */
} line;

typedef struct state {
    const hw_block *g;
    const hw_spec *spec;
    hw_lines a_lines, b_lines;
    int signs;                  /* sums of magnitudes by sign in binary32, else int32 */
    int based;                  /* lines are scaled */
    int singles;                /* the binary32 lanes can take the unit */
    int doubles;                /* the binary64 lanes can */
    int heavy_sum;              /* limit of a step's sum of a's significands, or 0: none needed */
    ptrdiff_t chunk;
    float *a;                   /* [row][k]; magnitudes when signs */
    uint32_t *a_exponent;       /* [row][k], a byte four times */
    int32_t *a_side;            /* [row][k], for sums by sign: where positive products' factors stand, 0 or WIDTH */
    line *a_line;
    float *b;                   /* [k][WIDTH], or [k][2][WIDTH]: max(b, 0), max(-b, 0) */
    int8_t *b_exponent;         /* [k][WIDTH], byte 4 * lane + vector */
    int32_t b_base[WIDTH];
    int b_low, b_high, b_flags, b_doubled;
    uint8_t b_special[WIDTH];
    /* the same for binary64, made when first needed */
    double *a_double;           /* magnitudes */
    uint64_t *a_double_exponent;
    int32_t *a_double_side;     /* 0 or HALF */
    double *b_double;           /* [half][k][2][HALF] */
    int16_t *b_double_exponent; /* [half][k][HALF], place 4 * lane + vector */
} state;

/* Base, flags and exponents of a line from its least and largest biased exponent; 0 as largest: only zeros. */
static line measured(const state *s, int low, int high)
{
    line x = {0};
    if (!high)
        return x;
    x.low = (int16_t)(low - 127);
    x.high = (int16_t)(high - 127);
    if (high == 255) {
        x.flags = LINE_SPECIAL;
        return x;
    }
    if (s->based) {
        x.base = x.high > 126 ? 126 : x.high;
        if (x.high - x.low > SPAN)
            x.flags = LINE_WIDE;
    }
    return x;
}

/* Whether a step's sum of significands, in 1/256 and each rounded up, is above the limit. */
static inline __attribute__((always_inline)) int is_heavy(const int32_t *parts, ptrdiff_t padded, int terms, int limit)
{
    int heavy = 0;
    for (ptrdiff_t k = 0; k < padded; k += terms) {
        int sum = 0;
        for (int t = 0; t < terms; t++)
            sum += parts[k + t];
        heavy |= sum > 256 * limit;
    }
    return heavy;
}

static __attribute__((noinline)) void pack_rows(state *s, const char *from, ptrdiff_t rows, ptrdiff_t depth,
                                                ptrdiff_t padded)
{
    const hw_block *g = s->g;
    int least = hw_emin(&s->spec->a) + 127, terms = s->spec->terms;
    enum { ROWS_READ = 16, LONG = DEPTH + LANES };    /* rows that are read together; room for one */
    _Alignas(64) float read[ROWS_READ * LONG];
    _Alignas(64) int32_t bytes[LONG], sides[LONG], parts[LONG];
    for (ptrdiff_t i = 0; i < rows; i++) {
        float *values = read + i % ROWS_READ * LONG;
        if (i % ROWS_READ == 0)
            hw_lines_read_block(&s->a_lines, read, LONG, 1, from + i * g->a_row, g->a_row, g->a_column,
                                rows - i < ROWS_READ ? rows - i : ROWS_READ, depth);
        memset(values + depth, 0, sizeof(float) * (size_t)(LONG - depth));
        span range = span_of_nothing();
        vi special = vi_all(0);
        for (ptrdiff_t k = 0; k < padded; k += LANES) {
            vi bits = vi_load(values + k), e = exponents_of(bits, least);
            special |= 254 - e;
            if (s->based)
                range = span_with(range, e);
            if (s->heavy_sum)
                vi_store(parts + k, (((bits >> 15) & 255) + 257) & (e > 0));
        }
        line x = {0};
        if (s->based) {
            int lowest = 255, highest = 0;
            for (int j = 0; j < LANES; j++) {
                lowest = range.low[j] < lowest ? range.low[j] : lowest;
                highest = range.high[j] > highest ? range.high[j] : highest;
            }
            x = measured(s, lowest, highest);
        } else if (vi_any_negative(special))
            x.flags = LINE_SPECIAL;
        if (s->heavy_sum && (terms == 16 ? is_heavy(parts, padded, 16, s->heavy_sum)
                             : is_heavy(parts, padded, terms, s->heavy_sum)))
            x.flags |= LINE_HEAVY;
        s->a_line[i] = x;
        if (x.flags & LINE_SPECIAL)
            continue;
        vi offset = vi_all(-128 - x.base);      /* 127, and 1: the exponents' sum is biased by 127 as unsigned */
        vf scale = vf_all(hw_power_of_two(-x.base));
        for (ptrdiff_t k = 0; k < padded; k += LANES) {
            vi bits = vi_load(values + k), e = exponents_of(bits, least), is_zero = e == 0;
            e = ((e + offset) & ~is_zero) | (is_zero & NO_TERM);
            if (s->based)
                e = vi_max(e, vi_all(NO_TERM));
            e &= 255;
            e |= e << 8;
            vi_store(bytes + k, e | e << 16);
            vf v = (vf)bits;
            if (s->based)
                v *= scale;
            if (s->signs) {
                vi_store(sides + k, ((vi)v < 0) & WIDTH);
                v = (vf)((vi)v & 0x7FFFFFFF);
            }
            vf_store(values + k, v);
        }
        memcpy(s->a + i * padded, values, sizeof(float) * (size_t)padded);
        memcpy(s->a_exponent + i * padded, bytes, sizeof(int32_t) * (size_t)padded);
        if (s->signs)
            memcpy(s->a_side + i * padded, sides, sizeof(int32_t) * (size_t)padded);
    }
}

/* Values [k][WIDTH] of a panel into `to`, whose rows are `row` floats apart; zeros outside. */
static void read_panel(const state *s, float *to, ptrdiff_t row, const char *from, int columns, ptrdiff_t depth,
                       ptrdiff_t padded)
{
    const hw_block *g = s->g;
    if (columns < WIDTH || depth < padded)
        for (ptrdiff_t k = 0; k < padded; k++)
            memset(to + k * row, 0, sizeof(float) * WIDTH);
    hw_lines_read_block(&s->b_lines, to, 1, row, from, g->b_column, g->b_row, columns, depth);
}

/* Bases, flags and ranges of the columns; those with infinities or NaNs become zeros. */
static void measure_panel(state *s, ptrdiff_t row, ptrdiff_t padded, int least)
{
    span range[VECTORS];
    for (int v = 0; v < VECTORS; v++)
        range[v] = span_of_nothing();
    for (ptrdiff_t k = 0; k < padded; k++)
        for (int v = 0; v < VECTORS; v++)
            range[v] = span_with(range[v], exponents_of(vi_load(s->b + k * row + v * LANES), least));
    s->b_low = INT16_MAX;
    s->b_high = INT16_MIN;
    for (int j = 0; j < WIDTH; j++) {
        int high = range[j / LANES].high[j % LANES];
        line x = measured(s, range[j / LANES].low[j % LANES], high);
        s->b_flags |= x.flags;
        s->b_base[j] = x.base;
        s->b_special[j] = x.flags & LINE_SPECIAL;
        if (x.flags & LINE_SPECIAL)
            for (ptrdiff_t k = 0; k < padded; k++)
                s->b[k * row + j] = 0;
        else if (high) {
            s->b_low = x.low < s->b_low ? x.low : s->b_low;
            s->b_high = x.high > s->b_high ? x.high : s->b_high;
        }
    }
    if (s->b_low == INT16_MAX)
        s->b_low = s->b_high = 0;
}

/* Returns whether there are infinities or NaNs. */
static inline __attribute__((always_inline)) int finish_panel(state *s, int based, int signs, ptrdiff_t row,
                                                              ptrdiff_t padded, int least)
{
    vi base[VECTORS], special = vi_all(0);
    vf scale[VECTORS];
    for (int v = 0; v < VECTORS; v++) {
        base[v] = vi_load(s->b_base + v * LANES) + 127;
        scale[v] = (vf)((254 - base[v]) << 23);
    }
    for (ptrdiff_t k = 0; k < padded; k++) {
        vi together = vi_all(0);
        for (int v = 0; v < VECTORS; v++) {
            float *at = s->b + k * row + v * LANES;
            vi bits = vi_load(at), e = exponents_of(bits, least), is_zero = e == 0;
            special |= 254 - e;
            e = ((e - base[v]) & ~is_zero) | (is_zero & NO_TERM);
            together |= (v < 3 ? e & 255 : e) << (8 * v);
            vf x = (vf)bits;
            if (based)
                x *= scale[v];
            if (signs) {
                vf_store(at + WIDTH, vf_max(-x, vf_all(0)));
                x = vf_max(x, vf_all(0));
            }
            if (based || signs)
                vf_store(at, x);
        }
        vi_store(s->b_exponent + k * WIDTH, together);
    }
    return vi_any_negative(special);
}

static __attribute__((noinline)) void pack_panel(state *s, const char *from, int columns, ptrdiff_t depth,
                                                 ptrdiff_t padded)
{
    int least = hw_emin(&s->spec->b) + 127;
    ptrdiff_t row = s->signs ? 2 * WIDTH : WIDTH;
    read_panel(s, s->b, row, from, columns, depth, padded);
    s->b_flags = s->b_doubled = 0;
    if (s->based) {
        measure_panel(s, row, padded, least);
        if (s->b_flags & LINE_WIDE)
            return;
        if (s->signs)
            finish_panel(s, 1, 1, row, padded, least);
        else
            finish_panel(s, 1, 0, row, padded, least);
        return;
    }
    memset(s->b_base, 0, sizeof s->b_base);
    memset(s->b_special, 0, sizeof s->b_special);
    if (s->signs ? finish_panel(s, 0, 1, row, padded, least) : finish_panel(s, 0, 0, row, padded, least)) {
        read_panel(s, s->b, row, from, columns, depth, padded);
        measure_panel(s, row, padded, least);
        if (s->signs)
            finish_panel(s, 0, 1, row, padded, least);
        else
            finish_panel(s, 0, 0, row, padded, least);
    }
}

#endif
