/* The abstract execution of one core, as hwsim.program.order describes it, without its messages: vector clocks over the
 * tables of a kernel. It says only whether all went in order; whoever wants to know what did not walks there. */
#include <stdlib.h>
#include <string.h>

#include "hw_engine.h"

enum { TILES = 3, ENGINES = 64 };

typedef struct { int64_t instr, slot[TILES], row[TILES], col[TILES]; } queued; /* slot: place among all, or -1 */
typedef struct { queued *at; int64_t room, head, count; } queue;
typedef struct { int64_t clock, count; } tokens; /* so many that carry a clock, by its place among those kept */
typedef struct { tokens *at; int64_t room, head, count, sum; } semaphore;
typedef struct { int64_t engine, written, row, rows, col, cols, tick, next; } access;
typedef struct { int64_t pc, *variable; const hw_stream *model; queued next; int ended; } stream;

typedef struct {
    const hw_order *k;
    stream *streams;
    queue *queues;
    semaphore *semaphores;
    int64_t *clock;              /* engines x engines */
    int64_t *clocks, clock_room, clock_count; /* kept for tokens */
    int64_t *first_access, places;            /* per slot of a buffer, then per array: its accesses, or -1 */
    access *accesses;
    int64_t access_room, access_count;
    unsigned char *watched;      /* per array */
    int64_t *variables;
    int failed;                  /* no memory */
} walk;

/* --- room ------------------------------------------------------------------------------------------------- */

static void *more(walk *w, void *at, int64_t *room, size_t size)
{
    int64_t wanted = *room ? 2 * *room : 64;
    void *grown = realloc(at, (size_t)wanted * size);
    if (!grown) {
        w->failed = 1;
        return at;
    }
    *room = wanted;
    return grown;
}

static queued *push(walk *w, queue *q)
{
    if (q->count == q->room) {
        int64_t before = q->room;
        q->at = more(w, q->at, &q->room, sizeof *q->at);
        if (w->failed) return NULL;
        memmove(q->at + q->room - (before - q->head), q->at + q->head, (size_t)(before - q->head) * sizeof *q->at);
        q->head = before ? q->head + q->room - before : 0;
    }
    return &q->at[(q->head + q->count++) % q->room];
}

static void give(walk *w, semaphore *s, int64_t clock, int64_t count)
{
    if (s->head + s->count == s->room) {
        if (s->head > s->room / 2) {
            memmove(s->at, s->at + s->head, (size_t)s->count * sizeof *s->at);
            s->head = 0;
        } else {
            s->at = more(w, s->at, &s->room, sizeof *s->at);
            if (w->failed) return;
        }
    }
    s->at[s->head + s->count++] = (tokens){clock, count};
    s->sum += count;
}

/* --- a stream's nodes ------------------------------------------------------------------------------------- */

static int64_t value(const walk *w, const stream *s, int64_t index)
{
    const hw_affine *a = &w->k->affine[index];
    int64_t sum = a->constant;
    for (int64_t i = 0; i < a->terms; i++) {
        const hw_term *t = &w->k->term[a->first + i];
        sum += t->coefficient * s->variable[t->variable];
    }
    return sum;
}

static int64_t floor_mod(int64_t value, int64_t by)
{
    int64_t rest = value % by;
    return rest < 0 ? rest + by : rest;
}

static void derive(const walk *w, stream *s)
{
    const hw_derived *d = &w->k->derived[s->model->first_derived];
    for (int64_t i = 0; i < s->model->derived; i++, d++) {
        int64_t of = value(w, s, d->affine), rest = floor_mod(of, d->divisor);
        s->variable[d->variable] = d->remainder ? rest : (of - rest) / d->divisor;
    }
}

static int64_t passes(const walk *w, int64_t count)
{
    int64_t period = w->k->period;
    return !period || count <= 3 * period ? count : 2 * period + count % period;
}

/* To the next instruction, with where its tiles lie. */
static void fetch(const walk *w, stream *s)
{
    const hw_node *nodes = &w->k->node[s->model->first_node];
    while (s->pc < s->model->nodes) {
        const hw_node *n = &nodes[s->pc++];
        if (n->kind == HW_NODE_LOOP) s->variable[n->index] = 0;
        else if (n->kind == HW_NODE_ADVANCE) s->variable[n->index] += n->count;
        else if (n->kind == HW_NODE_END) {
            if (s->variable[n->index] + 1 < passes(w, n->count)) s->variable[n->index]++, s->pc = n->jump;
        } else {
            const hw_instr *x = &w->k->instr[n->index];
            const hw_tile *tile = &w->k->tile[x->first_tile];
            derive(w, s);
            s->next.instr = n->index;
            for (int64_t i = 0; i < x->writes + x->reads; i++, tile++) {
                s->next.row[i] = tile->row, s->next.col[i] = tile->col, s->next.slot[i] = -1;
                if (tile->affine_slot >= 0) {
                    int64_t slots = w->k->buffer_slots[tile->object];
                    s->next.slot[i] = w->k->first_slot[tile->object] + floor_mod(value(w, s, tile->affine_slot), slots);
                } else if (w->watched[tile->object]) {
                    s->next.slot[i] = w->places - w->k->arrays + tile->object;
                    s->next.row[i] = value(w, s, tile->affine_row), s->next.col[i] = value(w, s, tile->affine_col);
                }
            }
            return;
        }
    }
    s->ended = 1;
}

