/* One kernel in time: streams issue into the queues of engines, engines take their queues in order.
 *
 * The rules stand in hwsim.machine.timing. Actors are a core's streams, its engines while they are occupied, and
 * its engines' pending completions; each has at most one next event. The earliest event is taken first; at equal
 * times the lowest actor: by group, then completions before occupancies before streams, each by index. Of several
 * engines that wait for what a completion signals, those waiting for its first signal come first, then by index.
 */
#include <stdlib.h>

#include "hw_engine.h"

/* What the cores of a group touch together: rectangles, relative to where the first core's tile begins. */
typedef struct { int64_t row, col, rows, cols; } spot;
typedef struct { int64_t holders, count; spot at[]; } placement;

typedef struct {
    int64_t instr, time, row, col, slot; /* time: of issue, or of completion */
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
    uint64_t *waiting;
    int64_t *taken, *signalled;
    int pieces;                /* any semaphore is in pieces */
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

static void release(placement *where)
{
    if (where && !--where->holders) free(where);
}

/* --- a ring that grows ------------------------------------------------------------------------------------ */

static int grow(ring *r)
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
static entry *add(machine *m, ring *r)
{
    if (r->count == r->room && grow(r)) {
        m->status = HW_NO_MEMORY;
        return NULL;
    }
    return &r->at[(r->head + r->count++) & (r->room - 1)];
}

/* The first, taken out: it stays where it is until something is added. */
static const entry *pop(ring *r)
{
    const entry *first = &r->at[r->head];
    r->head = (r->head + 1) & (r->room - 1), r->count--;
    return first;
}

/* --- the next event: a tree of the least, times with the actor in their low bits: the lower wins ties */

static void set_event(machine *m, int32_t a, int64_t event)
{
    int64_t *next = m->next;
    for (uint32_t n = (uint32_t)(m->leaves + a); n > 1; n /= 2) {
        int64_t other = next[n ^ 1];
        next[n] = event;
        event = other < event ? other : event;
    }
    next[1] = event;
}

static void set_key(machine *m, int32_t a, int64_t time)
{
    if (time <= m->latest) set_event(m, a, time << m->actor_bits | a);
    else m->status = HW_TOO_LONG;
}

static void clear_key(machine *m, int32_t a) { set_event(m, a, HW_NEVER); }

static int32_t completion_actor(const machine *m, const engine *g) { return g->actor - (int32_t)m->k->engines; }

static int32_t stream_actor(const machine *m, const core *c, int64_t s)
{
    return c->first_actor + (int32_t)(2 * m->k->engines + s);
}

/* --- accounting ------------------------------------------------------------------------------------------- */

/* How long a stream had waited for room in queues, in all, at `time`. */
static int64_t stalled(const stream *s, int64_t time)
{
    return s->stalled + (s->on >= 0 && time > s->since ? time - s->since : 0);
}

static void become_empty(core *c, int64_t e, int64_t time)
{
    int64_t *at = &c->stalled_at[e * c->group->streams];
    for (int64_t i = 0; i < c->group->streams; i++) at[i] = stalled(&c->streams[i], time);
    c->engines[e].state = EMPTY, c->engines[e].since = time;
}

static void end_stall(machine *m, stream *s, int64_t time)
{
    int64_t waited = time > s->since ? time - s->since : 0;
    m->k->stalled[(s - m->streams) * m->k->engines + s->on] += waited;
    s->stalled += waited, s->on = -1;
}

/* The state of an engine ends: to which account does its time go? What waits for pieces has begun, and waits inside. */
static void settle(const machine *m, core *c, int64_t e, int64_t time)
{
    engine *g = &c->engines[e];
    int64_t *account = g->account, spent = time - g->since;
    if (!spent) return;
    if (g->state == WAITING) {
        int inside = m->pieces && m->k->semaphore_pieces[g->semaphore]
            && !m->operations[g->queue.at[g->queue.head].instr].bare;
        account[inside ? HW_BUSY : HW_FIRST_SEMAPHORE + g->semaphore] += spent, g->cause = g->semaphore;
    } else if (g->state == THROTTLED) {
        account[HW_IN_FLIGHT] += spent, g->cause = HW_CAUSE_IN_FLIGHT;
    } else if (g->state == EMPTY) {
        int64_t full = stalled(&c->streams[g->issuer], time) - c->stalled_at[e * c->group->streams + g->issuer];
        account[HW_QUEUE_FULL] += full, account[HW_EMPTY] += spent - full;
        g->cause = full ? HW_CAUSE_QUEUE_FULL : HW_CAUSE_EMPTY;
    } else {
        account[HW_BUSY] += spent;
    }
    g->since = time;
}

static void record(machine *m, core *c, int64_t e, int64_t free_at, int64_t end)
{
    hw_kernel *k = m->k;
    if (k->rows >= k->row_limit) return;
    const engine *g = &c->engines[e];
    k->row[k->rows++] = (hw_row){c->group - k->group, e, g->now.instr, g->now.time, g->start, free_at, end,
                                 g->now.row, g->now.col, g->now.slot, g->cause};
}

static void let_issue(machine *m, core *c, engine *g, int64_t time, int started);

/* --- flows ------------------------------------------------------------------------------------------------ */

/* Rates are drawn once for all that has begun and ended at a time, before the next event is looked for. */
static void share(machine *m, int64_t time)
{
    m->unshared = 0;
    for (int64_t i = 0; i < m->active; i++) {
        engine *g = m->flows[i];
        g->remaining -= g->share.rate * (time - g->updated);
        g->updated = time;
        m->shares[i] = &g->share, m->rates[i] = g->share.rate;
    }
    hw_share_rates(m->shares, m->active, m->k->capacity);
    for (int64_t i = 0; i < m->active; i++) {
        engine *g = m->flows[i];
        if (g->share.rate == m->rates[i]) continue; /* the end foreseen stands */
        int64_t left = g->remaining > 0 ? g->remaining : 0;
        set_key(m, g->actor, time + (left + g->share.rate - 1) / g->share.rate);
    }
}

/* What waits to be written goes out at the rate that the flows have left HBM since `shared_at`. */
static void write_deferred(machine *m, int64_t time)
{
    hw_kernel *k = m->k;
    int64_t spent = time - m->shared_at, idle = k->capacity[HW_HBM];
    m->shared_at = time;
    if (!k->deferred) return;
    for (int64_t i = 0; i < m->active; i++) {
        const hw_share *flow = &m->flows[i]->share;
        idle -= (int64_t)((__int128)flow->rate * flow->weight[HW_HBM] >> HW_WEIGHT_BITS);
    }
    if (idle > 0) k->deferred = spent > k->deferred / idle ? 0 : k->deferred - idle * spent;
}

/* Bytes that HBM moves for a transfer of a whole group; counts the traffic of L2 and HBM. */
static int64_t hbm_bytes(machine *m, const core *c, engine *g, const hw_cost *cost)
{
    hw_kernel *k = m->k;
    const hw_tile *tile = &k->tile[cost->gm_tile];
    int64_t cores = c->group->count, write = cost->gm_write, fetched = 0, written_back = 0;
    if (!k->l2) {
        fetched = write ? 0 : cost->bytes * cores;
        written_back = write ? cost->bytes * cores : 0;
    } else {
        const placement *where = g->now.where;
        const spot same = {0, 0, tile->rows, tile->cols}, *at = where ? where->at : &same;
        for (int64_t i = 0, count = where ? where->count : 1; i < count; i++)
            if (hw_l2_access(k->l2, tile->object, g->now.row + at[i].row, g->now.col + at[i].col,
                             at[i].rows, at[i].cols, (int)write, cost->fetch_bytes, &fetched, &written_back))
                m->status = HW_NO_MEMORY;
        k->counter[write ? HW_L2_WRITE : HW_L2_READ] += cost->bytes * cores / cost->multicast;
    }
    if (!k->has_hbm) return 0;
    if (fetched) g->late = k->miss_ticks;
    k->counter[HW_HBM_READ] += fetched;
    k->counter[HW_HBM_WRITE] += written_back;
    int64_t room = (k->deferred_limit - k->deferred) >> HW_RATE_BITS;
    if (k->capacity[HW_HBM] && room > 0) {
        int64_t later = written_back < room ? written_back : room;
        k->deferred += later << HW_RATE_BITS, written_back -= later;
    }
    return fetched + written_back;
}

static void begin_flow(machine *m, core *c, int64_t e, int64_t time)
{
    engine *g = &c->engines[e];
    const hw_cost *cost = &m->k->cost[g->now.instr];
    write_deferred(m, time);
    int64_t hbm = hbm_bytes(m, c, g, cost);
    release(g->now.where), g->now.where = NULL;
    g->share.cap = cost->flow_rate, g->share.rate = 0;
    g->share.weight[HW_L2] = m->k->l2 ? (c->group->count << HW_WEIGHT_BITS) / cost->multicast : 0;
    g->share.weight[HW_HBM] = ((hbm << HW_WEIGHT_BITS) + cost->flow_bytes - 1) / cost->flow_bytes;
    g->remaining = cost->flow_bytes << HW_RATE_BITS, g->updated = time;
    g->state = DRAINING; /* still busy: no change of account */
    g->flow = m->active, m->flows[m->active++] = g;
    m->unshared = 1;
}

static void end_flow(machine *m, engine *g, int64_t time)
{
    write_deferred(m, time);
    engine *last = m->flows[--m->active];
    m->flows[g->flow] = last, last->flow = g->flow;
    m->unshared = 1;
}

/* --- engines ---------------------------------------------------------------------------------------------- */

/* Take all waits of an instruction, or none: returns the semaphore that lacks, or -1. */
static int64_t take(core *c, const operation *o)
{
    for (int64_t i = 0; i < o->waits; i++) {
        int64_t *semaphore = &c->semaphore[o->wait[i].semaphore];
        if (*semaphore < o->wait[i].count) {
            int64_t lacks = o->wait[i].semaphore;
            while (i-- > 0) c->semaphore[o->wait[i].semaphore] += o->wait[i].count;
            return lacks;
        }
        *semaphore -= o->wait[i].count;
    }
    return -1;
}

/* Whether the bytes in flight leave room for an instruction. */
static int has_room(const machine *m, const core *c, const operation *o)
{
    if (o->window < 0 || !c->in_flight[o->window]) return 1;
    return c->in_flight[o->window] + o->window_bytes <= m->k->window[o->window].bytes;
}

static void give_back(core *c, const operation *o)
{
    for (int64_t i = 0; i < o->waits; i++) c->semaphore[o->wait[i].semaphore] += o->wait[i].count;
}

/* Whether the queue has room for an instruction; one alone always has. */
static int fits(const engine *g, const operation *o)
{
    return !g->queue.count || g->taken + o->places <= g->queue_depth;
}

/* --- hand-over in pieces ----------------------------------------------------------------------------------
 *
 * A signal is given when its instruction begins. An instruction without tiles, which stands for the one before it
 * or, with a wait, for the one behind it in its queue, gives it when the one before begins. What took one does not
 * end before the signaller has completed.
 */

static void try_start(machine *m, core *c, int64_t e, int64_t time);

static void give_pieces(machine *m, core *c, const operation *o, int64_t time)
{
    for (int64_t i = 0; i < o->signals; i++)
        if (m->k->semaphore_pieces[o->signal[i].semaphore]) c->semaphore[o->signal[i].semaphore] += o->signal[i].count;
    for (int64_t i = 0; i < o->signals; i++) {
        if (!m->k->semaphore_pieces[o->signal[i].semaphore]) continue;
        uint64_t *waiting = &c->waiting[o->signal[i].semaphore], heads = *waiting;
        for (*waiting = 0; heads; heads &= heads - 1) try_start(m, c, __builtin_ctzll(heads), time);
    }
}

static void take_pieces(const machine *m, core *c, engine *g, const operation *o)
{
    for (int64_t i = 0; i < o->waits; i++) {
        int64_t s = o->wait[i].semaphore;
        if (m->k->semaphore_pieces[s]) g->piece = s, g->held_for = c->taken[s] += o->wait[i].count;
    }
}

/* The head of the queue, if it is bare, has its signals given while the instruction before it runs. */
static void give_ahead(machine *m, core *c, engine *g, int64_t time)
{
    if (!m->pieces || !g->queue.count || m->operations[g->now.instr].bare) return;
    entry *next = &g->queue.at[g->queue.head];
    const operation *o = &m->operations[next->instr];
    if (next->given || o->waits || !o->bare) return;
    next->given = 1;
    give_pieces(m, c, o, time);
}

/* The engine is free (EMPTY, WAITING or THROTTLED) and its queue is not empty: start the head if it can start. */
static void try_start(machine *m, core *c, int64_t e, int64_t time)
{
    engine *g = &c->engines[e];
    int64_t index = g->queue.at[g->queue.head].instr;
    const operation *o = &m->operations[index];
    int64_t lacks = take(c, o);
    settle(m, c, e, time);
    if (lacks >= 0) {
        g->state = WAITING, g->since = time, g->semaphore = lacks;
        c->waiting[lacks] |= UINT64_C(1) << e;
        return;
    }
    if (!has_room(m, c, o)) {
        give_back(c, o);
        g->state = THROTTLED, g->since = time;
        return;
    }
    g->state = o->flows ? OVERHEAD : OCCUPIED, g->since = time;
    g->now = *pop(&g->queue), g->taken -= o->places;
    g->start = time, g->late = 0;
    if (o->window >= 0) c->in_flight[o->window] += o->window_bytes;
    m->k->executed[index]++;
    if (m->pieces) take_pieces(m, c, g, o);
    if (g->blocked) let_issue(m, c, g, time, o->flows || o->occupancy);
    if (o->flows && !o->occupancy) begin_flow(m, c, e, time);
    else set_key(m, g->actor, time + o->occupancy);
    if (m->pieces && !o->bare) {
        g->now.given = 1;
        give_pieces(m, c, o, time);
        give_ahead(m, c, g, time);
    }
}

static void leave(machine *m, core *c, int64_t e, int64_t time);

/* The signals of an instruction; given: those in pieces have been given. */
static void signal_all(const machine *m, core *c, const operation *o, int64_t given)
{
    for (int64_t i = 0; i < o->signals; i++) {
        int64_t s = o->signal[i].semaphore;
        if (!given || !m->k->semaphore_pieces[s]) c->semaphore[s] += o->signal[i].count;
        if (m->pieces) c->signalled[s] += o->signal[i].count;
    }
}

static void complete(machine *m, core *c, int64_t index, int64_t given, int64_t time)
{
    const operation *o = &m->operations[index];
    if (time > *c->end) *c->end = time;
    signal_all(m, c, o, given);
    if (o->window >= 0) c->in_flight[o->window] -= o->window_bytes;
    for (int64_t i = 0; i < o->signals; i++) {
        uint64_t *waiting = &c->waiting[o->signal[i].semaphore], heads = *waiting;
        for (*waiting = 0; heads; heads &= heads - 1) try_start(m, c, __builtin_ctzll(heads), time);
    }
    if (o->window >= 0 && c->engines[o->engine].state == THROTTLED) try_start(m, c, o->engine, time);
    for (uint64_t held = c->held; held; held &= held - 1) {
        int64_t e = __builtin_ctzll(held);
        if (c->engines[e].state == HELD && c->signalled[c->engines[e].piece] >= c->engines[e].held_for)
            leave(m, c, e, time);
    }
}

static void completion_event(machine *m, core *c, int64_t e, int64_t time)
{
    engine *g = &c->engines[e];
    const entry *done = pop(&g->pending);
    int64_t index = done->instr, given = done->given;
    int32_t a = completion_actor(m, g);
    if (g->pending.count) set_key(m, a, g->pending.at[g->pending.head].time);
    else clear_key(m, a);
    complete(m, c, index, given, time);
}

static void occupancy_event(machine *m, core *c, int64_t e, int64_t time)
{
    engine *g = &c->engines[e];
    if (g->state == OVERHEAD) {
        begin_flow(m, c, e, time);
        return;
    }
    if (g->state == DRAINING) end_flow(m, g, time);
    if (g->piece >= 0 && !m->operations[g->now.instr].bare && c->signalled[g->piece] < g->held_for) {
        g->state = HELD, c->held |= UINT64_C(1) << e; /* still busy: no change of account */
        clear_key(m, g->actor);
        return;
    }
    leave(m, c, e, time);
}

static void leave(machine *m, core *c, int64_t e, int64_t time)
{
    engine *g = &c->engines[e];
    settle(m, c, e, time);
    g->state = EMPTY, g->since = time, c->held &= ~(UINT64_C(1) << e);
    if (!m->operations[g->now.instr].bare) g->piece = -1;
    int64_t index = g->now.instr, end = time + m->operations[index].tail + g->late;
    if (end < g->last_completion) end = g->last_completion; /* in order */
    g->last_completion = end;
    if (m->k->row_limit) record(m, c, e, time, end);
    g->cause = HW_CAUSE_NONE;
    if (end == time && !g->pending.count) {
        complete(m, c, index, g->now.given, time);
    } else if (!m->operations[index].awaited) {
        if (end > *c->end) *c->end = end;
    } else {
        entry *done = add(m, &g->pending);
        if (!done) return;
        done->instr = index, done->time = end, done->given = g->now.given;
        if (g->pending.count == 1) set_key(m, completion_actor(m, g), end);
    }
    if (g->queue.count) try_start(m, c, e, time);
    else become_empty(c, e, time);
    if (g->state < OVERHEAD) clear_key(m, g->actor);
}

/* --- streams ---------------------------------------------------------------------------------------------- */

static int64_t evaluate(const machine *m, const stream *s, int64_t index)
{
    const hw_affine *a = &m->k->affine[index];
    int64_t value = a->constant;
    for (int64_t i = 0; i < a->terms; i++) {
        const hw_term *t = &m->k->term[a->first + i];
        value += t->coefficient * s->variable[t->variable];
    }
    return value;
}

/* Floor division, as for Python's // and %. */
static int64_t divided(int64_t value, const hw_derived *d)
{
    int64_t quotient = value / d->divisor, rest = value % d->divisor;
    if (rest < 0) rest += d->divisor, quotient--;
    return d->remainder ? rest : quotient;
}

static void derive(const machine *m, stream *s)
{
    const hw_derived *d = &m->k->derived[s->model->first_derived];
    for (int64_t i = 0; i < s->model->derived; i++)
        s->variable[d[i].variable] = divided(evaluate(m, s, d[i].affine), &d[i]);
    s->stale = 0, s->version++;
}

/* An expression of the core-th core of the group; own: that core's derived variables. */
static int64_t evaluate_for(const machine *m, const stream *s, int64_t index, int64_t core, const int64_t *own)
{
    const hw_affine *a = &m->k->affine[index];
    const hw_term *t = &m->k->term[a->first];
    int64_t value = a->constant;
    for (const hw_term *end = t + a->terms; t < end; t++) {
        int64_t derived = s->index[t->variable];
        int64_t of = derived >= 0 ? own[derived] : s->variable[t->variable] + (t->variable ? 0 : core);
        value += t->coefficient * of;
    }
    return value;
}

/* Derived variables of all cores of the group; NULL: no memory. */
static const int64_t *derived_of_cores(machine *m, const core *c, stream *s)
{
    int64_t count = s->model->derived;
    const hw_derived *d = &m->k->derived[s->model->first_derived];
    if (!s->of_core) s->of_core = malloc(sizeof *s->of_core * (size_t)(c->group->count * (count ? count : 1)));
    if (!s->of_core || s->of_core_version == s->version) return s->of_core;
    for (int64_t i = 0; i < c->group->count; i++) {
        int64_t *own = &s->of_core[i * count];
        for (int64_t j = 0; j < count; j++) own[j] = divided(evaluate_for(m, s, d[j].affine, i, own), &d[j]);
    }
    s->of_core_version = s->version;
    return s->of_core;
}

/* Whether an expression depends on CORE: 0 no, FIXED as itself, BY_VERSION through derived variables. */
static int varies(const machine *m, const stream *s, int64_t index)
{
    const hw_affine *a = &m->k->affine[index];
    int found = 0;
    for (int64_t i = 0; i < a->terms; i++) {
        int64_t variable = m->k->term[a->first + i].variable, derived = s->index[variable];
        if (!variable && found < FIXED) found = FIXED;
        if (derived >= 0 && varies(m, s, m->k->derived[s->model->first_derived + derived].affine)) found = BY_VERSION;
    }
    return found;
}

/* An empty hash table for that many places; returns its size - 1, or -1 without memory. */
static int64_t claim_table(machine *m, int64_t places)
{
    int64_t room = 16;
    while (room < 2 * places) room *= 2;
    if (room > m->table_room) {
        int32_t *table = realloc(m->table, sizeof *table * (size_t)room);
        if (!table) return -1;
        m->table = table, m->table_room = room;
    }
    for (int64_t i = 0; i < room; i++) m->table[i] = -1;
    return room - 1;
}

static int64_t hash(spot at)
{
    uint64_t h = (uint64_t)at.row * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)at.col * UINT64_C(0xc2b2ae3d27d4eb4f);
    return (int64_t)(h >> 33);
}

