/* Register-blocked products in floating-point lanes, for units whose steps such lanes give exactly.
 *
 * Included once per lane type. A is packed as panels of MR rows, B as panels of NR columns, k by k; chunks
 * of k are chained through the result array, which is possible because a step's result is a code of it.
 *
 * fma_chain: the lanes' own fused multiply-add, in order of k. exact: hw_dot_exact.h.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include "hw_dot_variant.h"
#include "hw_simd.h"

#if REAL_FLOAT
typedef float real;
typedef vf vreal;
#define vreal_load vf_load
#define vreal_store vf_store
#define vreal_all vf_all
#define vreal_fma vf_fma
#define REAL_MAIN hw_real_float
#else
typedef double real;
typedef vd vreal;
#define vreal_load vd_load
#define vreal_store vd_store
#define vreal_all vd_all
#define vreal_fma vd_fma
#define REAL_MAIN hw_real_double
#endif

enum {
    LANES = (int)(HW_BYTES / sizeof(real)),
    NV = 2,
#if HW_BYTES == 64
    MR = 12,
#elif HW_BYTES == 32
    MR = 6,
#else
    MR = 4,
#endif
    NR = NV * LANES,
    DEPTH = 256,        /* chunk of k: a panel of B stays in the first cache */
    PART = 64,          /* parts of a chunk, when the whole is too wide; of whole steps */
    PARTS = DEPTH / (PART / 2),
    /* rows packed at once, a megabyte: a multiple of every MR */
    ROWS = 1032 * 4 / (int)sizeof(real),
    COLUMNS = 256 * 4 / (int)sizeof(real),
    NEAR = 160 << 10    /* bytes of A that go through all panels of B before the next: they stay in the second cache */
};

/* What the tests for exactness need to know of a panel, for the whole chunk of k and for parts of it. */
typedef struct range {
    double norm;        /* largest Euclidean norm of a line; infinite when any value is not finite */
    int lsb;            /* every value is a multiple of 2^lsb */
} range;

typedef struct panel {
    range whole, part[PARTS];
} panel;

typedef struct state {
    const hw_block *g;
    hw_lines a_lines, b_lines;
    real *a, *b;
    panel *a_panels, *b_panels;
    int exact;          /* the exact unit, or fma_chain through it where there is no fused multiply-add */
    ptrdiff_t part;     /* length in k of the parts of a chunk */
} state;

#if !REAL_FLOAT
#include "hw_dot_exact.h"
#endif

static inline __attribute__((always_inline)) void widen(real *to, const float *from, ptrdiff_t count)
{
    for (ptrdiff_t i = 0; i < count; i++)
        to[i] = (real)from[i];
}

#if !REAL_FLOAT
/* As pack(), of binary64 codes; the exact unit, which measures its panels, takes none. */
static inline __attribute__((always_inline)) void pack_wide(double *to, int width, const char *from, ptrdiff_t line,
                                                            ptrdiff_t along, ptrdiff_t count, ptrdiff_t depth,
                                                            ptrdiff_t padded)
{
    for (ptrdiff_t first = 0; first < count; first += width, from += width * line, to += width * padded) {
        ptrdiff_t lines = count - first < width ? count - first : width;
        if (lines < width || depth < padded)
            memset(to, 0, sizeof(double) * (size_t)(width * padded));
        for (ptrdiff_t k = 0; k < depth; k++)
            if (line == 8 && lines == width)
                memcpy(to + k * width, from + k * along, sizeof(double) * (size_t)width);
            else
                for (ptrdiff_t r = 0; r < lines; r++)
                    memcpy(to + k * width + r, from + r * line + k * along, sizeof(double));
    }
}
#endif

