/* One fused step in doubles: terms aligned to the largest exponent, cut toward zero, added exactly, rounded once.
 *
 * A sum starts from 1.5 * 2^(top + 52 - F), top being the largest exponent: its last place is 2^(top - F), and a
 * product added with rounding toward zero is cut there (tile.cuh). The sum keeps its binade because of
 * terms * 2^(F + 2) + 2^(F + 1) < 2^51. A product costs one multiply-add and one change of a sign.
 *
 * It knows the constants of STEP, a FusedUnit (hwsim.numerics.units), which the program's text defines before.
 */
#pragma once
#include "tile.cuh"

struct FusedStep {
    enum {
        DROPPED = 52 - STEP.result.fraction_bits,   /* places of a double that the result lacks */
        LEAST = 1 - STEP.result.bias, MOST = STEP.result.bias   /* exponents of normal results */
    };
    /* High words: of the least normal result, and from FIRST on, of what is rounded to numbers of at most 2^MOST. */
    static constexpr uint32_t FIRST = (uint32_t)(LEAST + BIAS) << EXPONENT_SHIFT;
    static constexpr uint32_t ORDINARY = (uint32_t)(MOST - LEAST) << EXPONENT_SHIFT;

    /* A high word, less that of the least normal result: those of what edge() sees are not below ORDINARY. */
    __device__ __forceinline__ static uint32_t above_least(double x) { return (high_word(x) & ~SIGN_WORD) - FIRST; }

    /* x, a multiple of the sum's last place, rounded to the result format as if that had no edges. */
    __device__ __forceinline__ static double rounded(double x)
    {
        uint64_t bits = (uint64_t)__double_as_longlong(x);
        if constexpr (STEP.rounding == HW_RNE)
            bits += (1ull << (DROPPED - 1)) - 1 + (bits >> DROPPED & 1);
        return __longlong_as_double((long long)(bits & ~hw_mask(DROPPED)));
    }

    /* The same with edges: zeros, subnormal numbers, and what is too large, perhaps by the rounding. */
    __device__ __noinline__ static double edge(double x, bool *is_beyond)
    {
        const double places = three_halves((uint32_t)(LEAST - STEP.result.fraction_bits + 52 + BIAS) << EXPONENT_SHIFT);
        if ((high_word(x) & ~SIGN_WORD) < FIRST) {
            const double cut = STEP.rounding == HW_RNE ? __dadd_rn(places, x) : add_cut(x, places);
            return __dsub_rn(cut, places) + 0.0;
        }
        const double result = rounded(x);
        *is_beyond = (high_word(result) & ~SIGN_WORD) >= (uint32_t)(MOST + 1 + BIAS) << EXPONENT_SHIFT;
        return *is_beyond ? 0 : result;
    }

    /* Each sum rounded; what is too large is marked. */
    template <class Unit> __device__ __forceinline__ static void round_all(double (&sum)[Unit::ROWS][COLUMNS], Marks &marks)
    {
        uint32_t largest = 0;
#pragma unroll
        for (int i = 0; i < Unit::ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
                largest = max(largest, above_least(sum[i][j]));
        if (largest >= ORDINARY)
#pragma unroll
            for (int i = 0; i < Unit::ROWS; i++)
#pragma unroll
                for (int j = 0; j < COLUMNS; j++)
                    if (sum[i][j] != 0 && above_least(sum[i][j]) >= ORDINARY) {
                        bool is_beyond = false;
                        sum[i][j] = edge(sum[i][j], &is_beyond);
                        if (is_beyond)
                            marks.set(i, j);
                    }
#pragma unroll
        for (int i = 0; i < Unit::ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
                sum[i][j] = rounded(sum[i][j]);
    }

    /* The sums, which are numbers of the result format or accumulators, with a part's products. least: the exponent of
     * the sums' subnormal numbers.
     */
    template <class Unit, int PART>
    __device__ __forceinline__ static void add(const Shared<Unit> &shared, int k, int row, int lane, int least_exponent,
                                               double (&sum)[Unit::ROWS][COLUMNS], Marks &marks)
    {
        uint32_t top[Unit::ROWS][COLUMNS / 2];
        largest_exponents<Unit, STEP.terms, PART>(shared.exponents, k, row, lane, STEP.floor_exponent + BIAS, top);
        const uint32_t least = (uint32_t)(least_exponent + BIAS) << EXPONENT_SHIFT;
#pragma unroll
        for (int i = 0; i < Unit::ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                const double c = sum[i][j];
                uint32_t own = high_word(c) & EXPONENT_WORD;
                own = own ? max(own, least) : 0;
                const uint32_t power = max(own, top_word(top[i], j)) + ((52 - STEP.fraction_bits) << EXPONENT_SHIFT);
                const double start = with_sign_changed(three_halves(power), high_word(c) & SIGN_WORD);
                sum[i][j] = fabs(__dadd_rd(fabs(c), start));
            }
        add_cut_products<Unit, STEP.terms, PART>(shared, k, row, lane, sum);
#pragma unroll
        for (int i = 0; i < Unit::ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
                sum[i][j] = __dsub_rn(fabs(sum[i][j]), three_halves(high_word(sum[i][j]) & EXPONENT_WORD));
        round_all<Unit>(sum, marks);
    }
};
