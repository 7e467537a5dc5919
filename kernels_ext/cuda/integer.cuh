/* Integer steps: exact products of up to 16 bits added to an int32, which wraps or saturates once a step.
 *
 * It knows IntegerUnit (hwsim.numerics.units).
 */
#pragma once
#include "tile.cuh"

struct Integer : Operands {
    typedef int Element;
    enum { TERMS = SPEC.terms, DEPTH = TERMS > 16 ? TERMS : 16, STAGES = DEPTH > 16 ? 1 : 2, ROWS = 16, WARPS = 8, PACKED = 1, HAS_BLOCKS = 0, HAS_SIGNS = 0, MODULUS = 1, RUN = 1, HAS_EXPONENTS = 0, HAS_LOWEST = 0, MARKS_SPECIALS = 0 };
    int sum[ROWS][COLUMNS];

    __device__ __forceinline__ bool load(int i, int j, Number, uint64_t code)
    {
        sum[i][j] = (int)(uint32_t)code;
        return true;
    }

    __device__ __forceinline__ bool store(int i, int j, uint64_t *code)
    {
        *code = (uint32_t)sum[i][j];
        return true;
    }

    __device__ __forceinline__ void step(const Shared<Integer> &shared, int k, int row, int lane, int, const uint8_t *, Marks &)
    {
#pragma unroll
        for (int i = 0; i < ROWS; i += 4) {     /* four rows' products at a time: they have registers of their own */
            int of_step[4][COLUMNS] = {};
#pragma unroll 4
            for (int t = 0; t < TERMS; t++) {
                const int4 four = *(const int4 *)&shared.stage.a[k + t][row + i];
                const int a[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                for (int j = 0; j < COLUMNS; j++) {
                    const int b = shared.stage.b[k + t][column_of(lane, j)];
#pragma unroll
                    for (int r = 0; r < 4; r++)
                        of_step[r][j] += a[r] * b;
                }
            }
#pragma unroll
            for (int r = 0; r < 4; r++)
#pragma unroll
                for (int j = 0; j < COLUMNS; j++)
                    sum[i + r][j] = added(sum[i + r][j], of_step[r][j]);
        }
    }

    __device__ __forceinline__ static int added(int c, int x)
    {
        const int wrapped = (int)((uint32_t)c + (uint32_t)x);
        if constexpr (!SPEC.saturate_overflow)
            return wrapped;
        return ((c ^ wrapped) & (x ^ wrapped)) < 0 ? (c < 0 ? INT32_MIN : INT32_MAX) : wrapped;
    }
};
typedef Integer Unit;
