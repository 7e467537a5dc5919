/* The integer unit: pairs of 16-bit operands multiplied and added in 32-bit lanes.
 *
 * Wrapping: all arithmetic modulo 2^32, whatever the steps. Saturating: a step's sum is exact in 32 bits (checked
 * for the formats and the length of a step), and the addition of the accumulator overflows only if both summands
 * have one sign and the sum the other; then it is the limit of that sign.
 */
#include "hw_dot_tiles.h"
#include "hw_dot_variant.h"
#include "hw_simd.h"

enum {
    LANES = HW_BYTES / 4,
    NV = 2,
    NR = NV * LANES,
#if HW_BYTES == 64
    MR = 12,
#elif HW_BYTES == 32
    MR = 6,
#else
    MR = 4,
#endif
    WRAP_TERMS = 32     /* what a wrapping unit is packed by */
};

typedef struct state {
    hw_format a, b;
    int terms, pairs, saturate;
    int16_t tables[2][256];
} state;

static int16_t value_of(const state *s, int is_b, const char *from)
{
    int16_t x;
    if ((is_b ? s->b : s->a).storage_bits == 8)
        return s->tables[is_b][*(const uint8_t *)from];
    memcpy(&x, from, 2);
    return x;
}

/* [step][pair][line][2] */
static void pack(const void *unit, int is_b, void *to, int width, const char *from, ptrdiff_t line, ptrdiff_t along,
                 int lines, ptrdiff_t depth, ptrdiff_t steps)
{
    const state *s = unit;
    int16_t *out = to;
    const int16_t *table = s->tables[is_b];
    int bytes = (is_b ? s->b : s->a).storage_bits == 8;
    if (lines < width || depth < steps * s->terms || s->terms & 1)
        memset(to, 0, 4 * (size_t)(steps * s->pairs * width));
    for (ptrdiff_t step = 0; step < steps; step++)
        for (int t = 0; t < s->terms && step * s->terms + t < depth; t++) {
            const char *at = from + (step * s->terms + t) * along;
            int16_t *place = out + 2 * ((step * s->pairs + t / 2) * width) + (t & 1);
            if (bytes && line == 1)
                for (int i = 0; i < lines; i++)
                    place[2 * i] = table[((const uint8_t *)at)[i]];
            else
                for (int i = 0; i < lines; i++)
                    place[2 * i] = value_of(s, is_b, at + i * line);
        }
}

static inline __attribute__((always_inline)) void sum_pairs(ptrdiff_t pairs, const int32_t *a, const int32_t *b,
                                                            vi sum[MR][NV])
{
    for (ptrdiff_t p = 0; p < pairs; p++, a += MR, b += NR) {
        vi column[NV];
        for (int j = 0; j < NV; j++)
            column[j] = vi_load(b + j * LANES);
        for (int i = 0; i < MR; i++) {
            vi row = vi_all(a[i]);
            for (int j = 0; j < NV; j++)
                sum[i][j] = (vi)((vui)sum[i][j] + (vui)vi_multiply_pairs(row, column[j]));
        }
    }
}

static void tile_wrapping(const void *unit, ptrdiff_t steps, const void *a, const void *b, void *to)
{
    const state *s = unit;
    int32_t *c = to;
    vi sum[MR][NV];
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NV; j++)
            sum[i][j] = vi_load(c + i * NR + j * LANES);
    sum_pairs(steps * s->pairs, a, b, sum);
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NV; j++)
            vi_store(c + i * NR + j * LANES, sum[i][j]);
}

static void tile_saturating(const void *unit, ptrdiff_t steps, const void *given_a, const void *given_b, void *to)
{
    const state *s = unit;
    const int32_t *a = given_a, *b = given_b;
    int32_t *c = to;
    for (ptrdiff_t step = 0; step < steps; step++, a += s->pairs * MR, b += s->pairs * NR) {
        vi sum[MR][NV];
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NV; j++)
                sum[i][j] = vi_all(0);
        sum_pairs(s->pairs, a, b, sum);
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NV; j++) {
                vi old = vi_load(c + i * NR + j * LANES), new = (vi)((vui)old + (vui)sum[i][j]);
                vi beyond = ((old ^ new) & (sum[i][j] ^ new)) < 0, limit = (old < 0) ^ 0x7FFFFFFF;
                vi_store(c + i * NR + j * LANES, (new & ~beyond) | (limit & beyond));
            }
    }
}

/* A format's codes as 16-bit integers; returns the largest magnitude, or 0 for a format that does not fit. */
static int64_t open_table(const hw_format *f, int16_t *table)
{
    if (f->storage_bits == 16 && f->is_signed)
        return 1 << 15;
    if (f->storage_bits != 8)
        return 0;
    for (int code = 0; code < 256; code++)
        table[code] = (int16_t)hw_decode_integer(f, (uint64_t)code);
    return 1 << (f->fraction_bits - f->is_signed);
}

int hw_integer(const hw_block *g)
{
    const hw_spec *spec = g->spec;
    state s = {.a = spec->a, .b = spec->b, .terms = spec->terms, .saturate = spec->saturate_overflow};
    int64_t product = open_table(&s.a, s.tables[0]) * open_table(&s.b, s.tables[1]);
    if (!product || !hw_is(&spec->d, "int32") || g->k == 0 || (s.saturate && product * spec->terms > INT32_MAX))
        return 1;
    if (!s.saturate)
        s.terms = WRAP_TERMS;
    s.pairs = (s.terms + 1) / 2;
    hw_tiles tiles = {MR, NR, s.terms, 4 * s.pairs, &s, pack, s.saturate ? tile_saturating : tile_wrapping};
    return hw_tiles_run(g, &tiles);
}
