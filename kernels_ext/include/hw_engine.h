/* The timing engine: walks the integer tables of a kernel and gives ticks. Integers only.
 *
 * It knows queues, semaphores, rates and a shared cache; it does not know which device it times, what an
 * opcode computes, or where the costs come from.
 *
 * Units and bounds. Time: ticks, HW_TICKS per core clock cycle, a kernel below 2^62 ticks over its number of
 * actors (of every group its engines, twice, and its streams; beyond: HW_TOO_LONG). Rates: bytes per
 * tick with HW_RATE_BITS fraction bits, below 2^44. Bytes of one instruction of one core: below 2^30, so that
 * bytes << HW_RATE_BITS fits in 63 bits. Weight of a flow on HBM: 16 fraction bits; cores of a group at most
 * 2^16: weight times rate stays below capacity << 16 < 2^60. At most 64 engines and 64 streams per core.
 */
#ifndef HW_ENGINE_H
#define HW_ENGINE_H

#include <stdint.h>

#define HW_TICKS 1024
#define HW_RATE_BITS 32
#define HW_WEIGHT_BITS 16
#define HW_NEVER INT64_MAX

/* --- tables: columns as in hwsim.program.flat and hwsim.machines.cost ------------------------------------ */

enum { HW_NODE_INSTR, HW_NODE_LOOP, HW_NODE_END, HW_NODE_ADVANCE };

typedef struct { int64_t kind, index, count, jump; } hw_node;
typedef struct { int64_t kind, object, rows, cols, affine_row, affine_col, affine_slot, row, col; } hw_tile;
typedef struct { int64_t constant, first, terms; } hw_affine;
typedef struct { int64_t variable, coefficient; } hw_term;
typedef struct { int64_t variable, affine, divisor, remainder; } hw_derived;
typedef struct { int64_t semaphore, count; } hw_sync;
typedef struct {
    int64_t engine, opcode, repeat, first_tile, writes, reads, first_wait, waits, first_signal, signals, zero_at, scale_exponent;
} hw_instr;

/* Cost of an instruction, repeats included. occupancy: ticks (of a flow: before it starts to drain). tail: ticks
 * from the end of the occupancy to completion. flow_bytes: bytes that drain, 0 for none; flow_rate: the link's
 * rate where L2 holds all, miss_rate where it holds nothing. gm_tile: the tile in global memory, or -1; gm_write: it is written. bytes: payload moved.
 * window: what limits its bytes in flight, or -1; window_bytes: what it adds there. multicast: cores that take one
 * transfer from L2 together. fetch_bytes: a miss fetches whole pieces of a line of so many bytes (1: sectors). */
typedef struct {
    int64_t occupancy, tail, flow_bytes, flow_rate, miss_rate, gm_tile, gm_write, bytes, macs, window, window_bytes, multicast, fetch_bytes;
} hw_cost;

typedef struct { int64_t queue_depth, issue_ticks, flags_queued; } hw_engine_model; /* flags: waits and signals */
typedef struct { int64_t bytes; } hw_window; /* started and not completed, at most; one alone always may */
typedef struct { int64_t first, count, first_stream, streams; } hw_group;
typedef struct { int64_t first_node, nodes, variables, first_derived, derived; } hw_stream;
/* of: -1; or a view: the array that it shows. A row of the view is rows of that / rows of it, and an element of a row its
 * part of `line` bytes (the windows of a convolution are one of an image: many elements lie in the same bytes). */
typedef struct { int64_t rows, cols, bits, of, line; } hw_array;

/* One row of the trace. kernel-relative ticks; cause: semaphore, or one of HW_CAUSE_*. */
typedef struct {
    int64_t group, engine, instr, issue, start, free, end, row, col, slot, cause;
    int64_t number, signaller; /* in order of start; the one whose signal ended the wait, or -1 */
} hw_row;

enum { HW_CAUSE_NONE = -1, HW_CAUSE_EMPTY = -2, HW_CAUSE_QUEUE_FULL = -3, HW_CAUSE_IN_FLIGHT = -4 };

/* --- what the cores share -------------------------------------------------------------------------------- */

typedef struct hw_l2 hw_l2;

/* random: what leaves is drawn, not the least recently used. NULL: no memory, or more than 2^31 blocks
 * (kernels_ext/src/engine_l2.c). */
hw_l2 *hw_l2_new(int64_t capacity_bytes, int random, const hw_array *arrays, int64_t count);
void hw_l2_free(hw_l2 *l2);
/* Touch rows x cols elements of `array` from (row, col), and of each row of it the whole pieces of fetch_bytes that
 * they lie in. Adds the bytes touched, fetched and written back. Returns 0, or -1 when memory is exhausted. */
int hw_l2_access(hw_l2 *l2, int64_t array, int64_t row, int64_t col, int64_t rows, int64_t cols, int write,
                 int64_t fetch_bytes, int64_t *touched, int64_t *fetched, int64_t *written_back);
/* Bytes that are dirty; they count as clean from then on. */
int64_t hw_l2_flush(hw_l2 *l2);

enum { HW_L2, HW_HBM, HW_SHARED };

