/* Sums of chains: total + x for each element, rounded to nearest even, with the edges of a device's additions. */
#pragma once
#include "machine.cuh"

template <class Word> __device__ __forceinline__ Word settled(Word word, bool saturates, Word nan)
{
    const Word infinite = sizeof(Word) == 8 ? (Word)0x7ff0000000000000ull : (Word)0x7f800000u;
    const Word sign = word & (Word)1 << (8 * sizeof(Word) - 1), magnitude = word ^ sign;
    if (magnitude > infinite)
        return saturates ? 0 : nan;
    return magnitude == infinite && saturates ? sign | (infinite - 1) : word;
}

/* Operands are settled too where the additions saturate, as hw_lanes.h says. */
extern "C" __global__ void add(char *total, const char *x, long long count, int wide, int saturates, uint64_t nan)
{
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (long long)gridDim.x * blockDim.x)
        if (wide) {
            uint64_t *to = (uint64_t *)total + i, y = ((const uint64_t *)x)[i], c = *to;
            if (saturates)
                y = settled<uint64_t>(y, true, 0), c = settled<uint64_t>(c, true, 0);
            const double sum = __dadd_rn(__longlong_as_double((long long)c), __longlong_as_double((long long)y));
            *to = settled<uint64_t>((uint64_t)__double_as_longlong(sum), saturates, nan);
        } else {
            uint32_t *to = (uint32_t *)total + i, y = ((const uint32_t *)x)[i], c = *to;
            if (saturates)
                y = settled<uint32_t>(y, true, 0), c = settled<uint32_t>(c, true, 0);
            const float sum = __fadd_rn(__uint_as_float(c), __uint_as_float(y));
            *to = settled<uint32_t>(__float_as_uint(sum), saturates, (uint32_t)nan);
        }
}
