/* Rows of A against panels of B for units with block scales: what a unit brings (packing, one row of a panel), and
 * the blocking around it (kernels_ext/src/dot_scaled.c).
 *
 * Whatever the lanes cannot take goes to the scalar code, one row of one panel over one chunk of k.
 */
#ifndef HW_DOT_SCALED_H
#define HW_DOT_SCALED_H

#include "hw_dot.h"

enum { HW_PANEL_BYTES = 64 * 4 };       /* most bytes of the accumulators of a row of a panel */

typedef struct hw_scaled {
    int columns;                    /* of a panel */
    ptrdiff_t row_bytes, panel_bytes;   /* packed, of one step: multiples of 64 */
    const void *unit;               /* handed to the functions */
    /* One row of A, or up to `columns` columns of B, as part says (its scales too), over part's k padded to whole
     * steps. Returns 1 when there are values that the lanes cannot take. */
    int (*pack_row)(const void *unit, char *to, const hw_block *part);
    int (*pack_panel)(const void *unit, char *to, const hw_block *part);
    /* `steps` steps of one row of a panel; c: accumulators, the first `columns` of them in use. Returns 1 when a lane
     * left its range; then c may hold anything. */
    int (*row)(const void *unit, ptrdiff_t steps, int columns, const char *a, const char *b, char *c);
} hw_scaled;

/* 0, or -1 without memory. */
int hw_scaled_run(const hw_block *block, const hw_scaled *unit);

#endif
