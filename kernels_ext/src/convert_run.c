/* Running the kernels over a whole array: any strides, threads, and the floating-point environment.
 *
 * The elements are taken in C order, in ranges that no two threads share; a kernel sees contiguous runs.
 */
#include <string.h>

#include "hw_convert.h"
#include "hw_host.h"

enum { MIN_ELEMENTS = 1 << 14, PANEL_ROWS = 16, PANEL_COLS = 128, BLOCK = 1024 };

extern const hw_convert_kernels hw_convert_kernels_baseline;
#if HWSIM_X86
extern const hw_convert_kernels hw_convert_kernels_avx2, hw_convert_kernels_avx512;
#endif

const hw_convert_kernels *hw_convert_find(const char *variant)
{
    if (!hw_host_runs(variant))
        return NULL;
#if HWSIM_X86
    if (!strcmp(variant, "avx2"))
        return &hw_convert_kernels_avx2;
    if (!strcmp(variant, "avx512"))
        return &hw_convert_kernels_avx512;
#endif
    return &hw_convert_kernels_baseline;
}

typedef struct job {
    const hw_convert_kernels *kernels;
    const hw_source *source;
    const hw_encoder *encoder;
    const hw_decoder *decoder;
    const hw_piece *pieces;
    int piece_count, clamp;
    const hw_step *step;
    char *result;
    uint64_t *largest; /* of all threads */
    /* Convert `n` contiguous elements, whose first has index `first` in the result. */
    void (*visit)(const struct job *, const char *run, size_t first, size_t n);
} job;

static void visit_encode(const job *j, const char *run, size_t first, size_t n)
{
    j->kernels->encode(j->encoder, run, j->result + first * (size_t)(j->encoder->code_bits / 8), n);
}

static void visit_decode(const job *j, const char *run, size_t first, size_t n)
{
    j->kernels->decode(j->decoder, run, j->result + first * (size_t)(j->decoder->value_bits / 8), n);
}

static void visit_split(const job *j, const char *run, size_t first, size_t n)
{
    static const hw_step clamp = {.scale = 1, .saturate = 1};
    double rest[BLOCK], value[BLOCK]; /* or as many floats */
    const int wide = j->source->bits == 64;
    const size_t size = (size_t)j->source->bits / 8;
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t length = n - at < BLOCK ? n - at : BLOCK;
        const void *source = run + at * size;
        if (j->clamp) {
            j->kernels->scale[wide](&clamp, source, rest, length);
            source = rest;
        }
        for (int p = 0; p < j->piece_count; p++) {
            const hw_piece *piece = &j->pieces[p];
            char *codes = (char *)piece->codes + (first + at) * (size_t)(piece->encoder.code_bits / 8);
            j->kernels->scale[wide](&piece->step, source, rest, length);
            source = rest;
            j->kernels->encode(&piece->encoder, rest, codes, length);
            if (p + 1 < j->piece_count) {
                j->kernels->decode(&piece->decoder, codes, value, length);
                j->kernels->subtract[wide](&piece->step, rest, value, length);
            }
        }
    }
}

static void visit_scale(const job *j, const char *run, size_t first, size_t n)
{
    const int wide = j->source->bits == 64;
    const size_t size = (size_t)j->source->bits / 8;
    j->kernels->scale[wide](j->step, run, j->result + first * size, n);
}

