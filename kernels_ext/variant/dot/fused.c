/* The fused step in binary32 and int32 lanes; the result binary32 toward zero, or binary16 to nearest even.
 *
 * Of 16 products each costs a multiplication (exact: two significands of at most 11 and 12 bits), a scaling by
 * 2^(F - top) (exact, or below 1), a truncating conversion and an integer addition. top comes from the operands'
 * exponents in 8-bit lanes: a saturating addition and a maximum for HW_BYTES outputs at a time.
 *
 * Operands with 8 exponent bits (bf16, tf32) are first scaled by a power of two per line, so that exponents
 * relative to the line's largest fit 8-bit lanes and products fit binary32.
 *
 * Whatever leaves the lanes' range (infinities, NaNs, a line that spans too many binades, a sum above int32,
 * a top near either end of binary32) goes to the scalar code, for one row of one panel over one chunk of k.
 */
#include <stdlib.h>
#include "hw_dot_variant.h"
#include "hw_simd.h"

enum {
    LANES = HW_BYTES / 4,
    VECTORS = 4,
    WIDTH = VECTORS * LANES,    /* columns of a panel: one vector of bytes */
    DEPTH = 128,
    ROWS = 1024,
    SPAN = 45,                  /* binades of a line: sums of two reach -90, and 2^(F + 90) is a binary32 */
    NO_TERM = -112,             /* byte sums below it come from a zero operand (-128) */
    LOW = -100, HIGH = 120      /* tops whose scalings are binary32 normal numbers, for F <= 25 */
};

typedef struct state {
    const hw_block *g;
    hw_lines a_lines, b_lines;
    int based;                  /* lines are scaled */
    int half;                   /* binary16 accumulator and result (held as binary32 in the lanes) */
    int lowest;                 /* top is not below it: the unit's floor, or LOW */
    int check_sum;              /* products and accumulator together may leave int32 */
    float *a, *b;
    uint32_t *a_exponent;       /* a byte, four times */
    int8_t *b_exponent;
    int32_t *a_base;
    uint8_t *a_wide;
    int32_t b_base[WIDTH];
    int b_wide;
} state;

static inline float power_of_two(int e)
{
    uint32_t bits = (uint32_t)(e + 127) << 23;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* The format's exponent of a binary32 value; 128 for infinities and NaNs. */
static inline int exponent_of(float x, int emin)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    int e = (int)((bits >> 23) & 255) - 127;
    return e < emin ? emin : e;
}

static inline int is_zero(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return !(bits << 1);
}

/* The scale of a line whose largest and least exponents these are; *wide when the lanes cannot hold it. */
static int base_of(const state *s, int high, int low, int *wide)
{
    if (high == INT32_MIN)
        return 0;
    *wide = high >= 128 || (s->based && high - low > SPAN);
    return s->based ? (high > 126 ? 126 : high) : 0;
}

static void pack_rows(state *s, const char *from, ptrdiff_t rows, ptrdiff_t depth, ptrdiff_t padded)
{
    const hw_block *g = s->g;
    int emin = hw_emin(&g->spec->a);
    for (ptrdiff_t i = 0; i < rows; i++) {
        float *x = s->a + i * padded;
        uint32_t *e = s->a_exponent + i * padded;
        hw_lines_read(&s->a_lines, x, from + i * g->a_row, g->a_column, depth);
        for (ptrdiff_t k = depth; k < padded; k++)
            x[k] = 0;
        int high = INT32_MIN, low = INT32_MAX, wide = 0;
        for (ptrdiff_t k = 0; k < padded; k++) {
            int own = exponent_of(x[k], emin), zero = is_zero(x[k]);
            high = !zero && own > high ? own : high;
            low = !zero && own < low ? own : low;
        }
        int base = base_of(s, high, low, &wide);
        float scale = power_of_two(-base);
        for (ptrdiff_t k = 0; k < padded; k++) {
            int own = exponent_of(x[k], emin) - base;
            own = is_zero(x[k]) ? -128 : own;
            e[k] = (uint32_t)(own & 255) * 0x01010101u;
            x[k] *= scale;
        }
        s->a_base[i] = base;
        s->a_wide[i] = (uint8_t)wide;
    }
}

