/* The L2 shared by all cores: which parts of the global arrays are resident; the least recently used is out first, or any.
 *
 * Arrays are cut into sectors of 16 rows x 32 bytes and blocks of 8 x 8 sectors. A sector is resident or not,
 * whole; a block is the unit of replacement. So differently shaped tiles that overlap share what they overlap,
 * each sector is fetched once while it stays, and tiles on multiples of 16 rows and 32 bytes count exactly.
 * A write makes its sectors resident and dirty without fetching them; they are written back when their block
 * is evicted. A sector is resident from the start of the transfer that fetches it (requests of others merge).
 *
 * What is known is kept for extents: lines of blocks that were touched last by one access and of which the same sectors
 * are resident and dirty. A table has the extent of every block of every array, 0 for none (memory never touched costs
 * nothing). An access goes through the extents it meets: one that it touches as a whole is touched again in one step,
 * however many blocks it has; one that it touches in part loses these blocks to a new extent, and is gone with the last
 * of them. A list has the extents by age, and within one the blocks are as old as their order.
 *
 * Blocks go one by one, as those that are touched ask for room. Room for what is touched of an extent is made at once where
 * the extent itself is not among those that go: what remains is the same.
 *
 * A view has no blocks: what is touched of it are the sectors of the array that it shows.
 *
 * Where any may go (`random`) every block has its own extent, and of all resident one is drawn, from the same numbers in
 * every run.
 */
#include <stdlib.h>

#include "hw_engine.h"

enum { SECTOR_ROWS = 16, SECTOR_BYTES = 32, SIDE = 8 };
enum { BLOCK_ROWS = SECTOR_ROWS * SIDE, BLOCK_BYTES = SECTOR_BYTES * SIDE };
enum { NO_EXTENT = 0, CUT = -1 };
#define ROWS UINT64_C(0x0101010101010101) /* the first sector of each row of a block */
#define ALL (~UINT64_C(0))

typedef struct {
    uint64_t valid, dirty;          /* sectors of each of its blocks */
    int32_t bytes;                  /* resident of each block; CUT: the array's edge may cut some */
    uint32_t array, first, step, count, left; /* lies in `count` blocks of the table, `step` apart, and has `left` of them */
    uint32_t older, newer;          /* extents */
} extent;

/* An array's blocks in the table: `columns` to a row, from `first` on; rows and columns that lie in it whole. */
typedef struct { int64_t first, columns, whole_rows, whole_columns; } layout;

struct hw_l2 {
    int64_t free;                   /* bytes */
    const hw_array *arrays;
    layout *layouts;
    int64_t count;
    uint32_t *table;                /* the extent of each block */
    extent *extents;                 /* the first is NO_EXTENT, which has nothing; the oldest is newer than it */
    uint32_t room, used, alive, spare; /* extents: room for so many, used so far, with blocks; a chain of the others */
    uint32_t *resident;             /* random: blocks, each `left` from the first; else NULL */
    uint32_t residents;
    uint64_t drawn;
};

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t row_bytes(const hw_array *a) { return (a->cols * a->bits + 7) / 8; }

