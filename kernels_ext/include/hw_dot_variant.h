/* What the sources that are compiled once per instruction set share: names, lines of operands, fast paths. */
#ifndef HW_DOT_VARIANT_H
#define HW_DOT_VARIANT_H

#include "hw_dot.h"

#define HW_JOIN_(name, variant) name##_##variant
#define HW_JOIN(name, variant) HW_JOIN_(name, variant)
#define HW_BUILD(name) HW_JOIN(name, HWSIM_VARIANT)

#define hw_lines_open HW_BUILD(hw_lines_open)
#define hw_lines_read HW_BUILD(hw_lines_read)
#define hw_lines_read_block HW_BUILD(hw_lines_read_block)
#define hw_real_float HW_BUILD(hw_real_float)
#define hw_real_double HW_BUILD(hw_real_double)
#define hw_fused_float HW_BUILD(hw_fused_float)
#define hw_fused_lanes HW_BUILD(hw_fused_lanes)
#define hw_integer HW_BUILD(hw_integer)
#define hw_pairwise HW_BUILD(hw_pairwise)
#define hw_two_level HW_BUILD(hw_two_level)
#define hw_fused_bytes HW_BUILD(hw_fused_bytes)
#define hw_block_scaled HW_BUILD(hw_block_scaled)

/* Codes to binary32, exactly: any format of up to 24 significant bits within binary32's exponents. */
typedef struct hw_lines {
    hw_format format;
    int edges;              /* saturate or flush: a second pass */
    int saturate, flush;
    float table[256];       /* of formats stored in a byte */
} hw_lines;

int hw_lines_open(hw_lines *lines, const hw_format *format, const hw_spec *spec);
void hw_lines_read(const hw_lines *lines, float *to, const char *from, ptrdiff_t stride, ptrdiff_t count);
/* `count` lines, `line` bytes apart, of `depth` codes, `along` bytes apart: code k of line i to
 * to[i * to_line + k * to_along], one of which is 1. Reads along the axis whose codes lie closer together.
 */
void hw_lines_read_block(const hw_lines *lines, float *to, ptrdiff_t to_line, ptrdiff_t to_along, const char *from,
                         ptrdiff_t line, ptrdiff_t along, ptrdiff_t count, ptrdiff_t depth);

/* A fast path: 1 when it cannot take the unit, 0 when done, -1 without memory. */
typedef int hw_path(const hw_block *block);
hw_path hw_real_float, hw_real_double, hw_fused_float, hw_fused_lanes, hw_integer, hw_pairwise, hw_two_level;
hw_path hw_fused_bytes, hw_block_scaled;
hw_gemm HW_BUILD(hw_gemm);

static inline int hw_is(const hw_format *f, const char *name) { return !strcmp(f->name, name); }

#define HW_CANONICAL_LINE(name, word, infinity)                                                                        \
    static inline void name(char *line, ptrdiff_t count, word code)                                                    \
    {                                                                                                                  \
        const word magnitude = (word)((word)~(word)0 >> 1);                                                            \
        for (ptrdiff_t j = 0; j < count; j++, line += sizeof(word)) {                                                  \
            word x;                                                                                                    \
            memcpy(&x, line, sizeof x);                                                                                \
            x = (x & magnitude) > (infinity) ? code : x;                                                               \
            memcpy(line, &x, sizeof x);                                                                                \
        }                                                                                                              \
    }
HW_CANONICAL_LINE(hw_canonical_half, uint16_t, 0x7C00u)
HW_CANONICAL_LINE(hw_canonical_single, uint32_t, 0x7F800000u)
HW_CANONICAL_LINE(hw_canonical_double, uint64_t, 0x7FFull << 52)
#undef HW_CANONICAL_LINE

/* NaNs of the lanes, of any code, become the unit's. Results in binary16, binary32 or binary64. */
static inline void hw_canonical_nans(const hw_block *g)
{
    const uint64_t code = g->spec->nan_code;
    for (ptrdiff_t i = 0; i < g->m; i++) {
        char *line = g->out + i * g->out_row;
        if (g->spec->d.storage_bits == 16)
            hw_canonical_half(line, g->n, (uint16_t)code);
        else if (g->spec->d.storage_bits == 32)
            hw_canonical_single(line, g->n, (uint32_t)code);
        else
            hw_canonical_double(line, g->n, code);
    }
}

/* 2^e in binary32, for the exponents of its normal numbers. */
static inline float hw_power_of_two(int e)
{
    uint32_t bits = (uint32_t)(e + 127) << 23;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

#endif
