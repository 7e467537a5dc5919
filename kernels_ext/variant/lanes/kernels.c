/* The elementwise steps on one block, for each instruction set. */
/* Nobody reads exception flags here; without this GCC makes branches, and no vector code. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

#include <math.h>
#include <string.h>

#include "hw_lanes.h"

#define INLINE static inline __attribute__((always_inline))

/* Operands may be the result itself, element for element: no iteration depends on another. */
#if defined(__clang__)
#define ALONE _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define ALONE _Pragma("GCC ivdep")
#else
#define ALONE
#endif

/* A loop over `expression` of x[i], y[i], z[i] and f; saturating edges are settled in the same pass. */
#define LOOP(real, expression)                                                                           \
    if (edges->saturate)                                                                                 \
        ALONE                                                                                            \
        for (size_t i = 0; i < n; i++)                                                                   \
            out[i] = saturated_##real(expression);                                                       \
    else                                                                                                 \
        ALONE                                                                                            \
        for (size_t i = 0; i < n; i++)                                                                   \
            out[i] = (expression);                                                                       \
    return;

#define STEPS(real, word_type, signed_type, infinite, fused)                                             \
    INLINE real saturated_##real(real value)                                                             \
    {                                                                                                    \
        const word_type sign = (word_type)1 << (8 * sizeof(word_type) - 1);                               \
        word_type word;                                                                                  \
        memcpy(&word, &value, sizeof word);                                                              \
        const signed_type magnitude = (signed_type)(word & ~sign);                                       \
        const signed_type cut = magnitude < (signed_type)infinite - 1 ? magnitude : (signed_type)infinite - 1; \
        word = magnitude > (signed_type)infinite ? 0 : (word & sign) | (word_type)cut;                    \
        memcpy(&value, &word, sizeof value);                                                             \
        return value;                                                                                    \
    }                                                                                                    \
    static void step_##real(const hw_lane_step *step, const hw_lane_edges *edges, void *result,          \
                            const void *const values[3], size_t n)                                       \
    {                                                                                                    \
        const real f = (real)step->factor;                                                               \
        const real *x = values[0], *y = values[1], *z = values[2];                                       \
        real *out = result;                                                                              \
        switch (step->op) {                                                                              \
        case HW_LANE_CONSTANT:                                                                           \
            LOOP(real, f)                                                                                \
        case HW_LANE_ADD:                                                                                \
            LOOP(real, x[i] + y[i])                                                                      \
        case HW_LANE_SUBTRACT:                                                                           \
            LOOP(real, x[i] - y[i])                                                                      \
        case HW_LANE_TIMES:                                                                              \
            LOOP(real, x[i] * y[i])                                                                      \
        case HW_LANE_SCALE:                                                                              \
            LOOP(real, f * x[i])                                                                         \
        case HW_LANE_FUSED:                                                                              \
            LOOP(real, fused(f, x[i], y[i]))                                                             \
        case HW_LANE_FMA:                                                                                \
            LOOP(real, fused(x[i], y[i], z[i]))                                                          \
        }                                                                                                \
    }                                                                                                    \
    static void settle_##real(const hw_lane_edges *edges, void *result, const void *values, size_t n)    \
    {                                                                                                    \
        const word_type sign = (word_type)1 << (8 * sizeof(word_type) - 1), nan = (word_type)edges->nan;  \
        const real *x = values;                                                                          \
        const word_type *words = values;                                                                 \
        real *out = result;                                                                              \
        word_type *codes = result;                                                                       \
        if (edges->saturate)                                                                             \
            ALONE                                                                                        \
            for (size_t i = 0; i < n; i++)                                                               \
                out[i] = saturated_##real(x[i]);                                                         \
        else                                                                                             \
            ALONE                                                                                        \
            for (size_t i = 0; i < n; i++)                                                               \
                codes[i] = (signed_type)(words[i] & ~sign) > (signed_type)infinite ? nan : words[i];     \
    }                                                                                                    \
    static int special_##real(const void *values, size_t n)                                              \
    {                                                                                                    \
        const word_type sign = (word_type)1 << (8 * sizeof(word_type) - 1);                               \
        const word_type *words = values;                                                                 \
        word_type found = 0;                                                                             \
        ALONE                                                                                            \
        for (size_t i = 0; i < n; i++)                                                                   \
            found |= (signed_type)(words[i] & ~sign) >= (signed_type)infinite ? 1 : 0;                    \
        return found != 0;                                                                               \
    }

STEPS(float, uint32_t, int32_t, 0x7f800000, fmaf)
STEPS(double, uint64_t, int64_t, 0x7ff0000000000000, fma)

static void widen(int from, double *out, const void *values, size_t n)
{
    const float *x = values;
    const int32_t *whole = values;
    if (from == HW_LANE_INT32)
        for (size_t i = 0; i < n; i++)
            out[i] = (double)whole[i];
    else
        for (size_t i = 0; i < n; i++)
            out[i] = (double)x[i];
}

#define HW_TEXT_(x) #x
#define HW_TEXT(x) HW_TEXT_(x)

const hw_lane_kernels HW_LANE_JOIN(hw_lane_kernels, HWSIM_VARIANT) = {
    HW_TEXT(HWSIM_VARIANT), {step_float, step_double}, {settle_float, settle_double}, widen,
    {special_float, special_double},
};
