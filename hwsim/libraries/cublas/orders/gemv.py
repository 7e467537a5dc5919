"""How cuBLAS's matrix-vector kernels (gemv) add over K: by lanes or parts, as the custom option of the answer says.

The options are data (configs/libraries/*.sums.yaml). It knows these kernels alone; not who takes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from hwsim.gemm.schedule import Schedule
from hwsim.gemm.summation import Chain, Reduction
from hwsim.libraries.cublas.answer import UNKNOWN, Answer
from hwsim.libraries.cublas.calls import CublasGemm
from hwsim.libraries.cublas.orders.sum_parts import SumTree, ascending, closed_parts, cut, lanes, span
from hwsim.libraries.kernel_choice import SummationOrder

if TYPE_CHECKING:
    from hwsim.libraries.model.sums_model import GemvModel, HalvingRow, InTurnRow, PartsRow, WarpRow

#: The sum over K from one element to another of a slice so long.
SliceSum = Callable[[CublasGemm, int, int, int], SumTree]


class Gemv:
    """The rule of matrix-vector kernels, by one version's table of custom options."""

    def __init__(self, table: GemvModel) -> None:
        self.warp, self.one_lane = table.warp, table.one_lane.options[0]
        rows: list[tuple[tuple[int, ...], SliceSum]] = [
            *((row.options, _halving(row, table)) for row in table.halving.values()),
            (table.warp.options, _warp(table.warp)),
            *((row.options, _in_turn(row)) for row in table.in_turn.values()),
            *((row.options, _parts(row)) for row in table.parts.values()),
            (table.one_lane.options, lambda call, length, start, stop: span(start, stop)),
        ]
        self.by_option = {option: slice_sum for options, slice_sum in rows for option in options}

    def order(self, call: CublasGemm, answer: Answer) -> SummationOrder:
        """Matrix-vector products: slices of ceil(K / s), ascending; within one by lanes, as the custom option says, so
        far as it is known on the generation.
        """
        generation = answer.generation
        if generation.known_options is not None and answer.custom not in generation.known_options:
            return UNKNOWN
        custom = self.one_lane if answer.custom in generation.open_options else answer.custom
        slice_sum = self.by_option.get(custom)
        if slice_sum is None:
            return UNKNOWN
        length = math.ceil(call.k / max(answer.slices, 1))
        parts = [slice_sum(call, length, start, stop) for start, stop in cut(call.k, length)]
        return SummationOrder(Schedule(sum=ascending(parts)))

    def lanes_by_m(self, call: CublasGemm, slices: int, custom: int) -> int:
        """The lanes per result where their number says how many; 0 where it does not depend on it."""
        is_by_results = any(rule.element_bytes == call.element_bytes for rule in self.warp.fewer.values())
        return _warp_lanes(self.warp, call) if custom in self.warp.options and is_by_results else 0


def _halving(row: HalvingRow, model: GemvModel) -> SliceSum:
    def slice_sum(call: CublasGemm, length: int, start: int, stop: int) -> SumTree:
        most = model.share_bytes // max(model.least_bytes, call.element_bytes)
        vector = row.elements or max(1, min(most, math.ceil(length / row.lanes)))
        return Reduction(tuple(lanes(start, stop, row.lanes, vector)), "halving", level="lanes")

    return slice_sum


def _warp(row: WarpRow) -> SliceSum:
    def slice_sum(call: CublasGemm, length: int, start: int, stop: int) -> SumTree:
        active = lanes(start, stop, _warp_lanes(row, call), row.elements)
        return Reduction((*active, *[Chain(())] * (row.lanes - len(active))), "halving", level="lanes")

    return slice_sum


def _warp_lanes(row: WarpRow, call: CublasGemm) -> int:
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
