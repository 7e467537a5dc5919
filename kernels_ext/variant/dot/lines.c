/* Lines of operands: codes of any narrow format to binary32, exactly, at any stride. */
#include <math.h>
#include <pthread.h>
#include "hw_dot_variant.h"
#include "hw_simd.h"

enum { FORMATS = sizeof hw_formats / sizeof *hw_formats };

static void fill_table(float *table, const hw_format *format, int saturate, int flush)
{
    for (int code = 0; code < 256; code++) {
        hw_num x = hw_decode(format, (uint64_t)code);
        if (saturate && x.kind >= HW_INF)
            x = hw_decode(format, x.kind == HW_NAN ? 0 : hw_largest(format, x.sign));
        if (flush && (x.kind == HW_ZERO || x.subnormal)) {
            x.sig = 0;
            x.sign = 0;
        }
        float v = x.kind == HW_NAN ? NAN : x.kind == HW_INF ? INFINITY : ldexpf((float)x.sig, x.lsb);
        table[code] = x.sign ? -v : v;
    }
}

/* Tables without edges are made once: filling one takes longer than a small product. */
static float plain[FORMATS][256];
static pthread_once_t plain_once = PTHREAD_ONCE_INIT;

static void fill_plain(void)
{
    for (size_t i = 0; i < FORMATS; i++)
        if (hw_formats[i].storage_bits == 8 && hw_formats[i].special != HW_INTEGER && hw_formats[i].fraction_bits)
            fill_table(plain[i], &hw_formats[i], 0, 0);
}

int hw_lines_open(hw_lines *lines, const hw_format *format, const hw_spec *spec)
{
    if (format->special == HW_INTEGER || format->storage_bits == 64 || format->fraction_bits == 0)
        return 1;
    lines->format = *format;
    lines->saturate = spec->saturate_operands;
    lines->flush = spec->flush_operands;
    /* A byte's table has its edges done. */
    lines->edges = (lines->saturate || lines->flush) && format->storage_bits > 8;
    if (format->storage_bits == 8 && (lines->saturate || lines->flush))
        fill_table(lines->table, format, lines->saturate, lines->flush);
    else if (format->storage_bits == 8) {
        pthread_once(&plain_once, fill_plain);
        for (size_t i = 0; i < FORMATS; i++)
            if (!strcmp(hw_formats[i].name, format->name))
                memcpy(lines->table, plain[i], sizeof lines->table);
    }
    return 0;
}

/* `count` codes one after the other. */
static void from_half(float *to, const char *from, ptrdiff_t count)
{
    ptrdiff_t i = 0;
#if HW_HAS_HALF
    for (; i + HW_BYTES / 4 <= count; i += HW_BYTES / 4)
        vf_from_half(to + i, (const uint16_t *)(const void *)(from + 2 * i));
#endif
    for (; i < count; i++) {
        /* The fraction in binary32's place is 2^-112 times the value, subnormals too. */
        uint16_t code;
        memcpy(&code, from + 2 * i, 2);
        uint32_t magnitude = (uint32_t)(code & 0x7FFF) << 13, bits;
        float v;
        memcpy(&v, &magnitude, 4);
        v *= 0x1p112f;
        memcpy(&bits, &v, 4);
        bits |= magnitude >= 0x0F800000u ? 0x7F800000u : 0;
        bits |= (uint32_t)(code & 0x8000) << 16;
        memcpy(to + i, &bits, 4);
    }
}

static void from_bfloat(float *to, const char *from, ptrdiff_t count)
{
    for (ptrdiff_t i = 0; i < count; i++) {
        uint16_t code;
        memcpy(&code, from + 2 * i, 2);
        uint32_t bits = (uint32_t)code << 16;
        memcpy(to + i, &bits, 4);
    }
}

enum { PIECE = 512 };

