/* The L2 shared by all cores: which parts of the global arrays are resident, least recently used out first.
 *
 * Arrays are cut into sectors of 16 rows x 32 bytes and blocks of 8 x 8 sectors. A sector is resident or not,
 * whole; a block is the unit of replacement. So differently shaped tiles that overlap share what they overlap,
 * each sector is fetched once while it stays, and tiles on multiples of 16 rows and 32 bytes count exactly.
 * A write makes its sectors resident and dirty without fetching them; they are written back when their block
 * is evicted. A sector is resident from the start of the transfer that fetches it (requests of others merge).
 *
 * Every block of an array has its place in a table (memory never touched costs nothing); those with resident
 * sectors stand in a list by age.
 */
#include <stdlib.h>

#include "hw_engine.h"

enum { SECTOR_ROWS = 16, SECTOR_BYTES = 32, SIDE = 8 };
enum { BLOCK_ROWS = SECTOR_ROWS * SIDE, BLOCK_BYTES = SECTOR_BYTES * SIDE };
#define ROWS UINT64_C(0x0101010101010101) /* the first sector of each row of a block */

typedef struct block block;
struct block {
    uint64_t valid, dirty;  /* sectors */
    block *newer, *older;
    int32_t bytes, array;   /* resident; where the block belongs */
};
typedef struct { block *blocks; int64_t columns; } table; /* blocks NULL: never touched */

struct hw_l2 {
    int64_t capacity, used;
    const hw_array *arrays;
    table *tables;
    int64_t count;
    block ends;             /* of the list: ends.older is the newest block, ends.newer the oldest */
};

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

hw_l2 *hw_l2_new(int64_t capacity_bytes, const hw_array *arrays, int64_t count)
{
    hw_l2 *l2 = calloc(1, sizeof *l2);
    if (!l2) return NULL;
    l2->capacity = capacity_bytes, l2->arrays = arrays, l2->count = count;
    l2->ends.newer = l2->ends.older = &l2->ends;
    l2->tables = calloc((size_t)(count ? count : 1), sizeof *l2->tables);
    if (l2->tables) return l2;
    free(l2);
    return NULL;
}

void hw_l2_free(hw_l2 *l2)
{
    if (!l2) return;
    for (int64_t i = 0; l2->tables && i < l2->count; i++) free(l2->tables[i].blocks);
    free(l2->tables);
    free(l2);
}

static int64_t row_bytes(const hw_array *a) { return (a->cols * a->bits + 7) / 8; }

