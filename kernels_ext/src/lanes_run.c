/* Running elementwise programs over arrays: rows, blocks of a row, threads.
 *
 * The unit of work is one block of one row. Results do not depend on the number of threads.
 */
#include <stdlib.h>
#include <string.h>

#include "hw_host.h"
#include "hw_lanes.h"

enum { BLOCK = 512, MIN_BLOCKS = 64 };

extern const hw_lane_kernels hw_lane_kernels_baseline;
#if HWSIM_X86
extern const hw_lane_kernels hw_lane_kernels_avx2, hw_lane_kernels_avx512;
#endif

const hw_lane_kernels *hw_lanes_find(const char *variant)
{
    if (!hw_host_runs(variant))
        return NULL;
#if HWSIM_X86
    if (!strcmp(variant, "avx2"))
        return &hw_lane_kernels_avx2;
    if (!strcmp(variant, "avx512"))
        return &hw_lane_kernels_avx512;
#endif
    return &hw_lane_kernels_baseline;
}

static size_t size_of(int type)
{
    return type == HW_LANE_DOUBLE ? 8 : 4;
}

/* The operand's elements of one block in the working type: where they lie, or a copy in `room`. */
static const void *loaded(const hw_lane_job *j, const hw_lane_array *array, size_t row, size_t col, size_t n,
                          double *room)
{
    const char *at = array->data + (ptrdiff_t)row * array->row_stride + (ptrdiff_t)col * array->col_stride;
    char one[BLOCK * 8];
    const size_t size = size_of(array->type);
    const int as_is = array->type == (j->wide ? HW_LANE_DOUBLE : HW_LANE_FLOAT);
    if (!array->col_stride && n > 1) {
        char *to = as_is ? (char *)room : one;
        for (size_t i = 0; i < n; i++)
            memcpy(to + i * size, at, size);
        at = to;
    }
    if (!as_is) {
        j->kernels->widen(array->type, room, at, n);
        at = (char *)room;
    }
    if (j->edges.saturate) {
        j->kernels->settle[j->wide](&j->edges, room, at, n);
        at = (char *)room;
    }
    return at;
}

/* How many values a step takes from the stack. */
static int taken(int op)
{
    switch (op) {
    case HW_LANE_CONSTANT:
        return 0;
    case HW_LANE_SCALE:
        return 1;
    case HW_LANE_FMA:
        return 3;
    default:
        return 2;
    }
}

static void block(const hw_lane_job *j, size_t row, size_t col, size_t n)
{
    double room[HW_LANE_DEPTH][BLOCK]; /* or as many floats each */
    const void *value[HW_LANE_DEPTH + 2] = {NULL}; /* a step is handed three, of which it reads what it takes */
    char *out = j->out.data + (ptrdiff_t)row * j->out.row_stride + (ptrdiff_t)col * j->out.col_stride;
    int top = -1;

    for (int i = 0; i < j->step_count; i++) {
        const hw_lane_step *step = &j->steps[i];
        if (step->op == HW_LANE_LOAD) {
            top++;
            value[top] = loaded(j, &j->operands[step->index], row, col, n, room[top]);
            continue;
        }
        top += 1 - taken(step->op);
        j->kernels->step[j->wide](step, &j->edges, room[top], &value[top], n);
        value[top] = room[top];
    }
    /* A saturated value is settled already; all operands of the block have been read. */
    if (j->edges.saturate)
        memmove(out, value[0], n * (j->wide ? 8 : 4));
    else
        j->kernels->settle[j->wide](&j->edges, out, value[0], n);
}

static void combine(const void *argument, size_t begin, size_t end)
{
    const hw_lane_job *j = argument;
    const size_t per_row = (j->cols + BLOCK - 1) / BLOCK;
    for (size_t unit = begin; unit < end; unit++) {
        const size_t col = unit % per_row * BLOCK;
        block(j, unit / per_row, col, j->cols - col < BLOCK ? j->cols - col : BLOCK);
    }
}

void hw_lanes_combine(const hw_lane_job *job, int threads)
{
    hw_host_divide(combine, job, job->rows * ((job->cols + BLOCK - 1) / BLOCK), MIN_BLOCKS, threads);
}

typedef struct {
    const hw_lane_kernels *kernels;
    const hw_lane_array *array, *source;
    size_t size, rows, cols;
    unsigned char *rows_found, *cols_found;
} flags_job;

static int is_special(const char *at, size_t size)
{
    if (size == 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        return (word & INT64_MAX) >= 0x7ff0000000000000;
    }
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return (word & INT32_MAX) >= 0x7f800000;
}

static void find_special(const void *argument, size_t begin, size_t end)
{
    const flags_job *j = argument;
    for (size_t row = begin; row < end; row++) {
        const char *at = j->array->data + (ptrdiff_t)row * j->array->row_stride;
        if (!j->kernels->special[j->array->type == HW_LANE_DOUBLE](at, j->cols))
            continue;
        j->rows_found[row] = 1;
        for (size_t col = 0; col < j->cols; col++)
            if (is_special(at + col * j->size, j->size))
                __atomic_store_n(&j->cols_found[col], 1, __ATOMIC_RELAXED);
    }
}

void hw_lanes_special(const hw_lane_kernels *kernels, const hw_lane_array *array, size_t rows, size_t cols,
                      unsigned char *rows_found, unsigned char *cols_found, int threads)
{
    const flags_job j = {.kernels = kernels, .array = array, .size = size_of(array->type), .rows = rows, .cols = cols,
                         .rows_found = rows_found, .cols_found = cols_found};
    if (cols)
        hw_host_divide(find_special, &j, rows, 1 + MIN_BLOCKS * BLOCK / cols, threads);
}

static void patch(const void *argument, size_t begin, size_t end)
{
    const flags_job *j = argument;
    for (size_t row = begin; row < end; row++) {
        char *to = j->array->data + (ptrdiff_t)row * j->array->row_stride;
        const char *from = j->source->data + (ptrdiff_t)row * j->source->row_stride;
        if (j->rows_found[row]) {
            memmove(to, from, j->cols * j->size);
            continue;
        }
        for (size_t col = 0; col < j->cols; col++)
            if (j->cols_found[col])
                memcpy(to + col * j->size, from + col * j->size, j->size);
    }
}

void hw_lanes_patch(const hw_lane_array *target, const hw_lane_array *source, size_t size, size_t rows, size_t cols,
                    const unsigned char *row_flags, const unsigned char *col_flags, int threads)
{
    const flags_job j = {.array = target, .source = source, .size = size, .rows = rows, .cols = cols,
                         .rows_found = (unsigned char *)row_flags, .cols_found = (unsigned char *)col_flags};
    if (cols)
        hw_host_divide(patch, &j, rows, 1 + MIN_BLOCKS * BLOCK / cols, threads);
}
