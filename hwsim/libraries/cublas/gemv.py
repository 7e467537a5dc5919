"""How cuBLAS's matrix-vector kernels (gemv) add over K: by lanes or parts, as the custom option of the answer says.

The options are data (configs/libraries/*.sums.yaml). It knows these kernels alone; not who takes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from hwsim.gemm.schedule import Schedule
from hwsim.gemm.summation import Chain, Reduction
from hwsim.libraries.cublas.answer import UNKNOWN, Answer, Order
from hwsim.libraries.cublas.calls import Call
from hwsim.libraries.cublas.sum_parts import SumTree, ascending, closed_parts, cut, lanes, span
from hwsim.libraries.cublas.versions import RULES
from hwsim.libraries.model.facts import sums_of

if TYPE_CHECKING:
    from hwsim.libraries.model.sums_model import GemvModel, HalvingRow, InTurnRow, PartsRow, WarpRow

#: The sum over K from one element to another of a slice so long.
SliceSum = Callable[[Call, int, int, int], SumTree]


def gemv(call: Call, answer: Answer) -> Order:
    """Matrix-vector products: slices of ceil(K / s), ascending; within one by lanes, as the custom option says, so far
    as it is known on the generation."""
    generation = answer.generation
    if generation.known_options is not None and answer.custom not in generation.known_options:
        return UNKNOWN
    custom = _one_lane() if answer.custom in generation.open_options else answer.custom
    found = _by_option().get(custom)
    if found is None:
        return UNKNOWN
    length = math.ceil(call.k / max(answer.slices, 1))
    return Order(Schedule(sum=ascending([found(call, length, x, y) for x, y in cut(call.k, length)])))


def lanes_by_m(call: Call, slices: int, custom: int) -> int:
    """The lanes per result where their number says how many; 0 where it does not depend on it."""
    warp = _tables().warp
    is_by_results = any(one.element_bytes == call.element_bytes for one in warp.fewer.values())
    return _warp_lanes(warp, call) if custom in warp.options and is_by_results else 0


def _tables() -> GemvModel:
    return sums_of(*RULES).gemv


@cache
def _one_lane() -> int:
    return _tables().one_lane.options[0]


@cache
def _by_option() -> dict[int, SliceSum]:
    """What each custom option stands for."""
    known = _tables()
    rows: list[tuple[tuple[int, ...], SliceSum]] = [
        *((row.options, _halving(row, known)) for row in known.halving.values()),
        (known.warp.options, _warp(known.warp)),
        *((row.options, _in_turn(row)) for row in known.in_turn.values()),
        *((row.options, _parts(row)) for row in known.parts.values()),
        (known.one_lane.options, lambda call, length, start, stop: span(start, stop)),
    ]
    return {option: found for options, found in rows for option in options}


def _halving(row: HalvingRow, known: GemvModel) -> SliceSum:
    def found(call: Call, length: int, start: int, stop: int) -> SumTree:
        most = known.share_bytes // max(known.least_bytes, call.element_bytes)
        vector = row.elements or max(1, min(most, math.ceil(length / row.lanes)))
        return Reduction(tuple(lanes(start, stop, row.lanes, vector)), "halving", level="lanes")

    return found


def _warp(row: WarpRow) -> SliceSum:
    def found(call: Call, length: int, start: int, stop: int) -> SumTree:
        own = lanes(start, stop, _warp_lanes(row, call), row.elements)
        return Reduction((*own, *[Chain(())] * (row.lanes - len(own))), "halving", level="lanes")

    return found


def _warp_lanes(row: WarpRow, call: Call) -> int:
    """Lanes per result, of which there are m n."""
    results = call.m * call.n
    for fewer in row.fewer.values():
        is_within = fewer.least_results <= results <= (fewer.most_results or results)
        is_odd = fewer.odd_blocks_of is None or math.ceil(results / fewer.odd_blocks_of) % 2 == 1
        if call.element_bytes == fewer.element_bytes and is_within and is_odd:
            return fewer.lanes
    return row.lanes


def _in_turn(row: InTurnRow) -> SliceSum:
    return lambda call, length, start, stop: ascending(lanes(start, stop, row.lanes, 1, row.closed_tiles), "registers")


def _parts(row: PartsRow) -> SliceSum:
    return lambda call, length, start, stop: closed_parts(start, stop, row.parts, row.closed)
