/* Groups of products summed exactly in integers, times their scales, then one fused step of the groups.
 *
 * Elements are multiples of a unit, bytes; four products are one dp4a. A group's sum times its scales is a product of a
 * multiply-add, which cuts it as fused_step.cuh does. The sum keeps its binade: see `loop_of` in source.py.
 *
 * It knows BlockScaledUnit (hwsim.numerics.units) with results in fp32.
 */
#pragma once
#include "fused_step.cuh"

struct BlockScaled : Operands {
    typedef int Element;
    enum {
        TERMS = SPEC.terms, DEPTH = TERMS, STAGES = 2, ROWS = 4, WARPS = 16 / FEWER, GROUP = SPEC.group, GROUPS = TERMS / GROUP,
        HAS_EXPONENTS = 0, HAS_LOWEST = 0, HAS_SIGNS = 0, PACKED = 4, HAS_BLOCKS = 1, MODULUS = 1, RUN = 1, MARKS_SPECIALS = 1
    };
    double sum[ROWS][COLUMNS];

    /* A number as a multiple of its format's least one. */
    __device__ __forceinline__ static int8_t byte_of(const hw_format &f, uint64_t code)
    {
        const int p = f.fraction_bits, magnitude = (int)(code >> f.pad & hw_mask(f.exponent_bits + p)), biased = magnitude >> p;
        const int units = biased ? (magnitude & (1 << p) - 1 | 1 << p) << (biased - 1) : magnitude;
        return (int8_t)(sign_of(f, code) ? -units : units);
    }

    /* A scale, for products of a unit each: half of that factor on either side, A and B being of one format. */
    __device__ __forceinline__ static Number read_scale(uint8_t code)
    {
        const hw_num x = hw_decode(&SPEC.scale, code);
        const int unit = hw_emin(&A_FORMAT) - A_FORMAT.fraction_bits;
        if (x.kind != HW_NORMAL)
            return Number{0, NO_EXPONENT, x.kind == HW_NAN};
        return Number{(double)x.sig * power_of_two(x.lsb + unit), x.lsb + SPEC.scale.fraction_bits, false};
    }

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

    /* Whether a product of a group is not zero. */
    __device__ __forceinline__ static bool has_product(const Shared<BlockScaled> &shared, int group, int row, int column)
    {
        uint32_t both = 0;
#pragma unroll 1
        for (int w = group * (GROUP / PACKED); w < (group + 1) * (GROUP / PACKED); w++) {
            const uint32_t a = (uint32_t)shared.stage.a[w][row], b = (uint32_t)shared.stage.b[w][column];
            both |= (((a & 0x7f7f7f7fu) + 0x7f7f7f7fu) | a) & (((b & 0x7f7f7f7fu) + 0x7f7f7f7fu) | b) & 0x80808080u;
        }
        return both;
    }

    /* The groups of a row and the thread's columns. */
    __device__ __forceinline__ static void sum_groups(const Stage<BlockScaled> &stage, int row, int lane, int (&of_group)[GROUPS][COLUMNS])
    {
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
                of_group[g][j] = 0;
#pragma unroll 4
            for (int w = g * (GROUP / PACKED); w < (g + 1) * (GROUP / PACKED); w++) {
                const int2 near = *(const int2 *)&stage.b[w][2 * lane], far = *(const int2 *)&stage.b[w][COLUMN_TILE / 2 + 2 * lane];
                const int a = stage.a[w][row], b[COLUMNS] = {near.x, near.y, far.x, far.y};
#pragma unroll
                for (int j = 0; j < COLUMNS; j++)
                    of_group[g][j] = __dp4a(a, b[j], of_group[g][j]);
            }
        }
    }

    /* c and the groups of an element, each cut, as a multiple of the last place. */
    __device__ __forceinline__ static double added(const Shared<BlockScaled> &shared, double c, const int (&of_group)[GROUPS][COLUMNS],
                                                   int row, int column, int j, int least)
    {
        const int own = (int)((high_word(c) & EXPONENT_WORD) >> EXPONENT_SHIFT);
        int top = own ? max(own - BIAS, max(least, (int)SPEC.floor_exponent)) : SPEC.floor_exponent;
#pragma unroll
        for (int g = 0; g < GROUPS; g++)
            if (of_group[g][j])
                top = max(top, exponent_of(shared, g, row, column));
#pragma unroll
        for (int g = 0; g < GROUPS; g++)
            if (!of_group[g][j] && exponent_of(shared, g, row, column) > top && has_product(shared, g, row, column))
                top = exponent_of(shared, g, row, column);
        const uint32_t power = (uint32_t)(top + BIAS + 52 - SPEC.fraction_bits) << EXPONENT_SHIFT;
        double total = fabs(__dadd_rd(fabs(c), with_sign_changed(three_halves(power), high_word(c) & SIGN_WORD)));
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            const int block = g * GROUP / SCALE_BLOCK, whole = of_group[g][j];
            const double scale = shared.blocks.a[block][row] * shared.blocks.b[block][column];
            const double magnitude = double_of((uint32_t)abs(whole));
            total = fabs(__fma_rd(magnitude, scale, with_sign_changed(total, (uint32_t)whole & SIGN_WORD)));
        }
        return __dsub_rn(total, three_halves(power));
    }

    __device__ __forceinline__ void step(const Shared<BlockScaled> &shared, int k, int row, int lane, int step, const uint8_t *, Marks &marks)
    {
        const int least = step ? hw_emin(&D_FORMAT) : hw_emin(&C_FORMAT);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            int of_group[GROUPS][COLUMNS];
            sum_groups(shared.stage, row + i, lane, of_group);
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
                sum[i][j] = added(shared, sum[i][j], of_group, row + i, column_of(lane, j), j, least);
            asm volatile("" ::: "memory");      /* rows one after the other: they share registers */
        }
        FusedStep::round_all<BlockScaled>(sum, marks);
    }

    __device__ __forceinline__ static int exponent_of(const Shared<BlockScaled> &shared, int group, int row, int column)
    {
        const int block = group * GROUP / SCALE_BLOCK;
        return shared.blocks.of_a[block][row] + shared.blocks.of_b[block][column];
    }
};
typedef BlockScaled Unit;
