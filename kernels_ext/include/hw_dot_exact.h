/* The exact unit in binary64 lanes: what a panel's exponents allow, and the tiles that use it.
 *
 * By what a tile allows, with binary32 results rounded to nearest even:
 *   tight    every partial sum is a multiple of 2^u, not above 2^(53 + u): plain multiply-adds are exact,
 *            and the conversion to binary32 is the step's one rounding.
 *   split    a step's sum is kept as high + low, each exact; then accumulator + high + low is rounded once,
 *            to odd in binary64 and from there to binary32.
 *   scalar   otherwise (infinities, NaNs, results near overflow): integers.
 *
 * A part of hw_dot_real.h, which has the types and sizes.
 */
#ifndef HW_DOT_EXACT_H
#define HW_DOT_EXACT_H

static int lsb_of_bits(uint32_t bits_minus_one, const hw_format *f)
{
    if (bits_minus_one >= 0x7F800000u)      /* only zeros (or not finite: the norm tells) */
        return 64;
    int biased = (int)((bits_minus_one + 1) >> 23), emin = hw_emin(f);
    int exponent = biased ? biased - 127 : -126;
    return (exponent < emin ? emin : exponent) - f->fraction_bits;
}

/* The range of `depth` times `width` values from `from`; squares: of the lines, to be added to. */
static inline __attribute__((always_inline)) range measure(const double *from, int width, ptrdiff_t depth,
                                                           const hw_format *f, double *squares)
{
    /* `width` vectors hold LANES numbers of each line, and so do fewer where width and LANES have a common factor. */
    int common = width % LANES == 0 ? LANES : LANES % 4 == 0 && width % 4 == 0 ? 4 : width % 2 == 0 ? 2 : 1;
    int vectors = width / common;
    vd sum[MR + NR], least[2] = {vd_all(DBL_MAX), vd_all(DBL_MAX)};
    for (int v = 0; v < vectors; v++)
        sum[v] = vd_all(0);
    double own[64] = {0}, low = DBL_MAX, largest = 0;
    ptrdiff_t i = 0, count = depth * width;
    for (; i + vectors * LANES <= count; i += vectors * LANES)
        for (int v = 0; v < vectors; v++) {
            vd x = vd_load(from + i + v * LANES);
            vl bits = (vl)x & 0x7FFFFFFFFFFFFFFF;
            sum[v] += x * x;
            least[v & 1] = vd_min(least[v & 1], (vd)(bits | ((vl)(x == 0) & 0x7FEFFFFFFFFFFFFF)));
        }
    for (int j = 0; j < vectors * LANES; j++)
        own[j % width] += sum[j / LANES][j % LANES];
    least[0] = vd_min(least[0], least[1]);
    for (int j = 0; j < LANES; j++)
        low = least[0][j] < low ? least[0][j] : low;
    for (; i < count; i++) {
        own[i % width] += from[i] * from[i];
        low = from[i] != 0 && fabs(from[i]) < low ? fabs(from[i]) : low;
    }
    for (int r = 0; r < width; r++) {
        squares[r] += own[r];
        own[r] = own[r] < INFINITY ? own[r] : INFINITY;
        largest = own[r] > largest ? own[r] : largest;
    }
    range result = {sqrt(largest), 64};
    if (low < DBL_MAX) {
        int exponent = ilogb(low), emin = hw_emin(f);
        result.lsb = (exponent < emin ? emin : exponent) - f->fraction_bits;
    }
    return result;
}

static inline __attribute__((always_inline)) void measure_panel(const double *from, int width, ptrdiff_t padded,
                                                                ptrdiff_t part, const hw_format *f, panel *to)
{
    double squares[64] = {0}, largest = 0;
    to->whole.lsb = 64;
    for (ptrdiff_t k = 0, at = 0; k < padded; k += part, at++) {
        ptrdiff_t depth = padded - k < part ? padded - k : part;
        to->part[at] = measure(from + k * width, width, depth, f, squares);
        to->whole.lsb = to->part[at].lsb < to->whole.lsb ? to->part[at].lsb : to->whole.lsb;
    }
    for (int r = 0; r < width; r++) {
        squares[r] = squares[r] < INFINITY ? squares[r] : INFINITY;
        largest = squares[r] > largest ? squares[r] : largest;
    }
    to->whole.norm = sqrt(largest);
}

