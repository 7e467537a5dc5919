/* The machine that times one kernel, as its parts share it: what stands where, rings, and the tree of next events.
 *
 * Actors are a core's streams, its engines while they are occupied, and its engines' pending completions; each has at
 * most one next event. Knows no rule of when something may start.
 */
#ifndef HW_ENGINE_MACHINE_H
#define HW_ENGINE_MACHINE_H

#include <stdlib.h>

#include "hw_engine.h"

/* What the cores of a group touch together: rectangles, relative to where the first core's tile begins. */
typedef struct { int64_t row, col, rows, cols; } spot;
typedef struct { int64_t holders, count; spot at[]; } placement;

typedef struct {
    int64_t instr, time, row, col, slot; /* time: of issue, or of completion; row then: its number */
    placement *where;                    /* NULL: all cores at one place */
    int64_t given;                       /* its signals in pieces have been given */
} entry;
typedef struct { entry *at; int64_t room, head, count; } ring; /* room: a power of two */

/* What the engine needs of an instruction all the time, in one line of the processor's cache. */
typedef struct {
    int64_t occupancy, tail, window_bytes, issue_ticks;
    const hw_sync *wait, *signal;
    int32_t waits, signals;
    int16_t window, places;    /* places: of its queue */
    unsigned char engine, flows; /* flows: bytes drain */
    unsigned char awaited, bare; /* its completion changes something; without tiles: it stands for its waits and signals */
} operation;

typedef enum { EMPTY, WAITING, THROTTLED, OVERHEAD, DRAINING, OCCUPIED, HELD } state;
/* THROTTLED: too much in flight. HELD: done but for pieces that it waits for. */

typedef struct {
    ring queue, pending;
    entry now;
    state state;
    int32_t actor;             /* of its occupancy */
    int32_t feeders;           /* streams with instructions for it */
    int64_t queue_depth, *account;
    int64_t since, semaphore;  /* of the state */
    int64_t issuer;            /* the stream that ends an EMPTY state */
    int64_t piece, held_for;   /* may not end before this semaphore (or -1) was signalled so often */
    int64_t late;              /* ticks that the transfer under way completes later than a hit */
    int64_t start, cause, last_completion;
    int64_t number, signaller; /* of the instruction, of the one whose signal ended its wait */
    uint64_t blocked;          /* streams that wait for room in the queue, now or once they are ready */
    int64_t taken;             /* places of the queue */
    hw_share share;            /* while DRAINING */
    int64_t remaining, updated, flow; /* bytes left and when; position among the active flows */
} engine;

/* Derived variables are computed anew, and `version` counts on, when a variable that they are made of has changed. */
typedef struct {
    int64_t pc, *variable;
    const hw_stream *model;
    int64_t *index;            /* per variable: its number among the derived ones, or -1 */
    unsigned char *feeds;      /* per variable: a derived one is made of it */
    int64_t version, stale;
    int64_t *of_core;          /* derived variables of every core of the group, */
    int64_t of_core_version;   /* as they were then */
    int64_t stalled, since, on; /* in all, waiting for room in queues; from when and for which engine, or -1 */
    entry next;                /* the instruction being issued; instr -1: the stream has ended */
    struct place *places;
    int armed;                 /* it has an event */
} stream;

/* The last placement of the instructions of a stream whose tiles lie alike: of one shape, and with the same part that
 * depends on the core in where they begin. It is FIXED when no derived variable takes part in it. */
typedef struct place place;
struct place {
    placement *now;
    int64_t version;
    enum { SHARED = 1, FIXED, BY_VERSION } kind;
    const hw_tile *tile;       /* of the first of them */
    place *next;               /* of the stream */
};

typedef struct {
    const hw_group *group;
    engine *engines;
    stream *streams;
    int64_t *semaphore, *blocked, *end;
    int64_t *taken, *signalled; /* per semaphore in pieces: counts taken, and those whose signaller has completed */
    int64_t *signaller;        /* per semaphore: number of the instruction that signalled last, or -1 */
    uint64_t held;             /* engines */
    int64_t *in_flight;        /* per window */
    int64_t *stalled_at;       /* engines x streams: what a stream had been stalled when the engine became EMPTY */
    uint64_t *waiting;         /* per semaphore: engines whose head waits for it */
    int32_t first_actor;
} core;

