/* Exact steps in pairs of doubles: products and accumulator added exactly, rounded once to nearest even, to binary32.
 *
 * high begins with 1.5 * 2^(top + 3 + log2(terms)), top being the largest exponent of a step's products: it holds
 * multiples of 2^w, w = top + 3 + log2(terms) - 52. low holds what high lost, below terms * 2^(w - 1). Both are exact as long as no product has places below low's: the
 * least exponents of the lines tell, for formats of wide range.
 *
 * It knows ExactUnit (hwsim.numerics.units) with results in fp32.
 */
#pragma once
#include "tile.cuh"

struct Exact : Operands {
    typedef double Element;
    enum {
        TERMS = SPEC.terms, DEPTH = TERMS > 16 ? TERMS : 16, STAGES = DEPTH > 16 ? 1 : 2, ROWS = 4, WARPS = 16 / FEWER, PACKED = 1, HAS_BLOCKS = 0, HAS_SIGNS = 0, MODULUS = 1, RUN = 1, HAS_EXPONENTS = 1, MARKS_SPECIALS = 1,
        LOG_TERMS = TERMS <= 1 ? 0 : TERMS <= 2 ? 1 : TERMS <= 4 ? 2 : TERMS <= 8 ? 3 : TERMS <= 16 ? 4 : TERMS <= 32 ? 5 : 6,
        /* products whose exponents lie this far below the largest one still have all places in low */
        SPAN = 103 - 2 - 2 * LOG_TERMS - A_FORMAT.fraction_bits - B_FORMAT.fraction_bits,
        RANGE = (1 << A_FORMAT.exponent_bits) + (1 << B_FORMAT.exponent_bits),
        HAS_LOWEST = RANGE > SPAN
    };
    float sum[ROWS][COLUMNS];

    __device__ __forceinline__ bool load(int i, int j, Number c, uint64_t)
    {
        sum[i][j] = (float)c.value;
        return !c.is_special;
    }

    __device__ __forceinline__ bool store(int i, int j, uint64_t *code)
    {
        *code = __float_as_uint(sum[i][j]);
        return (*code & 0x7fffffff) < 0x7f800000;
    }

    __device__ __forceinline__ void step(const Shared<Exact> &shared, int k, int row, int lane, int, const uint8_t *, Marks &marks)
    {
        uint32_t top[ROWS][COLUMNS / 2];
        largest_exponents<Exact, TERMS>(shared.exponents, k, row, lane, 1, top);
        double high[ROWS][COLUMNS], low[ROWS][COLUMNS];
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                const uint32_t power = top_word(top[i], j);
                if constexpr (HAS_LOWEST) {
                    const int lowest = shared.lowest_a[row + i] + shared.lowest_b[column_of(lane, j)] + BIAS;
                    if ((int)(power >> EXPONENT_SHIFT) - lowest > SPAN)
                        marks.set(i, j);
                }
                high[i][j] = three_halves(power + ((3 + LOG_TERMS) << EXPONENT_SHIFT));
                low[i][j] = 0;
            }
#pragma unroll 2
        for (int t = 0; t < TERMS; t++) {
            const double2 near = *(const double2 *)&shared.stage.b[k + t][2 * lane];
            const double2 far = *(const double2 *)&shared.stage.b[k + t][COLUMN_TILE / 2 + 2 * lane];
            const double column[COLUMNS] = {near.x, near.y, far.x, far.y};
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const double a = shared.stage.a[k + t][row + i];
#pragma unroll
                for (int j = 0; j < COLUMNS; j++) {
                    const double next = __fma_rn(a, column[j], high[i][j]);
                    low[i][j] = __dadd_rn(low[i][j], __fma_rn(a, column[j], __dsub_rn(high[i][j], next)));
                    high[i][j] = next;
                }
            }
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                const double start = three_halves(top_word(top[i], j) + ((3 + LOG_TERMS) << EXPONENT_SHIFT));
                const float c = sum[i][j];
                double rest, error, inner, outer;
                const double of_step = two_sum(__dsub_rn(high[i][j], start), low[i][j], &rest);
                double total = two_sum((double)c, of_step, &error);
                const double tail = two_sum(error, rest, &inner);
                total = two_sum(total, tail, &outer);
                if (total == 0) {
                    if (__float_as_uint(c) == 0x80000000u)
                        marks.set(i, j);        /* the sign depends on the products' */
                    sum[i][j] = 0;
                } else
                    sum[i][j] = __double2float_rn(to_odd(total, outer + inner));
            }
    }
};
typedef Exact Unit;
