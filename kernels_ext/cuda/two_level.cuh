/* CDNA3's two-level steps in doubles: the products' sum as in fused.cuh, then sum and accumulator cut downward, added,
 * cut downward again and rounded to nearest even, to binary32.
 *
 * It knows TwoLevelUnit (hwsim.numerics.units) with results in fp32. Widths: the products' sum
 * has product_fraction_bits + 2 + log2(terms) places, the total sum_fraction_bits + 4 + log2(terms), below 52.
 */
#pragma once
#include "tile.cuh"

struct TwoLevel : Operands {
    typedef double Element;
    enum {
        TERMS = SPEC.terms, DEPTH = 16, STAGES = 2, MODULUS = SPEC.interleaved ? 2 : 1, RUN = 1,
        ROWS = SPEC.interleaved ? 4 : 8, WARPS = (SPEC.interleaved ? 16 : 12) / FEWER, HAS_EXPONENTS = 1, HAS_LOWEST = 0, PACKED = 1, HAS_BLOCKS = 0, HAS_SIGNS = 1, AT_ONCE = 1, MARKS_SPECIALS = 1,
        NO_PRODUCT = 1, LEAST = -126, LARGE = 127   /* products of this exponent may be infinities; store() sees sums that are */
    };
    float sum[ROWS][COLUMNS];

    __device__ __forceinline__ bool load(int i, int j, Number c, uint64_t code)
    {
        sum[i][j] = __uint_as_float((uint32_t)code);
        return !c.is_special;
    }

    __device__ __forceinline__ bool store(int i, int j, uint64_t *code)
    {
        *code = __float_as_uint(sum[i][j]);
        return (*code & 0x7fffffff) < 0x7f800000;
    }

    /* x toward minus infinity at 2^(exponent of `power` - bits). */
    __device__ __forceinline__ static double cut_down(double x, uint32_t power, int bits)
    {
        const double places = three_halves(power + ((52 - bits) << EXPONENT_SHIFT));
        return __dsub_rn(__dadd_rd(places, x), places);
    }

    /* The sum of a part's products, each cut toward zero below its largest exponent, which is `top`. */
    template <int PART> __device__ __forceinline__ static void add_products(const Shared<TwoLevel> &shared, int k, int row, int lane,
                                                                            uint32_t (&top)[ROWS][COLUMNS / 2],
                                                                            double (&total)[ROWS][COLUMNS])
    {
        largest_exponents<TwoLevel, TERMS / MODULUS, PART>(shared.exponents, k, row, lane, NO_PRODUCT, top);
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
                total[i][j] = three_halves(top_word(top[i], j) + ((52 - SPEC.product_fraction_bits) << EXPONENT_SHIFT));
        add_cut_products<TwoLevel, TERMS / MODULUS, PART>(shared, k, row, lane, total);
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
                total[i][j] = __dsub_rn(fabs(total[i][j]), three_halves(high_word(total[i][j]) & EXPONENT_WORD));
    }

    __device__ __forceinline__ void step(const Shared<TwoLevel> &shared, int k, int row, int lane, int, const uint8_t *, Marks &marks)
    {
        uint32_t top[ROWS][COLUMNS / 2];
        double total[ROWS][COLUMNS];
        add_products<0>(shared, k, row, lane, top, total);
        if constexpr (SPEC.interleaved) {
            uint32_t top_odd[ROWS][COLUMNS / 2];
            double odd[ROWS][COLUMNS];
            add_products<1>(shared, k, row, lane, top_odd, odd);
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int j = 0; j < COLUMNS; j++) {
                    const uint32_t largest = max(top_word(top[i], j), top_word(top_odd[i], j));
                    total[i][j] = __dadd_rn(cut_down(total[i][j], largest, SPEC.product_fraction_bits),
                                            cut_down(odd[i][j], largest, SPEC.product_fraction_bits));
                }
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int j = 0; j < COLUMNS / 2; j++)
                    top[i][j] = larger_halves(top[i][j], top_odd[i][j]);
        }
        const uint32_t least = (uint32_t)(LEAST + BIAS) << EXPONENT_SHIFT;
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                const uint32_t of_products = top_word(top[i], j);
                const float c = sum[i][j];
                const double wide = (double)c;
                const uint32_t own = max(high_word(wide) & EXPONENT_WORD, least);
                const uint32_t largest = max(own, of_products);
                double kept = cut_down(wide, largest, SPEC.accumulator_fraction_bits);
                if (SPEC.accumulator_drop_bits >= 0 && own + ((uint32_t)SPEC.accumulator_drop_bits << EXPONENT_SHIFT) < largest)
                    kept = 0;
                const double both = __dadd_rn(cut_down(total[i][j], largest, SPEC.sum_fraction_bits), kept);
                const uint32_t power = max(high_word(both) & EXPONENT_WORD, least);
                const double cut = cut_down(both, power, SPEC.final_fraction_bits);
                if (of_products >= (uint32_t)(LARGE + BIAS) << EXPONENT_SHIFT
                    || (cut == 0 && __float_as_uint(c) == 0x80000000u))
                    marks.set(i, j);
                sum[i][j] = cut == 0 ? 0 : __double2float_rn(cut);
            }
    }
};
typedef TwoLevel Unit;
