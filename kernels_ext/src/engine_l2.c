/* The L2 shared by all cores: which parts of the global arrays are resident, least recently used out first.
 *
 * Arrays are cut into sectors of 16 rows x 32 bytes and blocks of 8 x 8 sectors. A sector is resident or not,
 * whole; a block is the unit of replacement. So differently shaped tiles that overlap share what they overlap,
 * each sector is fetched once while it stays, and tiles on multiples of 16 rows and 32 bytes count exactly.
 * A write makes its sectors resident and dirty without fetching them; they are written back when their block
 * is evicted. A sector is resident from the start of the transfer that fetches it (requests of others merge).
 */
#include <stdlib.h>
#include <string.h>

#include "hw_engine.h"

enum { SECTOR_ROWS = 16, SECTOR_BYTES = 32, SIDE = 8 };
enum { BLOCK_ROWS = SECTOR_ROWS * SIDE, BLOCK_BYTES = SECTOR_BYTES * SIDE };
enum { FIRST_BLOCKS = 1024, FIRST_SHIFT = 54 };

typedef struct {
    uint64_t key, valid, dirty; /* key: array 12 bits, block row 26, block column 26 */
    int64_t bytes;
    int32_t newer, older, chain;
} block;

struct hw_l2 {
    int64_t capacity, used;
    const hw_array *arrays;
    block *pool;
    int32_t *bucket;
    int32_t blocks, unused, newest, oldest; /* blocks: size of pool and of bucket, 2^(64 - shift); -1: none */
    int shift;
};

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* The highest bits of the product depend on all fields of the key. */
static int32_t *bucket_of(const hw_l2 *l2, uint64_t key)
{
    return &l2->bucket[(key * UINT64_C(0x9e3779b97f4a7c15)) >> l2->shift];
}

static void add_unused(hw_l2 *l2, int32_t from)
{
    for (int32_t i = l2->blocks - 1; i >= from; i--) l2->pool[i].chain = l2->unused, l2->unused = i;
}

hw_l2 *hw_l2_new(int64_t capacity_bytes, const hw_array *arrays)
{
    hw_l2 *l2 = calloc(1, sizeof *l2);
    if (!l2) return NULL;
    l2->capacity = capacity_bytes, l2->arrays = arrays, l2->blocks = FIRST_BLOCKS, l2->shift = FIRST_SHIFT;
    l2->unused = l2->newest = l2->oldest = -1;
    l2->pool = malloc(sizeof *l2->pool * FIRST_BLOCKS);
    l2->bucket = malloc(sizeof *l2->bucket * FIRST_BLOCKS);
    if (!l2->pool || !l2->bucket) {
        hw_l2_free(l2);
        return NULL;
    }
    memset(l2->bucket, 0xff, sizeof *l2->bucket * FIRST_BLOCKS);
    add_unused(l2, 0);
    return l2;
}

void hw_l2_free(hw_l2 *l2)
{
    if (!l2) return;
    free(l2->pool);
    free(l2->bucket);
    free(l2);
}

static int grow(hw_l2 *l2)
{
    if (l2->blocks > INT32_MAX / 4) return -1;
    int32_t old = l2->blocks;
    block *pool = realloc(l2->pool, sizeof *pool * 2 * (size_t)old);
    if (!pool) return -1;
    l2->pool = pool;
    int32_t *bucket = realloc(l2->bucket, sizeof *bucket * 2 * (size_t)old);
    if (!bucket) return -1;
    l2->bucket = bucket, l2->blocks = 2 * old, l2->shift--;
    memset(bucket, 0xff, sizeof *bucket * (size_t)l2->blocks);
    for (int32_t i = 0; i < old; i++) {
        int32_t *head = bucket_of(l2, pool[i].key);
        pool[i].chain = *head, *head = i;
    }
    add_unused(l2, old);
    return 0;
}

static void unlink_age(hw_l2 *l2, int32_t i)
{
    block *b = &l2->pool[i];
    if (b->newer >= 0) l2->pool[b->newer].older = b->older; else l2->newest = b->older;
    if (b->older >= 0) l2->pool[b->older].newer = b->newer; else l2->oldest = b->newer;
}

static void make_newest(hw_l2 *l2, int32_t i)
{
    block *b = &l2->pool[i];
    b->newer = -1, b->older = l2->newest;
    if (l2->newest >= 0) l2->pool[l2->newest].newer = i; else l2->oldest = i;
    l2->newest = i;
}

