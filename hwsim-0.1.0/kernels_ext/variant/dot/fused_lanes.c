/* The fused unit with a binary32 result toward zero: which lanes a row of a panel runs in, over each chunk of k.
 *
 * In order of speed: binary32 lanes where the exponents of row, panel and accumulators allow it; binary64 lanes, for
 * any finite numbers; the scalar code for rows and columns with infinities or NaNs, and for results near overflow.
 * The choice is made for one row of one panel over one chunk, so that a few odd numbers slow few results.
 */
#include "hw_dot_fused_double.h"
#include "hw_dot_fused_single.h"

/* The marked columns of a row by the scalar code, from the accumulators at out. */
static int scalar_columns(const hw_block *row, const uint8_t *marks)
{
    int status = 0;
    for (ptrdiff_t first = 0, last; first < row->n && !status; first = last) {
        for (last = first + 1; last < row->n && marks[last] == marks[first];)
            last++;
        if (!marks[first])
            continue;
        hw_block few = *row;
        few.b += first * row->b_column;
        few.out += 4 * first;
        few.n = last - first;
        status = hw_scalar_block(&few);
    }
    return status;
}

/* Results of the columns without a mark to `out`. */
static void store_columns(float *out, const float *c, const uint8_t *marks, ptrdiff_t columns)
{
    for (ptrdiff_t j = 0; j < columns; j++)
        if (!marks[j])
            memcpy(out + j, c + j, 4);
}

/* What the binary32 lanes could not do of row i. */
static int rest_of_row(state *s, ptrdiff_t i, const hw_block *row, ptrdiff_t padded)
{
#if HW_HAS_CUT
    line *x = &s->a_line[i];
    if (s->doubles && !(x->flags & LINE_SPECIAL)) {
        _Alignas(64) float c[WIDTH] = {0};
        uint8_t marks[WIDTH];
        unsigned control = hw_lanes_enter(HW_CUT);
        if (!x->doubled)
            double_row(s, i, row->a, row->k, padded);
        if (!s->b_doubled)
            double_panel(s, row->b, (int)row->n, row->k, padded);
        memcpy(marks, s->b_special, WIDTH);
        memcpy(c, row->out, 4 * (size_t)row->n);
        for (int half = 0; half * HALF < row->n; half++)
            run_double_row(s, row, half, padded, i, c + half * HALF, marks + half * HALF);
        hw_lanes_leave(control);
        store_columns((float *)(void *)row->out, c, marks, row->n);
        return scalar_columns(row, marks);
    }
#else
    (void)s, (void)i, (void)padded;
#endif
    return hw_scalar_block(row);
}

/* Whether the binary32 lanes hold the products of a row and a panel. */
static int fits(const state *s, const line *x)
{
    return s->singles && !x->flags && !(s->b_flags & LINE_WIDE)
        && (!s->based || (x->low + s->b_low >= PRODUCT_LOW && x->high + s->b_high <= PRODUCT_HIGH));
}

static int one_row(state *s, ptrdiff_t i, const hw_block *row, ptrdiff_t padded)
{
    if (!fits(s, &s->a_line[i]))
        return rest_of_row(s, i, row, padded);
    if (!(s->b_flags & LINE_SPECIAL))
        return run_single(s, row, (int)row->n, padded, i, row->out) ? rest_of_row(s, i, row, padded) : 0;
    /* Columns with infinities or NaNs stand as zeros in the panel: the others' results count. */
    _Alignas(64) float c[WIDTH] = {0};
    memcpy(c, row->out, 4 * (size_t)row->n);
    if (run_single(s, row, WIDTH, padded, i, (char *)c))
        return rest_of_row(s, i, row, padded);
    store_columns((float *)(void *)row->out, c, s->b_special, row->n);
    return scalar_columns(row, s->b_special);
}

