"""Decision trees of many classes from samples: the C learner beside this file, and the packing of what it grows.

It knows feature values and labels; no library.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hwsim.libraries.cublas.answers.tree import LEAF, Tree

HERE = Path(__file__).resolve().parent
MOST_BINS = 60_000


@cache
def learner() -> ctypes.CDLL:
    """grow.c, compiled."""
    folder = Path(tempfile.mkdtemp())
    subprocess.run(
        ["gcc", "-O3", "-march=native", "-shared", "-fPIC", "-o", str(folder / "grow.so"), str(HERE / "grow.c")],
        check=True,
    )
    library = ctypes.CDLL(str(folder / "grow.so"))
    library.grow_tree.restype = ctypes.c_int64
    return library


def _at(array: np.ndarray) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class Grown:
    """Nodes depth first: feature (-1 at leaves), threshold, right child, majority label, samples, how many have it."""

    feature: np.ndarray
    threshold: np.ndarray
    right: np.ndarray
    label: np.ndarray
    count: np.ndarray
    hits: np.ndarray


def _binned(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each value its bin; of each bin its least and greatest value."""
    edges = np.unique(values)
    if len(edges) > MOST_BINS:
        edges = np.unique(np.quantile(values, np.linspace(0, 1, MOST_BINS), method="nearest"))
    bins = np.searchsorted(edges, values, side="left").clip(0, len(edges) - 1).astype(np.uint16)
    least = np.full(len(edges), np.inf)
    np.minimum.at(least, bins, values)
    return bins, least, edges


def shortest_between(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The float32 with the fewest digits that is at least `low` and below `high`, elementwise; compresses best."""
    found = high.astype(np.float32)
    done = np.zeros(len(low), bool)
    for bits in range(24):
        scale = 2.0 ** (np.floor(np.log2(np.maximum(high, 1e-30))) - bits)
        value = (np.ceil(high / scale) - 1) * scale  # the largest such number below high
        fits = ~done & (value >= low)
        found[fits] = value[fits]
        done |= fits
    found[~done] = low[~done].astype(np.float32)
    return found


def grow(values: np.ndarray, labels: np.ndarray, least_leaf: int = 1, least_gain: float = 1e-9) -> Grown:
    """A tree of values (features, samples) and labels (samples,) from 0."""
    count, samples = values.shape
    labels = np.ascontiguousarray(labels, np.int32)
    bins, order, edges = np.empty((count, samples), np.uint16), np.empty((count, samples), np.int32), []
    for index in range(count):
        bins[index], *own = _binned(values[index])
        edges.append(own)
        order[index] = np.argsort(bins[index], kind="stable")
    room = 2 * samples
    out = [np.zeros(room, np.int32) for _ in range(7)]
    nodes = learner().grow_tree(
        ctypes.c_int64(samples), ctypes.c_int32(count), ctypes.c_int32(int(labels.max()) + 1), _at(bins), _at(labels),
        _at(order), ctypes.c_int32(least_leaf), ctypes.c_double(least_gain), ctypes.c_int64(room),
        *(_at(x) for x in out),
    )  # fmt: skip
    feature, at, above, right, label, counts, hits = (x[:nodes].copy() for x in out)
    threshold = np.zeros(nodes, np.float32)
    splits = np.nonzero(feature >= 0)[0]
    if len(splits):
        low = np.array([edges[feature[i]][1][at[i]] for i in splits])
        high = np.array([edges[feature[i]][0][above[i]] for i in splits])
        threshold[splits] = shortest_between(low, high)
    return Grown(feature, threshold, right, label, counts, hits)


def leaves(tree: Grown, values: np.ndarray) -> np.ndarray:
    """The leaf node of each sample."""
    values = np.ascontiguousarray(values, np.float64)
    found = np.zeros(values.shape[1], np.int32)
    learner().find_leaves(
        ctypes.c_int64(values.shape[1]), _at(values), _at(tree.feature), _at(tree.threshold.astype(np.float64)),
        _at(tree.right), _at(found),
    )  # fmt: skip
    return found


def pruned(tree: Grown, price: float = 0.0) -> Grown:
    """The same tree without splits that are not worth it: whose leaves mend at most `price` samples each."""
    leaves, wrong = np.ones(len(tree.feature), np.int64), (tree.count - tree.hits).astype(np.int64)
    feature = tree.feature.copy()
    for node in range(len(feature) - 1, -1, -1):
        if feature[node] < 0:
            continue
        right = tree.right[node]
        below, split = leaves[node + 1] + leaves[right], wrong[node + 1] + wrong[right]
        if wrong[node] - split <= price * (below - 1):
            feature[node] = -1
        else:
            leaves[node], wrong[node] = below, split
    return Grown(feature, tree.threshold, tree.right, tree.label, tree.count, tree.hits)


def packed(tree: Grown, confidence: np.ndarray, labels: np.ndarray) -> Tree:
    """Breadth first, as hwsim reads it. confidence: per node, 0 to 1. labels: the number of each class."""
    order: list[int] = [0]
    feature: list[int] = []
    for node in order:  # grows while it is gone through
        splits = tree.feature[node] >= 0
        feature.append(int(tree.feature[node]) if splits else LEAF)
        if splits:
            order += [node + 1, int(tree.right[node])]
    nodes = np.array(order)
    is_leaf = np.array(feature) == LEAF
    kinds: Any = np.array(feature, np.uint8)
    rank = np.cumsum(~is_leaf) - ~is_leaf
    last = nodes[is_leaf]
    shares = (np.round(confidence[last] * 51) * 5).clip(0, 255).astype(np.uint8)  # fifty steps compress better
    return Tree(kinds, rank, tree.threshold[nodes[~is_leaf]], labels[tree.label[last]].astype(np.uint16), shares)
