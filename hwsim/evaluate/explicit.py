"""Sums in an order that the schedule writes out: chains over chosen elements of K, and reductions of their results.

It knows `hwsim.gemm.summation`; the chains and the additions are the caller's. It knows no instruction and no library.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError
from hwsim.gemm.summation import Chain, Range, Reduction

Codes = NDArray[Any]
Value = Any
ValueList = list[Value]
Add = Callable[[ValueList, ValueList, "str | None"], ValueList]
StoreRounding = Callable[[ValueList, "str | None"], ValueList]
SumTree = Chain | Reduction


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What a written-out sum is computed with.

    values_of: of chains that are alike (`shape_of`), in their order. add: one addition for each pair of values, rounded
    to a format (None: the unit's result format). stored: values rounded to a format (None: as they are). zero: +0
    everywhere.
    """

    values_of: Callable[[Sequence[Chain]], ValueList]
    add: Add
    stored: StoreRounding
    zero: Callable[[], Value]


def reduced(node: SumTree, arithmetic: Arithmetic) -> Value:
    """The value of a written-out sum, all parts of one level at once.

    Raises InputError for a reduction of nothing, or an order that does not name each part once.
    """
    return _values([node], arithmetic)[0]


def _values(nodes: Sequence[SumTree], arithmetic: Arithmetic) -> ValueList:
    results: ValueList = [None] * len(nodes)
    chains: dict[Hashable, list[int]] = {}
    sums: dict[Hashable, list[int]] = {}
    for index, node in enumerate(nodes):
        if isinstance(node, Chain):
            chains.setdefault(shape_of(node), []).append(index)
        else:
            kind = (len(node.parts), node.order, node.start, node.format, node.stored)
            sums.setdefault(kind, []).append(index)
    for kinds, compute in ((chains, arithmetic.values_of), (sums, partial(_reductions, arithmetic=arithmetic))):
        for members in kinds.values():
            chosen: Any = [nodes[index] for index in members]
            for index, value in zip(members, compute(chosen), strict=True):
                results[index] = value
    return results


def _reductions(nodes: Sequence[Reduction], arithmetic: Arithmetic) -> ValueList:
    """Reductions of equally many parts in one order and in the same formats; their sums in the accumulator's type."""
    count, order, fmt = len(nodes[0].parts), nodes[0].order, nodes[0].format
    if not count:
        raise InputError("schedule: a reduction has no parts; give at least one")
    all_parts = arithmetic.stored(_values([part for node in nodes for part in node.parts], arithmetic), nodes[0].stored)
    parts = _ordered([all_parts[index::count] for index in range(count)], order)

    def add(left: ValueList, right: ValueList) -> ValueList:
        return arithmetic.add(left, right, fmt)

    if nodes[0].start == "zero":
        parts = [add([arithmetic.zero() for _ in nodes], parts[0]), *parts[1:]]
    if order in ("pairwise", "halving"):
        return _tree(parts, add, _neighbours if order == "pairwise" else _halves)
    total = parts[0]
    for values in parts[1:]:
        total = add(total, values)
    return total


def shape_of(chain: Chain) -> Hashable:
    """Equal for chains that take equally long blocks of K at equal distances, wherever they begin."""
    if not chain.ranges:
        return ()
    first = chain.ranges[0].start
    return tuple((part.start - first, part.step, part.block, *_blocks(part)) for part in chain.ranges)


def _blocks(part: Range) -> tuple[int, int]:
    """Whole blocks of a range, and what its last one has."""
    whole, rest = divmod(part.stop - part.start, part.step)
    return (whole + 1, 0) if rest >= part.block else (whole, rest)


def _ordered(values: list[ValueList], order: Any) -> list[ValueList]:
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


def _tree(
    values: list[ValueList],
    add: Callable[[ValueList, ValueList], ValueList],
    pairs: Callable[[int], list[tuple[int, int]]],
) -> ValueList:
    """A tree over the parts of equal reductions: values[part][reduction]."""
    width = len(values[0])
    while len(values) > 1:
        chosen = pairs(len(values))
        taken = {right for _, right in chosen}
        left, right = ([x for pair in chosen for x in values[pair[side]]] for side in (0, 1))
        sums = add(left, right)
        at = {pair[0]: sums[index * width : (index + 1) * width] for index, pair in enumerate(chosen)}
        values = [at.get(index, value) for index, value in enumerate(values) if index not in taken]
    return values[0]


def gathered(
    chains: Sequence[Chain], step: int, group: int | None, a: Sequence[Codes], b: Sequence[Codes]
) -> tuple[list[Codes], list[Codes], list[tuple[int, int]]]:
    """The elements of K that chains which are alike take, and the spans of them that begin new instructions.

    a: (m, K) codes, b: (K, n) codes; step: of K in an instruction; group: K after which a new accumulation begins,
    counted from the chain's first element, or None. Blocks of whole instructions join into one span, unless a group
    ends within an instruction. Of g chains the rows of a lie one chain after the other, (g m, L), and so do the columns
    of b, (L, g n).
    """
    spans = [span for part in chains[0].ranges for span in part.spans()]
    if len(spans) == 1 and len(chains) == 1:
        return list(a), list(b), spans
    places: list[tuple[int, int]] = []
    at = 0
    for start, stop in spans:
        is_aligned = group is None or (group % step == 0 and at % step == 0)
        if places and (places[-1][1] - places[-1][0]) % step == 0 and is_aligned:
            places[-1] = (places[-1][0], at + stop - start)
        else:
            places.append((at, at + stop - start))
        at += stop - start
    if not spans:
        return [x[:, :0] for x in a], [x[:0] for x in b], places
    positions = np.concatenate([np.arange(start, stop) for start, stop in spans])
    index = positions + np.array([chain.ranges[0].start for chain in chains])[:, None] - chains[0].ranges[0].start
    left = [x[:, index].swapaxes(0, 1).reshape(len(chains) * x.shape[0], -1) for x in a]
    right = [x[index].swapaxes(0, 1).reshape(len(positions), -1) for x in b]
    return left, right, places


def diagonal(values: Codes, count: int) -> list[Codes]:
    """Of (g m, g n) values of g chains' rows and columns, g = count: those of each chain's own, (m, n)."""
    m, n = (size // count for size in values.shape)
    return [values[i * m : (i + 1) * m, i * n : (i + 1) * n] for i in range(count)]


def elements(node: Chain | Reduction) -> int:
    """How many elements of K a sum takes."""
    if isinstance(node, Reduction):
        return sum(map(elements, node.parts))
    return sum(stop - start for part in node.ranges for start, stop in part.spans())
