/* The steps of a split between the conversions, and the table of this build's kernels. */
/* Nobody reads exception flags here; without this GCC makes branches, and no vector code. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

#include <string.h>

#include "hw_convert.h"

void HW_NAME(encode)(const hw_encoder *, const void *, void *, size_t);
void HW_NAME(decode)(const hw_decoder *, const void *, void *, size_t);

#if defined(__clang__)
#define HW_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define HW_INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Steps on elements of one type. A step that neither saturates nor takes NaNs as zero is the bare operation. */
#define STEPS(real, word_type, signed_type, infinite)                                                    \
    static inline __attribute__((always_inline)) real settle_##real(real value, word_type ceiling,        \
                                                                    word_type nan_mask)                  \
    {                                                                                                    \
        const word_type sign = (word_type)1 << (8 * sizeof(word_type) - 1);                               \
        word_type word;                                                                                  \
        memcpy(&word, &value, sizeof word);                                                              \
        const word_type magnitude = word & ~sign;                                                        \
        const word_type cut = (signed_type)magnitude < (signed_type)ceiling ? magnitude : ceiling;        \
        const word_type kept = (word & sign) | cut;                                                      \
        word = (signed_type)magnitude > (signed_type)infinite ? word & nan_mask : kept;                   \
        memcpy(&value, &word, sizeof value);                                                             \
        return value;                                                                                    \
    }                                                                                                    \
    static void scale_##real(const hw_step *step, const void *elements, void *result, size_t n)          \
    {                                                                                                    \
        const real factor = (real)step->scale;                                                           \
        const word_type ceiling = step->saturate ? (word_type)infinite - 1 : (word_type)infinite;         \
        const word_type nan_mask = step->zero_nan ? 0 : (word_type)-1;                                    \
        const real *source = elements;                                                                   \
        real *rest = result; /* the same memory or another */                                            \
        if (step->saturate || step->zero_nan)                                                            \
            HW_INDEPENDENT for (size_t i = 0; i < n; i++)                                                \
                rest[i] = settle_##real(source[i] * factor, ceiling, nan_mask);                          \
        else if (factor != 1)                                                                            \
            HW_INDEPENDENT for (size_t i = 0; i < n; i++)                                                \
                rest[i] = source[i] * factor;                                                            \
        else if (rest != source)                                                                         \
            memcpy(rest, source, n * sizeof *rest);                                                      \
    }                                                                                                    \
    static void subtract_##real(const hw_step *step, void *elements, const void *values, size_t n)       \
    {                                                                                                    \
        const word_type ceiling = step->saturate ? (word_type)infinite - 1 : (word_type)infinite;         \
        const word_type nan_mask = step->zero_nan ? 0 : (word_type)-1;                                    \
        real *restrict rest = elements;                                                                  \
        const real *restrict piece = values;                                                             \
        if (step->saturate || step->zero_nan)                                                            \
            for (size_t i = 0; i < n; i++)                                                               \
                rest[i] = settle_##real(rest[i] - piece[i], ceiling, nan_mask);                          \
        else                                                                                             \
            for (size_t i = 0; i < n; i++)                                                               \
                rest[i] -= piece[i];                                                                     \
    }                                                                                                    \
    static uint64_t largest_##real(const void *elements, size_t n)                                       \
    {                                                                                                    \
        const word_type magnitude = ((word_type)1 << (8 * sizeof(word_type) - 1)) - 1;                    \
        const real *source = elements;                                                                   \
        signed_type found = 0;                                                                           \
        for (size_t i = 0; i < n; i++) {                                                                 \
            word_type word;                                                                              \
            memcpy(&word, &source[i], sizeof word);                                                      \
            const signed_type own = (signed_type)(word & magnitude);                                     \
            found = own > found ? own : found;                                                           \
        }                                                                                                \
        return (uint64_t)found;                                                                          \
    }

STEPS(float, uint32_t, int32_t, 0x7f800000)
STEPS(double, uint64_t, int64_t, 0x7ff0000000000000)

#define HW_TEXT_(x) #x
#define HW_TEXT(x) HW_TEXT_(x)

const hw_convert_kernels HW_NAME(kernels) = {
    HW_TEXT(HWSIM_VARIANT), HW_NAME(encode), HW_NAME(decode),
    {scale_float, scale_double}, {subtract_float, subtract_double}, {largest_float, largest_double},
};