/* The table of an array, made at its first touch; NULL: no memory. */
static const table *table_of(hw_l2 *l2, int64_t array)
{
    table *t = &l2->tables[array];
    if (!t->blocks) {
        const hw_array *a = &l2->arrays[array];
        int64_t rows = (a->rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
        t->columns = (row_bytes(a) + BLOCK_BYTES - 1) / BLOCK_BYTES;
        if (rows > INT64_MAX / (int64_t)sizeof(block) / t->columns) return NULL;
        t->blocks = calloc((size_t)(rows * t->columns), sizeof *t->blocks);
        if (!t->blocks) return NULL;
    }
    return t;
}

static void take_out(block *b) { b->newer->older = b->older, b->older->newer = b->newer; }

static void make_newest(hw_l2 *l2, block *b)
{
    b->newer = &l2->ends, b->older = l2->ends.older;
    b->older->newer = b, l2->ends.older = b;
}

static int64_t ones(uint64_t mask)
{
    mask -= mask >> 1 & UINT64_C(0x5555555555555555);
    mask = (mask & UINT64_C(0x3333333333333333)) + (mask >> 2 & UINT64_C(0x3333333333333333));
    return (int64_t)(((mask + (mask >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f)) * ROWS >> 56);
}

/* Bytes of the sectors in `mask` of a block, cut at the edges of the array. */
static int64_t mask_bytes(const hw_array *a, uint64_t block_row, uint64_t block_col, uint64_t mask)
{
    int64_t rows = a->rows - (int64_t)block_row * BLOCK_ROWS, bytes = row_bytes(a) - (int64_t)block_col * BLOCK_BYTES;
    if (rows >= BLOCK_ROWS && bytes >= BLOCK_BYTES)
        return ones(mask) * SECTOR_ROWS * SECTOR_BYTES;
    int64_t sum = 0;
    for (; mask; mask &= mask - 1) {
        int bit = __builtin_ctzll(mask);
        int64_t high = min64(SECTOR_ROWS, rows - (bit / SIDE) * SECTOR_ROWS);
        int64_t wide = min64(SECTOR_BYTES, bytes - (bit % SIDE) * SECTOR_BYTES);
        sum += max64(high, 0) * max64(wide, 0);
    }
    return sum;
}

static int64_t dirty_bytes(const hw_l2 *l2, const block *b)
{
    if (!b->dirty) return 0;
    const table *t = &l2->tables[b->array];
    uint64_t index = (uint64_t)(b - t->blocks), columns = (uint64_t)t->columns;
    return mask_bytes(&l2->arrays[b->array], index / columns, index % columns, b->dirty);
}

static int64_t evict(hw_l2 *l2)
{
    int64_t written = 0;
    for (block *b; l2->used > l2->capacity && (b = l2->ends.newer) != &l2->ends;) {
        written += dirty_bytes(l2, b);
        l2->used -= b->bytes;
        take_out(b);
        b->valid = b->dirty = 0, b->bytes = 0;
    }
    return written;
}

int64_t hw_l2_flush(hw_l2 *l2)
{
    int64_t written = 0;
    for (block *b = l2->ends.newer; b != &l2->ends; b = b->newer) written += dirty_bytes(l2, b), b->dirty = 0;
    return written;
}

int hw_l2_access(hw_l2 *l2, int64_t array, int64_t row, int64_t col, int64_t rows, int64_t cols, int write,
                 int64_t fetch_bytes, int64_t *fetched, int64_t *written_back)
{
    const hw_array *a = &l2->arrays[array];
    int64_t row0 = max64(row, 0), row1 = min64(row + rows, a->rows);
    int64_t byte0 = max64(col, 0) * a->bits / 8, byte1 = (min64(col + cols, a->cols) * a->bits + 7) / 8;
    if (row0 >= row1 || byte0 >= byte1) return 0;
    if (fetch_bytes > SECTOR_BYTES) {
        byte0 -= byte0 % fetch_bytes;
        byte1 = min64((byte1 + fetch_bytes - 1) / fetch_bytes * fetch_bytes, row_bytes(a));
    }
    const table *t = table_of(l2, array);
    if (!t) return -1;
    uint64_t s0 = (uint64_t)row0 / SECTOR_ROWS, s1 = (uint64_t)(row1 - 1) / SECTOR_ROWS;
    uint64_t c0 = (uint64_t)byte0 / SECTOR_BYTES, c1 = (uint64_t)(byte1 - 1) / SECTOR_BYTES;
    uint64_t b0 = c0 / SIDE, b1 = c1 / SIDE; /* of blocks */
    for (uint64_t br = s0 / SIDE; br <= s1 / SIDE; br++) {
        uint64_t high = ROWS;
        if (br == s0 / SIDE) high &= ROWS << SIDE * (s0 % SIDE);
        if (br == s1 / SIDE) high &= ROWS >> SIDE * (SIDE - 1 - s1 % SIDE);
        block *b = &t->blocks[br * (uint64_t)t->columns + b0];
        for (uint64_t bc = b0; bc <= b1; bc++, b++) {
            uint64_t wide = 0xff;
            if (bc == b0) wide &= 0xffu << c0 % SIDE;
            if (bc == b1) wide &= 0xffu >> (SIDE - 1 - c1 % SIDE);
            uint64_t need = high * wide;
            uint64_t missing = need & ~b->valid;
            if (b->valid && b != l2->ends.older) take_out(b);
            if (b != l2->ends.older) make_newest(l2, b);
            if (write) b->dirty |= need;
            if (!missing) continue;
            int64_t bytes = mask_bytes(a, br, bc, missing);
            b->valid |= need, b->bytes += (int32_t)bytes, b->array = (int32_t)array, l2->used += bytes;
            if (!write) *fetched += bytes;
            if (l2->used > l2->capacity) *written_back += evict(l2);
        }
    }
    return 0;
}
