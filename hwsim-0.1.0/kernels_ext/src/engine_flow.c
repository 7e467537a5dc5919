/* Transfers that drain: the rates they share, what L2 and HBM move for them, and writes that wait for HBM.
 *
 * Knows no queue and no semaphore.
 */
#include "hw_engine_machine.h"

/* Rates are drawn once for all that has begun and ended at a time, before the next event is looked for. */
void hw_flow_share(machine *m, int64_t time)
{
    m->unshared = 0;
    if (!m->active) return;
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
void hw_flow_write_deferred(machine *m, int64_t time)
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

/* What L2 gives when the cores of a group take `all` from it: those of a multicast take it once. */
static int64_t from_l2(int64_t all, const hw_cost *cost) { return cost->multicast == 1 ? all : all / cost->multicast; }

/* The rate of a link for a read of which `missing` of `bytes` are not in L2: the time of each part at its own rate. */
static int64_t link_rate(const hw_cost *cost, int64_t missing, int64_t bytes)
{
    if (!missing || cost->miss_rate == cost->flow_rate) return cost->flow_rate;
    if (missing >= bytes) return cost->miss_rate;
    __int128 part = ((__int128)missing << HW_WEIGHT_BITS) / bytes, whole = 1 << HW_WEIGHT_BITS;
    __int128 rate = whole * cost->flow_rate * cost->miss_rate /
                    (part * cost->flow_rate + (whole - part) * cost->miss_rate);
    return (int64_t)rate;
}

/* Bytes that HBM moves for a transfer of a whole group, and the rate of its link; counts the traffic of L2 and HBM. */
static int64_t hbm_bytes(machine *m, const core *c, engine *g, const hw_cost *cost)
{
    hw_kernel *k = m->k;
    const hw_tile *tile = &k->tile[cost->gm_tile];
    int64_t cores = c->group->count, write = cost->gm_write, touched = 0, fetched = 0, written_back = 0;
    g->share.cap = cost->flow_rate;
    if (!k->l2) {
        fetched = write ? 0 : cost->bytes * cores;
        written_back = write ? cost->bytes * cores : 0;
    } else {
        const placement *where = g->now.where;
        const spot same = {0, 0, tile->rows, tile->cols}, *at = where ? where->at : &same;
        for (int64_t i = 0, count = where ? where->count : 1; i < count; i++)
            if (hw_l2_access(k->l2, tile->object, g->now.row + at[i].row, g->now.col + at[i].col,
                             at[i].rows, at[i].cols, (int)write, cost->fetch_bytes, &touched, &fetched, &written_back))
                m->status = HW_NO_MEMORY;
        k->counter[write ? HW_L2_WRITE : HW_L2_READ] += from_l2(cost->bytes * cores, cost);
    }
    if (!k->has_hbm) return 0;
    if (fetched) g->late = k->miss_ticks, g->share.cap = link_rate(cost, fetched, touched);
    k->counter[HW_HBM_READ] += fetched;
    k->counter[HW_HBM_WRITE] += written_back;
    int64_t room = (k->deferred_limit - k->deferred) >> HW_RATE_BITS;
    if (k->capacity[HW_HBM] && room > 0) {
        int64_t later = written_back < room ? written_back : room;
        k->deferred += later << HW_RATE_BITS, written_back -= later;
    }
    return fetched + written_back;
}

void hw_flow_begin(machine *m, core *c, int64_t e, int64_t time)
{
    engine *g = &c->engines[e];
    const hw_cost *cost = &m->k->cost[g->now.instr];
    hw_flow_write_deferred(m, time);
    int64_t hbm = hbm_bytes(m, c, g, cost);
    release(g->now.where), g->now.where = NULL;
    g->share.rate = 0;
    g->share.weight[HW_L2] = m->k->l2 ? from_l2(c->group->count << HW_WEIGHT_BITS, cost) : 0;
    g->share.weight[HW_HBM] = hbm ? ((hbm << HW_WEIGHT_BITS) + cost->flow_bytes - 1) / cost->flow_bytes : 0;
    g->remaining = cost->flow_bytes << HW_RATE_BITS, g->updated = time;
    g->state = DRAINING; /* still busy: no change of account */
    g->flow = m->active, m->flows[m->active++] = g;
    m->unshared = 1;
}

void hw_flow_end(machine *m, engine *g, int64_t time)
{
    hw_flow_write_deferred(m, time);
    engine *last = m->flows[--m->active];
    m->flows[g->flow] = last, last->flow = g->flow;
    m->unshared = 1;
}