static void pack_columns(state *s, const char *from, int columns, ptrdiff_t depth, ptrdiff_t padded)
{
    const hw_block *g = s->g;
    int emin = hw_emin(&g->spec->b);
    float line[DEPTH];
    if (columns < WIDTH || depth < padded)
        memset(s->b, 0, sizeof(float) * (size_t)(WIDTH * padded));
    if (g->b_column == g->spec->b.storage_bits / 8)
        for (ptrdiff_t k = 0; k < depth; k++)
            hw_lines_read(&s->b_lines, s->b + k * WIDTH, from + k * g->b_row, g->b_column, columns);
    else
        for (int j = 0; j < columns; j++) {
            hw_lines_read(&s->b_lines, line, from + j * g->b_column, g->b_row, depth);
            for (ptrdiff_t k = 0; k < depth; k++)
                s->b[k * WIDTH + j] = line[k];
        }
    int32_t high[WIDTH], low[WIDTH];
    float scale[WIDTH];
    for (int j = 0; j < WIDTH; j++) {
        high[j] = INT32_MIN;
        low[j] = INT32_MAX;
    }
    for (ptrdiff_t k = 0; k < padded; k++)
        for (int j = 0; j < WIDTH; j++) {
            float x = s->b[k * WIDTH + j];
            int own = exponent_of(x, emin), zero = is_zero(x);
            int up = zero ? INT32_MIN : own, down = zero ? INT32_MAX : own;
            high[j] = up > high[j] ? up : high[j];
            low[j] = down < low[j] ? down : low[j];
        }
    s->b_wide = 0;
    for (int j = 0; j < WIDTH; j++) {
        int wide = 0;
        s->b_base[j] = base_of(s, high[j], low[j], &wide);
        s->b_wide |= wide;
        scale[j] = power_of_two(-s->b_base[j]);
    }
    for (ptrdiff_t k = 0; k < padded; k++)
        for (int j = 0; j < WIDTH; j++) {
            float x = s->b[k * WIDTH + j];
            int own = exponent_of(x, emin) - s->b_base[j];
            s->b_exponent[k * WIDTH + j] = (int8_t)(is_zero(x) ? -128 : own);
            s->b[k * WIDTH + j] = x * scale[j];
        }
}

