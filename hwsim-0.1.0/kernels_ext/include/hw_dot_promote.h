/* Promotion: the chains of a unit over equal runs of K, each begun at +0, added up outside the unit.
 *
 * The sum of a block of C stays in the second cache while the block's runs are computed: one run over all of C would
 * send it through memory each time.
 */
#ifndef HW_DOT_PROMOTE_H
#define HW_DOT_PROMOTE_H

#include "hw_dot.h"
#include "hw_lanes.h"

typedef struct hw_promotion {
    ptrdiff_t length;           /* of a run; K is a multiple of it. hw_block.divide is that of one run */
    hw_lane_edges edges;        /* of the elementwise addition */
} hw_promotion;

/* As hw_gemm, for results in binary32 or binary64 and without block scales: block->out holds the sums, of the results'
 * type; block->promotion is given. */
int hw_promote(const hw_variant *variant, const hw_block *block);

#endif
