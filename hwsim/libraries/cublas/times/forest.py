"""A sum of regression trees over numbers of a GEMM: packing, unpacking, and its value at a point.

Nodes of a tree stand breadth first, so that the children of its i-th node that splits are its nodes 2 i + 1 and
2 i + 2 and no pointer is kept. All trees are walked at once. The module knows no feature, no library and no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAF = 255  # in the place of a feature


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """feature: (nodes,) uint8, LEAF at leaves. threshold: (nodes,) float32, left where the feature is at most that.
    left: (nodes,) the left child, itself at leaves. value: (nodes,) float32 of leaves. roots: (trees,)
    """

    feature: NDArray[np.uint8]
    threshold: NDArray[np.float32]
    left: NDArray[np.int64]
    value: NDArray[np.float32]
    roots: NDArray[np.int64]

    def at(self, point: Sequence[float]) -> float:
        """The sum of the trees' leaves for a point: at most 255 values."""
        values = np.zeros(LEAF + 1, np.float32)
        values[: len(point)] = point
        node = self.roots
        while True:
            feature = self.feature[node]
            inner = feature != LEAF
            if not inner.any():
                return float(self.value[node].sum(dtype=np.float64))
            node = self.left[node] + (inner & (values[feature] > self.threshold[node]))

    def pack(self) -> dict[str, NDArray[np.generic]]:
        """Small arrays that `unpack` takes: trees (nodes of each), feature, threshold (of nodes that split), value."""
        inner = self.feature != LEAF
        sizes = np.diff(np.append(self.roots, len(self.feature)))
        return {
            "trees": sizes.astype(np.uint16),
            "feature": self.feature,
            "threshold": self.threshold[inner],
            "value": self.value[~inner].astype(np.float16),
        }


def unpack(parts: Mapping[str, NDArray[np.generic]]) -> Forest:
    """The forest that `Forest.pack` gave. Raises ValueError for arrays of lengths that do not fit."""
    sizes = np.asarray(parts["trees"], np.int64)
    feature = np.asarray(parts["feature"], np.uint8)
    inner = feature != LEAF
    if sizes.sum() != len(feature) or len(sizes) + 2 * inner.sum() != len(feature):
        raise ValueError(f"{len(feature)} nodes, {inner.sum()} of which split, are not {len(sizes)} trees")
    if (len(parts["threshold"]), len(parts["value"])) != (inner.sum(), (~inner).sum()):
        raise ValueError(
            f"{len(parts['threshold'])} thresholds and {len(parts['value'])} values for {len(feature)} nodes"
        )
    roots = np.cumsum(sizes) - sizes
    root = np.repeat(roots, sizes)
    before = np.cumsum(inner) - inner  # splits before a node
    in_tree = before - before[root]
    threshold, value = np.zeros(len(feature), np.float32), np.zeros(len(feature), np.float32)
    threshold[inner], value[~inner] = parts["threshold"], parts["value"]
    left = np.where(inner, root + 2 * in_tree + 1, np.arange(len(feature)))
    return Forest(feature, threshold, left, value, roots)
