/* Chains of fused steps in binary64 lanes, for any exponents of binary32 operands: sums by sign, as for small F in
 * binary32 (hw_dot_fused_single.h), with exponents in 16-bit lanes.
 *
 * Magnitudes are added to 2^(top + 52 - F) toward zero; the two sums stay below 2^(top + 53 - F) because of
 * 4 * terms + 2 <= 2^(52 - F). Their difference is exact; its conversion to binary32, toward zero and with gradual
 * underflow, is the unit's last stage. A result of the largest finite magnitude may have been an infinity: such
 * columns, and those whose accumulator is not finite, are named for the scalar code.
 */
#ifndef HW_DOT_FUSED_DOUBLE_H
#define HW_DOT_FUSED_DOUBLE_H

#include <math.h>
#include "hw_dot_fused.h"

#if HW_HAS_CUT
enum { DOUBLE_LANES = LANES / 2, EXPONENT_SHIFT = 4, NO_DOUBLE_TERM = -20000 };

/* 16-bit words hold exponents where a binary64 has them: (e + bias) << 4. `least`: the least biased exponent. */
static inline int32_t exponent_word(uint32_t bits, int least, int bias)
{
    int e = (int)((bits >> 23) & 255);
    e = e < least ? least : e;
    return bits << 1 ? (e - 127 + bias) * (1 << EXPONENT_SHIFT) : NO_DOUBLE_TERM;
}

static void double_row(state *s, ptrdiff_t i, const char *from, ptrdiff_t depth, ptrdiff_t padded)
{
    float values[DEPTH];
    uint32_t bits[DEPTH];
    int least = hw_emin(&s->spec->a) + 127;
    memset(values + depth, 0, sizeof(float) * (size_t)(padded - depth));
    hw_lines_read(&s->a_lines, values, from, s->g->a_column, depth);
    memcpy(bits, values, sizeof(float) * (size_t)padded);
    double *value = s->a_double + i * padded;
    int32_t *side = s->a_double_side + i * padded;
    uint64_t *words = s->a_double_exponent + i * padded;
    for (ptrdiff_t k = 0; k < padded; k++) {
        value[k] = fabs((double)values[k]);
        side[k] = bits[k] >> 31 ? HALF : 0;
    }
    for (ptrdiff_t k = 0; k < padded; k++) {
        uint64_t word = (uint16_t)exponent_word(bits[k], least, 512);
        word |= word << 16;
        words[k] = word | word << 32;
    }
    s->a_line[i].doubled = 1;
}

static __attribute__((noinline)) void double_panel(state *s, const char *from, int columns, ptrdiff_t depth,
                                                   ptrdiff_t padded)
{
    enum { PIECE = 16 };
    int least = hw_emin(&s->spec->b) + 127;
    _Alignas(64) float lines[PIECE * WIDTH];
    for (ptrdiff_t k = 0; k < padded; k += PIECE) {
        ptrdiff_t here = padded - k < PIECE ? padded - k : PIECE, given = depth - k < here ? depth - k : here;
        read_panel(s, lines, WIDTH, from + k * s->g->b_row, columns, given < 0 ? 0 : given, here);
        if (s->b_flags & LINE_SPECIAL)
            for (ptrdiff_t r = 0; r < here; r++)
                for (int j = 0; j < WIDTH; j++)
                    lines[r * WIDTH + j] = s->b_special[j] ? 0 : lines[r * WIDTH + j];
        for (ptrdiff_t r = 0; r < here; r++)
            for (int half = 0; half < 2; half++) {
                const float *x = lines + r * WIDTH + half * HALF;
                ptrdiff_t line = half * padded + k + r;
                double *to = s->b_double + line * WIDTH;
                uint32_t bits[HALF], magnitudes[2 * HALF];
                float signs[2 * HALF];
                uint64_t words[DOUBLE_LANES] = {0};
                memcpy(bits, x, sizeof bits);
                for (int j = 0; j < HALF; j++) {
                    uint32_t minus = 0 - (bits[j] >> 31);
                    magnitudes[j] = bits[j] & ~minus;
                    magnitudes[HALF + j] = bits[j] & minus & 0x7FFFFFFF;
                }
                memcpy(signs, magnitudes, sizeof signs);
                for (int j = 0; j < 2 * HALF; j++)
                    to[j] = signs[j];
                for (int v = 0; v < VECTORS; v++)
                    for (int j = 0; j < DOUBLE_LANES; j++)
                        words[j] |= (uint64_t)(uint16_t)exponent_word(bits[v * DOUBLE_LANES + j], least, 1023 - 512)
                            << (16 * v);
                memcpy(s->b_double_exponent + line * HALF, words, sizeof words);
            }
    }
    s->b_doubled = 1;
}

