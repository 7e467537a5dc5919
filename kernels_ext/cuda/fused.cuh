/* Fused steps in doubles: terms aligned to the largest exponent, cut toward zero, added exactly, rounded once.
 *
 * A sum starts from 1.5 * 2^(top + 52 - F), top being the largest exponent: its last place is 2^(top - F), and a
 * product added with rounding toward zero is cut there (tile.cuh). The sum keeps its binade because of
 * terms * 2^(F + 2) + 2^(F + 1) < 2^51. A product costs one multiply-add and one change of a sign.
 *
 * Between steps a sum is a number of the result format. It knows FusedUnit (hwsim.numerics.units).
 */
#pragma once
#include "tile.cuh"

struct Fused {
    typedef double Element;
    enum {
        TERMS = SPEC.terms, DEPTH = TERMS > 16 ? TERMS : 16, STAGES = TERMS > 16 ? 1 : 2,
        ROWS = FUSED_ROWS, WARPS = TERMS > 32 ? FUSED_WARPS / 2 : FUSED_WARPS, HAS_EXPONENTS = 1, HAS_LOWEST = 0, HAS_SIGNS = 1,
        MARKS_SPECIALS = 1, AT_ONCE = FUSED_AT_ONCE,
        DROPPED = 52 - SPEC.result.fraction_bits,   /* places of a double that the result lacks */
        LEAST = 1 - SPEC.result.bias, MOST = SPEC.result.bias   /* exponents of normal results */
    };
    /* High words: of the least normal result, and from FIRST on, of what is rounded to numbers of at most 2^MOST. */
    static constexpr uint32_t FIRST = (uint32_t)(LEAST + BIAS) << EXPONENT_SHIFT, ORDINARY = (uint32_t)(MOST - LEAST) << EXPONENT_SHIFT;
    double sum[ROWS][COLUMNS];

    __device__ __forceinline__ bool load(int i, int j, Number c, uint64_t)
    {
        sum[i][j] = c.value;
        return !c.is_special;
    }

    __device__ __forceinline__ bool store(int i, int j, uint64_t *code)
    {
        if constexpr (D_FORMAT.fraction_bits == 23 && D_FORMAT.exponent_bits == 8)
            *code = __float_as_uint((float)sum[i][j]);
        else {
            const double x = sum[i][j];
            const uint64_t bits = (uint64_t)__double_as_longlong(x) & ~(1ull << 63);
            *code = !bits ? 0 : hw_round(&D_FORMAT, HW_RNE, 0, x < 0, (bits & hw_mask(52)) | 1ull << 52,
                                         (int)(bits >> 52) - BIAS - 52, 0);
        }
        return true;
    }

    /* The same with edges: zeros, subnormal numbers, and what is too large, perhaps by the rounding. */
    __device__ __noinline__ static double edge(double x, bool *is_beyond)
    {
        const double places = three_halves((uint32_t)(LEAST - SPEC.result.fraction_bits + 52 + BIAS) << EXPONENT_SHIFT);
        if ((high_word(x) & ~SIGN_WORD) < FIRST) {
            const double cut = SPEC.rounding == HW_RNE ? __dadd_rn(places, x) : add_cut(x, places);
            return __dsub_rn(cut, places) + 0.0;
        }
        const double result = rounded(x);
        *is_beyond = (high_word(result) & ~SIGN_WORD) >= (uint32_t)(MOST + 1 + BIAS) << EXPONENT_SHIFT;
        return *is_beyond ? 0 : result;
    }

    /* A high word, less that of the least normal result: those of what edge() sees are not below ORDINARY. */
    __device__ __forceinline__ static uint32_t above_least(double x) { return (high_word(x) & ~SIGN_WORD) - FIRST; }

    /* x, a multiple of the sum's last place, rounded to the result format as if that had no edges. */
    __device__ __forceinline__ static double rounded(double x)
    {
        uint64_t bits = (uint64_t)__double_as_longlong(x);
        if constexpr (SPEC.rounding == HW_RNE)
            bits += (1ull << (DROPPED - 1)) - 1 + (bits >> DROPPED & 1);
        return __longlong_as_double((long long)(bits & ~hw_mask(DROPPED)));
    }

    __device__ __forceinline__ void step(const Shared<Fused> &shared, int k, int row, int lane, int step, const uint8_t *divide,
                                Marks &marks)
    {
        uint32_t top[ROWS][COLUMNS / 2];
        largest_exponents<Fused, TERMS>(shared.exponents, k, row, lane, SPEC.floor_exponent + BIAS, top);
        const int places = divide ? divide[step] : 0;
        const int least_exponent = (step ? hw_emin(&D_FORMAT) : hw_emin(&C_FORMAT)) - places;
        const uint32_t least = (uint32_t)(least_exponent + BIAS) << EXPONENT_SHIFT;
        const double factor = power_of_two(-places);
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                const double c = HAS_DIVISIONS ? sum[i][j] * factor : sum[i][j];
                uint32_t own = high_word(c) & EXPONENT_WORD;
                own = own ? max(own, least) : 0;
                const uint32_t power = max(own, top_word(top[i], j)) + ((52 - SPEC.fraction_bits) << EXPONENT_SHIFT);
                const double start = with_sign_changed(three_halves(power), high_word(c) & SIGN_WORD);
                sum[i][j] = fabs(__dadd_rd(fabs(c), start));
            }
        add_cut_products<Fused, TERMS>(shared, k, row, lane, sum);
        uint32_t largest = 0;
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                sum[i][j] = __dsub_rn(fabs(sum[i][j]), three_halves(high_word(sum[i][j]) & EXPONENT_WORD));
                largest = max(largest, above_least(sum[i][j]));
            }
        if (largest >= ORDINARY)
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int j = 0; j < COLUMNS; j++)
                    if (above_least(sum[i][j]) >= ORDINARY) {
                        bool is_beyond = false;
                        sum[i][j] = edge(sum[i][j], &is_beyond);
                        if (is_beyond)
                            marks.set(i, j);
                    }
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
                sum[i][j] = rounded(sum[i][j]);
    }
};
typedef Fused Unit;