enum { COMPLETION, OCCUPANCY, ISSUE };
typedef struct { int32_t core, kind, index; } actor;

typedef struct {
    hw_kernel *k;
    operation *operations;     /* per instruction */
    core *cores;
    engine *engines;
    stream *streams;
    int64_t *variables, *index;
    unsigned char *feeds;
    place *places, **place_of; /* place_of: per instruction, NULL before it is asked for */
    int64_t place_count;
    int32_t *table;            /* scratch of find_places */
    int64_t table_room;
    hw_term *terms;            /* and of expressions that differ from core to core */
    int64_t term_room;
    uint64_t *waiting;
    int64_t *taken, *signalled, *signaller;
    int pieces, peers;         /* any semaphore is in pieces, of peers */
    int64_t *in_flight, *stalled_at;
    actor *actors;
    int64_t *next, latest;     /* tree of next events: the first at 1, each actor's from `leaves` on */
    int32_t leaves, actor_bits;
    engine **flows;
    hw_share **shares;
    int64_t *rates;
    int64_t active, shared_at; /* flows; since when they have had their rates */
    int unshared;              /* flows have begun or ended since the rates were drawn */
    int status;                /* HW_OK, or what stopped the machine */
} machine;

static inline void release(placement *where)
{
    if (where && !--where->holders) free(where);
}

/* --- a ring that grows ------------------------------------------------------------------------------------ */

static inline int grow(ring *r)
{
    int64_t room = r->room ? 2 * r->room : 8;
    entry *at = malloc(sizeof *at * (size_t)room);
    if (!at) return -1;
    for (int64_t i = 0; i < r->count; i++) at[i] = r->at[(r->head + i) & (r->room - 1)];
    free(r->at);
    r->at = at, r->room = room, r->head = 0;
    return 0;
}

/* The place behind the last; NULL: no memory. */
static inline entry *add(machine *m, ring *r)
{
    if (r->count == r->room && grow(r)) {
        m->status = HW_NO_MEMORY;
        return NULL;
    }
    return &r->at[(r->head + r->count++) & (r->room - 1)];
}

/* The first, taken out: it stays where it is until something is added. */
static inline const entry *pop(ring *r)
{
    const entry *first = &r->at[r->head];
    r->head = (r->head + 1) & (r->room - 1), r->count--;
    return first;
}

/* --- the next event: a tree of the least, times with the actor in their low bits: the lower wins ties */

static inline void set_event(machine *m, int32_t a, int64_t event)
{
    int64_t *next = m->next;
    for (uint32_t n = (uint32_t)(m->leaves + a); n > 1; n /= 2) {
        int64_t other = next[n ^ 1];
        next[n] = event;
        event = other < event ? other : event;
    }
    next[1] = event;
}

static inline void set_key(machine *m, int32_t a, int64_t time)
{
    if (time <= m->latest) set_event(m, a, time << m->actor_bits | a);
    else m->status = HW_TOO_LONG;
}

static inline void clear_key(machine *m, int32_t a) { set_event(m, a, HW_NEVER); }

static inline int32_t completion_actor(const machine *m, const engine *g) { return g->actor - (int32_t)m->k->engines; }

static inline int32_t stream_actor(const machine *m, const core *c, int64_t s)
{
    return c->first_actor + (int32_t)(2 * m->k->engines + s);
}

/* --- the parts -------------------------------------------------------------------------------------------- */

/* Transfers that drain (kernels_ext/src/engine_flow.c). `begin`: the engine's instruction now drains. share: rates, once
 * for all that has begun and ended at a time. */
void hw_flow_begin(machine *m, core *c, int64_t e, int64_t time);
void hw_flow_end(machine *m, engine *g, int64_t time);
void hw_flow_share(machine *m, int64_t time);
void hw_flow_write_deferred(machine *m, int64_t time);

/* A stream's walk through its nodes (kernels_ext/src/engine_stream.c): its next instruction, and where its tiles lie. */
void hw_stream_watch(const machine *m, stream *s);
void hw_stream_fetch(machine *m, const core *c, stream *s);

#endif