/* Panels of `width` lines, each [k][width], with zeros for missing lines and the padding of k. */
static inline __attribute__((always_inline)) void pack(const state *s, const hw_lines *lines, const hw_format *f,
                                                       real *to, panel *panels, int width, const char *from,
                                                       ptrdiff_t line, ptrdiff_t along, ptrdiff_t count,
                                                       ptrdiff_t depth, ptrdiff_t padded)
{
#if !REAL_FLOAT
    if (f->storage_bits == 64) {
        pack_wide(to, width, from, line, along, count, depth, padded);
        return;
    }
#endif
    /* Lines that lie side by side are read many at a time, a short run of k each; others a panel at a time. */
    enum { SHORT = 16, SEVERAL = 96 };
    int by_lines = (line < 0 ? -line : line) >= (along < 0 ? -along : along);
    ptrdiff_t several = by_lines ? width : SEVERAL / width * width;
    ptrdiff_t longest = by_lines ? DEPTH : SHORT;
    float buffer[DEPTH * NR > SHORT * SEVERAL ? DEPTH * NR : SHORT * SEVERAL];
    for (ptrdiff_t first = 0; first < count; first += several) {
        ptrdiff_t here = count - first < several ? count - first : several;
        const char *base = from + first * line;
        real *panel_of_first = to + first * padded;
        if (here % width || depth < padded)
            memset(panel_of_first, 0, sizeof(real) * (size_t)((here + width - 1) / width * width * padded));
        for (ptrdiff_t k = 0; k < depth; k += longest) {
            ptrdiff_t run = depth - k < longest ? depth - k : longest;
            hw_lines_read_block(lines, buffer, 1, several, base + k * along, line, along, here, run);
            for (ptrdiff_t at = 0; at < here; at += width) {
                real *x = panel_of_first + at * padded + k * width;
                if (several == width && here == width)
                    widen(x, buffer, run * width);
                else if (here - at >= width)
                    for (ptrdiff_t r = 0; r < run; r++)
                        widen(x + r * width, buffer + r * several + at, width);
                else
                    for (ptrdiff_t r = 0; r < run; r++)
                        widen(x + r * width, buffer + r * several + at, here - at);
            }
        }
#if !REAL_FLOAT
        if (s->exact)
            for (ptrdiff_t at = 0; at < here; at += width)
                measure_panel(panel_of_first + at * padded, width, padded, s->part, f, panels + (first + at) / width);
#else
        (void)s;
        (void)f;
        (void)panels;
#endif
    }
}

/* C (MR x NR) += A B over k, one multiply-add per k and output. */
static inline void chain_tile(ptrdiff_t depth, const real *a, const real *b, real *c, ptrdiff_t c_row)
{
    vreal sum[MR][NV];
#if HW_HAS_FMA
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NV; j++)
            sum[i][j] = vreal_load(c + i * c_row + j * LANES);
    for (ptrdiff_t k = 0; k < depth; k++, a += MR, b += NR) {
        vreal column[NV];
        for (int j = 0; j < NV; j++)
            column[j] = vreal_load(b + j * LANES);
        for (int i = 0; i < MR; i++) {
            vreal row = vreal_all(a[i]);
            for (int j = 0; j < NV; j++)
                sum[i][j] = vreal_fma(row, column[j], sum[i][j]);
        }
    }
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NV; j++)
            vreal_store(c + i * c_row + j * LANES, sum[i][j]);
#else
    (void)sum;
    for (ptrdiff_t k = 0; k < depth; k++, a += MR, b += NR)
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NR; j++)
                c[i * c_row + j] = (real)fma((double)a[i], (double)b[j], (double)c[i * c_row + j]);
#endif
}

typedef union { float f[12 * 32]; double d[12 * 16]; } tile_buffer;

static int any_nan(const void *tile, ptrdiff_t c_row)
{
    const real *c = tile;
    int found = 0;
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NR; j++)
            found |= c[i * c_row + j] != c[i * c_row + j];
    return found;
}