static int by_place(const void *left, const void *right)
{
    const spot *a = left, *b = right;
    if (a->row != b->row) return a->row < b->row ? -1 : 1;
    return a->col < b->col ? -1 : a->col > b->col;
}

/* Join tiles side by side into strips, and equal strips on top of each other; `at` is in the order of by_place. */
static int64_t joined(spot *at, int64_t count)
{
    int64_t strips = 0, found = 0;
    for (int64_t i = 0; i < count; i++) {
        spot *last = strips ? &at[strips - 1] : NULL;
        if (last && last->row == at[i].row && at[i].col <= last->col + last->cols)
            last->cols = at[i].col + at[i].cols - last->col;
        else
            at[strips++] = at[i];
    }
    for (int64_t i = 0; i < strips; i++) {
        spot *last = found ? &at[found - 1] : NULL;
        if (last && last->col == at[i].col && last->cols == at[i].cols && at[i].row <= last->row + last->rows)
            last->rows = at[i].row + at[i].rows - last->row;
        else
            at[found++] = at[i];
    }
    return found;
}

/* Where the cores' tiles lie; NULL: no memory. */
static placement *find_places(machine *m, const core *c, stream *s, const hw_tile *tile)
{
    int64_t cores = c->group->count, row = evaluate(m, s, tile->affine_row), col = evaluate(m, s, tile->affine_col);
    const int64_t *own = derived_of_cores(m, c, s);
    placement *where = malloc(sizeof *where + sizeof *where->at * (size_t)cores);
    int64_t mask = claim_table(m, cores);
    if (!own || !where || mask < 0) {
        free(where);
        return NULL;
    }
    where->holders = 1, where->count = 0;
    for (int64_t i = 0; i < cores; i++, own += s->model->derived) {
        spot at = {evaluate_for(m, s, tile->affine_row, i, own) - row,
                   evaluate_for(m, s, tile->affine_col, i, own) - col, tile->rows, tile->cols};
        int64_t slot = hash(at) & mask;
        for (; m->table[slot] >= 0; slot = (slot + 1) & mask) {
            const spot *there = &where->at[m->table[slot]];
            if (there->row == at.row && there->col == at.col) break;
        }
        if (m->table[slot] < 0) m->table[slot] = (int32_t)where->count, where->at[where->count++] = at;
    }
    qsort(where->at, (size_t)where->count, sizeof *where->at, by_place);
    where->count = joined(where->at, where->count);
    return where;
}

