"""Sums in an order that the schedule writes out: chains over chosen elements of K, and reductions of their results.

It knows `hwsim.gemm.summation`; the chains and the additions are the caller's. It knows no instruction and no library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError
from hwsim.gemm.summation import Chain, Range, Reduction

Codes = NDArray[Any]
Value = Any
Add = Callable[[Value, Value], Value]


def reduced(node: Chain | Reduction, value_of: Callable[[Chain], Value], add: Add, zero: Callable[[], Value]) -> Value:
    """The value of a written-out sum. value_of: of one chain; add: one rounded addition; zero: +0 everywhere.

    Raises InputError for a reduction of nothing, or an order that does not name each part once.
    """
    if isinstance(node, Chain):
        return value_of(node)
    values = [reduced(part, value_of, add, zero) for part in node.parts]
    if not values:
        raise InputError("schedule: a reduction has no parts; give at least one")
    values = _ordered(values, node.order)
    if node.start == "zero":
        values = [add(zero(), values[0]), *values[1:]]
    if node.order == "pairwise":
        return _tree(values, add, _neighbours)
    if node.order == "halving":
        return _tree(values, add, _halves)
    total = values[0]
    for value in values[1:]:
        total = add(total, value)
    return total


def _ordered(values: list[Value], order: Any) -> list[Value]:
    if isinstance(order, tuple):
        if sorted(order) != list(range(len(values))):
            raise InputError(f"schedule: order {order} of {len(values)} parts; allowed: each index once")
        return [values[index] for index in order]
    return values[::-1] if order == "descending" else values


def _neighbours(count: int) -> list[tuple[int, int]]:
    return [(index, index + 1) for index in range(0, count - 1, 2)]


def _halves(count: int) -> list[tuple[int, int]]:
    """Part i and part i + h, h half the next power of two: what lanes beyond the last one hold is nothing."""
    half = 1 << ((count - 1).bit_length() - 1)
    return [(index, index + half) for index in range(count - half)]


def _tree(values: list[Value], add: Add, pairs: Callable[[int], list[tuple[int, int]]]) -> Value:
    while len(values) > 1:
        chosen = pairs(len(values))
        taken = {right for _, right in chosen}
        sums = {left: add(values[left], values[right]) for left, right in chosen}
        values = [sums.get(index, value) for index, value in enumerate(values) if index not in taken]
    return values[0]


def gathered(
    ranges: Sequence[Range], step: int, a: Sequence[Codes], b: Sequence[Codes]
) -> tuple[list[Codes], list[Codes], list[tuple[int, int]]]:
    """The elements of K that the ranges name, one after the other, and the spans that begin new instructions.

    a: (m, K) codes, b: (K, n) codes; step: of K in an instruction. Blocks of whole instructions join into one span.
    """
    spans = [span for part in ranges for span in part.spans()]
    if len(spans) == 1:
        return list(a), list(b), spans
    index = np.concatenate([np.arange(start, stop) for start, stop in spans]) if spans else np.zeros(0, np.int64)
    places: list[tuple[int, int]] = []
    at = 0
    for start, stop in spans:
        if places and (places[-1][1] - places[-1][0]) % step == 0:
            places[-1] = (places[-1][0], at + stop - start)
        else:
            places.append((at, at + stop - start))
        at += stop - start
    return [x[:, index] for x in a], [x[index] for x in b], places


def elements(node: Chain | Reduction) -> int:
    """How many elements of K a sum takes."""
    if isinstance(node, Reduction):
        return sum(map(elements, node.parts))
    return sum(stop - start for part in node.ranges for start, stop in part.spans())