static void read_piece(const hw_lines *lines, float *to, const char *from, ptrdiff_t stride, ptrdiff_t count)
{
    const hw_format *f = &lines->format;
    if (f->storage_bits == 8) {
        for (ptrdiff_t i = 0; i < count; i++)
            to[i] = lines->table[*(const uint8_t *)(from + i * stride)];
    } else if (f->storage_bits == 16) {
        uint16_t codes[PIECE];
        if (stride != 2) {
            for (ptrdiff_t i = 0; i < count; i++)
                memcpy(codes + i, from + i * stride, 2);
            from = (const char *)codes;
        }
        if (f->exponent_bits == 5)
            from_half(to, from, count);
        else
            from_bfloat(to, from, count);
    } else {
        uint32_t keep = ~(uint32_t)hw_mask(f->pad);
        for (ptrdiff_t i = 0; i < count; i++) {
            uint32_t bits;
            memcpy(&bits, from + i * stride, 4);
            bits &= keep;
            memcpy(to + i, &bits, 4);
        }
    }
    if (!lines->edges)
        return;
    int shift = 23 - f->fraction_bits;
    uint32_t infinity = 0x7F800000u;
    uint32_t largest = ((uint32_t)(hw_max_finite(f) >> f->fraction_bits) - (uint32_t)f->bias + 127) << 23
        | (uint32_t)(hw_max_finite(f) & hw_mask(f->fraction_bits)) << shift;
    uint32_t least = (uint32_t)(hw_emin(f) + 127) << 23;
    for (ptrdiff_t i = 0; i < count; i++) {
        uint32_t bits, magnitude;
        memcpy(&bits, to + i, 4);
        magnitude = bits & 0x7FFFFFFFu;
        if (lines->saturate) {
            bits = magnitude == infinity ? (bits & 0x80000000u) | largest : bits;
            bits = magnitude > infinity ? 0 : bits;
        }
        bits = lines->flush && magnitude < least ? 0 : bits;
        memcpy(to + i, &bits, 4);
    }
}

void hw_lines_read(const hw_lines *lines, float *to, const char *from, ptrdiff_t stride, ptrdiff_t count)
{
    for (ptrdiff_t i = 0; i < count; i += PIECE)
        read_piece(lines, to + i, from + i * stride, stride, count - i < PIECE ? count - i : PIECE);
}

enum { SIDE = 4, RUN = 128 };

/* SIDE runs of `count` numbers, RUN apart, to neighbouring places: number k of run i to to[k * step + i]. */
static void transpose(float *to, ptrdiff_t step, const float *from, ptrdiff_t count)
{
    ptrdiff_t k = 0;
#if HW_HAS_TRANSPOSE
    for (; k + SIDE <= count; k += SIDE)
        vq_transpose(to + k * step, step, from + k, RUN);
#endif
    for (; k < count; k++)
        for (int i = 0; i < SIDE; i++)
            to[k * step + i] = from[i * RUN + k];
}

void hw_lines_read_block(const hw_lines *lines, float *to, ptrdiff_t to_line, ptrdiff_t to_along, const char *from,
                         ptrdiff_t line, ptrdiff_t along, ptrdiff_t count, ptrdiff_t depth)
{
    /* Read in runs along the axis whose codes lie closer together. */
    ptrdiff_t runs = count, length = depth;
    if (depth == 1 || (count > 1 && (line < 0 ? -line : line) < (along < 0 ? -along : along))) {
        ptrdiff_t other = line;
        line = along;
        along = other;
        other = to_line;
        to_line = to_along;
        to_along = other;
        runs = depth;
        length = count;
    }
    if (to_along == 1) {
        for (ptrdiff_t i = 0; i < runs; i++)
            hw_lines_read(lines, to + i * to_line, from + i * line, along, length);
        return;
    }
    float buffer[SIDE * RUN];
    for (ptrdiff_t i = 0; i < runs; i += SIDE)
        for (ptrdiff_t k = 0; k < length; k += RUN) {
            ptrdiff_t here = runs - i < SIDE ? runs - i : SIDE, few = length - k < RUN ? length - k : RUN;
            float *at = to + i + k * to_along;
            for (ptrdiff_t r = 0; r < here; r++)
                hw_lines_read(lines, buffer + r * RUN, from + (i + r) * line + k * along, along, few);
            if (here == SIDE)
                transpose(at, to_along, buffer, few);
            else
                for (ptrdiff_t r = 0; r < here; r++)
                    for (ptrdiff_t j = 0; j < few; j++)
                        at[r + j * to_along] = buffer[r * RUN + j];
        }
}