/* The next term of an expression from term *at on that depends on the core; NULL: there is none. */
static const hw_term *core_term(const machine *m, const stream *s, const hw_affine *a, int64_t *at)
{
    while (*at < a->terms) {
        const hw_term *t = &m->k->term[a->first + (*at)++];
        if (!t->variable || s->index[t->variable] >= 0) return t;
    }
    return NULL;
}

/* Whether two expressions depend on the core in the same way. */
static int alike(const machine *m, const stream *s, int64_t one, int64_t other)
{
    for (int64_t i = 0, j = 0;;) {
        const hw_term *x = core_term(m, s, &m->k->affine[one], &i), *y = core_term(m, s, &m->k->affine[other], &j);
        if (!x || !y) return !x && !y;
        if (x->variable != y->variable || x->coefficient != y->coefficient) return 0;
    }
}

static place *place_for(machine *m, stream *s, const hw_tile *tile)
{
    for (place *p = s->places; p; p = p->next)
        if (p->tile->rows == tile->rows && p->tile->cols == tile->cols &&
            alike(m, s, p->tile->affine_row, tile->affine_row) && alike(m, s, p->tile->affine_col, tile->affine_col))
            return p;
    place *p = &m->places[m->place_count++];
    int row = varies(m, s, tile->affine_row), col = varies(m, s, tile->affine_col);
    p->kind = !row && !col ? SHARED : row == BY_VERSION || col == BY_VERSION ? BY_VERSION : FIXED;
    p->tile = tile, p->next = s->places, s->places = p;
    return p;
}

