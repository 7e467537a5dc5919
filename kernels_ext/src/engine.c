/* One kernel in time: streams issue into the queues of engines, engines take their queues in order.
 *
 * The rules stand in hwsim.machines.timing. Actors are a core's streams, its engines while they are occupied, and
 * its engines' pending completions; each has at most one next event. The earliest event is taken first; at equal
 * times the lowest actor: by group, then completions before occupancies before streams, each by index. Of several
 * engines that wait for what a completion signals, those waiting for its first signal come first, then by group and
 * index. A semaphore of peers counts what the representatives of all groups give and take: each of its groups has as
 * many cores, which meet one by one.
 */
#include "hw_engine_machine.h"

/* The core that keeps a semaphore: each its own, the first those of peers. */
static inline core *keeper(const machine *m, core *c, int64_t s)
{
    return m->peers && m->k->semaphore_peers[s] ? m->cores : c;
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
        g->signaller = keeper(m, c, g->semaphore)->signaller[g->semaphore];
    } else if (g->state == THROTTLED) {
        account[HW_IN_FLIGHT] += spent, g->cause = HW_CAUSE_IN_FLIGHT, g->signaller = -1;
    } else if (g->state == EMPTY) {
        int64_t full = stalled(&c->streams[g->issuer], time) - c->stalled_at[e * c->group->streams + g->issuer];
        account[HW_QUEUE_FULL] += full, account[HW_EMPTY] += spent - full;
        g->cause = full ? HW_CAUSE_QUEUE_FULL : HW_CAUSE_EMPTY, g->signaller = -1;
    } else {
        account[HW_BUSY] += spent;
    }
    g->since = time;
}

static void record(machine *m, core *c, int64_t e, int64_t free_at, int64_t end)
{
    hw_kernel *k = m->k;
    const engine *g = &c->engines[e];
    int64_t group = c->group - k->group;
    if ((k->row_group >= 0 && group != k->row_group) || end < k->row_from || g->start >= k->row_to) return;
    if (k->rows >= k->row_limit) {
        k->lost++;
        return;
    }
    k->row[k->rows++] = (hw_row){group, e, g->now.instr, g->now.time, g->start, free_at, end,
                                 g->now.row, g->now.col, g->now.slot, g->cause, g->number, g->signaller};
    if (k->rows < k->row_limit || !k->row_full) return;
    if (k->row_full(k)) m->status = HW_STOPPED;
    k->rows = 0;
}

/* --- engines ---------------------------------------------------------------------------------------------- */