/* A tile of a chain in the lanes. Where NaNs pass on, a tile with one is done again in scalar code. */
static int chain(const state *s, ptrdiff_t i, ptrdiff_t j, ptrdiff_t k, int rows, int columns, ptrdiff_t depth,
                 ptrdiff_t padded, const real *a, const real *b, real *c, ptrdiff_t c_row)
{
    tile_buffer start;
    int passes = s->g->spec->nan_order[0];
    if (passes)
        for (int r = 0; r < MR; r++)
            memcpy((real *)&start + r * NR, c + r * c_row, NR * sizeof(real));
    chain_tile(padded, a, b, c, c_row);
    if (!passes || !any_nan(c, c_row))
        return 0;
    hw_block part = *s->g;
    for (int r = 0; r < MR; r++)
        memcpy(c + r * c_row, (real *)&start + r * NR, NR * sizeof(real));
    part.a += i * part.a_row + k * part.a_column;
    part.b += k * part.b_row + j * part.b_column;
    part.out = (char *)c;
    part.out_row = c_row * (ptrdiff_t)sizeof(real);
    part.m = rows;
    part.n = columns;
    part.k = depth;
    return hw_scalar_block(&part);
}

/* One tile of the result, through a buffer when it is not whole. */
static int run_tile(const state *s, ptrdiff_t i, ptrdiff_t j, ptrdiff_t k, ptrdiff_t depth, ptrdiff_t padded,
                    const real *a, const real *b, const panel *pa, const panel *pb)
{
    const hw_block *g = s->g;
    int width = g->spec->d.storage_bits / 8;
    int rows = g->m - i < MR ? (int)(g->m - i) : MR, columns = g->n - j < NR ? (int)(g->n - j) : NR;
    char *out = g->out + i * g->out_row + j * width;
    int whole = rows == MR && columns == NR;
    _Alignas(64) tile_buffer buffer;
    void *c = out;
    ptrdiff_t c_row = g->out_row / width;
    if (!whole) {
        memset(&buffer, 0, sizeof buffer);
        for (int r = 0; r < rows; r++)
            memcpy((char *)&buffer + r * NR * width, out + r * g->out_row, (size_t)(columns * width));
        c = &buffer;
        c_row = NR;
    }
    int status = 0;
#if REAL_FLOAT
    (void)pa;
    (void)pb;
    status = chain(s, i, j, k, rows, columns, depth, padded, a, b, c, c_row);
#else
    if (!s->exact)
        status = chain(s, i, j, k, rows, columns, depth, padded, a, b, c, c_row);
    else if (g->spec->model == HW_FMA_CHAIN)
        single_tile(padded, a, b, c, c_row);
    else {
        hw_block part = *g;
        part.a += i * g->a_row + k * g->a_column;
        part.b += k * g->b_row + j * g->b_column;
        part.m = rows;
        part.n = columns;
        part.k = depth;
        status = exact_tile(s, &part, padded, pa, pb, a, b, c, c_row);
    }
#endif
    if (!whole)
        for (int r = 0; r < rows; r++)
            memcpy(out + r * g->out_row, (char *)&buffer + r * NR * width, (size_t)(columns * width));
    return status;
}

static int prepare(state *s, const hw_block *g)
{
    const hw_spec *spec = g->spec;
    if (spec->rounding != HW_RNE || spec->flush_results || spec->flush_operands || g->k == 0)
        return 1;
    s->g = g;
    if (spec->model == HW_FMA_CHAIN) {
        if (!spec->ieee_zero || spec->saturate_operands || spec->saturate_overflow)
            return 1;
#if REAL_FLOAT
        s->exact = 0;
        if (!HW_HAS_FMA || !hw_is(&spec->d, "fp32"))
            return 1;
#else
        s->exact = hw_is(&spec->d, "fp32");
        if (s->exact && spec->nan_order[0])
            return 1;
        if (s->exact ? HW_HAS_FMA : !hw_is(&spec->d, "fp64"))
            return 1;
#endif
    } else {
#if REAL_FLOAT
        return 1;
#else
        s->exact = 1;
        if (spec->model != HW_EXACT || !hw_is(&spec->d, "fp32") || spec->terms > DEPTH)
            return 1;
#endif
    }
    int wide_a = spec->a.storage_bits == 64, wide_b = spec->b.storage_bits == 64;
    if (wide_a || wide_b) {
        if (REAL_FLOAT || s->exact)
            return 1;
    }
    s->a_lines.format = spec->a;
    s->b_lines.format = spec->b;
    return (!wide_a && hw_lines_open(&s->a_lines, &spec->a, spec))
        || (!wide_b && hw_lines_open(&s->b_lines, &spec->b, spec));
}

