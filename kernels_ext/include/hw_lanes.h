/* Elementwise programs on arrays of binary32 or binary64 values: what joins, promotes and scales a GEMM's sums.
 *
 * A program is a list of steps on a stack, run on one block of a row at a time, so that nothing but the operands and
 * the result passes through memory. Each arithmetic step rounds once, to nearest even. It knows no plan and no unit.
 */
#ifndef HW_LANES_H
#define HW_LANES_H

#include <stddef.h>
#include <stdint.h>

enum hw_lane_op {
    HW_LANE_LOAD,      /* push operand `index` */
    HW_LANE_CONSTANT,  /* push `factor` */
    HW_LANE_ADD,       /* x, y -> x + y */
    HW_LANE_SUBTRACT,  /* x, y -> x - y */
    HW_LANE_TIMES,     /* x, y -> x * y */
    HW_LANE_SCALE,     /* x -> factor * x */
    HW_LANE_FUSED,     /* x, y -> factor * x + y, rounded once */
    HW_LANE_FMA        /* x, y, z -> x * y + z, rounded once */
};

typedef struct {
    int op, index;
    double factor;     /* a number of the working type */
} hw_lane_step;

enum hw_lane_type { HW_LANE_FLOAT, HW_LANE_DOUBLE, HW_LANE_INT32 };

/* rows x cols elements, byte strides; a column stride is the element's size or 0 (one element per row). */
typedef struct {
    char *data;
    ptrdiff_t row_stride, col_stride;
    int type; /* enum hw_lane_type */
} hw_lane_array;

/* saturate: after each step an infinity is the largest finite value of its sign and a NaN +0.
 * Otherwise infinities stay and a NaN of the result becomes the code `nan`. */
typedef struct {
    int saturate;
    uint64_t nan;
} hw_lane_edges;

/* One build. Each function: `n` elements, contiguous; [0] binary32, [1] binary64. Each of x may be the result. */
typedef struct {
    const char *name;
    void (*step[2])(const hw_lane_step *, const hw_lane_edges *, void *out, const void *const x[3], size_t n);
    /* The device's infinities and NaNs in place of IEEE's; x may be the result. */
    void (*settle[2])(const hw_lane_edges *, void *out, const void *x, size_t n);
    /* Exact conversion to the working type: [working type] from binary32 or int32 (to binary64 only). */
    void (*widen)(int from, double *out, const void *x, size_t n);
    /* Whether an element is an infinity or a NaN. */
    int (*special[2])(const void *x, size_t n);
} hw_lane_kernels;

#define HW_LANE_JOIN_(a, b) a##_##b
#define HW_LANE_JOIN(a, b) HW_LANE_JOIN_(a, b)

enum { HW_LANE_DEPTH = 16 };

typedef struct {
    const hw_lane_kernels *kernels;
    const hw_lane_step *steps;
    int step_count;
    int wide;                   /* working type: 0 binary32, 1 binary64 */
    hw_lane_edges edges;
    const hw_lane_array *operands;
    hw_lane_array out;
    size_t rows, cols;
} hw_lane_job;

/* NULL when this build or this processor has no such variant. */
const hw_lane_kernels *hw_lanes_find(const char *variant);

/* The steps leave one value; it may be written over an operand that lies in exactly the same place. */
void hw_lanes_combine(const hw_lane_job *, int threads);

/* rows_found[i], cols_found[j] (bytes, set by the caller to 0) become 1 where row i, column j holds an infinity or a
 * NaN. */
void hw_lanes_special(const hw_lane_kernels *, const hw_lane_array *, size_t rows, size_t cols,
                      unsigned char *rows_found, unsigned char *cols_found, int threads);

/* target[i, j] = source[i, j] where row i or column j is flagged. Elements of `size` bytes. */
void hw_lanes_patch(const hw_lane_array *target, const hw_lane_array *source, size_t size, size_t rows, size_t cols,
                    const unsigned char *row_flags, const unsigned char *col_flags, int threads);

#endif
