/* Adder trees in binary32: products and sums of neighbours each rounded to nearest even, then the accumulator.
 *
 * It knows PairwiseUnit (hwsim.numerics.units) of 1, 2 or 4 terms with results in fp32. The lanes have IEEE's
 * infinities and NaNs, and flush subnormals where the unit does.
 */
#pragma once
#include "tile.cuh"

struct Pairwise : Operands {
    typedef float Element;
    enum { TERMS = SPEC.terms, DEPTH = 16, STAGES = DEPTH > 16 ? 1 : 2, ROWS = 16, WARPS = 8 / FEWER, PACKED = 1, HAS_BLOCKS = 0, HAS_SIGNS = 0, MODULUS = 1, RUN = 1, HAS_EXPONENTS = 0, HAS_LOWEST = 0, MARKS_SPECIALS = 1 };
    float sum[ROWS][COLUMNS];

    __device__ __forceinline__ bool load(int i, int j, Number, uint64_t code)
    {
        sum[i][j] = __uint_as_float((uint32_t)code);
        return true;
    }

    __device__ __forceinline__ bool store(int i, int j, uint64_t *code)
    {
        *code = __float_as_uint(sum[i][j]);
        if ((*code & 0x7fffffff) > 0x7f800000)
            *code = SPEC.nan_code;
        return true;
    }

    __device__ __forceinline__ static float times(float x, float y)
    {
        float product;
        if constexpr (SPEC.flush_results)
            asm("mul.rn.ftz.f32 %0, %1, %2;" : "=f"(product) : "f"(x), "f"(y));
        else
            product = __fmul_rn(x, y);
        return product;
    }

    __device__ __forceinline__ static float plus(float x, float y)
    {
        float result;
        if constexpr (SPEC.flush_results)
            asm("add.rn.ftz.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
        else
            result = __fadd_rn(x, y);
        return result;
    }

    /* What the unit reads as accumulator: with flushed operands zeros and subnormals are +0. */
    __device__ __forceinline__ static float kept(float c)
    {
        return SPEC.flush_operands && fabsf(c) < 0x1p-126f ? 0.0f : c;
    }

    __device__ __forceinline__ void step(const Shared<Pairwise> &shared, int k, int row, int lane, int, const uint8_t *, Marks &)
    {
        float column[TERMS][COLUMNS];
#pragma unroll
        for (int t = 0; t < TERMS; t++) {
            const float2 near = *(const float2 *)&shared.stage.b[k + t][2 * lane];
            const float2 far = *(const float2 *)&shared.stage.b[k + t][COLUMN_TILE / 2 + 2 * lane];
            column[t][0] = near.x, column[t][1] = near.y, column[t][2] = far.x, column[t][3] = far.y;
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            float a[TERMS];
#pragma unroll
            for (int t = 0; t < TERMS; t++)
                a[t] = shared.stage.a[k + t][row + i];
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                float tree;
                if constexpr (TERMS == 1)
                    tree = times(a[0], column[0][j]);
                else {
                    tree = plus(times(a[0], column[0][j]), times(a[1], column[1][j]));
                    if constexpr (TERMS == 4)
                        tree = plus(tree, plus(times(a[2], column[2][j]), times(a[3], column[3][j])));
                }
                sum[i][j] = plus(kept(sum[i][j]), tree);
            }
        }
    }
};
typedef Pairwise Unit;