int REAL_MAIN(const hw_block *g)
{
    state s;
    memset(&s, 0, offsetof(state, a_lines));
    s.exact = 0;
    if (prepare(&s, g))
        return 1;
    const hw_spec *spec = g->spec;
    ptrdiff_t terms = spec->terms;
    s.part = terms > PART ? terms : PART / terms * terms;
    ptrdiff_t chunk = DEPTH / s.part * s.part;
    ptrdiff_t steps = (g->k + terms - 1) / terms * terms;
    chunk = steps < chunk ? steps : chunk;
    ptrdiff_t blocks = (g->m + ROWS - 1) / ROWS, rows = ((g->m + blocks - 1) / blocks + MR - 1) / MR * MR;
    ptrdiff_t columns = g->n < COLUMNS ? (g->n + NR - 1) / NR * NR : COLUMNS;
    size_t panels = (size_t)(rows / MR + columns / NR);
    char *memory = malloc(sizeof(real) * (size_t)((rows + columns) * chunk) + sizeof(panel) * panels + 256);
    if (!memory)
        return -1;
    s.a = hw_align(memory);
    s.b = hw_align(s.a + rows * chunk);
    s.a_panels = hw_align(s.b + columns * chunk);
    s.b_panels = s.a_panels + rows / MR;
    unsigned control = hw_lanes_enter(HW_NEAREST);
    int status = 0;
    for (ptrdiff_t i0 = 0; i0 < g->m && !status; i0 += rows) {
        ptrdiff_t m = g->m - i0 < rows ? g->m - i0 : rows;
        for (ptrdiff_t k = 0; k < g->k && !status; k += chunk) {
            ptrdiff_t depth = g->k - k < chunk ? g->k - k : chunk, padded = (depth + terms - 1) / terms * terms;
            pack(&s, &s.a_lines, &spec->a, s.a, s.a_panels, MR, g->a + i0 * g->a_row + k * g->a_column, g->a_row,
                 g->a_column, m, depth, padded);
            for (ptrdiff_t j0 = 0; j0 < g->n && !status; j0 += columns) {
                ptrdiff_t n = g->n - j0 < columns ? g->n - j0 : columns;
                pack(&s, &s.b_lines, &spec->b, s.b, s.b_panels, NR, g->b + k * g->b_row + j0 * g->b_column,
                     g->b_column, g->b_row, n, depth, padded);
                ptrdiff_t near = NEAR / (ptrdiff_t)sizeof(real) / (MR * padded) * MR;
                near = near < MR ? MR : near;
                for (ptrdiff_t first = 0; first < m; first += near) {
                    ptrdiff_t last = m - first < near ? m : first + near;
                    for (ptrdiff_t j = 0; j < n && !status; j += NR)
                        for (ptrdiff_t i = first; i < last && !status; i += MR)
                            status = run_tile(&s, i0 + i, j0 + j, k, depth, padded, s.a + i * padded,
                                              s.b + j * padded, s.a_panels + i / MR, s.b_panels + j / NR);
                }
            }
        }
    }
    hw_lanes_leave(control);
    free(memory);
    /* The exact unit's lanes make none: what is not finite goes to the scalar code. */
    if (!status && !spec->nan_order[0] && spec->model == HW_FMA_CHAIN)
        hw_canonical_nans(g);
    return status;
}
