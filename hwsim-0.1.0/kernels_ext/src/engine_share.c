/* Max-min fair sharing: all rates rise together; a flow stops at its link's rate, or when something it uses is full. */
#include "hw_engine.h"

static int all_capped(hw_share **flows, int64_t count, const int64_t capacity[HW_SHARED])
{
    for (int k = 0; k < HW_SHARED; k++) {
        if (!capacity[k]) continue;
        int64_t left = capacity[k] << HW_WEIGHT_BITS;
        for (int64_t i = 0; i < count; i++) {
            __int128 taken = (__int128)flows[i]->cap * flows[i]->weight[k];
            if (taken > left) return 0;
            left -= (int64_t)taken;
        }
    }
    return 1;
}

/* A flow that has everything to itself. */
static void share_alone(hw_share *flow, const int64_t capacity[HW_SHARED])
{
    flow->rate = flow->cap;
    for (int k = 0; k < HW_SHARED; k++) {
        int64_t all = capacity[k] << HW_WEIGHT_BITS;
        if (capacity[k] && (__int128)flow->rate * flow->weight[k] > all) flow->rate = all / flow->weight[k];
    }
    if (!flow->rate) flow->rate = 1; /* never stop, whatever integer division leaves */
}

void hw_share_rates(hw_share **flows, int64_t count, const int64_t capacity[HW_SHARED])
{
    if (count == 1) {
        share_alone(flows[0], capacity);
        return;
    }
    if (all_capped(flows, count, capacity)) {
        for (int64_t i = 0; i < count; i++) flows[i]->rate = flows[i]->cap;
        return;
    }
    int64_t left[HW_SHARED];
    for (int k = 0; k < HW_SHARED; k++) left[k] = capacity[k] << HW_WEIGHT_BITS;
    for (int64_t i = 0; i < count; i++) flows[i]->frozen = 0;
    for (int64_t open = count; open > 0;) {
        int64_t level = HW_NEVER;
        int full = -1;
        for (int k = 0; k < HW_SHARED; k++) {
            int64_t weight = 0;
            for (int64_t i = 0; i < count; i++)
                if (!flows[i]->frozen) weight += flows[i]->weight[k];
            if (capacity[k] && weight && left[k] / weight < level) level = left[k] / weight, full = k;
        }
        int64_t slowest = HW_NEVER;
        for (int64_t i = 0; i < count; i++)
            if (!flows[i]->frozen && flows[i]->cap < slowest) slowest = flows[i]->cap;
        if (slowest <= level) level = slowest, full = -1;
        for (int64_t i = 0; i < count; i++) {
            hw_share *flow = flows[i];
            if (flow->frozen) continue;
            if (full < 0 ? flow->cap > level : !flow->weight[full]) continue;
            flow->frozen = 1, open--;
            flow->rate = level > 0 ? level : 1; /* never stop, whatever integer division leaves */
            for (int k = 0; k < HW_SHARED; k++) {
                if (!capacity[k]) continue;
                __int128 used = (__int128)level * flow->weight[k];
                left[k] = used < left[k] ? left[k] - (int64_t)used : 0;
            }
        }
    }
}