/* The placement of an instruction's tile in global memory, as the stream stands now. */
static placement *placed(machine *m, const core *c, stream *s, int64_t instr, const hw_tile *tile)
{
    if (!m->place_of[instr]) m->place_of[instr] = place_for(m, s, tile);
    place *p = m->place_of[instr];
    if (p->kind == SHARED) return NULL;
    if (!p->now || (p->kind == BY_VERSION && p->version != s->version)) {
        release(p->now);
        p->now = find_places(m, c, s, p->tile), p->version = s->version;
        if (!p->now) {
            m->status = HW_NO_MEMORY;
            return NULL;
        }
    }
    p->now->holders++;
    return p->now;
}

/* Where an instruction's tile lies: the one in global memory, else (for the trace) the first it writes. */
static void locate(machine *m, const core *c, stream *s, entry *e)
{
    int64_t gm = m->k->cost[e->instr].gm_tile;
    e->row = e->col = e->slot = -1;
    e->where = NULL;
    if (gm >= 0) {
        const hw_tile *tile = &m->k->tile[gm];
        e->row = evaluate(m, s, tile->affine_row);
        e->col = evaluate(m, s, tile->affine_col);
        if (m->k->l2 && c->group->count > 1) e->where = placed(m, c, s, e->instr, tile);
    } else if (m->k->row_limit && m->k->instr[e->instr].writes) {
        const hw_tile *tile = &m->k->tile[m->k->instr[e->instr].first_tile];
        e->row = tile->row, e->col = tile->col, e->slot = evaluate(m, s, tile->affine_slot);
    }
}

