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

typedef enum { EMPTY, WAITING, THROTTLED, OVERHEAD, DRAINING, OCCUPIED, HELD } state;
/* THROTTLED: too much in flight. HELD: done but for pieces that it waits for. */

typedef struct {
    ring queue, pending;
    entry now;
    state state;
    int64_t since, semaphore;  /* of the state */
    int64_t issuer;            /* the stream that ends an EMPTY state */
    int64_t piece, held_for;   /* may not end before this semaphore (or -1) was signalled so often */
    int64_t late;              /* ticks that the transfer under way completes later than a hit */
    int64_t start, cause, last_completion;
    uint64_t blocked;          /* streams that wait for room in the queue */
    int64_t taken;             /* places of the queue */
    hw_share share;            /* while DRAINING */
    int64_t remaining, updated, flow; /* bytes left and when; position among the active flows */
    int32_t actor;             /* of its occupancy */
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
    int64_t stalled, since, on; /* in all, waiting for room in queues; since when and for which engine, or -1 */
    entry next;                /* the instruction being issued; instr -1: the stream has ended */
} stream;

/* The placement that an instruction had last. It is FIXED when no derived variable takes part in it. */
typedef struct { placement *now; int64_t version; enum { UNKNOWN, SHARED, FIXED, BY_VERSION } kind; } place;

