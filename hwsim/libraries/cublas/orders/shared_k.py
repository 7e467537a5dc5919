"""Tiles of an xmma kernel for Hopper whose K several CTAs share, and into how many parts they cut it.

When, into how many parts and beside how many clusters is data (configs/libraries/*.sums.yaml), found from bits: the
parts with the least of steps of K, plus what joining costs, which rises with the levels of the tree of sums. It knows
grids, steps and parts; not which kernel a call takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hwsim.gemm.schedule import Schedule
from hwsim.gemm.summation import Range, Reduction, Region
from hwsim.libraries.cublas.answer import UNKNOWN, Answer
from hwsim.libraries.cublas.calls import CublasGemm
from hwsim.libraries.cublas.orders.raster import Grid, block_width, grid_of, last_clusters
from hwsim.libraries.cublas.orders.sum_parts import SumTree, span
from hwsim.libraries.kernel_choice import SummationOrder
from hwsim.libraries.model.sums_model import ClustersModel, SharedKModel, SharingModel


class JoinCost(NamedTuple):
    """What joining parts costs, in steps of K: levels[i] where the tree of sums has i + 1 levels, and per part."""

    levels: tuple[float, ...]
    part: float

    def of(self, parts: int) -> float:
        """The cost of joining so many parts."""
        return 0.0 if parts < 2 else self.levels[(parts - 1).bit_length() - 1] + self.part * parts


FREE = JoinCost((0.0,) * 5, 0.0)


@dataclass(frozen=True, slots=True)
class Sharing:
    """When tiles are shared: K up to which none is, and from which all are known to be; what joining costs by tile."""

    whole_k: int
    shared_k: int
    join: Mapping[tuple[int, int], JoinCost]


class SharedK:
    """The rule of kernels whose CTAs share the K of the last tiles, by one version's tables."""

    def __init__(self, table: SharedKModel) -> None:
        self.table = table
        self.after_waves, self.alone = _sharing(table.after_waves), _sharing(table.alone)
        self.chips = {chip.sms: chip for chip in table.chips.values()}  # clusters at once, by a chip's SMs

    def order(self, call: CublasGemm, answer: Answer, is_transposed: bool) -> SummationOrder:
        """The order of summation where CTAs share the K of the last tiles, if that fills the SMs. is_transposed: the
        kernel computes C transposed.
        """
        chip = self.chips.get(answer.cores)
        if answer.tile is None or answer.cluster is None or chip is None:
            return UNKNOWN
        sizes = (call.n, call.m) if is_transposed else (call.m, call.n)
        grid = grid_of(*sizes, answer.tile, answer.cluster, self.table.narrow)
        counts = clusters_at_once(chip, math.prod(answer.cluster))
        orders = {self._last_wave(call, grid, answer.swizzle, at_once, is_transposed) for at_once in counts}
        return orders.pop() if len(orders) == 1 else UNKNOWN

    def _last_wave(
        self, call: CublasGemm, grid: Grid, swizzle: int, at_once: int, is_transposed: bool
    ) -> SummationOrder:
        """CTAs share the K of the tiles of the last, partial wave, where two CTAs a tile fit in it. is_transposed: the
        grid is of C transposed.
        """
        count = grid.rows * grid.columns
        rest = count % at_once if count > at_once else count
        sharing, most = self.sharing_of(count > at_once), at_once // rest if rest else 1
        if most < 2 or call.k <= sharing.whole_k:
            return SummationOrder(Schedule())
        steps = math.ceil(call.k / self.table.step)
        total = self.segment_sum(call.k, self.part_count(steps, most, grid.tile, sharing))
        regions = []
        for place in last_clusters(grid, block_width(grid, at_once, swizzle), rest):
            spans = zip(place, grid.extent, (call.n, call.m) if is_transposed else (call.m, call.n), strict=True)
            across = [Range(min(i * extent, size), min((i + 1) * extent, size)) for i, extent, size in spans]
            rows, columns = reversed(across) if is_transposed else across
            regions.append(Region(rows, columns, total))
        return SummationOrder(Schedule(regions=tuple(regions)), known=call.k >= sharing.shared_k)

    def segment_sum(self, k: int, parts: int) -> SumTree:
        """K in parts of whole tiles, the longer ones last; neighbours are added from the last part down."""
        step = self.table.step
        tiles, extra = divmod(math.ceil(k / step), parts)
        starts = [(tiles * i + max(0, i - (parts - extra))) * step for i in range(parts)] + [k]
        level: list[SumTree] = [span(starts[i], starts[i + 1]) for i in range(parts - 1, -1, -1)]
        return Reduction(tuple(level), "pairwise", level="workspace")

    def part_count(self, steps: int, most: int, tile: tuple[int, int], sharing: Sharing) -> int:
        """Parts of a K of so many steps, at most `most` (and most_parts); the least of equally good numbers.

        Larger tiles were seen with K too long for the cost to matter; it is 0 for them.
        """
        short, long = sorted(tile)
        cost = sharing.join.get((short, long), FREE)
        count = min(most, self.table.most_parts)
        return min(range(1, count + 1), key=lambda parts: -(-steps // parts) + cost.of(parts))

    def sharing_of(self, after_waves: bool) -> Sharing:
        """When tiles are shared, after whole waves of clusters or without."""
        return self.after_waves if after_waves else self.alone


def clusters_at_once(chip: ClustersModel, ctas: int) -> range:
    """How many clusters of so many CTAs may run at once: one number where it was measured, else what lies between."""
    measured = dict(chip.at_once)
    if ctas in measured:
        return range(measured[ctas], measured[ctas] + 1)
    least = max((count for size, count in measured.items() if size > ctas), default=1)
    most = min(chip.gpcs * (chip.gpc_sms // ctas), *(count for size, count in measured.items() if size < ctas))
    return range(least, most + 1)


def _sharing(table: SharingModel) -> Sharing:
    join = {tile: JoinCost(cost.levels, cost.part) for cost in table.join.values() for tile in cost.tiles}
    return Sharing(table.whole_k, table.shared_k, join)