static void tight_tile(ptrdiff_t depth, int terms, const double *a, const double *b, float *c, ptrdiff_t c_row,
                       double bias)
{
    vd sum[MR][NV];
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NV; j++)
            sum[i][j] = vd_from_floats(c + i * c_row + j * LANES) + vd_all(bias);
    for (ptrdiff_t k = 0; k < depth; k += terms) {
        for (int t = 0; t < terms; t++, a += MR, b += NR) {
            vd column[NV];
            for (int j = 0; j < NV; j++)
                column[j] = vd_load(b + j * LANES);
            for (int i = 0; i < MR; i++) {
                vd row = vd_all(a[i]);
                for (int j = 0; j < NV; j++)
                    sum[i][j] = vd_add_product(row, column[j], sum[i][j]);
            }
        }
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NV; j++)
                sum[i][j] = vd_round_float(sum[i][j]);
    }
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NV; j++)
            vd_to_floats(c + i * c_row + j * LANES, sum[i][j]);
}

/* magic = 1.5 * 2^(52 + w): a sum that holds it is a multiple of 2^w. */
static void split_tile(ptrdiff_t depth, int terms, const double *a_panel, const double *b_panel, float *c,
                       ptrdiff_t c_row, double magic, double bias)
{
    enum { SUMMED = HW_BYTES == 64 ? 4 : MR / 2 };    /* rows whose two sums the registers hold at once */
    for (int first = 0; first < MR; first += SUMMED) {
        const double *a = a_panel + first, *b = b_panel;
        for (ptrdiff_t k = 0; k < depth; k += terms) {
            vd high[SUMMED][NV], low[SUMMED][NV];
            for (int i = 0; i < SUMMED; i++)
                for (int j = 0; j < NV; j++) {
                    high[i][j] = vd_all(magic);
                    low[i][j] = vd_all(0);
                }
            for (int t = 0; t < terms; t++, a += MR, b += NR)
                for (int j = 0; j < NV; j++) {
                    vd column = vd_load(b + j * LANES);
                    for (int i = 0; i < SUMMED; i++) {
                        vd row = vd_all(a[i]);
#if HW_HAS_FMA
                        vd next = vd_fma(row, column, high[i][j]), part = high[i][j] - next;
                        low[i][j] += vd_fma(row, column, part);
#else
                        vd product = row * column, next = product + high[i][j], part = high[i][j] - next;
                        low[i][j] += product + part;
#endif
                        high[i][j] = next;
                    }
                }
            for (int i = 0; i < SUMMED; i++)
                for (int j = 0; j < NV; j++) {
                    float *to = c + (first + i) * c_row + j * LANES;
                    vd rest, error, inner, outer;
                    vd sum = vd_two_sum(high[i][j] - vd_all(magic), low[i][j], &rest);
                    vd total = vd_two_sum(vd_from_floats(to), sum, &error);
                    vd tail = vd_two_sum(error, rest, &inner);
                    total = vd_two_sum(total, tail, &outer);
                    /* outer is zero or a multiple of tail's last place, so above inner: the sign is right. */
                    /* The bias comes last: a tiny negative sum may round to -0. */
                    vd_to_floats(to, vd_round_float(vd_odd(total, outer + inner)) + vd_all(bias));
                }
        }
    }
}

/* fma_chain without a fused instruction: the product is exact in binary64, the sum rounded to odd. */
static void single_tile(ptrdiff_t depth, const double *a, const double *b, float *c, ptrdiff_t c_row)
{
    for (int j = 0; j < NV; j++) {
        vd sum[MR];
        for (int i = 0; i < MR; i++)
            sum[i] = vd_from_floats(c + i * c_row + j * LANES);
        for (ptrdiff_t k = 0; k < depth; k++) {
            vd column = vd_load(b + k * NR + j * LANES);
            for (int i = 0; i < MR; i++) {
                vd error, total = vd_two_sum(sum[i], vd_all(a[k * MR + i]) * column, &error);
                sum[i] = vd_round_float(vd_odd(total, error));
            }
        }
        for (int i = 0; i < MR; i++)
            vd_to_floats(c + i * c_row + j * LANES, sum[i]);
    }
}

/* The largest and the least magnitude in a tile of binary32 codes; the least as bits minus one, of zeros the largest
 * number. Returns whether a -0 is among them.
 */
