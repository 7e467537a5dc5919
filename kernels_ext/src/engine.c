/* One kernel in time: streams issue into the queues of engines, engines take their queues in order.
 *
 * The rules stand in hwsim.machine.timing. Actors are a core's streams, its engines while they are occupied, and
 * its engines' pending completions; each has at most one next event. The earliest event is taken first; at equal
 * times the lowest actor: by group, then completions before occupancies before streams, each by index. Of several
 * engines that wait for what a completion signals, those waiting for its first signal come first, then by index.
 */
#include <stdlib.h>

#include "hw_engine.h"

typedef struct { int64_t instr, time, row, col, slot; } entry; /* time: of issue, or of completion */
typedef struct { entry *at; int64_t room, head, count; } ring; /* room: a power of two */

typedef enum { EMPTY, WAITING, OVERHEAD, DRAINING, OCCUPIED } state;

typedef struct {
    ring queue, pending;
    entry now;
    state state;
    int64_t since, semaphore;  /* of the state */
    int64_t start, cause, last_completion;
    uint64_t blocked;          /* streams that wait for room in the queue */
    hw_share share;            /* while DRAINING */
    int64_t remaining, updated, flow; /* bytes left and when; position among the active flows */
    int32_t actor;             /* of its occupancy */
} engine;

typedef struct {
    int64_t pc, *variable;
    const hw_stream *model;
    entry next;                /* the instruction being issued; instr -1: the stream has ended */
} stream;

typedef struct {
    const hw_group *group;
    engine *engines;
    stream *streams;
    int64_t *semaphore, *account, *blocked, *end;
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
    int64_t *variables;
    uint64_t *waiting;
    actor *actors;
    int64_t *key;              /* per actor: time of its next event */
    int32_t *winner, leaves;
    engine **flows;
    hw_share **shares;
    int64_t *rates;
    int64_t active;
    int failed;
} machine;

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

