/* The fused step on operands of 8 bits and fewer, with or without block scales that are powers of two.
 *
 * The arithmetic is fused.c's: an exact product, scaled by 2^(F - top) and cut by the truncating conversion, added in
 * int32. What differs: one scale per step and operand moves all exponents of the step by the same amount, and a long
 * step with many fraction bits (32 products, F = 25) is summed in parts whose sums fit int32.
 *
 * To the scalar code go NaN scales, infinite and NaN operands, exponents near binary32's ends, and sums beyond int32.
 */
#include <math.h>
#include "hw_dot_scaled.h"
#include "hw_dot_variant.h"
#include "hw_simd.h"

enum {
    LANES = HW_BYTES / 4,
    VECTORS = 4,
    WIDTH = VECTORS * LANES,    /* columns of a panel: one vector of bytes */
    NO_TERM = -112,             /* byte sums below it come from a zero operand (-128) */
    NOTHING = -1024,            /* the top of products that are all zero */
    LOW = -100, HIGH = 120      /* tops whose scalings are binary32 normal numbers, for F <= 25 */
};

typedef struct operand {
    float values[256];
    int8_t exponents[256];
    uint8_t special[256];
} operand;

typedef struct state {
    const hw_spec *spec;
    operand a, b;
    int part;                   /* products whose sum fits int32 */
    int half;                   /* binary16 accumulator and result */
    int lowest;                 /* top is not below it: the unit's floor, or LOW */
    ptrdiff_t row_bytes, panel_bytes;   /* of a packed step: values, exponents, base */
} state;

/* Exponent of a scale, or INT32_MAX. */
static int scale_exponent(const hw_format *f, const char *from)
{
    hw_num x = hw_decode(f, *(const uint8_t *)from);
    return x.kind == HW_NORMAL ? x.lsb : INT32_MAX;
}

static int pack_row(const void *unit, char *to, const hw_block *part)
{
    const state *s = unit;
    int terms = s->spec->terms, wide = 0;
    for (ptrdiff_t first = 0; first < part->k; first += terms, to += s->row_bytes) {
        float *values = (float *)to;
        uint32_t *exponents = (uint32_t *)(values + terms);
        int32_t *base = (int32_t *)(exponents + terms);
        for (int t = 0; t < terms; t++) {
            ptrdiff_t k = first + t;
            uint8_t code = k < part->k ? *(const uint8_t *)(part->a + k * part->a_column) : 0;
            values[t] = s->a.values[code];
            exponents[t] = (uint32_t)(s->a.exponents[code] & 255) * 0x01010101u;
            wide |= s->a.special[code];
        }
        *base = 0;
        if (s->spec->scale_block) {
            *base = scale_exponent(&s->spec->scale, part->a_scale + first / terms * part->a_scale_column);
            wide |= *base == INT32_MAX;
        }
    }
    return wide;
}

static int pack_panel(const void *unit, char *to, const hw_block *part)
{
    const state *s = unit;
    int terms = s->spec->terms, wide = 0;
    for (ptrdiff_t first = 0; first < part->k; first += terms, to += s->panel_bytes) {
        float *values = (float *)to;
        int8_t *exponents = (int8_t *)(values + terms * WIDTH);
        int32_t *base = (int32_t *)(exponents + terms * WIDTH);
        for (int t = 0; t < terms; t++, values += WIDTH, exponents += WIDTH) {
            ptrdiff_t own = first + t < part->k ? part->n : 0;
            const char *from = part->b + (first + t) * part->b_row;
            for (ptrdiff_t j = 0; j < WIDTH; j++) {
                uint8_t code = j < own ? *(const uint8_t *)(from + j * part->b_column) : 0;
                values[j] = s->b.values[code];
                exponents[j] = s->b.exponents[code];
                wide |= s->b.special[code];
            }
        }
        for (ptrdiff_t j = 0; j < WIDTH; j++) {
            base[j] = 0;
            if (s->spec->scale_block && j < part->n) {
                base[j] = scale_exponent(&s->spec->scale, part->b_scale + first / terms * part->b_scale_row
                                                              + j * part->b_scale_column);
                wide |= base[j] == INT32_MAX;
            }
        }
    }
    return wide;
}

