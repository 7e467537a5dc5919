"""A decision tree in a few bytes a node: packing, unpacking, and the leaf of a point.

Nodes stand breadth first, so that the children of the i-th node that splits are nodes 2 i + 1 and 2 i + 2 and no
pointer is kept. In the bytes thresholds stand by their feature, where like ones are neighbours and compress better. It
knows no feature and no library.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAF = 255
_HEAD = struct.Struct("<II")  # nodes, nodes that split


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """feature: (nodes,) uint8, LEAF at leaves. rank: splits among the nodes before. threshold: (splits,) float32, left
    where the feature is at most that. label, confidence: (leaves,) uint16 and uint8 (of 255)."""

    feature: NDArray[np.uint8]
    rank: NDArray[np.int64]
    threshold: NDArray[np.float32]
    label: NDArray[np.uint16]
    confidence: NDArray[np.uint8]

    def leaf(self, values: NDArray[np.float64]) -> tuple[int, float]:
        """Label and confidence (0 to 1) of a point with these feature values."""
        node = 0
        while (feature := int(self.feature[node])) != LEAF:
            rank = int(self.rank[node])
            node = 2 * rank + (1 if values[feature] <= self.threshold[rank] else 2)
        place = node - int(self.rank[node])
        return int(self.label[place]), float(self.confidence[place]) / 255

    def leaves(self, values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Labels and confidences of points; values: (features, points)."""
        node = np.zeros(values.shape[1], np.int64)
        at = np.arange(values.shape[1])
        while at.size:
            feature = self.feature[node[at]]
            at, feature = at[feature != LEAF], feature[feature != LEAF]
            rank = self.rank[node[at]]
            node[at] = 2 * rank + np.where(values[feature, at] <= self.threshold[rank], 1, 2)
        place = node - self.rank[node]
        return self.label[place].astype(np.int64), self.confidence[place] / 255.0

    def pack(self) -> bytes:
        """The bytes that `unpack` takes, in planes of like bytes."""
        threshold = self.threshold[_by_feature(self.feature)]
        planes = threshold.astype("<f4").view(np.uint8).reshape(-1, 4).T
        label = self.label.astype("<u2").view(np.uint8).reshape(-1, 2).T
        parts = (self.feature, np.ascontiguousarray(planes), np.ascontiguousarray(label), self.confidence)
        return _HEAD.pack(len(self.feature), len(self.threshold)) + b"".join(part.tobytes() for part in parts)


def _by_feature(feature: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The order in which thresholds are packed: by feature, those of one as their nodes stand."""
    return np.argsort(feature[feature != LEAF], kind="stable")


def unpack(data: bytes) -> Tree:
    """The tree that `Tree.pack` wrote. Raises ValueError for bytes of another length."""
    nodes, splits = _HEAD.unpack_from(data)
    leaves = nodes - splits
    if len(data) != _HEAD.size + nodes + 4 * splits + 3 * leaves or nodes != 2 * splits + 1:
        raise ValueError(f"{len(data)} bytes are no tree of {nodes} nodes")
    raw, start = np.frombuffer(data, np.uint8), _HEAD.size
    feature, start = raw[start : start + nodes], start + nodes
    planes, start = raw[start : start + 4 * splits], start + 4 * splits
    label, start = raw[start : start + 2 * leaves], start + 2 * leaves
    is_split = feature != LEAF
    rank = np.cumsum(is_split) - is_split
    threshold = np.empty(splits, np.float32)
    threshold[_by_feature(feature)] = np.ascontiguousarray(planes.reshape(4, -1).T).view("<f4").ravel()
    labels = np.ascontiguousarray(label.reshape(2, -1).T).view("<u2").ravel()
    return Tree(feature, rank, threshold, labels, raw[start:])
