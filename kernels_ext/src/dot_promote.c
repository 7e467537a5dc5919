/* Runs of K, one after the other, for each block of C: the unit's chain into a room, the room added to the sums. */
#include <stdlib.h>
#include "hw_dot_promote.h"

/* The block of C that is computed at a time. In binary32 its sums and the room take 1 MiB. B is packed anew for each
 * ROWS rows: one number packed for ROWS multiply-adds. */
enum { ROWS = 256, COLUMNS = 512 };

static ptrdiff_t least(ptrdiff_t x, ptrdiff_t y) { return x < y ? x : y; }

int hw_promote(const hw_variant *variant, const hw_block *g)
{
    static const hw_lane_step sum[] = {{HW_LANE_LOAD, 0, 0}, {HW_LANE_LOAD, 1, 0}, {HW_LANE_ADD, 0, 0}};
    const hw_promotion *p = g->promotion;
    const ptrdiff_t width = g->spec->d.storage_bits / 8;
    const int is_wide = width == 8, type = is_wide ? HW_LANE_DOUBLE : HW_LANE_FLOAT;
    const hw_lane_kernels *lanes = hw_lanes_find(variant->name);
    const ptrdiff_t most = least(g->m, ROWS), columns = least(g->n, COLUMNS);
    char *room = aligned_alloc(64, (size_t)((most * columns * width + 63) / 64 * 64));
    hw_lane_array operands[2];
    int status = 0;
    if (!room)
        return -1;
    for (ptrdiff_t i = 0; i < g->m; i += ROWS)
        for (ptrdiff_t j = 0; j < g->n; j += COLUMNS) {
            hw_block part = *g;
            part.promotion = NULL;
            part.m = least(g->m - i, ROWS);
            part.n = least(g->n - j, COLUMNS);
            part.k = p->length;
            part.out = room;
            part.out_row = part.n * width;
            operands[0] = (hw_lane_array){g->out + i * g->out_row + j * width, g->out_row, width, type};
            operands[1] = (hw_lane_array){room, part.out_row, width, type};
            const hw_lane_job add = {lanes ? lanes : hw_lanes_find("baseline"), sum, 3, is_wide, p->edges, operands,
                                     operands[0], (size_t)part.m, (size_t)part.n};
            for (ptrdiff_t k = 0; k < g->k && !status; k += p->length) {
                part.a = g->a + i * g->a_row + k * g->a_column;
                part.b = g->b + k * g->b_row + j * g->b_column;
                memset(room, 0, (size_t)(part.m * part.out_row));
                status = variant->gemm(&part);
                if (!status)
                    hw_lanes_combine(&add, 1);
            }
        }
    free(room);
    return status;
}