/* HALF columns of row i over the products first .. last of `padded`, in whole steps; c: their accumulators. What may not
 * stand is marked in `marks`.
 */
static __attribute__((noinline)) void run_double(const state *s, int half, ptrdiff_t padded, ptrdiff_t first,
                                                 ptrdiff_t last, ptrdiff_t i, float *c, uint8_t *marks)
{
    int terms = s->spec->terms, F = s->spec->fraction_bits;
    const double *a = s->a_double + i * padded + first, *b = s->b_double + (half * padded + first) * WIDTH;
    const int32_t *side = s->a_double_side + i * padded + first;
    const uint64_t *a_exponent = s->a_double_exponent + i * padded + first;
    const int16_t *b_exponent = s->b_double_exponent + (half * padded + first) * HALF;
    vs floor = vs_all((int16_t)((s->spec->floor_exponent + 1023) * (1 << EXPONENT_SHIFT)));
    vl up = vl_bits((int64_t)(52 - F) << 52), exponent = vl_bits((int64_t)0x7FF << 52);
    vd zero = vd_all(0), least = vd_all(0x1p-126), sum[VECTORS], worst[VECTORS];
    vl finite[VECTORS];
    for (int v = 0; v < VECTORS; v++) {
        sum[v] = vd_from_floats(c + v * DOUBLE_LANES);
        finite[v] = (vl)(sum[v] - sum[v] == zero);
        worst[v] = zero;
    }
    for (ptrdiff_t k = first; k < last; k += terms) {
        vs top = floor;
        for (int t = 0; t < terms; t++, b_exponent += HALF)
            top = vs_max(top, vs_add_saturating((vs)vl_bits((int64_t)a_exponent[t]), vs_load(b_exponent)));
        vd plus[VECTORS], minus[VECTORS];
        for (int v = 0; v < VECTORS; v++) {
            /* A subnormal accumulator has the format's least exponent, zero none. */
            vd own = vd_larger_magnitude((vd)((vl)top << (48 - 16 * v)), sum[v]);
            own = vd_max(own, (vd)((vl)least & (vl)(sum[v] != 0)));
            /* wraps for accumulators that are not for the lanes: unsigned */
            vd start = (vd)((vul)((vl)own & exponent) + (vul)up);
            plus[v] = start + vd_max(sum[v], zero);
            minus[v] = start - vd_min(sum[v], zero);
        }
        for (int t = 0; t < terms; t++, b += WIDTH) {
            vd row = vd_all(a[t]);
            const double *own = b + side[t], *other = b + (side[t] ^ HALF);
            for (int v = 0; v < VECTORS; v++) {
                plus[v] = vd_add_product(row, vd_load(own + v * DOUBLE_LANES), plus[v]);
                minus[v] = vd_add_product(row, vd_load(other + v * DOUBLE_LANES), minus[v]);
            }
        }
        for (int v = 0; v < VECTORS; v++) {
            sum[v] = vd_round_float(plus[v] - minus[v]) + zero;     /* no -0 */
            worst[v] = vd_larger_magnitude(worst[v], sum[v]);
        }
        a += terms;
        side += terms;
        a_exponent += terms;
    }
    for (int v = 0; v < VECTORS; v++) {
        vd_to_floats(c + v * DOUBLE_LANES, sum[v]);
        vl good = (vl)(worst[v] < vd_all(0x1.fffffep127)) & finite[v];
        for (int j = 0; j < DOUBLE_LANES; j++)
            marks[v * DOUBLE_LANES + j] |= !good[j];
    }
}

/* Accumulators times 2^-places; those that are then no normal numbers of binary32 are marked. */
static void divide_floats(float *c, int places, uint8_t *marks)
{
    uint32_t words[HALF], least = (uint32_t)(places + 1) << 23;
    memcpy(words, c, sizeof words);
    for (int j = 0; j < HALF; j++) {
        uint32_t magnitude = words[j] & 0x7FFFFFFF;
        marks[j] |= magnitude && (magnitude < least || magnitude >= 0x7F800000);
        words[j] -= magnitude ? (uint32_t)places << 23 : 0;
    }
    memcpy(c, words, sizeof words);
}

/* HALF columns of row i over all `padded` products, with the divisions of the row's block between them. */
static void run_double_row(const state *s, const hw_block *row, int half, ptrdiff_t padded, ptrdiff_t i, float *c,
                           uint8_t *marks)
{
    ptrdiff_t terms = s->spec->terms, steps = padded / terms;
    for (ptrdiff_t step = 0, next; step < steps; step = next) {
        if (row->divide && row->divide[step])
            divide_floats(c, row->divide[step], marks);
        next = hw_next_division(row, step + 1, steps);
        run_double(s, half, padded, step * terms, next * terms, i, c, marks);
    }
}
#endif

#endif
