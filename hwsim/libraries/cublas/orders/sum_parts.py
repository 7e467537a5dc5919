"""Sums over K as kernels make them: chains of ranges, parts, and lanes that take elements in turn.

It knows ranges and reductions; no kernel and no call.
"""

from __future__ import annotations

import math
from typing import Literal

from hwsim.gemm.summation import Chain, Range, Reduction

SumTree = Chain | Reduction


def cut(k: int, length: int) -> list[tuple[int, int]]:
    """Begin and end of the slices of a length."""
    return [(start, min(start + length, k)) for start in range(0, k, max(length, 1))]


def slice_lengths(k: int, length: int) -> tuple[int, ...] | None:
    """Slices of a length; None for one."""
    return None if length >= k else tuple(stop - start for start, stop in cut(k, length))


def span(start: int, stop: int) -> Chain:
    """One chain in order of K."""
    return Chain((Range(start, stop),))


def ascending(parts: list[SumTree], level: Literal["registers", "workspace"] = "workspace") -> SumTree:
    """Parts added in their order; one alone is itself."""
    return parts[0] if len(parts) == 1 else Reduction(tuple(parts), level=level)


def closed_parts(start: int, stop: int, count: int, block: int) -> SumTree:
    """Contiguous parts of K in order; a sum in each begins every `block` elements."""
    parts = [
        ascending([span(start + x + p, start + x + q) for p, q in cut(y - x, block)], "registers")
        for x, y in cut(stop - start, math.ceil((stop - start) / count))
    ]
    return ascending(parts, "registers")


def lanes(start: int, stop: int, width: int, vector: int, closed: int | None = None) -> list[SumTree]:
    """`width` lanes over elements start to stop, `vector` consecutive ones each; closed: a sum begins every so many."""
    tile = width * vector
    sums: list[SumTree] = []
    for lane in range(width):
        first = start + lane * vector
        if closed is None:
            sums.append(Chain((Range(first, stop, tile, vector),) if first < stop else ()))
            continue
        parts: list[SumTree] = [
            Chain((Range(at, min(stop, at + tile * closed), tile, vector),)) for at in range(first, stop, tile * closed)
        ]
        sums.append(ascending(parts, "registers") if parts else Chain(()))
    return sums
