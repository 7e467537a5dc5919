/* The fp32 steps of a split, and the table of this build's kernels. */
#include <string.h>

#include "hw_convert.h"

void HW_NAME(encode)(const hw_encoder *, const void *, void *, size_t);
void HW_NAME(decode)(const hw_decoder *, const void *, void *, size_t);

static inline __attribute__((always_inline)) float settle(float value, uint32_t ceiling, uint32_t nan_mask)
{
    uint32_t word, magnitude;
    memcpy(&word, &value, sizeof word);
    magnitude = word & 0x7fffffff;
    word = (int32_t)magnitude > 0x7f800000 ? word & nan_mask
         : (int32_t)magnitude > (int32_t)ceiling ? (word ^ magnitude) | ceiling : word;
    memcpy(&value, &word, sizeof value);
    return value;
}

static void scale(const hw_step *step, float *rest, size_t n)
{
    const float factor = step->scale;
    if (factor == 1 && !step->saturate && !step->zero_nan)
        return;
    const uint32_t ceiling = step->saturate ? 0x7f7fffff : 0x7f800000;
    const uint32_t nan_mask = step->zero_nan ? 0 : UINT32_MAX;
    for (size_t i = 0; i < n; i++)
        rest[i] = settle(rest[i] * factor, ceiling, nan_mask);
}

static void subtract(const hw_step *step, float *restrict rest, const float *restrict piece, size_t n)
{
    const uint32_t ceiling = step->saturate ? 0x7f7fffff : 0x7f800000;
    const uint32_t nan_mask = step->zero_nan ? 0 : UINT32_MAX;
    for (size_t i = 0; i < n; i++)
        rest[i] = settle(rest[i] - piece[i], ceiling, nan_mask);
}

#define HW_TEXT_(x) #x
#define HW_TEXT(x) HW_TEXT_(x)

const hw_convert_kernels HW_NAME(kernels) = {
    HW_TEXT(HWSIM_VARIANT), HW_NAME(encode), HW_NAME(decode), scale, subtract,
};