static inline __attribute__((always_inline)) int run_row(const state *s, int vectors, int terms, int half,
                                                         ptrdiff_t steps, const char *a, const char *b, vf *c)
{
    const hw_spec *spec = s->spec;
    int F = spec->fraction_bits, scaled = spec->scale_block;
    vi keep = vi_all((int32_t)~hw_mask(spec->result.pad)), bad = vi_all(0);
    for (ptrdiff_t step = 0; step < steps; step++, a += s->row_bytes, b += s->panel_bytes) {
        const float *x = (const float *)a, *y = (const float *)b;
        const uint32_t *x_exponents = (const uint32_t *)(x + terms);
        const int8_t *y_exponents = (const int8_t *)(y + terms * WIDTH);
        vb highest = vb_add_saturating((vb)vi_all((int32_t)x_exponents[0]), vb_load(y_exponents));
        for (int t = 1; t < terms; t++)
            highest = vb_max(highest, vb_add_saturating((vb)vi_all((int32_t)x_exponents[t]),
                                                        vb_load(y_exponents + t * WIDTH)));
        _Alignas(64) int8_t tops[WIDTH];
        vb_store(tops, highest);
        vf scale[VECTORS];
        vi sum[VECTORS], top[VECTORS];
        for (int v = 0; v < vectors; v++) {
            vi own = vi_from_bytes(tops + v * LANES), none = own < NO_TERM, base = vi_all(0);
            if (scaled)
                base = vi_all(*(const int32_t *)(x_exponents + terms))
                    + vi_load(y_exponents + terms * WIDTH + 4 * v * LANES);
            own = ((own + base) & ~none) | (none & NOTHING);
            vi magnitude = (vi)c[v] & 0x7FFFFFFF, exponent = (magnitude >> 23) - 127;
            if (half)   /* a subnormal accumulator has the format's least exponent, zero none */
                exponent = vi_max(exponent, ((magnitude > 0) & (-14 + 127)) - 127);
            vi e = vi_max(own, exponent);
            /* Below LOW everything must be zero. */
            bad |= (HIGH - e) | ((e - LOW) & (-magnitude | ~none));
            top[v] = e = vi_max(e, vi_all(s->lowest));
            sum[v] = vi_truncate(c[v] * (vf)((127 + F - e) << 23));
            scale[v] = (vf)(vi_max(vi_min(127 + F - e + base, vi_all(254)), vi_all(1)) << 23);
        }
        for (int first = 0; first < terms; first += s->part) {
            int last = first + s->part < terms ? first + s->part : terms;
            vi total[VECTORS];
            for (int v = 0; v < vectors; v++)
                total[v] = vi_all(0);
            for (int t = first; t < last; t++) {
                vf row = vf_all(x[t]);
                for (int v = 0; v < vectors; v++)
                    total[v] += vi_truncate(row * vf_load(y + t * WIDTH + v * LANES) * scale[v]);
            }
            for (int v = 0; v < vectors; v++) {
                vi both = (vi)((vui)total[v] + (vui)sum[v]);
                bad |= (total[v] ^ both) & (sum[v] ^ both);
                sum[v] = both;
            }
        }
        for (int v = 0; v < vectors; v++) {
            vf value = vf_from_int_rz(sum[v]), unit = (vf)((top[v] + (127 - F)) << 23);
#if HW_HAS_HALF
            if (half) {
                /* To odd in binary32, then to nearest in binary16; a result that rounds to -0 is +0. */
                vi cut = vi_truncate(value) != sum[v];
                value = (vf)((vi)value | (cut & 1)) * unit;
                c[v] = vf_round_half(value) + vf_all(0);
                continue;
            }
#endif
            c[v] = (vf)((vi)(value * unit) & keep);
        }
    }
    return vi_any_negative(bad);
}

