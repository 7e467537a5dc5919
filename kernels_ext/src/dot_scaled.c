/* The blocking of rows and panels of units with block scales, and the scalar code where lanes do not do. */
#include <stdlib.h>
#include "hw_dot_scaled.h"

enum { A_BYTES = 512 << 10, B_BYTES = 32 << 10 };      /* packed rows in the second cache, a panel in the first */

/* The block from row i, column j and product k on; k is a multiple of a step. */
static hw_block part_of(const hw_block *g, ptrdiff_t i, ptrdiff_t j, ptrdiff_t k)
{
    hw_block part = *g;
    int scales = g->spec->scale_block;
    part.a += i * g->a_row + k * g->a_column;
    part.b += k * g->b_row + j * g->b_column;
    part.out += i * g->out_row + j * (g->spec->d.storage_bits / 8);
    if (scales) {
        part.a_scale += i * g->a_scale_row + k / scales * g->a_scale_column;
        part.b_scale += k / scales * g->b_scale_row + j * g->b_scale_column;
    }
    return part;
}

/* A row of a panel, in the lanes if they can. */
static int run_row(const hw_scaled *u, const hw_block *part, ptrdiff_t steps, int wide, const char *a, const char *b)
{
    size_t bytes = (size_t)(part->n * (part->spec->d.storage_bits / 8));
    if (!wide) {
        _Alignas(64) char c[HW_PANEL_BYTES] = {0};
        memcpy(c, part->out, bytes);
        if (!u->row(u->unit, steps, (int)part->n, a, b, c)) {
            memcpy(part->out, c, bytes);
            return 0;
        }
    }
    return hw_scalar_block(part);
}

int hw_scaled_run(const hw_block *g, const hw_scaled *u)
{
    ptrdiff_t terms = g->spec->terms, steps = (g->k + terms - 1) / terms, most = B_BYTES / u->panel_bytes;
    most = most < 1 ? 1 : most;
    most = most < steps ? most : steps;
    ptrdiff_t rows = A_BYTES / (most * u->row_bytes);
    rows = rows < 1 ? 1 : rows > g->m ? g->m : rows;
    char *memory = malloc((size_t)(most * (rows * u->row_bytes + u->panel_bytes) + rows + 128));
    if (!memory)
        return -1;
    char *a = hw_align(memory), *b = a + rows * most * u->row_bytes, *wide = b + most * u->panel_bytes;
    int status = 0;
    for (ptrdiff_t i0 = 0; i0 < g->m && !status; i0 += rows) {
        ptrdiff_t m = g->m - i0 < rows ? g->m - i0 : rows;
        for (ptrdiff_t k = 0; k < g->k && !status; k += most * terms) {
            ptrdiff_t depth = g->k - k < most * terms ? g->k - k : most * terms, here = (depth + terms - 1) / terms;
            for (ptrdiff_t i = 0; i < m; i++) {
                hw_block part = part_of(g, i0 + i, 0, k);
                part.m = 1;
                part.k = depth;
                wide[i] = (char)u->pack_row(u->unit, a + i * most * u->row_bytes, &part);
            }
            for (ptrdiff_t j = 0; j < g->n && !status; j += u->columns) {
                hw_block part = part_of(g, i0, j, k);
                part.n = g->n - j < u->columns ? g->n - j : u->columns;
                part.k = depth;
                int all_wide = u->pack_panel(u->unit, b, &part);
                for (ptrdiff_t i = 0; i < m && !status; i++) {
                    hw_block line = part_of(&part, i, 0, 0);
                    line.m = 1;
                    status = run_row(u, &line, here, all_wide || wide[i], a + i * most * u->row_bytes, b);
                }
            }
        }
    }
    free(memory);
    return status;
}
