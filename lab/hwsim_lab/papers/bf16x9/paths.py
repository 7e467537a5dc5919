"""Orders of pairwise contractions of a tensor network: a greedy search with chance, slicing, and the cost of each pair.

It knows names of axes of length 2, as bits of integers; neither tensors nor circuits.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class PairCost:
    """log2 of a pair's matrix product: m, n, k."""

    m: int
    n: int
    k: int

    @property
    def multiply_adds(self) -> int:
        return 1 << (self.m + self.n + self.k)


@dataclass(frozen=True)
class ContractionPath:
    """pairs: tensors by number, the results numbered on from the last tensor; names: of every tensor and result.

    sliced: names whose values are gone through one by one; every pair is contracted once for each.
    """

    pairs: tuple[tuple[int, int], ...]
    names: tuple[int, ...]
    sliced: int = 0

    def costs(self) -> list[PairCost]:
        """Of the pairs, within a slice."""
        found = []
        for a, b in self.pairs:
            left, right = self.names[a] & ~self.sliced, self.names[b] & ~self.sliced
            found.append(PairCost((left & ~right).bit_count(), (right & ~left).bit_count(), (left & right).bit_count()))
        return found

    @property
    def multiply_adds(self) -> int:
        """Complex ones, of all slices."""
        within = ~self.sliced
        each = sum(1 << ((self.names[a] | self.names[b]) & within).bit_count() for a, b in self.pairs)
        return each << self.sliced.bit_count()

    @property
    def width(self) -> int:
        """log2 of the elements of the largest tensor or result, within a slice."""
        return max((names & ~self.sliced).bit_count() for names in self.names)


def bits_of(names: Sequence[int]) -> int:
    """Names as the bits of an integer."""
    return sum(1 << name for name in names)


def greedy(names: Sequence[Sequence[int]], random: np.random.Generator) -> ContractionPath:
    """One path: always the pair whose result is least beyond its operands, by a measure and a noise that are drawn."""
    weight, noise = random.uniform(0.2, 2.0), 10.0 ** random.uniform(-2, 0.5)
    every = [bits_of(one) for one in names]
    alive = set(range(len(every)))
    pairs: list[tuple[int, int]] = []
    heap: list[tuple[float, int, int]] = []

    def offer(a: int, b: int) -> None:
        result = 2.0 ** (every[a] ^ every[b]).bit_count()
        score = result - weight * (2.0 ** every[a].bit_count() + 2.0 ** every[b].bit_count())
        drawn = noise * float(random.gumbel())
        heapq.heappush(heap, (float(np.sign(score) * np.log2(1 + abs(score))) - drawn, a, b))

    for a in alive:
        for b in range(a):
            if every[a] & every[b]:
                offer(b, a)
    while len(alive) > 1:
        while heap and not {heap[0][1], heap[0][2]} <= alive:
            heapq.heappop(heap)
        if heap:
            _, a, b = heapq.heappop(heap)
        else:  # what is left shares no name
            a, b = sorted(alive, key=lambda i: every[i].bit_count())[:2]
        alive -= {a, b}
        every.append(every[a] ^ every[b])
        made = len(every) - 1
        pairs.append((a, b))
        for other in alive:
            if every[other] & every[made]:
                offer(other, made)
        alive.add(made)
    return ContractionPath(tuple(pairs), tuple(every))


def best(names: Sequence[Sequence[int]], seed: int, tries: int, most: int | None = None) -> ContractionPath:
    """The cheapest of some greedy paths, each sliced until no tensor has more than 2^most elements."""
    random = np.random.default_rng(seed)
    found = [greedy(names, random) for _ in range(tries)]
    if most is not None:
        cheap = sorted(found, key=lambda path: path.multiply_adds)[: max(1, tries // 8)]
        found = [sliced(path, most) for path in cheap]
    return min(found, key=lambda path: path.multiply_adds)


def sliced(path: ContractionPath, most: int) -> ContractionPath:
    """The path with as many names sliced as it takes, each time the name of the largest tensors that costs least."""
    count = max(names.bit_length() for names in path.names)
    in_tensor, in_pair = (
        np.array([[names >> name & 1 for name in range(count)] for names in every])
        for every in (path.names, [path.names[a] | path.names[b] for a, b in path.pairs])
    )
    whole = np.array([not path.sliced >> name & 1 for name in range(count)])
    while True:
        sizes = in_tensor[:, whole].sum(axis=1)
        if sizes.max() <= most:
            return replace(path, sliced=sum(1 << int(name) for name in np.flatnonzero(~whole)))
        costs = 2.0 ** in_pair[:, whole].sum(axis=1)
        saved = costs @ in_pair  # a pair without the name is contracted twice for nothing
        saved[~(whole & in_tensor[sizes == sizes.max()].any(axis=0))] = -1
        whole[saved.argmax()] = False