/* Walk the nodes to the next instruction. */
static void fetch(machine *m, const core *c, stream *s)
{
    const hw_node *nodes = &m->k->node[s->model->first_node];
    while (s->pc < s->model->nodes) {
        const hw_node *n = &nodes[s->pc];
        switch (n->kind) {
        case HW_NODE_LOOP:
            s->variable[n->index] = 0, s->stale |= s->feeds[n->index];
            s->pc++;
            break;
        case HW_NODE_END:
            s->stale |= s->feeds[n->index];
            if (++s->variable[n->index] < n->count) s->pc = n->jump;
            else s->pc++;
            break;
        case HW_NODE_ADVANCE:
            s->variable[n->index] += n->count, s->stale |= s->feeds[n->index];
            s->pc++;
            break;
        default:
            s->pc++;
            s->next.instr = n->index;
            if (s->stale) derive(m, s);
            locate(m, c, s, &s->next);
            return;
        }
    }
    s->next.instr = -1;
}

static void set_issue(machine *m, core *c, int64_t index, int64_t time)
{
    c->streams[index].armed = 1;
    set_key(m, stream_actor(m, c, index), time);
}

static void clear_issue(machine *m, core *c, int64_t index)
{
    if (c->streams[index].armed) clear_key(m, stream_actor(m, c, index));
    c->streams[index].armed = 0;
}

