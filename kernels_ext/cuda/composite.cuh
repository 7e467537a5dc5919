/* A few fused steps from +0, each over a part of the terms, and one addition of the accumulator to nearest even.
 *
 * Operands are numbers of a wider format, in which few of them are subnormal. It knows CompositeUnit
 * (hwsim.numerics.units) with accumulators and results of one format, fp32 or fp16.
 *
 * Between steps a sum is a float, or of fp16 the high word of a double, which has all its places. As floats, ptxas of
 * CUDA 13.0 to 13.3 loses some of the 32 conversions at -O2 and -O3: sums take their neighbours' values.
 */
#pragma once
#include "fused_step.cuh"

template <bool IS_FP32> struct SumOf { typedef float Type; };
template <> struct SumOf<false> { typedef uint32_t Type; };

struct Composite {
    typedef double Element;
    enum {
        TERMS = SPEC.terms, DEPTH = TERMS > 16 ? TERMS : 16, STAGES = DEPTH > 16 ? 1 : 2, ROWS = 8, WARPS = FEWER > 1 ? 4 : 12, AT_ONCE = 1,
        HAS_EXPONENTS = 1, HAS_LOWEST = 0, PACKED = 1, HAS_BLOCKS = 0, HAS_SIGNS = 1, MODULUS = SPEC.modulus, RUN = SPEC.modulus / SPEC.selections,
        MARKS_SPECIALS = 1
    };
    static constexpr bool IS_FP32 = D_FORMAT.fraction_bits == 23;
    typename SumOf<IS_FP32>::Type sum[ROWS][COLUMNS];

    __device__ __forceinline__ static Number read(const hw_format &f, uint64_t code)
    {
        Number x = read_number(f, code);
        if (x.exponent != NO_EXPONENT)
            x.exponent = max((int)(high_word(x.value) >> EXPONENT_SHIFT & 0x7ff) - BIAS, hw_emin(&STEP.a));
        return x;
    }

    __device__ __forceinline__ bool load(int i, int j, Number c, uint64_t)
    {
        if constexpr (IS_FP32)
            sum[i][j] = (float)c.value;
        else
            sum[i][j] = high_word(c.value);
        return !c.is_special;
    }

    __device__ __forceinline__ bool store(int i, int j, uint64_t *code)
    {
        if constexpr (IS_FP32) {
            *code = __float_as_uint(sum[i][j]);
            return fabsf(sum[i][j]) < INFINITY_OF_FLOATS;
        }
        *code = code_of_result(from_words(sum[i][j], 0));
        return true;
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
        if constexpr (IS_FP32) {
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int j = 0; j < COLUMNS; j++)
                    sum[i][j] = __fadd_rn((float)partial[i][j], sum[i][j]);
        } else {
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int j = 0; j < COLUMNS; j++)
                    partial[i][j] = __dadd_rn(partial[i][j], from_words(sum[i][j], 0));
            FusedStep::round_all<Composite>(partial, marks);
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int j = 0; j < COLUMNS; j++)
                    sum[i][j] = high_word(partial[i][j]);
        }
    }
};
typedef Composite Unit;
