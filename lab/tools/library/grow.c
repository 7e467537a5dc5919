/* Grow a decision tree of many classes by Gini impurity: exact splits over presorted features.
 *
 * A step of the sweep costs the same however many classes there are: moving one sample from right to left changes the
 * sums of squared class counts by 2 c + 1 and 2 c - 1. Nodes are written depth first: the left child follows its parent.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t samples;
    int32_t features, classes;
    const uint16_t *bins; /* (features, samples) */
    const int32_t *labels;
    int32_t least_leaf, *order; /* (features, samples): samples by bin */
    int64_t *left, *right, *seen;
    uint8_t *side;
    int32_t *spare;
    int32_t *feature, *bin, *above, *next, *leaf, *count, *hits;
    int64_t nodes, room;
    double least_gain;
} Tree;

static int64_t add_node(Tree *t) {
    return t->nodes < t->room ? t->nodes++ : -1;
}

static int64_t grow(Tree *t, int64_t first, int64_t last, int depth) {
    int64_t n = last - first, here = add_node(t);
    if (here < 0) return -1;
    int32_t best_class = 0, distinct = 0;
    int64_t squares = 0;
    for (int64_t i = first; i < last; i++) {
        int32_t c = t->labels[t->order[i]];
        if (!t->right[c]++) t->seen[distinct++] = c;
    }
    for (int32_t i = 0; i < distinct; i++) {
        int64_t c = t->seen[i];
        squares += t->right[c] * t->right[c];
        if (t->right[c] > t->right[best_class] || i == 0) best_class = (int32_t)c;
    }
    t->feature[here] = -1; t->leaf[here] = best_class; t->count[here] = (int32_t)n;
    t->hits[here] = (int32_t)t->right[best_class]; t->next[here] = 0; t->bin[here] = 0; t->above[here] = 0;
    double best = (double)squares / n + t->least_gain;
    int best_feature = -1; uint16_t best_bin = 0, best_above = 0; int64_t best_left = 0;
    if (distinct > 1 && n >= 2 * t->least_leaf && depth < 60) {
        for (int f = 0; f < t->features; f++) {
            const int32_t *order = t->order + (int64_t)f * t->samples;
            const uint16_t *bins = t->bins + (int64_t)f * t->samples;
            if (bins[order[first]] == bins[order[last - 1]]) continue;
            int64_t l = 0, r = squares;
            for (int64_t i = first; i < last - 1; i++) {
                int32_t c = t->labels[order[i]];
                l += 2 * t->left[c]++ + 1;
                r -= 2 * t->right[c]-- - 1;
                if (bins[order[i]] != bins[order[i + 1]]) {
                    int64_t a = i + 1 - first, b = last - 1 - i;
                    if (a < t->least_leaf || b < t->least_leaf) continue;
                    double score = (double)l / a + (double)r / b;
                    if (score > best) {
                        best = score; best_feature = f; best_left = a;
                        best_bin = bins[order[i]]; best_above = bins[order[i + 1]];
                    }
                }
            }
            for (int32_t i = 0; i < distinct; i++) { int64_t c = t->seen[i]; t->right[c] += t->left[c]; t->left[c] = 0; }
        }
    }
    for (int32_t i = 0; i < distinct; i++) t->right[t->seen[i]] = 0;
    if (best_feature < 0) return here;
    const uint16_t *bins = t->bins + (int64_t)best_feature * t->samples;
    for (int64_t i = first; i < last; i++) { int32_t s = t->order[i]; t->side[s] = bins[s] > best_bin; }
    for (int f = 0; f < t->features; f++) {
        int32_t *order = t->order + (int64_t)f * t->samples;
        int64_t a = first, b = 0;
        for (int64_t i = first; i < last; i++) {
            int32_t s = order[i];
            if (t->side[s]) t->spare[b++] = s; else order[a++] = s;
        }
        memcpy(order + a, t->spare, (size_t)b * sizeof(int32_t));
    }
    t->feature[here] = best_feature; t->bin[here] = best_bin; t->above[here] = best_above;
    if (grow(t, first, first + best_left, depth + 1) < 0) return -1;
    int64_t second = grow(t, first + best_left, last, depth + 1);
    if (second < 0) return -1;
    t->next[here] = (int32_t)second;
    return here;
}

/* Returns the number of nodes, or -1 where there is no room for them. order: (features, samples), sorted by bin.
 * bin, above: of a split, the highest bin that goes left and the lowest that goes right among the node's samples. */
int64_t grow_tree(int64_t samples, int32_t features, int32_t classes, const uint16_t *bins, const int32_t *labels,
                  int32_t *order, int32_t least_leaf, double least_gain, int64_t room, int32_t *feature, int32_t *bin,
                  int32_t *above, int32_t *next, int32_t *leaf, int32_t *count, int32_t *hits) {
    Tree t = {.samples = samples, .features = features, .classes = classes, .bins = bins, .labels = labels,
              .least_leaf = least_leaf, .order = order, .feature = feature, .bin = bin, .above = above, .next = next, .leaf = leaf,
              .count = count, .hits = hits, .room = room, .least_gain = least_gain};
    t.left = calloc((size_t)classes, sizeof(int64_t));
    t.right = calloc((size_t)classes, sizeof(int64_t));
    t.seen = calloc((size_t)classes, sizeof(int64_t));
    t.side = calloc((size_t)samples, 1);
    t.spare = calloc((size_t)samples, sizeof(int32_t));
    int64_t done = grow(&t, 0, samples, 0);
    free(t.left); free(t.right); free(t.seen); free(t.side); free(t.spare);
    return done < 0 ? -1 : t.nodes;
}

/* Leaf node of each sample. values: (features, samples); threshold per node: left where value <= threshold. */
void find_leaves(int64_t samples, const double *values, const int32_t *feature, const double *threshold,
                 const int32_t *next, int32_t *found) {
    for (int64_t i = 0; i < samples; i++) {
        int32_t at = 0;
        while (feature[at] >= 0)
            at = values[(int64_t)feature[at] * samples + i] <= threshold[at] ? at + 1 : next[at];
        found[i] = at;
    }
}