typedef struct {
    const hw_group *group;
    engine *engines;
    stream *streams;
    int64_t *semaphore, *account, *blocked, *end;
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
    core *cores;
    engine *engines;
    stream *streams;
    int64_t *variables, *index;
    unsigned char *feeds;
    place *places;             /* per instruction */
    int32_t *table;            /* scratch of find_places */
    int64_t table_room;
    uint64_t *waiting;
    int64_t *taken, *signalled;
    int pieces;                /* any semaphore is in pieces */
    int64_t *in_flight, *stalled_at;
    actor *actors;
    int64_t *key;              /* per actor: time of its next event */
    int32_t *winner, leaves;
    engine **flows;
    hw_share **shares;
    int64_t *rates;
    int64_t active, shared_at; /* flows; since when they have had their rates */
    int failed;
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

static void push(machine *m, ring *r, const entry *e)
{
    if (r->count == r->room && grow(r)) {
        m->failed = 1;
        return;
    }
    r->at[(r->head + r->count++) & (r->room - 1)] = *e;
}

static entry pop(ring *r)
{
    entry e = r->at[r->head];
    r->head = (r->head + 1) & (r->room - 1), r->count--;
    return e;
}

/* --- the next event: a tree of winners, the lower actor winning ties --------------------------------------- */

static void set_key(machine *m, int32_t a, int64_t time)
{
    m->key[a] = time;
    for (int32_t n = (m->leaves + a) >> 1; n; n >>= 1) {
        int32_t l = m->winner[2 * n], r = m->winner[2 * n + 1];
        m->winner[n] = m->key[r] < m->key[l] ? r : l;
    }
}

static int32_t completion_actor(const machine *m, const engine *g) { return g->actor - (int32_t)m->k->engines; }

static int32_t stream_actor(const machine *m, const core *c, int64_t s)
{
    return c->first_actor + (int32_t)(2 * m->k->engines + s);
}

/* --- accounting ------------------------------------------------------------------------------------------- */

/* How long a stream had waited for room in queues, in all, at `time`. */
static int64_t stalled(const stream *s, int64_t time) { return s->stalled + (s->on >= 0 ? time - s->since : 0); }

static void become_empty(machine *m, core *c, int64_t e, int64_t time)
{
    int64_t *at = &c->stalled_at[e * c->group->streams];
    for (int64_t i = 0; i < c->group->streams; i++) at[i] = stalled(&c->streams[i], time);
    c->engines[e].state = EMPTY, c->engines[e].since = time;
}

static void end_stall(machine *m, stream *s, int64_t time)
{
    m->k->stalled[(s - m->streams) * m->k->engines + s->on] += time - s->since;
    s->stalled += time - s->since, s->on = -1;
}

/* Without tiles: an instruction that stands for its waits and signals alone. */
static int is_bare(const hw_instr *in) { return !(in->writes + in->reads); }

/* The state of an engine ends: to which account does its time go? What waits for pieces has begun, and waits inside. */
static void settle(machine *m, core *c, int64_t e, int64_t time)
{
    engine *g = &c->engines[e];
    int64_t *account = &c->account[e * (HW_FIRST_SEMAPHORE + m->k->semaphores)], spent = time - g->since;
    if (!spent) return;
    if (g->state == WAITING) {
        int64_t pieces = m->k->semaphore_pieces[g->semaphore];
        int inside = pieces && !is_bare(&m->k->instr[g->queue.at[g->queue.head].instr]);
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

/* --- flows ------------------------------------------------------------------------------------------------ */

static void share(machine *m, int64_t time)
{
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
                m->failed = 1;
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
    share(m, time);
}

static void end_flow(machine *m, engine *g, int64_t time)
{
    write_deferred(m, time);
    engine *last = m->flows[--m->active];
    m->flows[g->flow] = last, last->flow = g->flow;
    share(m, time);
}

/* --- engines ---------------------------------------------------------------------------------------------- */

/* Take all waits of an instruction, or none: returns the semaphore that lacks, or -1. */
static int64_t take(const machine *m, core *c, const hw_instr *in)
{
    const hw_sync *wait = &m->k->sync[in->first_wait];
    for (int64_t i = 0; i < in->waits; i++) {
        if (c->semaphore[wait[i].semaphore] < wait[i].count) {
            int64_t lacks = wait[i].semaphore;
            while (i-- > 0) c->semaphore[wait[i].semaphore] += wait[i].count;
            return lacks;
        }
        c->semaphore[wait[i].semaphore] -= wait[i].count;
    }
    return -1;
}

/* Whether the bytes in flight leave room for an instruction. */
static int has_room(const machine *m, const core *c, const hw_cost *cost)
{
    if (cost->window < 0 || !c->in_flight[cost->window]) return 1;
    return c->in_flight[cost->window] + cost->window_bytes <= m->k->window[cost->window].bytes;
}

/* Places of its queue: one, and where flags are queued one for each wait and each signal. */
static int64_t places_of(const machine *m, const hw_instr *in)
{
    return 1 + (m->k->engine[in->engine].flags_queued ? in->waits + in->signals : 0);
}

static void give_back(const machine *m, core *c, const hw_instr *in)
{
    const hw_sync *wait = &m->k->sync[in->first_wait];
    for (int64_t i = 0; i < in->waits; i++) c->semaphore[wait[i].semaphore] += wait[i].count;
}

/* --- hand-over in pieces ----------------------------------------------------------------------------------
 *
 * A signal is given when its instruction begins. An instruction without tiles, which stands for the one before it
 * or, with a wait, for the one behind it in its queue, gives it when the one before begins. What took one does not
 * end before the signaller has completed.
 */

static void try_start(machine *m, core *c, int64_t e, int64_t time);

static void give_pieces(machine *m, core *c, const hw_instr *in, int64_t time)
{
    const hw_sync *signal = &m->k->sync[in->first_signal];
    for (int64_t i = 0; i < in->signals; i++)
        if (m->k->semaphore_pieces[signal[i].semaphore]) c->semaphore[signal[i].semaphore] += signal[i].count;
    for (int64_t i = 0; i < in->signals; i++) {
        if (!m->k->semaphore_pieces[signal[i].semaphore]) continue;
        uint64_t *waiting = &c->waiting[signal[i].semaphore], heads = *waiting;
        for (*waiting = 0; heads; heads &= heads - 1) try_start(m, c, __builtin_ctzll(heads), time);
    }
}

static void take_pieces(const machine *m, core *c, engine *g, const hw_instr *in)
{
    const hw_sync *wait = &m->k->sync[in->first_wait];
    for (int64_t i = 0; i < in->waits; i++) {
        int64_t s = wait[i].semaphore;
        if (m->k->semaphore_pieces[s]) g->piece = s, g->held_for = c->taken[s] += wait[i].count;
    }
}

/* The head of the queue, if it is bare, has its signals given while the instruction before it runs. */
static void give_ahead(machine *m, core *c, engine *g, int64_t time)
{
    if (!m->pieces || !g->queue.count || is_bare(&m->k->instr[g->now.instr])) return;
    entry *next = &g->queue.at[g->queue.head];
    const hw_instr *in = &m->k->instr[next->instr];
    if (next->given || in->waits || !is_bare(in)) return;
    next->given = 1;
    give_pieces(m, c, in, time);
}

/* The engine is free (EMPTY, WAITING or THROTTLED) and its queue is not empty: start the head if it can start. */
static void try_start(machine *m, core *c, int64_t e, int64_t time)
{
    engine *g = &c->engines[e];
    int64_t index = g->queue.at[g->queue.head].instr;
    const hw_cost *cost = &m->k->cost[index];
    int64_t lacks = take(m, c, &m->k->instr[index]);
    settle(m, c, e, time);
    if (lacks >= 0) {
        g->state = WAITING, g->since = time, g->semaphore = lacks;
        c->waiting[lacks] |= UINT64_C(1) << e;
        return;
    }
    if (!has_room(m, c, cost)) {
        give_back(m, c, &m->k->instr[index]);
        g->state = THROTTLED, g->since = time;
        return;
    }
    int flows = cost->flow_bytes > 0;
    g->state = flows ? OVERHEAD : OCCUPIED, g->since = time;
    g->now = pop(&g->queue), g->taken -= places_of(m, &m->k->instr[index]);
    g->start = time, g->late = 0;
    if (cost->window >= 0) c->in_flight[cost->window] += cost->window_bytes;
    m->k->executed[index]++;
    if (m->pieces) take_pieces(m, c, g, &m->k->instr[index]);
    if (g->blocked) {
        int s = __builtin_ctzll(g->blocked);
        g->blocked &= g->blocked - 1;
        end_stall(m, &c->streams[s], time);
        set_key(m, stream_actor(m, c, s), time);
    }
    if (flows && !cost->occupancy) begin_flow(m, c, e, time);
    else set_key(m, g->actor, time + cost->occupancy);
    if (m->pieces && !is_bare(&m->k->instr[index])) {
        g->now.given = 1;
        give_pieces(m, c, &m->k->instr[index], time);
        give_ahead(m, c, g, time);
    }
}

static void leave(machine *m, core *c, int64_t e, int64_t time);

static void complete(machine *m, core *c, int64_t index, int64_t given, int64_t time)
{
    const hw_instr *in = &m->k->instr[index];
    const hw_cost *cost = &m->k->cost[index];
    const hw_sync *signal = &m->k->sync[in->first_signal];
    if (time > *c->end) *c->end = time;
    for (int64_t i = 0; i < in->signals; i++) {
        int64_t s = signal[i].semaphore;
        if (!given || !m->k->semaphore_pieces[s]) c->semaphore[s] += signal[i].count;
        if (m->pieces) c->signalled[s] += signal[i].count;
    }
    if (cost->window >= 0) c->in_flight[cost->window] -= cost->window_bytes;
    for (int64_t i = 0; i < in->signals; i++) {
        uint64_t *waiting = &c->waiting[signal[i].semaphore], heads = *waiting;
        for (*waiting = 0; heads; heads &= heads - 1) try_start(m, c, __builtin_ctzll(heads), time);
    }
    if (cost->window >= 0 && c->engines[in->engine].state == THROTTLED) try_start(m, c, in->engine, time);
    for (uint64_t held = c->held; held; held &= held - 1) {
        int64_t e = __builtin_ctzll(held);
        if (c->engines[e].state == HELD && c->signalled[c->engines[e].piece] >= c->engines[e].held_for)
            leave(m, c, e, time);
    }
}

static void completion_event(machine *m, core *c, int64_t e, int64_t time)
{
    engine *g = &c->engines[e];
    entry done = pop(&g->pending);
    set_key(m, completion_actor(m, g), g->pending.count ? g->pending.at[g->pending.head].time : HW_NEVER);
    complete(m, c, done.instr, done.given, time);
}

static void occupancy_event(machine *m, core *c, int64_t e, int64_t time)
{
    engine *g = &c->engines[e];
    if (g->state == OVERHEAD) {
        begin_flow(m, c, e, time);
        return;
    }
    if (g->state == DRAINING) end_flow(m, g, time);
    if (g->piece >= 0 && !is_bare(&m->k->instr[g->now.instr]) && c->signalled[g->piece] < g->held_for) {
        g->state = HELD, c->held |= UINT64_C(1) << e; /* still busy: no change of account */
        set_key(m, g->actor, HW_NEVER);
        return;
    }
    leave(m, c, e, time);
}

static void leave(machine *m, core *c, int64_t e, int64_t time)
{
    engine *g = &c->engines[e];
    settle(m, c, e, time);
    g->state = EMPTY, g->since = time, c->held &= ~(UINT64_C(1) << e);
    if (!is_bare(&m->k->instr[g->now.instr])) g->piece = -1;
    int64_t index = g->now.instr, end = time + m->k->cost[index].tail + g->late;
    if (end < g->last_completion) end = g->last_completion; /* in order */
    g->last_completion = end;
    if (m->k->row_limit) record(m, c, e, time, end);
    g->cause = HW_CAUSE_NONE;
    if (end == time && !g->pending.count) {
        complete(m, c, index, g->now.given, time);
    } else if (!m->k->instr[index].signals && m->k->cost[index].window < 0) { /* nobody waits for it */
        if (end > *c->end) *c->end = end;
    } else {
        entry done = {.instr = index, .time = end, .given = g->now.given};
        push(m, &g->pending, &done);
        if (g->pending.count == 1) set_key(m, completion_actor(m, g), end);
    }
    if (g->queue.count) try_start(m, c, e, time);
    else become_empty(m, c, e, time);
    if (g->state < OVERHEAD) set_key(m, g->actor, HW_NEVER);
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

/* An expression for core number `i` of the group; own: that core's derived variables. */
static int64_t evaluate_for(const machine *m, const stream *s, int64_t index, int64_t i, const int64_t *own)
{
    const hw_affine *a = &m->k->affine[index];
    int64_t value = a->constant;
    for (int64_t j = 0; j < a->terms; j++) {
        const hw_term *t = &m->k->term[a->first + j];
        int64_t derived = s->index[t->variable];
        value += t->coefficient * (derived >= 0 ? own[derived] : s->variable[t->variable] + (t->variable ? 0 : i));
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

/* The placement of an instruction's tile in global memory, as the stream stands now. */
static placement *placed(machine *m, const core *c, stream *s, int64_t instr, const hw_tile *tile)
{
    place *p = &m->places[instr];
    if (p->kind == UNKNOWN) {
        int row = varies(m, s, tile->affine_row), col = varies(m, s, tile->affine_col);
        p->kind = !row && !col ? SHARED : row == BY_VERSION || col == BY_VERSION ? BY_VERSION : FIXED;
    }
    if (p->kind == SHARED) return NULL;
    if (!p->now || (p->kind == BY_VERSION && p->version != s->version)) {
        release(p->now);
        p->now = find_places(m, c, s, tile), p->version = s->version;
        if (!p->now) {
            m->failed = 1;
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

/* The next instruction of the stream has cost its issue time: it enters its queue, if there is room. */
static void issue_event(machine *m, core *c, int64_t index, int64_t time)
{
    stream *s = &c->streams[index];
    int64_t e = m->k->instr[s->next.instr].engine;
    engine *g = &c->engines[e];
    int32_t a = stream_actor(m, c, index);
    int64_t places = places_of(m, &m->k->instr[s->next.instr]);
    if (g->queue.count && g->taken + places > m->k->engine[e].queue_depth) {
        g->blocked |= UINT64_C(1) << index;
        s->on = e, s->since = time;
        set_key(m, a, HW_NEVER);
        return;
    }
    s->next.time = time;
    s->next.given = 0, g->taken += places;
    push(m, &g->queue, &s->next);
    fetch(m, c, s);
    set_key(m, a, s->next.instr < 0 ? HW_NEVER : time + m->k->engine[m->k->instr[s->next.instr].engine].issue_ticks);
    if (g->state == EMPTY) g->issuer = index, try_start(m, c, e, time);
    else if (g->state >= OVERHEAD && g->queue.count == 1) give_ahead(m, c, g, time);
}

/* --- the kernel ------------------------------------------------------------------------------------------- */

static void *table(machine *m, int64_t count, size_t size)
{
    void *p = calloc(count > 0 ? (size_t)count : 1, size);
    if (!p) m->failed = 1;
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

static void build(machine *m)
{
    hw_kernel *k = m->k;
    int64_t engines = k->groups * k->engines, variables = 0, actors = 0;
    for (int64_t i = 0; i < k->streams; i++) variables += k->stream[i].variables;
    actors = 2 * engines + k->streams;
    for (m->leaves = 1; m->leaves < actors; m->leaves *= 2) {}
    m->cores = table(m, k->groups, sizeof *m->cores);
    m->engines = table(m, engines, sizeof *m->engines);
    m->streams = table(m, k->streams, sizeof *m->streams);
    m->variables = table(m, variables, sizeof *m->variables);
    m->index = table(m, variables, sizeof *m->index);
    m->feeds = table(m, variables, sizeof *m->feeds);
    m->places = table(m, k->instrs, sizeof *m->places);
    m->waiting = table(m, k->groups * k->semaphores, sizeof *m->waiting);
    m->taken = table(m, k->groups * k->semaphores, sizeof *m->taken);
    m->signalled = table(m, k->groups * k->semaphores, sizeof *m->signalled);
    m->in_flight = table(m, k->groups * k->windows, sizeof *m->in_flight);
    m->stalled_at = table(m, k->engines * k->streams, sizeof *m->stalled_at);
    m->actors = table(m, m->leaves, sizeof *m->actors);
    m->key = table(m, m->leaves, sizeof *m->key);
    m->winner = table(m, 2 * (int64_t)m->leaves, sizeof *m->winner);
    m->flows = table(m, engines, sizeof *m->flows);
    m->shares = table(m, engines, sizeof *m->shares);
    m->rates = table(m, engines, sizeof *m->rates);
    if (m->failed) return;
    for (int64_t s = 0; s < k->semaphores; s++) m->pieces |= k->semaphore_pieces[s] != 0;
    for (int32_t i = 0; i < m->leaves; i++) m->key[i] = HW_NEVER, m->winner[m->leaves + i] = i;
    for (int32_t n = m->leaves - 1; n; n--) m->winner[n] = m->winner[2 * n];

    int64_t *variable = m->variables, *index = m->index;
    unsigned char *feeds = m->feeds;
    int32_t next = 0;
    for (int64_t i = 0; i < k->groups; i++) {
        core *c = &m->cores[i];
        const hw_group *group = &k->group[i];
        *c = (core){
            .group = group, .engines = &m->engines[i * k->engines], .streams = &m->streams[group->first_stream],
            .semaphore = &k->semaphore[i * k->semaphores], .waiting = &m->waiting[i * k->semaphores],
            .account = &k->account[i * k->engines * (HW_FIRST_SEMAPHORE + k->semaphores)],
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
            if (st->next.instr >= 0)
                set_key(m, stream_actor(m, c, s), k->engine[k->instr[st->next.instr].engine].issue_ticks);
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
        for (int64_t e = 0; e < k->engines; e++)
            c->account[e * (HW_FIRST_SEMAPHORE + k->semaphores) + HW_DONE] += k->end - c->engines[e].since;
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
    free(m->taken), free(m->signalled);
    free(m->in_flight), free(m->stalled_at), free(m->index), free(m->feeds), free(m->places), free(m->table);
    free(m->key), free(m->winner), free(m->flows), free(m->shares), free(m->rates);
}

int hw_run_kernel(hw_kernel *kernel)
{
    machine m = {.k = kernel};
    build(&m);
    while (!m.failed) {
        int32_t next = m.winner[1];
        int64_t time = m.key[next];
        if (time == HW_NEVER) break;
        actor a = m.actors[next];
        core *c = &m.cores[a.core];
        if (a.kind == ISSUE) issue_event(&m, c, a.index, time);
        else if (a.kind == OCCUPANCY) occupancy_event(&m, c, a.index, time);
        else completion_event(&m, c, a.index, time);
    }
    int status = m.failed ? HW_NO_MEMORY : finish(&m);
    clear(&m);
    return status;
}