/* One row of the panel's first `vectors` vectors over whole steps. Returns 1 when a lane left its range. */
static inline __attribute__((always_inline)) int run_row(const state *s, int vectors, int based, int half,
                                                         ptrdiff_t padded, const float *a, const uint32_t *a_exponent, int a_base,
                                                         float *c)
{
    const hw_spec *spec = s->g->spec;
    int terms = spec->terms, F = spec->fraction_bits;
    const float *b = s->b;
    const int8_t *b_exponent = s->b_exponent;
    vi keep = vi_all((int32_t)~hw_mask(spec->result.pad));
    vi bad = vi_all(0), check = vi_all(s->check_sum ? -1 : 0);
    _Alignas(64) int8_t tops[WIDTH];
    for (ptrdiff_t step = 0; step < padded; step += terms) {
        vb top = vb_add_saturating((vb)vi_all((int32_t)a_exponent[0]), vb_load(b_exponent));
        for (int t = 1; t < terms; t++)
            top = vb_max(top, vb_add_saturating((vb)vi_all((int32_t)a_exponent[t]), vb_load(b_exponent + t * WIDTH)));
        vb_store(tops, top);
        a_exponent += terms;
        b_exponent += terms * WIDTH;

        vf scale[VECTORS];
        vi sum[VECTORS], largest[VECTORS];
        for (int v = 0; v < vectors; v++) {
            vi own = vi_from_bytes(tops + v * LANES), code = vi_load(c + v * LANES);
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
            vf value = vf_from_int_rz(both), unit = (vf)((largest[v] + (127 - F)) << 23);
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
    return vi_any_negative(bad);
}

static int run_columns(const state *s, int columns, ptrdiff_t padded, const float *a, const uint32_t *a_exponent,
                       int a_base, float *c)
{
    int vectors = (columns + LANES - 1) / LANES;
#define ROW(count, based, half) run_row(s, count, based, half, padded, a, a_exponent, a_base, c)
    if (s->half)
        return vectors == 1 ? ROW(1, 0, 1) : vectors == 2 ? ROW(2, 0, 1) : ROW(4, 0, 1);
    if (s->based)
        return vectors == 1 ? ROW(1, 1, 0) : vectors == 2 ? ROW(2, 1, 0) : ROW(4, 1, 0);
    return vectors == 1 ? ROW(1, 0, 0) : vectors == 2 ? ROW(2, 0, 0) : ROW(4, 0, 0);
#undef ROW
}

/* The accumulator's codes as binary32, and back. */
static void load_row(const state *s, float *c, const char *from, int columns)
{
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
    if (!s->half)
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

static int takes(state *s, const hw_block *g)
{
    const hw_spec *spec = g->spec;
    double sum = (double)spec->terms * (double)(4ull << spec->fraction_bits);
    s->g = g;
    s->check_sum = sum + (double)(2ull << spec->fraction_bits) > 0x1p31;
    s->based = spec->a.exponent_bits > 5 || spec->b.exponent_bits > 5;
    s->half = HW_HAS_HALF && hw_is(&spec->d, "fp16") && spec->rounding == HW_RNE && !s->based;
    s->lowest = spec->floor_exponent > LOW ? spec->floor_exponent : LOW;
    if (!s->half && !(hw_is(&spec->d, "fp32") && spec->rounding == HW_RZ && spec->floor_exponent <= LOW))
        return 0;
    return spec->floor_exponent < HIGH && !spec->saturate_overflow && !spec->ieee_zero && !spec->flush_operands
        && !spec->flush_results && !spec->saturate_operands && spec->fraction_bits <= 25 && sum <= 0x1p31
        && spec->terms <= DEPTH && g->k > 0
        && spec->a.fraction_bits + spec->b.fraction_bits + 2 <= 24
        && !hw_lines_open(&s->a_lines, &spec->a, spec) && !hw_lines_open(&s->b_lines, &spec->b, spec);
}

int hw_fused_float(const hw_block *g)
{
    state s;
    if (!takes(&s, g))
        return 1;
    ptrdiff_t terms = g->spec->terms, chunk = DEPTH / terms * terms, steps = (g->k + terms - 1) / terms * terms;
    chunk = steps < chunk ? steps : chunk;
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
    unsigned control = hw_lanes_enter(1);
    int status = 0;
    for (ptrdiff_t i0 = 0; i0 < g->m; i0 += rows) {
        ptrdiff_t m = g->m - i0 < rows ? g->m - i0 : rows;
        for (ptrdiff_t k = 0; k < g->k; k += chunk) {
            ptrdiff_t depth = g->k - k < chunk ? g->k - k : chunk, padded = (depth + terms - 1) / terms * terms;
            pack_rows(&s, g->a + i0 * g->a_row + k * g->a_column, m, depth, padded);
            for (ptrdiff_t j = 0; j < g->n; j += WIDTH) {
                int columns = g->n - j < WIDTH ? (int)(g->n - j) : WIDTH;
                pack_columns(&s, g->b + k * g->b_row + j * g->b_column, columns, depth, padded);
                for (ptrdiff_t i = 0; i < m && !status; i++) {
                    char *out = g->out + (i0 + i) * g->out_row + j * (s.half ? 2 : 4);
                    _Alignas(64) float c[WIDTH];
                    load_row(&s, c, out, columns);
                    if (!s.b_wide && !s.a_wide[i]
                        && !run_columns(&s, columns, padded, s.a + i * padded, s.a_exponent + i * padded,
                                        s.a_base[i], c)) {
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
