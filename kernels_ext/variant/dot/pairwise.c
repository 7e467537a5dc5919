/* The rounded adder tree in binary32 lanes: their own multiplications and additions are the unit's.
 *
 * Without flushing, they are IEEE's, subnormals included. With flushing (CDNA2) the control register's flushing
 * serves, though it judges a result after rounding it with unbounded exponent and the unit after rounding it
 * to binary32: the two differ only for values of (1 - 2^-24) 2^-126 and closer to 2^-126, which no sum of multiples of
 * 2^-149 is, nor a product of at most 23 significant bits. The unit reads a zero or subnormal accumulator as +0: the
 * lanes add +0 first.
 */
#include "hw_dot_tiles.h"
#include "hw_dot_variant.h"
#include "hw_simd.h"

enum {
    LANES = HW_BYTES / 4,
    NV = 2,
    NR = NV * LANES,
    MR = HW_BYTES == 64 ? 8 : 4,
    MOST = 16,          /* products of a step */
};

/* +0 that the compiler does not know: without flushing a sum with a term other than -0 is never -0, so one that does not
   know of the control register leaves the addition of +0 out. */
static const volatile float plus_zero = 0;

typedef struct state {
    hw_lines a, b;
    int terms, flush;
} state;

/* [k][line], k of whole steps */
static void pack(const void *unit, int is_b, void *to, int width, const char *from, ptrdiff_t line, ptrdiff_t along,
                 int lines, ptrdiff_t depth, ptrdiff_t steps)
{
    const state *s = unit;
    const hw_lines *format = is_b ? &s->b : &s->a;
    float *out = to;
    if (lines < width || depth < steps * s->terms)
        memset(to, 0, sizeof(float) * (size_t)(steps * s->terms * width));
    hw_lines_read_block(format, out, 1, width, from, line, along, lines, depth);
}

static inline __attribute__((always_inline)) void run(int terms, int flush, ptrdiff_t steps, const float *a,
                                                      const float *b, float *c)
{
    vf sum[MR][NV], zero = vf_all(plus_zero);
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NV; j++)
            sum[i][j] = vf_load(c + i * NR + j * LANES);
    for (ptrdiff_t step = 0; step < steps; step++, a += terms * MR, b += terms * NR)
        for (int j = 0; j < NV; j++)
            for (int i = 0; i < MR; i++) {
                vf level[MOST];
                for (int t = 0; t < terms; t++)
                    level[t] = vf_all(a[t * MR + i]) * vf_load(b + t * NR + j * LANES);
                for (int count = terms; count > 1; count = (count + 1) / 2) {
                    for (int t = 0; t < count / 2; t++)
                        level[t] = level[2 * t] + level[2 * t + 1];
                    if (count & 1)
                        level[count / 2] = level[count - 1];
                }
                vf old = flush ? sum[i][j] + zero : sum[i][j];
                sum[i][j] = old + level[0];
            }
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NV; j++)
            vf_store(c + i * NR + j * LANES, sum[i][j]);
}

static void tile(const void *unit, ptrdiff_t steps, const void *a, const void *b, void *c)
{
    const state *s = unit;
    if (s->flush && s->terms == 4)
        run(4, 1, steps, a, b, c);
    else if (s->flush && s->terms == 2)
        run(2, 1, steps, a, b, c);
    else
        run(s->terms, s->flush, steps, a, b, c);
}

int hw_pairwise(const hw_block *g)
{
    const hw_spec *spec = g->spec;
    state s = {.terms = spec->terms, .flush = spec->flush_operands};
    if (!hw_is(&spec->d, "fp32") || spec->rounding != HW_RNE || !spec->ieee_zero || spec->saturate_operands
        || spec->saturate_overflow || spec->flush_operands != spec->flush_results || spec->terms > MOST || g->k == 0
        || (s.flush && (!HW_HAS_FLUSH || spec->a.fraction_bits + spec->b.fraction_bits + 2 > 23))
        || hw_lines_open(&s.a, &spec->a, spec) || hw_lines_open(&s.b, &spec->b, spec))
        return 1;
    hw_tiles tiles = {MR, NR, s.terms, 4 * s.terms, &s, pack, tile};
    unsigned control = hw_lanes_enter(s.flush ? HW_NEAREST_FLUSHING : HW_NEAREST);
    int status = hw_tiles_run(g, &tiles);
    hw_lanes_leave(control);
    if (!status)
        hw_canonical_nans(g);
    return status;
}