/* Take all waits of an instruction, or none: returns the semaphore that lacks, or -1. */
static int64_t take(const machine *m, core *c, const operation *o)
{
    for (int64_t i = 0; i < o->waits; i++) {
        int64_t s = o->wait[i].semaphore, *semaphore = &keeper(m, c, s)->semaphore[s];
        if (*semaphore < o->wait[i].count) {
            while (i-- > 0) {
                int64_t taken = o->wait[i].semaphore;
                keeper(m, c, taken)->semaphore[taken] += o->wait[i].count;
            }
            return s;
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

static void give_back(const machine *m, core *c, const operation *o)
{
    for (int64_t i = 0; i < o->waits; i++) {
        int64_t s = o->wait[i].semaphore;
        keeper(m, c, s)->semaphore[s] += o->wait[i].count;
    }
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

static void let_issue(machine *m, core *c, engine *g, int64_t time, int started);
static void try_start(machine *m, core *c, int64_t e, int64_t time);

/* The engines of a core whose heads wait for a semaphore look again. */
static void wake(machine *m, core *c, int64_t semaphore, int64_t time)
{
    uint64_t *waiting = &c->waiting[semaphore], heads = *waiting;
    for (*waiting = 0; heads; heads &= heads - 1) try_start(m, c, __builtin_ctzll(heads), time);
}

static void give_pieces(machine *m, core *c, const operation *o, int64_t number, int64_t time)
{
    for (int64_t i = 0; i < o->signals; i++)
        if (m->k->semaphore_pieces[o->signal[i].semaphore]) {
            c->semaphore[o->signal[i].semaphore] += o->signal[i].count;
            c->signaller[o->signal[i].semaphore] = number;
        }
    for (int64_t i = 0; i < o->signals; i++)
        if (m->k->semaphore_pieces[o->signal[i].semaphore]) wake(m, c, o->signal[i].semaphore, time);
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
    give_pieces(m, c, o, g->number, time);
}

/* The engine is free (EMPTY, WAITING or THROTTLED) and its queue is not empty: start the head if it can start. */
static void try_start(machine *m, core *c, int64_t e, int64_t time)
{
    engine *g = &c->engines[e];
    int64_t index = g->queue.at[g->queue.head].instr;
    const operation *o = &m->operations[index];
    int64_t lacks = take(m, c, o);
    settle(m, c, e, time);
    if (lacks >= 0) {
        g->state = WAITING, g->since = time, g->semaphore = lacks;
        c->waiting[lacks] |= UINT64_C(1) << e;
        return;
    }
    if (!has_room(m, c, o)) {
        give_back(m, c, o);
        g->state = THROTTLED, g->since = time;
        return;
    }
    g->state = o->flows ? OVERHEAD : OCCUPIED, g->since = time;
    g->now = *pop(&g->queue), g->taken -= o->places;
    g->start = time, g->late = 0, g->number = m->k->started++;
    if (o->window >= 0) c->in_flight[o->window] += o->window_bytes;
    m->k->executed[index]++;
    if (m->pieces) take_pieces(m, c, g, o);
    if (g->blocked) let_issue(m, c, g, time, o->flows || o->occupancy);
    if (o->flows && !o->occupancy) hw_flow_begin(m, c, e, time);
    else set_key(m, g->actor, time + o->occupancy);
    if (m->pieces && !o->bare) {
        g->now.given = 1;
        give_pieces(m, c, o, g->number, time);
        give_ahead(m, c, g, time);
    }
}

static void leave(machine *m, core *c, int64_t e, int64_t time);

/* The signals of an instruction; given: those in pieces have been given. */
static void signal_all(const machine *m, core *c, const operation *o, int64_t given, int64_t number)
{
    for (int64_t i = 0; i < o->signals; i++) {
        int64_t s = o->signal[i].semaphore;
        core *at = keeper(m, c, s);
        if (!given || !m->k->semaphore_pieces[s]) at->semaphore[s] += o->signal[i].count, at->signaller[s] = number;
        if (m->pieces) c->signalled[s] += o->signal[i].count;
    }
}

static void complete(machine *m, core *c, int64_t index, int64_t given, int64_t number, int64_t time)
{
    const operation *o = &m->operations[index];
    if (time > *c->end) *c->end = time;
    signal_all(m, c, o, given, number);
    if (o->window >= 0) c->in_flight[o->window] -= o->window_bytes;
    for (int64_t i = 0; i < o->signals; i++) {
        int64_t s = o->signal[i].semaphore;
        if (m->peers && m->k->semaphore_peers[s])
            for (int64_t other = 0; other < m->k->groups; other++) wake(m, &m->cores[other], s, time);
        else
            wake(m, c, s, time);
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
    int64_t index = done->instr, given = done->given, number = done->row;
    int32_t a = completion_actor(m, g);
    if (g->pending.count) set_key(m, a, g->pending.at[g->pending.head].time);
    else clear_key(m, a);
    complete(m, c, index, given, number, time);
}

static void occupancy_event(machine *m, core *c, int64_t e, int64_t time)
{
    engine *g = &c->engines[e];
    if (g->state == OVERHEAD) {
        hw_flow_begin(m, c, e, time);
        return;
    }
    if (g->state == DRAINING) hw_flow_end(m, g, time);
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
    g->cause = HW_CAUSE_NONE, g->signaller = -1;
    if (end == time && !g->pending.count) {
        complete(m, c, index, g->now.given, g->number, time);
    } else if (!m->operations[index].awaited) {
        if (end > *c->end) *c->end = end;
    } else {
        entry *done = add(m, &g->pending);
        if (!done) return;
        done->instr = index, done->time = end, done->given = g->now.given, done->row = g->number;
        if (g->pending.count == 1) set_key(m, completion_actor(m, g), end);
    }
    if (g->queue.count) try_start(m, c, e, time);
    else become_empty(c, e, time);
    if (g->state < OVERHEAD) clear_key(m, g->actor);
}

/* --- issue ------------------------------------------------------------------------------------------------ */

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
    hw_stream_fetch(m, c, s);
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

/* An instruction has left the queue of an engine: the streams that may go on, which are all for whose next instruction
 * there is room now. One that is not ready yet does so when it is. One that waits has an event of its own at this time,
 * in which it looks again, as streams before it may have taken the places; what needs a single place is left out where
 * as many before it need one, as each of them finds room or leaves none. The event is left out where nothing else at
 * this time can tell: no other stream feeds the engine, which has started something that takes time. */
static void let_issue(machine *m, core *c, engine *g, int64_t time, int started)
{
    int64_t room = g->queue_depth - g->taken, single = 0;
    for (uint64_t left = g->blocked; left; left &= left - 1) {
        int i = __builtin_ctzll(left);
        stream *s = &c->streams[i];
        const operation *o = &m->operations[s->next.instr];
        int waits = s->since < time;
        if (waits && (!fits(g, o) || (o->places == 1 && single >= room))) continue;
        single += waits && o->places == 1;
        g->blocked ^= left & -left;
        int64_t at = waits ? time : s->since;
        end_stall(m, s, time);
        if (waits && started && g->feeders == 1) issue(m, c, i, time);
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

/* For each engine the streams with instructions for it. */
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

/* Room for everything, zeros. Without memory the status says so. */
static void allocate(machine *m)
{
    const hw_kernel *k = m->k;
    int64_t engines = k->groups * k->engines, variables = 0, actors = 2 * engines + k->streams;
    for (int64_t i = 0; i < k->streams; i++) variables += k->stream[i].variables;
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
    m->signaller = table(m, k->groups * k->semaphores, sizeof *m->signaller);
    m->in_flight = table(m, k->groups * k->windows, sizeof *m->in_flight);
    m->stalled_at = table(m, k->engines * k->streams, sizeof *m->stalled_at);
    m->actors = table(m, m->leaves, sizeof *m->actors);
    m->next = table(m, 2 * (int64_t)m->leaves, sizeof *m->next);
    m->flows = table(m, engines, sizeof *m->flows);
    m->shares = table(m, engines, sizeof *m->shares);
    m->rates = table(m, engines, sizeof *m->rates);
}

/* The parts of the machine's arrays that are a group's core; its actors are numbered from `first_actor` on. */
static void place_core(machine *m, int64_t number, int32_t first_actor)
{
    hw_kernel *k = m->k;
    core *c = &m->cores[number];
    const hw_group *group = &k->group[number];
    *c = (core){
        .group = group, .engines = &m->engines[number * k->engines], .streams = &m->streams[group->first_stream],
        .semaphore = &k->semaphore[number * k->semaphores], .waiting = &m->waiting[number * k->semaphores],
        .taken = &m->taken[number * k->semaphores], .signalled = &m->signalled[number * k->semaphores],
        .signaller = &m->signaller[number * k->semaphores],
        .in_flight = &m->in_flight[number * k->windows],
        .stalled_at = &m->stalled_at[k->engines * group->first_stream],
        .blocked = &k->blocked[number * k->engines * 2], .end = &k->group_end[number],
        .first_actor = first_actor,
    };
    for (int64_t s = 0; s < k->semaphores; s++) {
        c->semaphore[s] = c->signalled[s] = k->semaphore_initial[s];
        c->signaller[s] = -1;
    }
    for (int kind = COMPLETION; kind <= ISSUE; kind++) {
        int64_t count = kind == ISSUE ? group->streams : k->engines;
        for (int64_t j = 0; j < count; j++) m->actors[first_actor++] = (actor){(int32_t)number, kind, (int32_t)j};
    }
    for (int64_t e = 0; e < k->engines; e++) {
        c->engines[e].actor = c->first_actor + (int32_t)(k->engines + e);
        c->engines[e].cause = HW_CAUSE_NONE, c->engines[e].signaller = c->engines[e].piece = -1;
        c->engines[e].queue_depth = k->engine[e].queue_depth;
        c->engines[e].account = &k->account[(number * k->engines + e) * (HW_FIRST_SEMAPHORE + k->semaphores)];
    }
}

static void build(machine *m)
{
    hw_kernel *k = m->k;
    allocate(m);
    if (m->status != HW_OK) return;
    for (int64_t i = 0; i < 2 * (int64_t)m->leaves; i++) m->next[i] = HW_NEVER;
    for (int64_t i = 0; i < k->instrs; i++) m->operations[i] = operation_of(k, i);
    for (int64_t s = 0; s < k->semaphores; s++) {
        m->pieces |= k->semaphore_pieces[s] != 0;
        m->peers |= k->semaphore_peers[s] != 0;
    }

    int64_t *variable = m->variables, *index = m->index;
    unsigned char *feeds = m->feeds;
    int32_t actors = 0;
    for (int64_t i = 0; i < k->groups; i++) {
        core *c = &m->cores[i];
        const hw_group *group = &k->group[i];
        place_core(m, i, actors);
        actors += (int32_t)(2 * k->engines + group->streams);
        for (int64_t s = 0; s < group->streams; s++) {
            stream *st = &c->streams[s];
            st->model = &k->stream[group->first_stream + s];
            st->variable = variable, variable += st->model->variables;
            st->index = index, index += st->model->variables;
            st->feeds = feeds, feeds += st->model->variables;
            st->variable[0] = group->first, st->on = -1;
            hw_stream_watch(m, st);
            hw_stream_fetch(m, c, st);
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
    hw_flow_write_deferred(m, k->end);
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
    free(m->taken), free(m->signalled), free(m->signaller), free(m->terms);
    free(m->operations), free(m->next), free(m->flows), free(m->shares), free(m->rates);
}

enum { EVENTS_UNASKED = 1 << 17 }; /* some hundredths of a second */

int hw_run_kernel(hw_kernel *kernel)
{
    machine m = {.k = kernel, .status = HW_OK};
    build(&m);
    for (int64_t events = 1; m.status == HW_OK; events++) {
        if (!(events % EVENTS_UNASKED) && kernel->interrupted && kernel->interrupted(kernel)) {
            m.status = HW_STOPPED;
            break;
        }
        int64_t event = m.next[1], time = event >> m.actor_bits;
        if (event == HW_NEVER) break;
        actor a = m.actors[event & ((1 << m.actor_bits) - 1)];
        core *c = &m.cores[a.core];
        if (a.kind == ISSUE) issue_event(&m, c, a.index, time);
        else if (a.kind == OCCUPANCY) occupancy_event(&m, c, a.index, time);
        else completion_event(&m, c, a.index, time);
        if (m.unshared) hw_flow_share(&m, time);
    }
    int status = m.status == HW_OK ? finish(&m) : m.status;
    clear(&m);
    return status;
}
