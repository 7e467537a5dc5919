/* The fast path of the static checker, as hwsim.program.places describes it: bounds of addresses, scopes of variables and
 * counts of semaphores in one pass over the tables of a kernel. */
#include <stdlib.h>

#include "hw_engine.h"

/* The values of a variable or an expression: low to high unless it depends on a counter (open); defined at nodes begin
 * to end - 1 of the stream. */
typedef struct { int64_t low, high, begin, end; int open; } range;

enum { UNUSED, LOOP, COUNTER, LATER }; /* LATER: derived, not yet computed */

typedef struct {
    const hw_places *k;
    const hw_stream *model;
    const hw_node *nodes;
    range *variable;
    unsigned char *role; /* per variable */
} scan;

static int add(int64_t *sum, int64_t factor, int64_t value)
{
    int64_t product;
    return !__builtin_mul_overflow(factor, value, &product) && !__builtin_add_overflow(*sum, product, sum);
}

static int values(const scan *s, int64_t index, range *found)
{
    const hw_affine *a = &s->k->affine[index];
    const hw_term *t = &s->k->term[a->first];
    *found = (range){a->constant, a->constant, 0, s->model->nodes, 0};
    for (int64_t i = 0; i < a->terms; i++, t++) {
        const range *v = &s->variable[t->variable];
        if (s->role[t->variable] == LATER) return 0;
        if (v->begin > found->begin) found->begin = v->begin;
        if (v->end < found->end) found->end = v->end;
        found->open |= v->open;
        if (found->open) continue;
        if (!add(&found->low, t->coefficient, t->coefficient < 0 ? v->high : v->low)) return 0;
        if (!add(&found->high, t->coefficient, t->coefficient < 0 ? v->low : v->high)) return 0;
    }
    return 1;
}

static int64_t floor_div(int64_t value, int64_t by)
{
    return value / by - (value % by < 0);
}

static int64_t floor_mod(int64_t value, int64_t by)
{
    int64_t rest = value % by;
    return rest < 0 ? rest + by : rest;
}

/* The ranges of loops, counters and derived variables; 0 where a name has two meanings or none. */
static int declare(scan *s)
{
    int64_t nodes = s->model->nodes;
    for (int64_t i = 0; i < s->model->variables; i++) {
        s->variable[i] = (range){0, 0, 0, nodes, 1};
        s->role[i] = UNUSED;
    }
    s->variable[0] = (range){s->k->first_core, s->k->first_core + s->k->cores - 1, 0, nodes, 0};
    s->role[0] = LOOP;
    for (int64_t i = 0; i < nodes; i++) {
        const hw_node *n = &s->nodes[i];
        if (n->kind == HW_NODE_LOOP) {
            if (s->role[n->index] != UNUSED || n->count < 1) return 0;
            s->variable[n->index] = (range){0, n->count - 1, i, n->jump, 0};
            s->role[n->index] = LOOP;
        } else if (n->kind == HW_NODE_ADVANCE) {
            if (s->role[n->index] == LOOP) return 0;
            s->role[n->index] = COUNTER;
        }
    }
    const hw_derived *first = &s->k->derived[s->model->first_derived], *after = first + s->model->derived;
    for (const hw_derived *d = first; d < after; d++) {
        if (s->role[d->variable] != UNUSED || d->divisor < 1) return 0;
        s->role[d->variable] = LATER;
    }
    for (const hw_derived *d = first; d < after; d++) {
        range v;
        if (!values(s, d->affine, &v)) return 0;
        int64_t low = floor_div(v.low, d->divisor), high = floor_div(v.high, d->divisor);
        if (!d->remainder) v.low = low, v.high = high;
        else if (v.open || low != high) v.low = 0, v.high = d->divisor - 1, v.open = 0;
        else v.low = floor_mod(v.low, d->divisor), v.high = floor_mod(v.high, d->divisor);
        s->variable[d->variable] = v;
        s->role[d->variable] = UNUSED;
    }
    return 1;
}

static int is_inside(const range *v, int64_t at)
{
    return v->begin <= at && at < v->end;
}

/* Whether an expression has a value at a node, and `size` elements from there on lie in 0 .. extent - 1. */
static int fits(const scan *s, int64_t at, int64_t affine, int64_t size, int64_t extent)
{
    range v;
    int64_t end;
    if (!values(s, affine, &v) || !is_inside(&v, at)) return 0;
    return v.open || (v.low >= 0 && !__builtin_add_overflow(v.high, size, &end) && end <= extent);
}

static int tile_fits(const scan *s, int64_t at, const hw_tile *t)
{
    range v;
    if (t->affine_slot >= 0) return values(s, t->affine_slot, &v) && is_inside(&v, at);
    const int64_t *extent = &s->k->extent[2 * t->object];
    return fits(s, at, t->affine_row, t->rows, extent[0]) && fits(s, at, t->affine_col, t->cols, extent[1]);
}

static int zeroes(const scan *s, int64_t at, int64_t row)
{
    const int64_t *list = &s->k->zero_list[2 * row];
    for (int64_t i = 0; i < list[1]; i++) {
        int64_t index = s->k->zero_variable[list[0] + i];
        if (s->role[index] != LOOP || !is_inside(&s->variable[index], at)) return 0;
    }
    return 1;
}

/* Add waits or signals to a column of the sums, and those of shortened loops to the second column after it. */
static int count(const scan *s, int64_t first, int64_t number, int64_t column, int64_t whole, int64_t few)
{
    const hw_sync *sync = &s->k->sync[first];
    for (int64_t i = 0; i < number; i++, sync++) {
        int64_t *sum = &s->k->sums[4 * sync->semaphore + column];
        if (sync->count < 1 || !add(sum, whole, sync->count) || !add(sum + 2, few, sync->count)) return 0;
    }
    return 1;
}

static int scan_stream(scan *s)
{
    int64_t whole = 1, few = 1, period = s->k->period;
    if (!declare(s)) return 0;
    for (int64_t at = 0; at < s->model->nodes; at++) {
        const hw_node *n = &s->nodes[at];
        int64_t passes = !period || n->count <= 3 * period ? n->count : 2 * period + n->count % period;
        if (n->kind == HW_NODE_LOOP) {
            if (__builtin_mul_overflow(whole, n->count, &whole)) return 0;
            few *= passes;
        } else if (n->kind == HW_NODE_END) {
            whole /= n->count, few /= passes;
        } else if (n->kind == HW_NODE_INSTR) {
            const hw_instr *x = &s->k->instr[n->index];
            for (int64_t i = 0; i < x->writes + x->reads; i++)
                if (!tile_fits(s, at, &s->k->tile[x->first_tile + i])) return 0;
            if (x->opcode == s->k->zeroing && x->zero_at >= 0 && !zeroes(s, at, x->zero_at)) return 0;
            if (!count(s, x->first_signal, x->signals, 0, whole, few)) return 0;
            if (!count(s, x->first_wait, x->waits, 1, whole, few)) return 0;
        }
    }
    return 1;
}

int hw_check_places(const hw_places *k)
{
    int64_t most = 1;
    for (int64_t i = 0; i < k->streams; i++)
        if (k->stream[i].variables > most) most = k->stream[i].variables;
    scan s = {.k = k, .variable = malloc((size_t)most * sizeof(range)), .role = malloc((size_t)most)};
    int good = s.variable && s.role;
    for (int64_t i = 0; good && i < k->streams; i++) {
        s.model = &k->stream[i], s.nodes = &k->node[k->stream[i].first_node];
        good = scan_stream(&s);
    }
    free(s.variable), free(s.role);
    return good;
}