/* Lay out the arrays; returns the number of all blocks, or -1 if they are too many. */
static int64_t lay_out(hw_l2 *l2)
{
    int64_t blocks = 0;
    for (int64_t i = 0; i < l2->count; i++) {
        const hw_array *a = &l2->arrays[i];
        if (a->of >= 0) continue;
        int64_t rows = (a->rows + BLOCK_ROWS - 1) / BLOCK_ROWS, bytes = row_bytes(a);
        int64_t columns = (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
        l2->layouts[i] = (layout){blocks, columns, a->rows / BLOCK_ROWS, bytes / BLOCK_BYTES};
        if (columns && rows > (INT32_MAX - blocks) / columns) return -1;
        blocks += rows * columns;
    }
    return blocks;
}

hw_l2 *hw_l2_new(int64_t capacity_bytes, int random, const hw_array *arrays, int64_t count)
{
    enum { ROOM = 256 };
    hw_l2 *l2 = calloc(1, sizeof *l2);
    if (!l2) return NULL;
    l2->free = capacity_bytes, l2->arrays = arrays, l2->count = count, l2->used = l2->alive = 1;
    l2->layouts = calloc((size_t)(count ? count : 1), sizeof *l2->layouts);
    int64_t blocks = l2->layouts ? lay_out(l2) : -1;
    l2->room = random && blocks >= 0 ? (uint32_t)blocks + 1 : ROOM;
    l2->extents = calloc(l2->room, sizeof *l2->extents);
    if (blocks >= 0) l2->table = calloc((size_t)blocks + 1, sizeof *l2->table);
    if (blocks >= 0 && random) l2->resident = malloc(((size_t)blocks + 1) * sizeof *l2->resident);
    if (l2->table && l2->extents && (l2->resident || !random)) return l2;
    hw_l2_free(l2);
    return NULL;
}

void hw_l2_free(hw_l2 *l2)
{
    if (!l2) return;
    free(l2->layouts), free(l2->extents), free(l2->table), free(l2->resident);
    free(l2);
}

static int64_t ones(uint64_t mask)
{
    mask -= mask >> 1 & UINT64_C(0x5555555555555555);
    mask = (mask & UINT64_C(0x3333333333333333)) + (mask >> 2 & UINT64_C(0x3333333333333333));
    return (int64_t)(((mask + (mask >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f)) * ROWS >> 56);
}

static int64_t whole_bytes(uint64_t mask) { return ones(mask) * SECTOR_ROWS * SECTOR_BYTES; }

/* Bytes of the sectors in `mask` of a block, cut at the edges of its array. */
static int64_t bytes_of(const hw_l2 *l2, int64_t array, const uint32_t *b, uint64_t mask)
{
    const layout *in = &l2->layouts[array];
    const hw_array *a = &l2->arrays[array];
    uint32_t place = (uint32_t)(b - l2->table - in->first), columns = (uint32_t)in->columns;
    int64_t row = place / columns, column = place % columns;
    if (row < in->whole_rows && column < in->whole_columns) return whole_bytes(mask);
    int64_t rows = a->rows - row * BLOCK_ROWS, bytes = row_bytes(a) - column * BLOCK_BYTES, sum = 0;
    for (; mask; mask &= mask - 1) {
        int bit = __builtin_ctzll(mask);
        int64_t high = min64(SECTOR_ROWS, rows - (bit / SIDE) * SECTOR_ROWS);
        int64_t wide = min64(SECTOR_BYTES, bytes - (bit % SIDE) * SECTOR_BYTES);
        sum += max64(high, 0) * max64(wide, 0);
    }
    return sum;
}

/* Of one block of an extent. */
static int64_t dirty_bytes(const hw_l2 *l2, const extent *p, const uint32_t *b)
{
    if (p->dirty == p->valid && p->bytes != CUT) return p->bytes;
    return p->dirty ? bytes_of(l2, p->array, b, p->dirty) : 0;
}

/* --- extents ---------------------------------------------------------------------------------------------- */

/* Room for so many more extents; returns 0, or -1 without memory. Moves them. */
static int make_room(hw_l2 *l2, uint64_t more)
{
    uint64_t room = 2 * (uint64_t)l2->room + more;
    extent *extents = room <= UINT32_MAX ? realloc(l2->extents, room * sizeof *extents) : NULL;
    if (!extents) return -1;
    l2->extents = extents, l2->room = (uint32_t)room;
    return 0;
}

static void unlink_extent(hw_l2 *l2, const extent *p)
{
    l2->extents[p->older].newer = p->newer, l2->extents[p->newer].older = p->older;
}

static void link_newest(hw_l2 *l2, uint32_t id)
{
    extent *all = l2->extents;
    all[id].older = all[NO_EXTENT].older, all[id].newer = NO_EXTENT;
    all[all[id].older].newer = all[NO_EXTENT].older = id;
}

/* A new extent, the newest, of a line of blocks; there is room for it. The caller says what they hold. */
static inline extent *begin(hw_l2 *l2, uint32_t array, uint32_t first, uint32_t count, uint32_t step)
{
    uint32_t id = l2->spare;
    if (id) l2->spare = l2->extents[id].newer;
    else id = l2->used++;
    extent *p = &l2->extents[id];
    p->array = array, p->first = first, p->count = p->left = count, p->step = step;
    l2->alive++;
    link_newest(l2, id);
    return p;
}

static void end(hw_l2 *l2, uint32_t id)
{
    unlink_extent(l2, &l2->extents[id]);
    l2->extents[id].newer = l2->spare, l2->spare = id, l2->alive--;
}

/* What a line of the table has from now on. */
static inline void set(uint32_t *b, uint32_t count, uint32_t step, uint32_t id)
{
    if (step == 1)
        for (uint32_t i = 0; i < count; i++) b[i] = id;
    else
        for (; count; count--, b += step) *b = id;
}

/* An extent loses blocks; at its ends it gets shorter. (Of a line across its own they can only be one.) */
static void lose(hw_l2 *l2, uint32_t id, uint32_t first, uint32_t count)
{
    extent *p = &l2->extents[id];
    if (id == NO_EXTENT) return;
    p->left -= count;
    if (!p->left) end(l2, id);
    else if (first == p->first) p->first += count * p->step, p->count -= count;
    else if (first == p->first + (p->count - count) * p->step) p->count -= count;
}

/* --- what goes -------------------------------------------------------------------------------------------- */

/* Make room where less than none is free: the oldest go, but not the extent `limit` or newer ones. */
static void evict(hw_l2 *l2, uint32_t limit, int64_t *written_back)
{
    while (l2->free < 0) {
        const uint32_t id = l2->extents[NO_EXTENT].newer;
        extent *p = &l2->extents[id];
        if (id == limit || id == NO_EXTENT) return;
        uint32_t *b = &l2->table[p->first], going = 1;
        const uint32_t step = p->step;
        if (p->bytes != CUT) {
            going = p->left;
            if (going * (int64_t)p->bytes + l2->free > 0) going = (uint32_t)((p->bytes - 1 - l2->free) / p->bytes);
            l2->free += going * (int64_t)p->bytes;
            if (p->dirty) *written_back += going * whole_bytes(p->dirty);
        } else {
            for (; *b != id; b += step) p->count--, p->first += step;
            l2->free += bytes_of(l2, p->array, b, p->valid);
            *written_back += dirty_bytes(l2, p, b);
        }
        uint32_t passed = going;
        if (p->left == p->count) {
            set(b, going, step, NO_EXTENT);
        } else {
            passed = 0;
            for (uint32_t left = going; left; b += step, passed++)
                if (*b == id) *b = NO_EXTENT, left--;
        }
        p->left -= going, p->count -= passed, p->first += passed * step;
        if (!p->left) end(l2, id);
    }
}

/* Make room where less than none is free: any but `newest`, or that too when it is alone. */
static void evict_any(hw_l2 *l2, uint32_t newest, int64_t *written_back)
{
    while (l2->free < 0) {
        l2->drawn = l2->drawn * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const uint32_t gone = l2->resident[(l2->drawn >> 33) % l2->residents];
        if (gone == newest && l2->residents > 1) continue;
        extent *p = &l2->extents[gone];
        const uint32_t last = l2->resident[--l2->residents];
        l2->resident[p->left] = last, l2->extents[last].left = p->left;
        *written_back += dirty_bytes(l2, p, &l2->table[gone]);
        l2->free += p->bytes;
        p->valid = p->dirty = 0, p->bytes = 0;
    }
}

int64_t hw_l2_flush(hw_l2 *l2)
{
    int64_t written = 0;
    for (uint32_t i = 0; i < l2->residents; i++) {
        extent *p = &l2->extents[l2->resident[i]];
        written += dirty_bytes(l2, p, &l2->table[l2->resident[i]]), p->dirty = 0;
    }
    for (uint32_t id = l2->extents[NO_EXTENT].newer; id != NO_EXTENT; id = l2->extents[id].newer) {
        extent *p = &l2->extents[id];
        const uint32_t *b = &l2->table[p->first];
        for (uint32_t left = p->dirty ? p->left : 0; left; b += p->step)
            if (*b == id) written += dirty_bytes(l2, p, b), left--;
        p->dirty = 0;
    }
    return written;
}

/* --- accesses --------------------------------------------------------------------------------------------- */

/* An access on its way. */
typedef struct {
    hw_l2 *l2;
    int64_t made, written_back;     /* bytes */
    uint64_t writes;                /* all bits or none */
    uint32_t array;
    int whole;                      /* the edge of the array cuts none of its blocks */
} access;

/* Bytes of the sectors `missing` of blocks. */
static int64_t sum_of(const access *x, const uint32_t *b, uint32_t count, uint32_t step, uint64_t missing, int cut)
{
    int64_t sum = 0;
    if (!missing) return 0;
    if (!cut) return count * whole_bytes(missing);
    for (; count--; b += step) sum += bytes_of(x->l2, x->array, b, missing);
    return sum;
}

/* Touch the sectors `need` of blocks of one extent, or of none, that lie beside each other: all it has if `whole`.
 * Returns 0 if there is no room for all at once. */
static inline int touch_part(access *x, uint32_t id, uint32_t *b, uint32_t count, uint32_t step, uint64_t need, int whole)
{
    hw_l2 *l2 = x->l2;
    extent *p = &l2->extents[id];
    const int cut = id == NO_EXTENT ? !x->whole : p->bytes == CUT;
    const uint64_t missing = need & ~p->valid, valid = p->valid | need, dirty = p->dirty | (need & x->writes);
    if (missing) {
        const int64_t more = sum_of(x, b, count, step, missing, cut);
        l2->free -= more;
        if (l2->free < 0) evict(l2, id, &x->written_back);
        if (l2->free < 0) {
            l2->free += more;
            return 0;
        }
        x->made += more;
    }
    const int32_t bytes = cut ? CUT : missing ? (int32_t)whole_bytes(valid) : p->bytes;
    const uint32_t first = (uint32_t)(b - l2->table);
    if (whole) {
        p->valid = valid, p->dirty = dirty, p->bytes = bytes, p->first = first, p->step = step, p->count = count;
        unlink_extent(l2, p);
        link_newest(l2, id);
        return 1;
    }
    lose(l2, id, first, count);
    p = begin(l2, x->array, first, count, step);
    p->valid = valid, p->dirty = dirty, p->bytes = bytes;
    const uint32_t made = (uint32_t)(p - l2->extents);
    set(b, count, step, made);
    return 1;
}

/* Touch blocks one by one, each of which may push out those behind it. */
static __attribute__((noinline)) void touch_in_turn(access *x, uint32_t *b, uint32_t count, uint32_t step, uint64_t need)
{
    hw_l2 *l2 = x->l2;
    for (; count; count--, b += step) {
        const uint32_t id = *b, first = (uint32_t)(b - l2->table);
        const extent was = l2->extents[id];
        const int cut = id == NO_EXTENT ? !x->whole : was.bytes == CUT;
        const int64_t more = sum_of(x, b, 1, 1, need & ~was.valid, cut);
        lose(l2, id, first, 1);
        extent *p = begin(l2, x->array, first, 1, step);
        p->valid = was.valid | need, p->dirty = was.dirty | (need & x->writes);
        p->bytes = cut ? CUT : (int32_t)whole_bytes(p->valid);
        *b = (uint32_t)(p - l2->extents);
        x->made += more, l2->free -= more;
        evict(l2, NO_EXTENT, &x->written_back);
    }
}

/* Touch the sectors `need` of blocks `step` apart. */
static void touch(access *x, uint32_t *b, uint32_t count, uint32_t step, uint64_t need)
{
    hw_l2 *l2 = x->l2;
    while (count) {
        const uint32_t id = *b;
        const extent *p = &l2->extents[id];
        const int along = p->left == p->count && p->first == b - l2->table && (p->step == step || p->count == 1);
        uint32_t part = 1;
        if (id != NO_EXTENT && along) part = p->count < count ? p->count : count;
        else while (part < count && b[part * step] == id) part++;
        if (!touch_part(x, id, b, part, step, need, id != NO_EXTENT && part == p->left))
            touch_in_turn(x, b, part, step, need);
        b += part * step, count -= part;
    }
}

/* Make sectors resident of a block that lacks them, where any may go. */
static __attribute__((noinline)) void fill(access *x, const uint32_t *b, uint64_t missing)
{
    hw_l2 *l2 = x->l2;
    const uint32_t place = (uint32_t)(b - l2->table);
    extent *p = &l2->extents[place];
    const int64_t more = sum_of(x, b, 1, 1, missing, !x->whole);
    if (!p->valid) p->array = x->array, p->left = l2->residents, l2->resident[l2->residents++] = place;
    p->valid |= missing, p->bytes += (int32_t)more;
    x->made += more, l2->free -= more;
    evict_any(l2, place, &x->written_back);
}

static void touch_any(access *x, uint32_t *b, uint32_t count, uint32_t step, uint64_t need)
{
    extent *p = &x->l2->extents[b - x->l2->table];
    for (; count; count--, b += step, p += step) {
        const uint64_t missing = need & ~p->valid;
        p->dirty |= need & x->writes;
        if (missing) fill(x, b, missing);
    }
}

/* What an access touches: rows and bytes of them. */
typedef struct { uint64_t row0, row1, byte0, byte1; } area;

/* Rows and bytes of the array that a view shows, for those of the view. */
static area shown(const hw_array *view, const hw_array *a, uint64_t row0, uint64_t row1, uint64_t col0, uint64_t col1)
{
    const uint64_t rows = (uint64_t)view->rows, cols = (uint64_t)view->cols, line = (uint64_t)view->line;
    const uint64_t all = (uint64_t)a->rows;
    return (area){
        row0 * all / rows, (row1 * all + rows - 1) / rows, col0 * line / cols, (col1 * line + cols - 1) / cols,
    };
}

/* Touch the sectors `need` of a line of blocks, of the first and the last of them those in `head` and `tail`. */
static void touch_line(access *x, uint32_t *b, uint32_t count, uint32_t step, uint64_t need, uint64_t head, uint64_t tail)
{
    void (*part)(access *, uint32_t *, uint32_t, uint32_t, uint64_t) = x->l2->resident ? touch_any : touch;
    if ((head & tail) == ALL || count == 1) {
        part(x, b, count, step, need & head & tail);
        return;
    }
    part(x, b, 1, step, need & head);
    part(x, b + step, count - 2, step, need);
    part(x, b + (count - 1) * step, 1, step, need & tail);
}

int hw_l2_access(hw_l2 *l2, int64_t array, int64_t row, int64_t col, int64_t rows, int64_t cols, int write,
                 int64_t fetch_bytes, int64_t *touched, int64_t *fetched, int64_t *written_back)
{
    int64_t unused = 0;
    const hw_array *a = &l2->arrays[array];
    if (row + rows <= 0 || col + cols <= 0) return 0;
    uint64_t row0 = (uint64_t)max64(row, 0), row1 = (uint64_t)min64(row + rows, a->rows);
    const uint64_t bits = (uint64_t)a->bits, col0 = (uint64_t)max64(col, 0), col1 = (uint64_t)min64(col + cols, a->cols);
    uint64_t byte0 = col0 * bits / 8, byte1 = (col1 * bits + 7) / 8;
    if (row0 >= row1 || byte0 >= byte1) return 0;
    if (a->of >= 0) {
        const hw_array *source = &l2->arrays[a->of];
        *touched += (int64_t)((row1 - row0) * (byte1 - byte0));
        const area now = shown(a, source, row0, row1, col0, col1);
        row0 = now.row0, row1 = now.row1, byte0 = now.byte0, byte1 = now.byte1;
        array = a->of, a = source, touched = &unused;
    }
    const layout *in = &l2->layouts[array];
    if (fetch_bytes > SECTOR_BYTES) {
        const uint64_t piece = (uint64_t)fetch_bytes;
        byte0 -= byte0 % piece;
        byte1 = (uint64_t)min64((int64_t)((byte1 + piece - 1) / piece * piece), row_bytes(a));
    }
    *touched += (int64_t)((row1 - row0) * (byte1 - byte0));
    const uint32_t top = (uint32_t)(row0 / SECTOR_ROWS), bottom = (uint32_t)((row1 - 1) / SECTOR_ROWS); /* sectors */
    const uint32_t left = (uint32_t)(byte0 / SECTOR_BYTES), right = (uint32_t)((byte1 - 1) / SECTOR_BYTES);
    const uint32_t from = top / SIDE, first = left / SIDE; /* blocks */
    const uint32_t height = bottom / SIDE - from + 1, width = right / SIDE - first + 1;
    const uint64_t most = (uint64_t)height * width; /* new extents */
    if (most > l2->room - l2->alive && make_room(l2, most)) return -1;
    /* sectors of the blocks at the four sides */
    const uint64_t below = ALL << SIDE * (top % SIDE), above = ALL >> SIDE * (SIDE - 1 - bottom % SIDE);
    const uint64_t behind = ROWS * (0xffu << left % SIDE & 0xffu), before = ROWS * (0xffu >> (SIDE - 1 - right % SIDE));
    const uint32_t columns = (uint32_t)in->columns;
    uint32_t *b = &l2->table[in->first + from * columns + first];
    access x = {
        .l2 = l2, .array = (uint32_t)array, .writes = write ? ALL : 0,
        .whole = from + height <= in->whole_rows && first + width <= in->whole_columns,
    };
    if (width == 1) {
        touch_line(&x, b, height, columns, behind & before, below, above);
    } else {
        for (uint32_t i = 0; i < height; i++, b += columns)
            touch_line(&x, b, width, 1, (i ? ALL : below) & (i < height - 1 ? ALL : above), behind, before);
    }
    *fetched += write ? 0 : x.made, *written_back += x.written_back;
    return 0;
}