/* The stream issues its next instruction at `time`, or waits from then on if the queue is full by now: one that has to
 * wait needs no event to find that out. */
static void be_ready(machine *m, core *c, int64_t index, int64_t time)
{
    stream *s = &c->streams[index];
    int64_t e = m->operations[s->next.instr].engine;
    engine *g = &c->engines[e];
    if (fits(g, &m->operations[s->next.instr])) {
        set_issue(m, c, index, time);
        return;
    }
    g->blocked |= UINT64_C(1) << index;
    s->on = e, s->since = time;
    clear_issue(m, c, index);
}

/* The next instruction of the stream enters its queue, where there is room. */
static void issue(machine *m, core *c, int64_t index, int64_t time)
{
    stream *s = &c->streams[index];
    const operation *o = &m->operations[s->next.instr];
    entry *last = add(m, &c->engines[o->engine].queue);
    if (!last) return;
    s->next.time = time, s->next.given = 0;
    c->engines[o->engine].taken += o->places;
    *last = s->next;
    fetch(m, c, s);
    if (s->next.instr < 0) clear_issue(m, c, index);
    else be_ready(m, c, index, time + m->operations[s->next.instr].issue_ticks);
}

/* The next instruction of the stream has cost its issue time. */
static void issue_event(machine *m, core *c, int64_t index, int64_t time)
{
    const operation *o = &m->operations[c->streams[index].next.instr];
    int64_t e = o->engine;
    engine *g = &c->engines[e];
    if (!fits(g, o)) {
        be_ready(m, c, index, time);
        return;
    }
    issue(m, c, index, time);
    if (g->state == EMPTY) g->issuer = index, try_start(m, c, e, time);
    else if (g->state >= OVERHEAD && g->queue.count == 1) give_ahead(m, c, g, time);
}

/* The queue of an engine has room for one more: the streams that may go on. One that is not ready yet does so when it
 * is; of those that wait now it is the first, with an event of its own at this time. That is left out where nothing
 * else at this time can tell: no other stream feeds the engine, which has started something that takes time. */
static void let_issue(machine *m, core *c, engine *g, int64_t time, int started)
{
    int taken = 0;
    for (uint64_t left = g->blocked; left; left &= left - 1) {
        int i = __builtin_ctzll(left);
        stream *s = &c->streams[i];
        int waits = s->since < time;
        if (waits && taken) continue;
        taken |= waits;
        g->blocked ^= left & -left;
        int64_t at = waits ? time : s->since;
        end_stall(m, s, time);
        if (waits && started && g->feeders == 1 && fits(g, &m->operations[s->next.instr])) issue(m, c, i, time);
        else set_issue(m, c, i, at);
    }
}