static inline __attribute__((always_inline)) int run_any(const state *s, int vectors, int half, ptrdiff_t steps,
                                                         const char *a, const char *b, char *to)
{
    vf c[VECTORS] = {vf_all(0), vf_all(0), vf_all(0), vf_all(0)};
#if HW_HAS_HALF
    _Alignas(64) float wide[WIDTH];
    if (half)
        for (int v = 0; v < vectors; v++) {
            vf_from_half(wide + v * LANES, (uint16_t *)to + v * LANES);
            c[v] = vf_load(wide + v * LANES);
        }
#endif
    if (!half)
        for (int v = 0; v < vectors; v++)
            c[v] = vf_load((float *)to + v * LANES);
    int bad = s->spec->terms == 32 ? run_row(s, vectors, 32, half, steps, a, b, c)
                                   : run_row(s, vectors, s->spec->terms, half, steps, a, b, c);
    for (int v = 0; v < vectors; v++) {
#if HW_HAS_HALF
        if (half) {
            vf_to_half((uint16_t *)to + v * LANES, c[v]);
            continue;
        }
#endif
        vf_store((float *)to + v * LANES, c[v]);
    }
    return bad;
}

static int row(const void *unit, ptrdiff_t steps, int columns, const char *a, const char *b, char *c)
{
    const state *s = unit;
    int few = columns <= 2 * LANES;
    if (s->half)
        return few ? run_any(s, 2, 1, steps, a, b, c) : run_any(s, 4, 1, steps, a, b, c);
    return few ? run_any(s, 2, 0, steps, a, b, c) : run_any(s, 4, 0, steps, a, b, c);
}

static int open_operand(operand *to, const hw_format *f)
{
    if (f->storage_bits != 8 || f->special == HW_INTEGER || f->exponent_bits > 5 || !f->fraction_bits)
        return 1;
    for (int code = 0; code < 256; code++) {
        hw_num x = hw_decode(f, (uint64_t)code);
        to->special[code] = x.kind >= HW_INF;
        to->values[code] = x.kind == HW_NORMAL ? ldexpf((float)(x.sign ? -(int)x.sig : (int)x.sig), x.lsb) : 0;
        to->exponents[code] = (int8_t)(x.kind == HW_NORMAL ? x.lsb + f->fraction_bits : -128);
    }
    return 0;
}

static int takes(state *s, const hw_block *g)
{
    const hw_spec *spec = s->spec = g->spec;
    if (g->k == 0 || spec->ieee_zero || spec->saturate_operands || spec->saturate_overflow || spec->flush_operands
        || spec->flush_results || spec->fraction_bits > 25 || spec->floor_exponent >= HIGH
        || open_operand(&s->a, &spec->a) || open_operand(&s->b, &spec->b)
        || (spec->scale_block && (spec->scale_block != spec->terms || spec->scale.fraction_bits)))
        return 0;
    s->half = HW_HAS_HALF && hw_is(&spec->d, "fp16") && spec->rounding == HW_RNE;
    s->lowest = spec->floor_exponent > LOW ? spec->floor_exponent : LOW;
    if (!s->half && !(hw_is(&spec->d, "fp32") && spec->rounding == HW_RZ && spec->floor_exponent <= LOW))
        return 0;
    /* Width of a part: products below 4 * 2^F. Where a whole step fits and has no scales, other paths are faster. */
    s->part = 1 << (31 - 2 - spec->fraction_bits);
    if (s->part >= spec->terms && !spec->scale_block)
        return 0;
    s->row_bytes = (8 * spec->terms + 4 + 63) / 64 * 64;
    s->panel_bytes = (5 * spec->terms + 4) * WIDTH;
    return 1;
}

int hw_fused_bytes(const hw_block *g)
{
    state s;
    if (!takes(&s, g))
        return 1;
    hw_scaled unit = {WIDTH, s.row_bytes, s.panel_bytes, &s, pack_row, pack_panel, row};
    unsigned control = hw_lanes_enter(HW_TOWARD_ZERO);
    int status = hw_scaled_run(g, &unit);
    hw_lanes_leave(control);
    return status;
}