static int takes(state *s, const hw_block *g)
{
    const hw_spec *spec = s->spec = g->spec;
    int terms = spec->terms, F = spec->fraction_bits;
    s->g = g;
    if (terms > DEPTH || g->k <= 0 || !hw_is(&spec->d, "fp32") || spec->rounding != HW_RZ || spec->saturate_overflow
        || spec->ieee_zero || spec->flush_operands || spec->flush_results || spec->saturate_operands
        || F < 1 || F >= 50)
        return 0;
    double products = (double)terms * (double)(4ull << F), accumulator = (double)(2ull << F);
    s->based = spec->a.exponent_bits > 5 || spec->b.exponent_bits > 5;
    s->signs = HW_HAS_CUT && F < 23 && 4 * terms + 2 <= 1 << (23 - F);
    int light = products + accumulator <= 0x1p31;
    /* terms * 2^(F + 2) = 2^31 is the limit for rows that are checked */
    s->heavy_sum = light || s->signs ? 0 : F <= 29 ? (1 << (30 - F)) - 1 : 1;
    s->singles = spec->floor_exponent <= LOWEST && spec->a.fraction_bits + spec->b.fraction_bits + 2 <= 24 && F <= 25
        && (s->signs || light || products <= 0x1p31);
    s->doubles = HW_HAS_CUT && !spec->result.pad && 4 * terms + 2 <= 1ll << (52 - F)
        && spec->floor_exponent >= -300 && spec->floor_exponent < 300;
    return (s->singles || s->doubles) && !hw_lines_open(&s->a_lines, &spec->a, spec)
        && !hw_lines_open(&s->b_lines, &spec->b, spec);
}

static char *place(char **at, size_t bytes)
{
    char *found = hw_align(*at);
    *at = found + bytes;
    return found;
}

static int run(state *s)
{
    const hw_block *g = s->g;
    ptrdiff_t terms = s->spec->terms, steps = (g->k + terms - 1) / terms;
    ptrdiff_t most = (s->signs && terms <= DEPTH / 2 ? DEPTH / 2 : DEPTH) / terms, chunks = (steps + most - 1) / most;
    ptrdiff_t chunk = (steps + chunks - 1) / chunks * terms, rows = g->m < ROWS ? g->m : ROWS;
    size_t lines = (size_t)(rows * chunk), panel = (size_t)(WIDTH * chunk);
    /* Pages that nobody writes to cost nothing: the binary64 part is touched when needed. */
    char *memory = malloc(lines * (12 + 20) + panel * (9 + 18) + sizeof(line) * (size_t)rows + 1024);
    if (!memory)
        return -1;
    char *at = memory;
    s->b = (float *)(void *)place(&at, panel * 8);
    s->b_exponent = (int8_t *)place(&at, panel);
    s->a = (float *)(void *)place(&at, lines * 4);
    s->a_exponent = (uint32_t *)(void *)place(&at, lines * 4);
    s->a_side = (int32_t *)(void *)place(&at, lines * 4);
    s->a_line = (line *)(void *)place(&at, sizeof(line) * (size_t)rows);
    s->b_double = (double *)(void *)place(&at, panel * 16);
    s->b_double_exponent = (int16_t *)(void *)place(&at, panel * 2);
    s->a_double = (double *)(void *)place(&at, lines * 8);
    s->a_double_exponent = (uint64_t *)(void *)place(&at, lines * 8);
    s->a_double_side = (int32_t *)(void *)place(&at, lines * 4);
    int status = 0;
    for (ptrdiff_t i0 = 0; i0 < g->m && !status; i0 += rows) {
        ptrdiff_t m = g->m - i0 < rows ? g->m - i0 : rows;
        for (ptrdiff_t k = 0; k < g->k && !status; k += chunk) {
            hw_block part = *g;
            part.m = 1;
            part.k = g->k - k < chunk ? g->k - k : chunk;
            part.a += i0 * g->a_row + k * g->a_column;
            if (g->divide)
                part.divide += k / terms;
            ptrdiff_t padded = (part.k + terms - 1) / terms * terms;
            pack_rows(s, part.a, m, part.k, padded);
            for (ptrdiff_t j = 0; j < g->n && !status; j += WIDTH) {
                hw_block row = part;
                row.n = g->n - j < WIDTH ? g->n - j : WIDTH;
                row.b = g->b + k * g->b_row + j * g->b_column;
                row.out = g->out + i0 * g->out_row + 4 * j;
                pack_panel(s, row.b, (int)row.n, row.k, padded);
                /* Packing has subnormal numbers, the binary32 lanes none that count. */
                unsigned control = hw_lanes_enter(HW_CUT_FLUSHING);
                for (ptrdiff_t i = 0; i < m && !status; i++) {
                    for (int next = 0; next < 4 * WIDTH; next += 64)
                        __builtin_prefetch(row.out + g->out_row + next, 1);
                    status = one_row(s, i, &row, padded);
                    row.a += g->a_row;
                    row.out += g->out_row;
                }
                hw_lanes_leave(control);
            }
        }
    }
    free(memory);
    return status;
}

int hw_fused_lanes(const hw_block *g)
{
    state s;
    return takes(&s, g) ? run(&s) : 1;
}