/* --- the kernel ------------------------------------------------------------------------------------------- */

static void *table(machine *m, int64_t count, size_t size)
{
    void *p = calloc(count > 0 ? (size_t)count : 1, size);
    if (!p) m->status = HW_NO_MEMORY;
    return p;
}

/* Which variables are derived, and which those are made of. */
static void watch(const machine *m, stream *s)
{
    const hw_derived *d = &m->k->derived[s->model->first_derived];
    for (int64_t i = 0; i < s->model->variables; i++) s->index[i] = -1;
    for (int64_t i = 0; i < s->model->derived; i++) {
        const hw_affine *a = &m->k->affine[d[i].affine];
        s->index[d[i].variable] = i;
        for (int64_t j = 0; j < a->terms; j++) s->feeds[m->k->term[a->first + j].variable] = 1;
    }
    s->stale = s->model->derived > 0;
}

static void count_feeder(const machine *m, core *c, const stream *s)
{
    uint64_t feeds = 0;
    const hw_node *n = &m->k->node[s->model->first_node];
    for (const hw_node *end = n + s->model->nodes; n < end; n++)
        if (n->kind == HW_NODE_INSTR) feeds |= UINT64_C(1) << m->k->instr[n->index].engine;
    for (; feeds; feeds &= feeds - 1) c->engines[__builtin_ctzll(feeds)].feeders++;
}

static operation operation_of(const hw_kernel *k, int64_t index)
{
    const hw_instr *in = &k->instr[index];
    const hw_cost *cost = &k->cost[index];
    return (operation){
        .occupancy = cost->occupancy, .tail = cost->tail, .window_bytes = cost->window_bytes,
        .issue_ticks = k->engine[in->engine].issue_ticks,
        .wait = &k->sync[in->first_wait], .signal = &k->sync[in->first_signal],
        .waits = (int32_t)in->waits, .signals = (int32_t)in->signals, .window = (int16_t)cost->window,
        .places = (int16_t)(1 + (k->engine[in->engine].flags_queued ? in->waits + in->signals : 0)),
        .engine = (unsigned char)in->engine, .flows = cost->flow_bytes > 0,
        .awaited = in->signals || cost->window >= 0, .bare = !(in->writes + in->reads),
    };
}

static void build(machine *m)
{
    hw_kernel *k = m->k;
    int64_t engines = k->groups * k->engines, variables = 0, actors = 0;
    for (int64_t i = 0; i < k->streams; i++) variables += k->stream[i].variables;
    actors = 2 * engines + k->streams;
    while ((INT64_C(1) << m->actor_bits) < actors) m->actor_bits++;
    m->leaves = (int32_t)actors; /* of a tree of any width: its nodes are 1 to 2 * leaves - 1 */
    m->latest = (HW_NEVER >> m->actor_bits) - 1;
    m->operations = table(m, k->instrs, sizeof *m->operations);
    m->cores = table(m, k->groups, sizeof *m->cores);
    m->engines = table(m, engines, sizeof *m->engines);
    m->streams = table(m, k->streams, sizeof *m->streams);
    m->variables = table(m, variables, sizeof *m->variables);
    m->index = table(m, variables, sizeof *m->index);
    m->feeds = table(m, variables, sizeof *m->feeds);
    m->places = table(m, k->instrs, sizeof *m->places);
    m->place_of = table(m, k->instrs, sizeof *m->place_of);
    m->waiting = table(m, k->groups * k->semaphores, sizeof *m->waiting);
    m->taken = table(m, k->groups * k->semaphores, sizeof *m->taken);
    m->signalled = table(m, k->groups * k->semaphores, sizeof *m->signalled);
    m->in_flight = table(m, k->groups * k->windows, sizeof *m->in_flight);
    m->stalled_at = table(m, k->engines * k->streams, sizeof *m->stalled_at);
    m->actors = table(m, m->leaves, sizeof *m->actors);
    m->next = table(m, 2 * (int64_t)m->leaves, sizeof *m->next);
    m->flows = table(m, engines, sizeof *m->flows);
    m->shares = table(m, engines, sizeof *m->shares);
    m->rates = table(m, engines, sizeof *m->rates);
    if (m->status != HW_OK) return;
    for (int64_t i = 0; i < 2 * (int64_t)m->leaves; i++) m->next[i] = HW_NEVER;
    for (int64_t i = 0; i < k->instrs; i++) m->operations[i] = operation_of(k, i);
    for (int64_t s = 0; s < k->semaphores; s++) m->pieces |= k->semaphore_pieces[s] != 0;

    int64_t *variable = m->variables, *index = m->index;
    unsigned char *feeds = m->feeds;
    int32_t next = 0;
    for (int64_t i = 0; i < k->groups; i++) {
        core *c = &m->cores[i];
        const hw_group *group = &k->group[i];
        *c = (core){
            .group = group, .engines = &m->engines[i * k->engines], .streams = &m->streams[group->first_stream],
            .semaphore = &k->semaphore[i * k->semaphores], .waiting = &m->waiting[i * k->semaphores],
            .taken = &m->taken[i * k->semaphores], .signalled = &m->signalled[i * k->semaphores],
            .in_flight = &m->in_flight[i * k->windows], .stalled_at = &m->stalled_at[k->engines * group->first_stream],
            .blocked = &k->blocked[i * k->engines * 2], .end = &k->group_end[i], .first_actor = next,
        };
        for (int64_t s = 0; s < k->semaphores; s++) c->semaphore[s] = c->signalled[s] = k->semaphore_initial[s];
        for (int kind = COMPLETION; kind <= ISSUE; kind++) {
            int64_t count = kind == ISSUE ? group->streams : k->engines;
            for (int64_t j = 0; j < count; j++) m->actors[next++] = (actor){(int32_t)i, kind, (int32_t)j};
        }
        for (int64_t e = 0; e < k->engines; e++) {
            c->engines[e].actor = c->first_actor + (int32_t)(k->engines + e);
            c->engines[e].cause = HW_CAUSE_NONE, c->engines[e].piece = -1;
            c->engines[e].queue_depth = k->engine[e].queue_depth;
            c->engines[e].account = &k->account[(i * k->engines + e) * (HW_FIRST_SEMAPHORE + k->semaphores)];
        }
        for (int64_t s = 0; s < group->streams; s++) {
            stream *st = &c->streams[s];
            st->model = &k->stream[group->first_stream + s];
            st->variable = variable, variable += st->model->variables;
            st->index = index, index += st->model->variables;
            st->feeds = feeds, feeds += st->model->variables;
            st->variable[0] = group->first, st->on = -1;
            watch(m, st);
            fetch(m, c, st);
            if (st->next.instr >= 0) set_issue(m, c, s, m->operations[st->next.instr].issue_ticks);
            count_feeder(m, c, st);
        }
    }
}