/* --- execution -------------------------------------------------------------------------------------------- */

/* Whether all waits of an instruction can be taken; if so they are, and the engine knows what the signallers knew. */
static int takes(walk *w, int64_t engine, const hw_instr *x)
{
    const hw_sync *wait = &w->k->sync[x->first_wait];
    int64_t engines = w->k->engines, *clock = &w->clock[engine * engines];
    for (int64_t i = 0; i < x->waits; i++) {
        int64_t needs = 0;
        if (w->k->semaphore_peers[wait[i].semaphore]) continue;
        for (int64_t j = 0; j < x->waits; j++)
            if (wait[j].semaphore == wait[i].semaphore) needs += wait[j].count;
        if (w->semaphores[wait[i].semaphore].sum < needs) return 0;
    }
    for (int64_t i = 0; i < x->waits; i++) {
        semaphore *s = &w->semaphores[wait[i].semaphore];
        int64_t count = wait[i].count;
        if (w->k->semaphore_peers[wait[i].semaphore]) continue;
        s->sum -= count;
        while (count) {
            tokens *first = &s->at[s->head];
            int64_t taken = first->count < count ? first->count : count;
            const int64_t *known = &w->clocks[first->clock * engines];
            for (int64_t e = 0; e < engines; e++) clock[e] = clock[e] < known[e] ? known[e] : clock[e];
            count -= taken, first->count -= taken;
            if (!first->count) s->head++, s->count--;
        }
    }
    return 1;
}

/* Note an access; 0: an earlier one to the same elements is not ordered before it. */
static int note(walk *w, int64_t engine, int64_t place, const hw_tile *tile, const queued *at, int64_t i, int64_t written)
{
    const int64_t *clock = &w->clock[engine * w->k->engines];
    int64_t row = at->row[i], col = at->col[i], rows = tile->rows, cols = tile->cols;
    access *own = NULL;
    for (int64_t n = w->first_access[place]; n >= 0; n = w->accesses[n].next) {
        access *a = &w->accesses[n];
        if (a->engine == engine) {
            if (a->written == written && a->row == row && a->col == col && a->rows == rows && a->cols == cols) own = a;
        } else if ((written || a->written) && clock[a->engine] < a->tick && row < a->row + a->rows &&
                   a->row < row + rows && col < a->col + a->cols && a->col < col + cols)
            return 0;
    }
    if (own) {
        own->tick = clock[engine];
        return 1;
    }
    if (w->access_count == w->access_room) {
        w->accesses = more(w, w->accesses, &w->access_room, sizeof *w->accesses);
        if (w->failed) return 0;
    }
    w->accesses[w->access_count] =
        (access){engine, written, row, rows, col, cols, clock[engine], w->first_access[place]};
    w->first_access[place] = w->access_count++;
    return 1;
}

static int execute(walk *w, int64_t engine, const queued *q)
{
    const hw_instr *x = &w->k->instr[q->instr];
    int64_t engines = w->k->engines, *clock = &w->clock[engine * engines];
    clock[engine]++;
    for (int64_t i = 0; i < x->writes + x->reads; i++)
        if (q->slot[i] >= 0 && !note(w, engine, q->slot[i], &w->k->tile[x->first_tile + i], q, i, i < x->writes)) return 0;
    if (!x->signals) return 1;
    if (w->clock_count == w->clock_room) {
        w->clocks = more(w, w->clocks, &w->clock_room, sizeof *w->clocks * (size_t)engines);
        if (w->failed) return 0;
    }
    memcpy(&w->clocks[w->clock_count * engines], clock, (size_t)engines * sizeof *clock);
    for (int64_t i = 0; i < x->signals && !w->failed; i++) {
        const hw_sync *signal = &w->k->sync[x->first_signal + i];
        give(w, &w->semaphores[signal->semaphore], w->clock_count, signal->count);
    }
    w->clock_count++;
    return !w->failed;
}

