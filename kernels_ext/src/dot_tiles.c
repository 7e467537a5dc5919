/* The blocking of register tiles: which part of A and B is packed when, and where a tile's results go. */
#include <stdlib.h>
#include "hw_dot_tiles.h"

enum { A_BYTES = 256 << 10, B_BYTES = 24 << 10 };      /* packed rows in the second cache, a panel in the first */

int hw_tiles_run(const hw_block *g, const hw_tiles *t)
{
    ptrdiff_t steps = (g->k + t->terms - 1) / t->terms, most = B_BYTES / ((ptrdiff_t)t->columns * t->step_bytes);
    most = most < 1 ? 1 : most;
    most = most < steps ? most : steps;
    ptrdiff_t line_bytes = most * t->step_bytes, rows = A_BYTES / line_bytes / t->rows * t->rows;
    ptrdiff_t needed = (g->m + t->rows - 1) / t->rows * t->rows;
    rows = rows < t->rows ? t->rows : rows;
    rows = rows > needed ? needed : rows;
    char *memory = malloc((size_t)((rows + t->columns) * line_bytes) + 128);
    if (!memory)
        return -1;
    char *a = hw_align(memory), *b = hw_align(a + rows * line_bytes);
    ptrdiff_t natural = most * t->terms;
    for (ptrdiff_t i0 = 0; i0 < g->m; i0 += rows) {
        ptrdiff_t m = g->m - i0 < rows ? g->m - i0 : rows;
        for (ptrdiff_t k = 0; k < g->k; k += natural) {
            ptrdiff_t depth = g->k - k < natural ? g->k - k : natural, here = (depth + t->terms - 1) / t->terms;
            for (ptrdiff_t i = 0; i < m; i += t->rows)
                t->pack(t->unit, 0, a + i * line_bytes, t->rows, g->a + (i0 + i) * g->a_row + k * g->a_column,
                        g->a_row, g->a_column, (int)(m - i < t->rows ? m - i : t->rows), depth, here);
            for (ptrdiff_t j = 0; j < g->n; j += t->columns) {
                int columns = (int)(g->n - j < t->columns ? g->n - j : t->columns);
                t->pack(t->unit, 1, b, t->columns, g->b + k * g->b_row + j * g->b_column, g->b_column, g->b_row,
                        columns, depth, here);
                for (ptrdiff_t i = 0; i < m; i += t->rows) {
                    int own = (int)(m - i < t->rows ? m - i : t->rows);
                    _Alignas(64) uint32_t c[HW_TILE_WORDS];
                    char *out = g->out + (i0 + i) * g->out_row + 4 * j;
                    if (own < t->rows || columns < t->columns)
                        memset(c, 0, sizeof(uint32_t) * (size_t)(t->rows * t->columns));
                    for (int r = 0; r < own; r++)
                        memcpy(c + r * t->columns, out + r * g->out_row, 4 * (size_t)columns);
                    t->tile(t->unit, here, a + i * line_bytes, b, c);
                    for (int r = 0; r < own; r++)
                        memcpy(out + r * g->out_row, c + r * t->columns, 4 * (size_t)columns);
                }
            }
        }
    }
    free(memory);
    return 0;
}