typedef struct {
    int64_t cap;                /* rate of the link */
    int64_t weight[HW_SHARED];  /* bytes taken from a shared resource per byte of one core, HW_WEIGHT_BITS */
    int64_t rate;               /* result: of each core */
    int64_t frozen;             /* scratch of hw_share_rates */
} hw_share;

/* Max-min fair rates of `flows` under the capacities (0: no limit). */
void hw_share_rates(hw_share **flows, int64_t count, const int64_t capacity[HW_SHARED]);

/* --- one kernel ------------------------------------------------------------------------------------------ */

enum { HW_OK, HW_NO_MEMORY, HW_DEADLOCK, HW_LEAK, HW_TOO_LONG, HW_STOPPED };
enum { HW_L2_READ, HW_L2_WRITE, HW_HBM_READ, HW_HBM_WRITE, HW_COUNTERS };
enum { HW_BUSY, HW_EMPTY, HW_DONE, HW_QUEUE_FULL, HW_IN_FLIGHT, HW_FIRST_SEMAPHORE }; /* columns of `account` */

typedef struct hw_kernel {
    const hw_instr *instr; const hw_cost *cost; const hw_tile *tile; const hw_affine *affine; const hw_term *term;
    const hw_derived *derived; const hw_sync *sync; const hw_node *node; const hw_stream *stream;
    const hw_group *group; const hw_engine_model *engine; const hw_window *window; const int64_t *semaphore_initial;
    const int64_t *semaphore_pieces; /* handed over in pieces: given when the signaller begins */
    const int64_t *semaphore_peers;  /* one for all groups, of which each has one core that awaits or signals it */
    int64_t instrs, streams, groups, engines, semaphores, windows;
    int64_t miss_ticks;         /* from completion of a read that hits to that of one that misses */
    hw_l2 *l2; int64_t capacity[HW_SHARED]; int has_hbm;
    int64_t deferred_limit, deferred; /* bytes that left L2 dirty and wait until HBM is idle, HW_RATE_BITS: most, now */
    /* results, zeroed by the caller */
    int64_t *executed;          /* per instruction */
    int64_t *account;           /* groups x engines x (HW_FIRST_SEMAPHORE + semaphores), ticks */
    int64_t *stalled;           /* streams x engines: ticks that the stream waited for room in the queue */
    int64_t *group_end;         /* per group, ticks */
    int64_t *semaphore;         /* groups x semaphores, values at the end */
    int64_t *blocked;           /* groups x engines x 2: instruction at the head that waits (or -1), semaphore */
    int64_t counter[HW_COUNTERS];
    int64_t end;                /* ticks, a whole number of cycles */
    hw_row *row; int64_t row_limit, rows;
    int64_t row_group, row_from, row_to; /* which rows: of one group (-1: all), in progress at these ticks */
    int (*row_full)(struct hw_kernel *); /* NULL: what is beyond the limit is lost; else takes the rows, 1 stops */
    void *row_taker;
    int (*interrupted)(struct hw_kernel *); /* NULL: never asked; else from time to time, 1 stops */
    void *interruption;
    int64_t lost, started;      /* rows beyond the limit; instructions started */
} hw_kernel;

int hw_run_kernel(hw_kernel *kernel);

/* --- order ------------------------------------------------------------------------------------------------ */

/* What the walk of one core of a group reads: tables of the kernel, and of them the group's streams. */
typedef struct {
    const hw_instr *instr; const hw_tile *tile; const hw_affine *affine; const hw_term *term; const hw_derived *derived;
    const hw_sync *sync; const hw_node *node; const hw_stream *stream; const int64_t *semaphore_initial;
    const int64_t *semaphore_peers;          /* signalled by other cores: waits for them are met, and order nothing */
    const int64_t *queue_depth;              /* per engine */
    const int64_t *buffer_slots, *first_slot; /* per buffer: how many, and those of the buffers before it */
    int64_t streams, engines, semaphores, buffers, arrays, core;
    int64_t period;             /* longer loops than 3 of them take 2 and the rest (hwsim.program.check); 0: all passes */
    int64_t budget, most_slots; /* instructions; slots of all buffers that are looked at */
} hw_order;

/* Whether nothing was stuck and all accesses were ordered; 0 also where that could not be found out. */
int hw_in_order(const hw_order *order);

/* --- places ----------------------------------------------------------------------------------------------- */

/* What the check of a group's streams reads, as for hw_order. Indices in the tables are trusted. */
typedef struct {
    const hw_instr *instr; const hw_tile *tile; const hw_affine *affine; const hw_term *term; const hw_derived *derived;
    const hw_sync *sync; const hw_node *node; const hw_stream *stream;
    const int64_t *zero_list, *zero_variable; /* (first, number) of each list; variables */
    const int64_t *extent;      /* per array: rows, columns as stored */
    int64_t streams, first_core, cores, zeroing; /* zeroing: the opcode that zero_at holds for */
    int64_t period;             /* as in hw_order */
    int64_t *sums;              /* per semaphore: signalled, awaited; the same with shortened loops */
} hw_places;

/* Whether every address is within its array, every variable in its scope and every count at least 1; adds to the sums.
 * 0 also where that could not be found out: bounds or sums beyond 64 bits, or no memory. */
int hw_check_places(const hw_places *places);

#endif