static int run(walk *w)
{
    const hw_order *k = w->k;
    for (int64_t i = 0; i < k->streams; i++) fetch(w, &w->streams[i]);
    for (int64_t budget = k->budget; budget > 0;) {
        int64_t before = budget, left = 0;
        for (int64_t i = 0; i < k->streams; i++)
            for (stream *s = &w->streams[i]; !s->ended; fetch(w, s)) {
                int64_t engine = k->instr[s->next.instr].engine;
                if (w->queues[engine].count >= k->queue_depth[engine]) break;
                queued *at = push(w, &w->queues[engine]);
                if (!at) return 0;
                *at = s->next;
            }
        for (int64_t e = 0; e < k->engines; e++) {
            queue *q = &w->queues[e];
            while (q->count && takes(w, e, &k->instr[q->at[q->head].instr])) {
                if (!execute(w, e, &q->at[q->head])) return 0;
                q->head = (q->head + 1) % q->room, q->count--, budget--;
            }
            left += q->count;
        }
        if (budget == before) return !left;
    }
    return 1;
}

/* Arrays that the core writes and that another engine of it reads or writes. 0: an instruction has too many tiles. */
static int watch(walk *w)
{
    uint64_t *engines = calloc((size_t)w->k->arrays + 1, sizeof *engines);
    unsigned char *written = calloc((size_t)w->k->arrays + 1, 1);
    int good = engines && written;
    for (int64_t i = 0; good && i < w->k->streams; i++) {
        const hw_stream *s = &w->k->stream[i];
        for (const hw_node *n = &w->k->node[s->first_node], *end = n + s->nodes; n < end && good; n++) {
            if (n->kind != HW_NODE_INSTR) continue;
            const hw_instr *x = &w->k->instr[n->index];
            const hw_tile *tile = &w->k->tile[x->first_tile];
            good = x->writes + x->reads <= TILES;
            for (int64_t j = 0; good && j < x->writes + x->reads; j++, tile++)
                if (tile->affine_slot < 0)
                    engines[tile->object] |= UINT64_C(1) << x->engine, written[tile->object] |= j < x->writes;
        }
    }
    for (int64_t i = 0; good && i < w->k->arrays; i++)
        w->watched[i] = written[i] && (engines[i] & (engines[i] - 1));
    free(engines), free(written);
    return good;
}

int hw_in_order(const hw_order *k)
{
    int64_t variables = 0, slots = 0, found = 0;
    for (int64_t i = 0; i < k->streams; i++) variables += k->stream[i].variables;
    for (int64_t i = 0; i < k->buffers; i++) slots += k->buffer_slots[i];
    if (k->engines > ENGINES || slots > k->most_slots) return 0;
    walk w = {.k = k, .places = slots + k->arrays};
    w.streams = calloc((size_t)k->streams + 1, sizeof *w.streams);
    w.queues = calloc((size_t)k->engines + 1, sizeof *w.queues);
    w.semaphores = calloc((size_t)k->semaphores + 1, sizeof *w.semaphores);
    w.clock = calloc((size_t)(k->engines * k->engines) + 1, sizeof *w.clock);
    w.variables = calloc((size_t)variables + 1, sizeof *w.variables);
    w.watched = calloc((size_t)k->arrays + 1, 1);
    w.first_access = malloc(((size_t)w.places + 1) * sizeof *w.first_access);
    w.clocks = more(&w, NULL, &w.clock_room, sizeof *w.clocks * (size_t)(k->engines + 1));
    if (!w.failed && w.streams && w.queues && w.semaphores && w.clock && w.variables && w.watched && w.first_access &&
        watch(&w)) {
        memset(w.clocks, 0, (size_t)k->engines * sizeof *w.clocks), w.clock_count = 1;
        for (int64_t i = 0; i < w.places; i++) w.first_access[i] = -1;
        for (int64_t i = 0; i < k->semaphores && !w.failed; i++)
            if (k->semaphore_initial[i] > 0) give(&w, &w.semaphores[i], 0, k->semaphore_initial[i]);
        int64_t *variable = w.variables;
        for (int64_t i = 0; i < k->streams; i++) {
            w.streams[i].model = &k->stream[i], w.streams[i].variable = variable;
            variable[0] = k->core, variable += k->stream[i].variables;
        }
        found = !w.failed && run(&w);
    }
    for (int64_t i = 0; w.queues && i < k->engines; i++) free(w.queues[i].at);
    for (int64_t i = 0; w.semaphores && i < k->semaphores; i++) free(w.semaphores[i].at);
    free(w.streams), free(w.queues), free(w.semaphores), free(w.clock), free(w.clocks), free(w.variables);
    free(w.watched), free(w.first_access), free(w.accesses);
    return (int)found;
}
