/* Chains of fused multiply-adds in order of K, each rounded to nearest even to the result format: fp32 or fp64.
 *
 * It knows FmaChainUnit (hwsim.numerics.units).
 */
#pragma once
#include "tile.cuh"

template <int BITS> struct Real { typedef float Type; };
template <> struct Real<64> { typedef double Type; };

struct Chain : Operands {
    typedef Real<D_FORMAT.storage_bits>::Type Element;
    enum { TERMS = 1, DEPTH = 16, STAGES = DEPTH > 16 ? 1 : 2, ROWS = sizeof(Element) == 8 ? 8 : 16, WARPS = 8 / FEWER, PACKED = 1, HAS_BLOCKS = 0, HAS_SIGNS = 0, MODULUS = 1, RUN = 1, HAS_EXPONENTS = 0, HAS_LOWEST = 0, MARKS_SPECIALS = 1 };
    static_assert(SPEC.terms == TERMS, "a step is one addition");
    Element sum[ROWS][COLUMNS];

    __device__ __forceinline__ bool load(int i, int j, Number, uint64_t code)
    {
        if constexpr (sizeof(Element) == 8)
            sum[i][j] = __longlong_as_double((long long)code);
        else
            sum[i][j] = __uint_as_float((uint32_t)code);
        return true;
    }

    __device__ __forceinline__ bool store(int i, int j, uint64_t *code)
    {
        if constexpr (sizeof(Element) == 8)
            *code = (uint64_t)__double_as_longlong(sum[i][j]);
        else
            *code = __float_as_uint(sum[i][j]);
        if (sum[i][j] == sum[i][j])
            return true;
        *code = SPEC.nan_code;
        return !SPEC.nan_order[0];      /* else a NaN operand's code passes on */
    }

    __device__ __forceinline__ static float add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
    __device__ __forceinline__ static double add(double a, double b, double c) { return __fma_rn(a, b, c); }

    __device__ __forceinline__ void step(const Shared<Chain> &shared, int k, int row, int lane, int, const uint8_t *, Marks &)
    {
        Element column[COLUMNS];
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
            column[j] = shared.stage.b[k][column_of(lane, j)];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const Element a = shared.stage.a[k][row + i];
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
                sum[i][j] = add(a, column[j], sum[i][j]);
        }
    }
};
typedef Chain Unit;