static void visit_largest(const job *j, const char *run, size_t first, size_t n)
{
    (void)first;
    const uint64_t found = j->kernels->largest[j->source->bits == 64](run, n);
    uint64_t known = __atomic_load_n(j->largest, __ATOMIC_RELAXED);
    while (found > known &&
           !__atomic_compare_exchange_n(j->largest, &known, found, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* Rows of a panel from a source whose columns are apart: for each column the rows, which share cache lines where they
 * are the contiguous dimension. */
#define GATHER(bits)                                                                                     \
    static void gather_##bits(const char *from, ptrdiff_t row_stride, ptrdiff_t col_stride, char *panel,  \
                              size_t rows, size_t cols)                                                  \
    {                                                                                                    \
        for (size_t c = 0; c < cols; c++, from += col_stride, panel += bits / 8)                         \
            if (rows == PANEL_ROWS && row_stride == bits / 8)                                            \
                for (size_t r = 0; r < PANEL_ROWS; r++)                                                  \
                    memcpy(panel + r * PANEL_COLS * (bits / 8), from + r * (bits / 8), bits / 8);        \
            else                                                                                         \
                for (size_t r = 0; r < rows; r++)                                                        \
                    memcpy(panel + r * PANEL_COLS * (bits / 8), from + (ptrdiff_t)r * row_stride, bits / 8); \
    }

GATHER(8)
GATHER(16)
GATHER(32)
GATHER(64)

static void gather(const hw_source *s, char *panel, size_t row, size_t rows, size_t col, size_t cols)
{
    const char *from = s->data + (ptrdiff_t)row * s->row_stride + (ptrdiff_t)col * s->col_stride;
    (s->bits == 64   ? gather_64
     : s->bits == 32 ? gather_32
     : s->bits == 16 ? gather_16
                     : gather_8)(from, s->row_stride, s->col_stride, panel, rows, cols);
}

static int one_run(const hw_source *s)
{
    return s->col_stride == s->bits / 8 && (s->rows == 1 || s->row_stride == s->col_stride * (ptrdiff_t)s->cols);
}

/* begin, end: elements, in C order, or rows where the source is strided. */
static void walk(const void *argument, size_t begin, size_t end)
{
    const job *j = argument;
    const hw_source *s = j->source;
    const size_t size = (size_t)s->bits / 8;
    if (one_run(s)) {
        j->visit(j, s->data + begin * size, begin, end - begin);
        return;
    }
    if (s->col_stride == (ptrdiff_t)size) {
        for (size_t row = begin; row < end; row++)
            j->visit(j, s->data + (ptrdiff_t)row * s->row_stride, row * s->cols, s->cols);
        return;
    }
    /* A panel of several rows reads whole cache lines where the rows are the contiguous dimension. */
    char panel[PANEL_ROWS * PANEL_COLS * 8];
    for (size_t row = begin; row < end; row += PANEL_ROWS) {
        const size_t rows = end - row < PANEL_ROWS ? end - row : PANEL_ROWS;
        for (size_t col = 0; col < s->cols; col += PANEL_COLS) {
            const size_t cols = s->cols - col < PANEL_COLS ? s->cols - col : PANEL_COLS;
            gather(s, panel, row, rows, col, cols);
            for (size_t i = 0; i < rows; i++)
                j->visit(j, panel + i * PANEL_COLS * size, (row + i) * s->cols + col, cols);
        }
    }
}

static void run(const job *j, int threads)
{
    const hw_source *s = j->source;
    if (!s->rows || !s->cols)
        return;
    const int single = one_run(s);
    hw_host_divide(walk, j, single ? s->rows * s->cols : s->rows, single ? MIN_ELEMENTS : 1 + MIN_ELEMENTS / s->cols,
                   threads);
}

void hw_convert_encode(const hw_convert_kernels *kernels, const hw_encoder *encoder, const hw_source *source,
                      void *codes, int threads)
{
    const job j = {.kernels = kernels, .source = source, .encoder = encoder, .result = codes, .visit = visit_encode};
    run(&j, threads);
}

void hw_convert_decode(const hw_convert_kernels *kernels, const hw_decoder *decoder, const hw_source *source,
                      void *values, int threads)
{
    const job j = {.kernels = kernels, .source = source, .decoder = decoder, .result = values, .visit = visit_decode};
    run(&j, threads);
}

void hw_convert_split(const hw_convert_kernels *kernels, const hw_piece *pieces, int count, int clamp,
                      const hw_source *source, int threads)
{
    const job j = {.kernels = kernels, .source = source, .pieces = pieces, .piece_count = count, .clamp = clamp,
                   .visit = visit_split};
    run(&j, threads);
}

void hw_convert_scale(const hw_convert_kernels *kernels, const hw_step *step, const hw_source *source, void *result,
                      int threads)
{
    const job j = {.kernels = kernels, .source = source, .step = step, .result = result, .visit = visit_scale};
    run(&j, threads);
}

uint64_t hw_convert_largest(const hw_convert_kernels *kernels, const hw_source *source, int threads)
{
    uint64_t largest = 0;
    const job j = {.kernels = kernels, .source = source, .largest = &largest, .visit = visit_largest};
    run(&j, threads);
    return largest;
}