static void enter(machine *m, core *c, int64_t e, state next, int64_t time)
{
    engine *g = &c->engines[e];
    int64_t column = g->state == EMPTY ? HW_EMPTY : g->state == WAITING ? HW_FIRST_SEMAPHORE + g->semaphore : HW_BUSY;
    c->account[e * (HW_FIRST_SEMAPHORE + m->k->semaphores) + column] += time - g->since;
    if (time > g->since && column != HW_BUSY) g->cause = g->state == EMPTY ? HW_CAUSE_EMPTY : g->semaphore;
    g->state = next, g->since = time;
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

static int64_t core_coefficient(const machine *m, int64_t index)
{
    const hw_affine *a = &m->k->affine[index];
    int64_t sum = 0;
    for (int64_t i = 0; i < a->terms; i++)
        if (m->k->term[a->first + i].variable == 0) sum += m->k->term[a->first + i].coefficient;
    return sum;
}

/* Bytes that HBM moves for a transfer of a whole group; counts the traffic of L2 and HBM. */
static int64_t hbm_bytes(machine *m, const core *c, const engine *g, const hw_cost *cost)
{
    hw_kernel *k = m->k;
    const hw_tile *tile = &k->tile[cost->gm_tile];
    int64_t cores = c->group->count, write = cost->gm_write, fetched = 0, written_back = 0;
    if (!k->l2) {
        fetched = write ? 0 : cost->bytes * cores;
        written_back = write ? cost->bytes * cores : 0;
    } else {
        int64_t step_row = core_coefficient(m, tile->affine_row), step_col = core_coefficient(m, tile->affine_col);
        int64_t distinct = step_row || step_col ? cores : 1;
        for (int64_t i = 0; i < distinct; i++)
            if (hw_l2_access(k->l2, tile->object, g->now.row + i * step_row, g->now.col + i * step_col,
                             tile->rows, tile->cols, (int)write, &fetched, &written_back))
                m->failed = 1;
        k->counter[write ? HW_L2_WRITE : HW_L2_READ] += cost->bytes * cores;
    }
    if (!k->has_hbm) return 0;
    k->counter[HW_HBM_READ] += fetched;
    k->counter[HW_HBM_WRITE] += written_back;
    return fetched + written_back;
}

static void begin_flow(machine *m, core *c, int64_t e, int64_t time)
{
    engine *g = &c->engines[e];
    const hw_cost *cost = &m->k->cost[g->now.instr];
    int64_t hbm = hbm_bytes(m, c, g, cost);
    g->share.cap = cost->flow_rate, g->share.rate = 0;
    g->share.weight[HW_L2] = m->k->l2 ? c->group->count << HW_WEIGHT_BITS : 0;
    g->share.weight[HW_HBM] = ((hbm << HW_WEIGHT_BITS) + cost->flow_bytes - 1) / cost->flow_bytes;
    g->remaining = cost->flow_bytes << HW_RATE_BITS, g->updated = time;
    g->state = DRAINING; /* still busy: no change of account */
    g->flow = m->active, m->flows[m->active++] = g;
    share(m, time);
}

static void end_flow(machine *m, engine *g, int64_t time)
{
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

/* The engine is free: start the head of its queue if it can start. */
static void try_start(machine *m, core *c, int64_t e, int64_t time)
{
    engine *g = &c->engines[e];
    if (!g->queue.count) {
        if (g->state != EMPTY) enter(m, c, e, EMPTY, time);
        return;
    }
    int64_t index = g->queue.at[g->queue.head].instr;
    int64_t lacks = take(m, c, &m->k->instr[index]);
    if (lacks >= 0) {
        if (g->state != WAITING || g->semaphore != lacks) enter(m, c, e, WAITING, time);
        g->semaphore = lacks;
        c->waiting[lacks] |= UINT64_C(1) << e;
        return;
    }
    const hw_cost *cost = &m->k->cost[index];
    int flows = cost->flow_bytes > 0;
    enter(m, c, e, flows ? OVERHEAD : OCCUPIED, time);
    g->now = pop(&g->queue);
    g->start = time;
    m->k->executed[index]++;
    if (g->blocked) {
        int s = __builtin_ctzll(g->blocked);
        g->blocked &= g->blocked - 1;
        set_key(m, stream_actor(m, c, s), time);
    }
    if (flows && !cost->occupancy) begin_flow(m, c, e, time);
    else set_key(m, g->actor, time + cost->occupancy);
}

static void complete(machine *m, core *c, int64_t index, int64_t time)
{
    const hw_instr *in = &m->k->instr[index];
    const hw_sync *signal = &m->k->sync[in->first_signal];
    if (time > *c->end) *c->end = time;
    for (int64_t i = 0; i < in->signals; i++) c->semaphore[signal[i].semaphore] += signal[i].count;
    for (int64_t i = 0; i < in->signals; i++) {
        uint64_t *waiting = &c->waiting[signal[i].semaphore], heads = *waiting;
        for (*waiting = 0; heads; heads &= heads - 1) try_start(m, c, __builtin_ctzll(heads), time);
    }
}

static void completion_event(machine *m, core *c, int64_t e, int64_t time)
{
    engine *g = &c->engines[e];
    entry done = pop(&g->pending);
    set_key(m, completion_actor(m, g), g->pending.count ? g->pending.at[g->pending.head].time : HW_NEVER);
    complete(m, c, done.instr, time);
}

static void occupancy_event(machine *m, core *c, int64_t e, int64_t time)
{
    engine *g = &c->engines[e];
    if (g->state == OVERHEAD) {
        begin_flow(m, c, e, time);
        return;
    }
    int draining = g->state == DRAINING;
    set_key(m, g->actor, HW_NEVER);
    enter(m, c, e, EMPTY, time);
    if (draining) end_flow(m, g, time);
    int64_t index = g->now.instr, end = time + m->k->cost[index].tail;
    if (end < g->last_completion) end = g->last_completion; /* in order */
    g->last_completion = end;
    if (m->k->row_limit) record(m, c, e, time, end);
    g->cause = HW_CAUSE_NONE;
    if (end == time && !g->pending.count) {
        complete(m, c, index, time);
    } else {
        entry done = {index, end, 0, 0, 0};
        push(m, &g->pending, &done);
        if (g->pending.count == 1) set_key(m, completion_actor(m, g), end);
    }
    try_start(m, c, e, time);
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

/* Where an instruction's tile lies: the one in global memory, else (for the trace) the first it writes. */
static void locate(const machine *m, const stream *s, entry *e)
{
    int64_t gm = m->k->cost[e->instr].gm_tile;
    e->row = e->col = e->slot = -1;
    if (gm >= 0) {
        e->row = evaluate(m, s, m->k->tile[gm].affine_row);
        e->col = evaluate(m, s, m->k->tile[gm].affine_col);
    } else if (m->k->row_limit && m->k->instr[e->instr].writes) {
        const hw_tile *tile = &m->k->tile[m->k->instr[e->instr].first_tile];
        e->row = tile->row, e->col = tile->col, e->slot = evaluate(m, s, tile->affine_slot);
    }
}

/* Walk the nodes to the next instruction. */
static void fetch(const machine *m, stream *s)
{
    const hw_node *nodes = &m->k->node[s->model->first_node];
    while (s->pc < s->model->nodes) {
        const hw_node *n = &nodes[s->pc];
        switch (n->kind) {
        case HW_NODE_LOOP:
            s->variable[n->index] = 0;
            s->pc++;
            break;
        case HW_NODE_END:
            if (++s->variable[n->index] < n->count) s->pc = n->jump;
            else s->pc++;
            break;
        case HW_NODE_ADVANCE:
            s->variable[n->index] += n->count;
            s->pc++;
            break;
        default:
            s->pc++;
            s->next.instr = n->index;
            locate(m, s, &s->next);
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
    if (g->queue.count >= m->k->engine[e].queue_depth) {
        g->blocked |= UINT64_C(1) << index;
        set_key(m, a, HW_NEVER);
        return;
    }
    s->next.time = time;
    push(m, &g->queue, &s->next);
    fetch(m, s);
    set_key(m, a, s->next.instr < 0 ? HW_NEVER : time + m->k->engine[m->k->instr[s->next.instr].engine].issue_ticks);
    if (g->state == EMPTY) try_start(m, c, e, time);
}

/* --- the kernel ------------------------------------------------------------------------------------------- */

static void *table(machine *m, int64_t count, size_t size)
{
    void *p = calloc(count > 0 ? (size_t)count : 1, size);
    if (!p) m->failed = 1;
    return p;
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
    m->waiting = table(m, k->groups * k->semaphores, sizeof *m->waiting);
    m->actors = table(m, m->leaves, sizeof *m->actors);
    m->key = table(m, m->leaves, sizeof *m->key);
    m->winner = table(m, 2 * (int64_t)m->leaves, sizeof *m->winner);
    m->flows = table(m, engines, sizeof *m->flows);
    m->shares = table(m, engines, sizeof *m->shares);
    m->rates = table(m, engines, sizeof *m->rates);
    if (m->failed) return;
    for (int32_t i = 0; i < m->leaves; i++) m->key[i] = HW_NEVER, m->winner[m->leaves + i] = i;
    for (int32_t n = m->leaves - 1; n; n--) m->winner[n] = m->winner[2 * n];

    int64_t *variable = m->variables;
    int32_t next = 0;
    for (int64_t i = 0; i < k->groups; i++) {
        core *c = &m->cores[i];
        const hw_group *group = &k->group[i];
        *c = (core){
            .group = group, .engines = &m->engines[i * k->engines], .streams = &m->streams[group->first_stream],
            .semaphore = &k->semaphore[i * k->semaphores], .waiting = &m->waiting[i * k->semaphores],
            .account = &k->account[i * k->engines * (HW_FIRST_SEMAPHORE + k->semaphores)],
            .blocked = &k->blocked[i * k->engines * 2], .end = &k->group_end[i], .first_actor = next,
        };
        for (int64_t s = 0; s < k->semaphores; s++) c->semaphore[s] = k->semaphore_initial[s];
        for (int kind = COMPLETION; kind <= ISSUE; kind++) {
            int64_t count = kind == ISSUE ? group->streams : k->engines;
            for (int64_t j = 0; j < count; j++) m->actors[next++] = (actor){(int32_t)i, kind, (int32_t)j};
        }
        for (int64_t e = 0; e < k->engines; e++) {
            c->engines[e].actor = c->first_actor + (int32_t)(k->engines + e);
            c->engines[e].cause = HW_CAUSE_NONE;
        }
        for (int64_t s = 0; s < group->streams; s++) {
            stream *st = &c->streams[s];
            st->model = &k->stream[group->first_stream + s];
            st->variable = variable, variable += st->model->variables;
            st->variable[0] = group->first;
            fetch(m, st);
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
        free(m->engines[i].queue.at);
        free(m->engines[i].pending.at);
    }
    free(m->cores), free(m->engines), free(m->streams), free(m->variables), free(m->waiting), free(m->actors);
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