/* The block of a key, made if absent, and the newest from now on; -1: no memory. */
static int32_t find(hw_l2 *l2, uint64_t key)
{
    int32_t *head = bucket_of(l2, key);
    for (int32_t i = *head; i >= 0; i = l2->pool[i].chain)
        if (l2->pool[i].key == key) {
            if (l2->newest != i) unlink_age(l2, i), make_newest(l2, i);
            return i;
        }
    if (l2->unused < 0) {
        if (grow(l2)) return -1;
        head = bucket_of(l2, key);
    }
    int32_t i = l2->unused;
    block *b = &l2->pool[i];
    l2->unused = b->chain;
    b->key = key, b->valid = b->dirty = 0, b->bytes = 0;
    b->chain = *head, *head = i;
    make_newest(l2, i);
    return i;
}

/* Bytes of the sectors in `mask`, cut at the edges of the array. */
static int64_t mask_bytes(const hw_l2 *l2, uint64_t key, uint64_t mask)
{
    const hw_array *array = &l2->arrays[key >> 52];
    int64_t row = (int64_t)(key >> 26 & 0x3ffffff) * BLOCK_ROWS, byte = (int64_t)(key & 0x3ffffff) * BLOCK_BYTES;
    int64_t rows = array->rows - row, bytes = (array->cols * array->bits + 7) / 8 - byte;
    if (rows >= BLOCK_ROWS && bytes >= BLOCK_BYTES)
        return (int64_t)__builtin_popcountll(mask) * SECTOR_ROWS * SECTOR_BYTES;
    int64_t sum = 0;
    for (; mask; mask &= mask - 1) {
        int bit = __builtin_ctzll(mask);
        int64_t high = min64(SECTOR_ROWS, rows - (bit / SIDE) * SECTOR_ROWS);
        int64_t wide = min64(SECTOR_BYTES, bytes - (bit % SIDE) * SECTOR_BYTES);
        sum += max64(high, 0) * max64(wide, 0);
    }
    return sum;
}

static int64_t evict(hw_l2 *l2)
{
    int64_t written = 0;
    while (l2->used > l2->capacity && l2->oldest >= 0) {
        int32_t i = l2->oldest;
        block *b = &l2->pool[i];
        if (b->dirty) written += mask_bytes(l2, b->key, b->dirty);
        l2->used -= b->bytes;
        unlink_age(l2, i);
        int32_t *link = bucket_of(l2, b->key);
        while (*link != i) link = &l2->pool[*link].chain;
        *link = b->chain;
        b->chain = l2->unused, l2->unused = i;
    }
    return written;
}

static uint64_t sectors(int64_t row0, int64_t row1, int64_t col0, int64_t col1)
{
    uint64_t columns = (UINT64_C(0xff) >> (SIDE - 1 - (col1 - col0))) << col0;
    uint64_t rows = (UINT64_C(0x0101010101010101) >> 8 * (SIDE - 1 - (row1 - row0))) << 8 * row0;
    return columns * rows;
}

int hw_l2_access(hw_l2 *l2, int64_t array, int64_t row, int64_t col, int64_t rows, int64_t cols, int write,
                 int64_t *fetched, int64_t *written_back)
{
    const hw_array *a = &l2->arrays[array];
    int64_t row0 = max64(row, 0), row1 = min64(row + rows, a->rows);
    int64_t byte0 = max64(col, 0) * a->bits / 8, byte1 = (min64(col + cols, a->cols) * a->bits + 7) / 8;
    if (row0 >= row1 || byte0 >= byte1) return 0;
    int64_t s0 = row0 / SECTOR_ROWS, s1 = (row1 - 1) / SECTOR_ROWS;
    int64_t c0 = byte0 / SECTOR_BYTES, c1 = (byte1 - 1) / SECTOR_BYTES;
    for (int64_t br = s0 / SIDE; br <= s1 / SIDE; br++)
        for (int64_t bc = c0 / SIDE; bc <= c1 / SIDE; bc++) {
            uint64_t key = (uint64_t)array << 52 | (uint64_t)br << 26 | (uint64_t)bc;
            uint64_t need = sectors(max64(s0 - br * SIDE, 0), min64(s1 - br * SIDE, SIDE - 1),
                                    max64(c0 - bc * SIDE, 0), min64(c1 - bc * SIDE, SIDE - 1));
            int32_t i = find(l2, key);
            if (i < 0) return -1;
            block *b = &l2->pool[i];
            uint64_t missing = need & ~b->valid;
            if (write) b->dirty |= need;
            if (!missing) continue;
            int64_t bytes = mask_bytes(l2, key, missing);
            b->valid |= need, b->bytes += bytes, l2->used += bytes;
            if (!write) *fetched += bytes;
            if (l2->used > l2->capacity) *written_back += evict(l2);
        }
    return 0;
}