static int tile_range(const float *c, ptrdiff_t c_row, uint32_t *largest, uint32_t *least)
{
    _Static_assert(NR * sizeof(float) == HW_BYTES, "a row of a tile is one vector");
    vi high = vi_all(0), low = vi_all(INT32_MAX), minus_zero = vi_all(0);
    for (int i = 0; i < MR; i++) {
        vi bits = vi_load(c + i * c_row), magnitude = bits & INT32_MAX;
        minus_zero |= bits == INT32_MIN;
        high = vi_max(high, magnitude);
        low = vi_min(low, (magnitude - 1) & INT32_MAX);
    }
    int32_t most = 0, fewest = INT32_MAX;
    for (int j = 0; j < NR; j++) {
        most = high[j] > most ? high[j] : most;
        fewest = low[j] < fewest ? low[j] : fewest;
    }
    *largest = (uint32_t)most;
    *least = (uint32_t)fewest;
    return vi_any_negative(minus_zero);
}

enum way { TIGHT, SPLIT, SCALAR };

/* How a tile may be done over a range of k; for SPLIT its magic number. */
static enum way choose(const state *s, const range *a, const range *b, const float *c, ptrdiff_t c_row,
                       double *magic)
{
    const hw_spec *spec = s->g->spec;
    uint32_t largest, least;
    float magnitude;
    int minus_zero = tile_range(c, c_row, &largest, &least);
    memcpy(&magnitude, &largest, 4);
    /* Cauchy and Schwarz bound every partial sum of products; 2^-8 covers the roundings of at most 256 steps
     * (each 2^-24 of a value below the bound) and of the norms themselves. */
    double norm = a->norm * b->norm * (1 + 0x1p-8), bound = magnitude * (1 + 0x1p-8) + norm;
    if (largest >= 0x7F800000u || !(bound < 0x1p126))
        return SCALAR;
    int products = a->lsb + b->lsb, own = lsb_of_bits(least, &spec->d);
    int u = products < own ? products : own;
    if (u >= -149 && bound <= ldexp(1, 53 + u))
        return TIGHT;
    /* high: multiples of 2^w within 2^(51 + w). low: each part at most 2^(w - 1), so `terms` of them at most
     * 2^(w - 1 + bits) <= 2^(53 + products). */
    int bits = 0;
    while (1 << bits < spec->terms)
        bits++;
    int w = 54 + products - bits;
    *magic = ldexp(1.5, 52 + w);
    /* The split sum gives +0 where every term is -0. With IEEE zeros that must not happen: no accumulator is
     * -0 now, and none becomes it, because no sum of such products underflows. */
    int zeros = !spec->ieee_zero || (!minus_zero && products >= -149);
    return zeros && products >= -600 && norm <= ldexp(1, 51 + w) ? SPLIT : SCALAR;
}

/* One tile of the exact unit over k .. k + depth (padded to whole steps). */
static int exact_tile(const state *s, const hw_block *scalar, ptrdiff_t padded, const panel *pa, const panel *pb,
                      const double *a, const double *b, float *c, ptrdiff_t c_row)
{
    int terms = s->g->spec->terms;
    double magic, bias = s->g->spec->ieee_zero ? -0.0 : 0.0;    /* x + 0 is x, but +0 for -0 */
    if (choose(s, &pa->whole, &pb->whole, c, c_row, &magic) == TIGHT) {
        tight_tile(padded, terms, a, b, c, c_row, bias);
        return 0;
    }
    for (ptrdiff_t k = 0, at = 0; k < padded; k += s->part, at++) {
        ptrdiff_t depth = padded - k < s->part ? padded - k : s->part;
        switch (choose(s, &pa->part[at], &pb->part[at], c, c_row, &magic)) {
        case TIGHT:
            tight_tile(depth, terms, a + k * MR, b + k * NR, c, c_row, bias);
            break;
        case SPLIT:
            split_tile(depth, terms, a + k * MR, b + k * NR, c, c_row, magic, bias);
            break;
        case SCALAR: {
            hw_block part = *scalar;
            part.a += k * part.a_column;
            part.b += k * part.b_row;
            part.k = part.k - k < depth ? part.k - k : depth;
            part.out = (char *)c;
            part.out_row = c_row * 4;
            if (hw_scalar_block(&part))
                return -1;
        }
        }
    }
    return 0;
}

#endif
