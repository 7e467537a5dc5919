/* Register tiles: what a unit brings (packing, one tile), and the blocking around it (kernels_ext/src/dot_tiles.c).
 *
 * Accumulators are 4-byte words. A is packed as panels of `rows` rows, B as panels of `columns` columns, each whole
 * steps long; a tile is computed on a copy of its accumulators.
 */
#ifndef HW_DOT_TILES_H
#define HW_DOT_TILES_H

#include "hw_dot.h"

enum { HW_TILE_WORDS = 16 * 64 };       /* most accumulators of a tile */

typedef struct hw_tiles {
    int rows, columns;          /* of a tile */
    int terms;                  /* products of a step */
    int step_bytes;             /* of one row or column over a step, packed */
    const void *unit;           /* handed to the functions */
    /* `lines` rows of A (or columns of B) of `width` over k 0 .. depth, padded with zeros to `steps` steps. */
    void (*pack)(const void *unit, int is_b, void *to, int width, const char *from, ptrdiff_t line, ptrdiff_t along,
                 int lines, ptrdiff_t depth, ptrdiff_t steps);
    /* `steps` steps of a whole tile; c: rows x columns words, one row after the other. */
    void (*tile)(const void *unit, ptrdiff_t steps, const void *a, const void *b, void *c);
} hw_tiles;

/* 0, or -1 without memory. */
int hw_tiles_run(const hw_block *block, const hw_tiles *tiles);

#endif
