/* A few fused steps from +0, each over a part of the terms, and one addition of the accumulator to nearest even.
 *
 * Operands are numbers of a wider format, in which few of them are subnormal. It knows CompositeUnit
 * (hwsim.numerics.units) with accumulators and results of one format, fp32 or fp16.
 */
#pragma once
#include "fused_step.cuh"

struct Composite {
    typedef double Element;
    enum {
        TERMS = SPEC.terms, DEPTH = TERMS > 16 ? TERMS : 16, STAGES = DEPTH > 16 ? 1 : 2, ROWS = 8, WARPS = FEWER > 1 ? 4 : 12, AT_ONCE = 1,
        HAS_EXPONENTS = 1, HAS_LOWEST = 0, PACKED = 1, HAS_BLOCKS = 0, HAS_SIGNS = 1, MODULUS = SPEC.modulus, RUN = SPEC.modulus / SPEC.selections,
        MARKS_SPECIALS = 1
    };
    float sum[ROWS][COLUMNS];

    __device__ __forceinline__ static Number read(const hw_format &f, uint64_t code)
    {
        Number x = read_number(f, code);
        if (x.exponent != NO_EXPONENT)
            x.exponent = max((int)(high_word(x.value) >> EXPONENT_SHIFT & 0x7ff) - BIAS, hw_emin(&STEP.a));
        return x;
    }

    __device__ __forceinline__ bool load(int i, int j, Number c, uint64_t)
    {
        sum[i][j] = (float)c.value;
        return !c.is_special;
    }

    __device__ __forceinline__ bool store(int i, int j, uint64_t *code)
    {
        *code = code_of_result(sum[i][j]);
        return fabsf(sum[i][j]) < INFINITY_OF_FLOATS;
    }

    template <int PART> __device__ __forceinline__ static void add_parts(const Shared<Composite> &shared, int k, int row, int lane,
                                                                         double (&partial)[ROWS][COLUMNS], Marks &marks)
    {
        FusedStep::add<Composite, PART>(shared, k, row, lane, hw_emin(&D_FORMAT), partial, marks);
        if constexpr (PART + 1 < SPEC.selections)
            add_parts<PART + 1>(shared, k, row, lane, partial, marks);
    }

    __device__ __forceinline__ void step(const Shared<Composite> &shared, int k, int row, int lane, int, const uint8_t *, Marks &marks)
    {
        double partial[ROWS][COLUMNS] = {};
        add_parts<0>(shared, k, row, lane, partial, marks);
        if constexpr (D_FORMAT.fraction_bits != 23) {
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int j = 0; j < COLUMNS; j++)
                    partial[i][j] = __dadd_rn(partial[i][j], (double)sum[i][j]);
            FusedStep::round_all<Composite>(partial, marks);
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                const float last = (float)partial[i][j];
                sum[i][j] = D_FORMAT.fraction_bits == 23 ? __fadd_rn(last, sum[i][j]) : last;
            }
    }
};
typedef Composite Unit;
