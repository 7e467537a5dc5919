/* Chains of fused steps; between steps a sum is a number of the result format.
 *
 * It knows FusedUnit (hwsim.numerics.units).
 */
#pragma once
#include "fused_step.cuh"

struct Fused : Operands {
    typedef double Element;
    enum {
        TERMS = SPEC.terms, DEPTH = TERMS > 16 ? TERMS : 16, STAGES = TERMS > 16 ? 1 : 2,
        ROWS = FUSED_ROWS, WARPS = (TERMS > 32 ? FUSED_WARPS / 2 : FUSED_WARPS) / FEWER, AT_ONCE = FUSED_AT_ONCE,
        HAS_EXPONENTS = 1, HAS_LOWEST = 0, PACKED = 1, HAS_BLOCKS = 0, HAS_SIGNS = 1, MODULUS = 1, RUN = 1, MARKS_SPECIALS = 1
    };
    double sum[ROWS][COLUMNS];

    __device__ __forceinline__ bool load(int i, int j, Number c, uint64_t)
    {
        sum[i][j] = c.value;
        return !c.is_special;
    }

    __device__ __forceinline__ bool store(int i, int j, uint64_t *code)
    {
        *code = code_of_result(sum[i][j]);
        return true;
    }

    __device__ __forceinline__ void step(const Shared<Fused> &shared, int k, int row, int lane, int step, const uint8_t *divide,
                                Marks &marks)
    {
        const int places = divide ? divide[step] : 0;
        const int least = (step ? hw_emin(&D_FORMAT) : hw_emin(&C_FORMAT)) - places;
        if constexpr (HAS_DIVISIONS) {
            const double factor = power_of_two(-places);
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int j = 0; j < COLUMNS; j++)
                    sum[i][j] *= factor;
        }
        FusedStep::add<Fused, 0>(shared, k, row, lane, least, sum, marks);
    }
};
typedef Fused Unit;