static int64_t blocked_heads(machine *m)
{
    int64_t found = 0;
    for (int64_t i = 0; i < m->k->groups; i++)
        for (int64_t e = 0; e < m->k->engines; e++) {
            const engine *g = &m->cores[i].engines[e];
            int waits = g->state == WAITING;
            m->cores[i].blocked[2 * e] = waits ? g->queue.at[g->queue.head].instr : -1;
            m->cores[i].blocked[2 * e + 1] = waits ? g->semaphore : -1;
            found += waits;
        }
    return found;
}

static int finish(machine *m)
{
    hw_kernel *k = m->k;
    int status = HW_OK;
    if (blocked_heads(m)) return HW_DEADLOCK;
    for (int64_t i = 0; i < k->groups; i++)
        if (k->group_end[i] > k->end) k->end = k->group_end[i];
    k->end = (k->end + HW_TICKS - 1) / HW_TICKS * HW_TICKS;
    write_deferred(m, k->end);
    for (int64_t i = 0; i < k->groups; i++) {
        core *c = &m->cores[i];
        for (int64_t e = 0; e < k->engines; e++) c->engines[e].account[HW_DONE] += k->end - c->engines[e].since;
        for (int64_t s = 0; s < k->semaphores; s++)
            if (c->semaphore[s] != k->semaphore_initial[s]) status = HW_LEAK;
    }
    return status;
}

static void clear(machine *m)
{
    for (int64_t i = 0; m->engines && i < m->k->groups * m->k->engines; i++) {
        ring *queue = &m->engines[i].queue;
        for (int64_t j = 0; j < queue->count; j++) release(queue->at[(queue->head + j) & (queue->room - 1)].where);
        release(m->engines[i].now.where);
        free(queue->at);
        free(m->engines[i].pending.at);
    }
    for (int64_t i = 0; m->streams && i < m->k->streams; i++) {
        if (m->streams[i].next.instr >= 0) release(m->streams[i].next.where);
        free(m->streams[i].of_core);
    }
    for (int64_t i = 0; m->places && i < m->k->instrs; i++) release(m->places[i].now);
    free(m->cores), free(m->engines), free(m->streams), free(m->variables), free(m->waiting), free(m->actors);
    free(m->in_flight), free(m->stalled_at), free(m->index), free(m->feeds), free(m->places), free(m->place_of), free(m->table);
    free(m->taken), free(m->signalled);
    free(m->operations), free(m->next), free(m->flows), free(m->shares), free(m->rates);
}

int hw_run_kernel(hw_kernel *kernel)
{
    machine m = {.k = kernel, .status = HW_OK};
    build(&m);
    while (m.status == HW_OK) {
        int64_t event = m.next[1], time = event >> m.actor_bits;
        if (event == HW_NEVER) break;
        actor a = m.actors[event & ((1 << m.actor_bits) - 1)];
        core *c = &m.cores[a.core];
        if (a.kind == ISSUE) issue_event(&m, c, a.index, time);
        else if (a.kind == OCCUPANCY) occupancy_event(&m, c, a.index, time);
        else completion_event(&m, c, a.index, time);
        if (m.unshared) share(&m, time);
    }
    int status = m.status == HW_OK ? finish(&m) : m.status;
    clear(&m);
    return status;
}
