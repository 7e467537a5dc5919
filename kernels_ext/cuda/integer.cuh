/* Integer steps: exact products of up to 16 bits added to an int32, which wraps or saturates once a step.
 *
 * Signed elements of up to 8 bits are bytes, of which dp4a multiplies four. It knows IntegerUnit (hwsim.numerics.units).
 */
#pragma once
#include "tile.cuh"

struct Integer : Operands {
    typedef int Element;
    enum {
        TERMS = SPEC.saturate_overflow || SPEC.terms > 32 ? SPEC.terms : 32,    /* sums that wrap are one sum */
        DEPTH = TERMS > 32 ? TERMS : 32, STAGES = 2, ROWS = 16, WARPS = FEWER > 1 ? 4 : 8,
        ARE_BYTES = A_FORMAT.is_signed && B_FORMAT.is_signed && A_FORMAT.storage_bits == 8 && B_FORMAT.storage_bits == 8,
        PACKED = ARE_BYTES && TERMS % 4 == 0 ? 4 : 1, WORDS = TERMS / PACKED,
        HAS_BLOCKS = 0, HAS_SIGNS = 0, MODULUS = 1, RUN = 1, HAS_EXPONENTS = 0, HAS_LOWEST = 0, MARKS_SPECIALS = 0
    };
    int sum[ROWS][COLUMNS];

    __device__ __forceinline__ static int8_t byte_of(const hw_format &f, uint64_t code)
    {
        return (int8_t)hw_decode_integer(&f, code);
    }

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
            for (int w = 0; w < WORDS; w++) {
                const int at = k / PACKED + w;
                const int4 four = *(const int4 *)&shared.stage.a[at][row + i];
                const int2 near = *(const int2 *)&shared.stage.b[at][2 * lane];
                const int2 far = *(const int2 *)&shared.stage.b[at][COLUMN_TILE / 2 + 2 * lane];
                const int a[4] = {four.x, four.y, four.z, four.w}, b[COLUMNS] = {near.x, near.y, far.x, far.y};
#pragma unroll
                for (int r = 0; r < 4; r++)
#pragma unroll
                    for (int j = 0; j < COLUMNS; j++)
                        of_step[r][j] = PACKED == 4 ? __dp4a(a[r], b[j], of_step[r][j]) : of_step[r][j] + a[r] * b[j];
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
