/* A stream's walk through its nodes: variables, the next instruction, and where its tiles lie for every core of a group.
 *
 * Knows no time.
 */
#include "hw_engine_machine.h"

/* Which variables are derived, and which those are made of. */
void hw_stream_watch(const machine *m, stream *s)
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

/* An expression as the cores of a group see it: `first` on the first core, `step` more on each after it, and terms of the
 * core's derived variables, by their number. */
typedef struct { int64_t first, step, terms; const hw_term *term; } of_cores;

/* own: room for its terms. */
static of_cores for_cores(const machine *m, const stream *s, const hw_affine *a, hw_term *own)
{
    const hw_term *t = &m->k->term[a->first];
    of_cores sum = {.first = a->constant, .term = own};
    for (const hw_term *end = t + a->terms; t < end; t++) {
        int64_t derived = s->index[t->variable];
        if (derived >= 0) own[sum.terms++] = (hw_term){derived, t->coefficient};
        else sum.first += t->coefficient * s->variable[t->variable];
        if (!t->variable) sum.step += t->coefficient;
    }
    return sum;
}

/* Its value on one core; own: that core's derived variables. */
static inline int64_t value_for(const of_cores *sum, int64_t core, const int64_t *own)
{
    int64_t value = sum->first + core * sum->step;
    for (int64_t i = 0; i < sum->terms; i++) value += sum->term[i].coefficient * own[sum->term[i].variable];
    return value;
}

/* Room for that many terms; NULL: no memory. */
static hw_term *claim_terms(machine *m, int64_t count)
{
    if (count > m->term_room || !m->terms) {
        hw_term *terms = realloc(m->terms, sizeof *terms * (size_t)(count + 8));
        if (!terms) return NULL;
        m->terms = terms, m->term_room = count + 8;
    }
    return m->terms;
}

/* Derived variables of all cores of the group; NULL: no memory. */
static const int64_t *derived_of_cores(machine *m, const core *c, stream *s)
{
    int64_t count = s->model->derived;
    const hw_derived *d = &m->k->derived[s->model->first_derived];
    if (!s->of_core) s->of_core = malloc(sizeof *s->of_core * (size_t)(c->group->count * (count ? count : 1)));
    if (!s->of_core || s->of_core_version == s->version) return s->of_core;
    for (int64_t j = 0; j < count; j++) {
        const hw_affine *a = &m->k->affine[d[j].affine];
        hw_term *room = claim_terms(m, a->terms);
        if (!room) return NULL;
        const of_cores sum = for_cores(m, s, a, room);
        int64_t *own = s->of_core;
        for (int64_t i = 0; i < c->group->count; i++, own += count) own[j] = divided(value_for(&sum, i, own), &d[j]);
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
    const hw_affine *rows = &m->k->affine[tile->affine_row], *cols = &m->k->affine[tile->affine_col];
    const int64_t derived = s->model->derived, *own = derived_of_cores(m, c, s);
    placement *where = malloc(sizeof *where + sizeof *where->at * (size_t)cores);
    hw_term *room = claim_terms(m, rows->terms + cols->terms);
    int64_t mask = claim_table(m, cores);
    if (!own || !where || !room || mask < 0) {
        free(where);
        return NULL;
    }
    where->holders = 1, where->count = 0;
    const of_cores row_of = for_cores(m, s, rows, room), col_of = for_cores(m, s, cols, room + rows->terms);
    int ordered = 1;
    for (int64_t i = 0; i < cores; i++, own += derived) {
        spot at = {value_for(&row_of, i, own) - row, value_for(&col_of, i, own) - col, tile->rows, tile->cols};
        const spot *last = where->count ? &where->at[where->count - 1] : NULL;
        if (last && last->row == at.row && last->col == at.col) continue;
        int64_t slot = hash(at) & mask;
        for (; m->table[slot] >= 0; slot = (slot + 1) & mask) {
            const spot *there = &where->at[m->table[slot]];
            if (there->row == at.row && there->col == at.col) break;
        }
        if (m->table[slot] >= 0) continue;
        ordered &= !last || by_place(last, &at) < 0;
        m->table[slot] = (int32_t)where->count, where->at[where->count++] = at;
    }
    if (!ordered) qsort(where->at, (size_t)where->count, sizeof *where->at, by_place);
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
void hw_stream_fetch(machine *m, const core *c, stream *s)
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
