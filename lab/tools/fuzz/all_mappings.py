"""The fewest cycles of all mappings of a product with the same bits, without a program of each.

What is left out cannot be the best:

* Mappings that come to the same record are one program.
* Stages and the order of tiles change no instruction of a tile, only when it begins. A tile whose bound
  (`least_cycles` of its dataflow) is at or above the best so far is left out with all of them.
* So is what is left of a tile once one of its programs was timed: an engine off global memory is busy as long in all
  of them, and a kernel takes at least as long as an engine of an average working core is busy.
* A tile that does not fit with the fewest stages does not fit with more.
* Beyond the axis of the option `stages`, only the most that fit and have a block of K: fewer hide no more of a load's
  latency. This is argued, not proven.

Tiles are taken in order of their bounds.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.options import STAGES, SWIZZLE
from hwsim.dataflows.protocol import BoundedDataflow
from hwsim.dataflows.registry import dataflow
from hwsim.errors import HwsimError
from hwsim.gemm.problem import Problem
from hwsim.machines.load import under_load
from hwsim.resolve.choice.cost import plan_input, plan_record
from hwsim.resolve.gemm_record import record_of
from hwsim.resolve.mapping_choice import mapped, program_of
from hwsim.resolve.record_cost import cost_of
from hwsim.studies.search_space import search_space

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.plan import Plan
    from hwsim.gemm.record import Gemm

BESIDE_A_TILE = (STAGES.name, SWIZZLE.name)  # options that change no instruction of a tile


@dataclass
class Best:
    """cycles: the fewest; options: of the mapping that has them ({}: the run's own). mappings: of the space, with those
    that are refused. timed: programs. default: cycles of the run's own.
    """

    default: int
    cycles: int
    options: dict[str, Any]
    mappings: int = 0
    timed: int = 0


class _AllMappings:
    """The search of one product."""

    def __init__(self, chip: Device, plan: Plan, sizes: tuple[int, int, int]) -> None:
        self.chip, self.plan, self.sizes, self.flow = chip, plan, sizes, dataflow(chip)
        self.first = plan_record(plan, chip, sizes, {})
        own = cost_of(self.first, chip).cycles
        self.best = Best(own, own, {}, timed=1)
        self.seen = {self.first.digest}
        problem = Problem.of(plan_input(plan), *sizes)
        self.open = record_of(plan, chip, problem, self.first.schedule)

    def record(self, options: dict[str, Any]) -> Gemm | None:
        """The mapped record; None where it is refused, or adds K in another order."""
        given = {name: value for name, value in options.items() if value is not None}
        try:
            if isinstance(self.flow, BoundedDataflow):  # whose mapping has nothing to search once there is a tile
                gemm = mapped(self.open, self.chip, given)
            else:
                gemm = plan_record(self.plan, self.chip, self.sizes, given, self.first.schedule)
        except HwsimError:
            return None
        return gemm if gemm.schedule == self.first.schedule else None

    def run(self) -> Best:
        """Go through the space."""
        space = search_space(self.first, self.chip, keeps_order=True, fixed={})
        beside = {name: (None, *values) for name, values in space.others.items() if name in BESIDE_A_TILE}
        others = {name: values for name, values in space.others.items() if name not in BESIDE_A_TILE}
        tiles = [{"tile": tile, **values} for tile in space.tiles for values in _combined(others)]
        self.best.mappings = len(tiles) * len(list(_combined(beside)))
        bounded = [(bound, options) for options in tiles if (bound := self.bound(options)) is not None]
        for bound, options in sorted(bounded, key=lambda pair: pair[0]):
            if bound >= self.best.cycles:
                break
            more = self.more_stages(options) if STAGES.name in beside else ()
            within = list(_combined(beside | {STAGES.name: (*more, *beside[STAGES.name])} if more else beside))
            self.best.mappings += len(within) - len(list(_combined(beside)))
            self.tile(options, within)
        return self.best

    def more_stages(self, options: dict[str, Any]) -> tuple[int, ...]:
        """The most stages of a tile that fit and have a block of K on its core, where that is beyond the axis."""
        tile, (m, n, k) = options["tile"], self.sizes
        waves = -(-(-(-m // tile["m"]) * -(-n // tile["n"])) // self.chip.cores)
        counts = range(max(STAGES.axis), waves * -(-k // tile["k"]) + 1)

        def is_too_many(at: int) -> bool:
            return self.record({**options, STAGES.name: counts[at]}) is None

        fitting = bisect.bisect_left(range(len(counts)), True, key=is_too_many)
        return (counts[fitting - 1],) if fitting > 1 else ()

    def bound(self, options: dict[str, Any]) -> float | None:
        """The bound of all mappings with a tile; None where none fits."""
        if not isinstance(self.flow, BoundedDataflow):
            return 0.0
        fewest = {STAGES.name: min(STAGES.axis)}
        gemm = self.record(options) or self.record({**options, **fewest})
        if gemm is None:
            return None
        try:
            return self.flow.least_cycles(gemm, self.chip)
        except HwsimError:
            return None

    def tile(self, options: dict[str, Any], within: list[dict[str, Any]]) -> None:
        """Time a tile's mappings, as long as one may be better."""
        bound = 0.0
        for more in within:
            if bound >= self.best.cycles:
                return
            gemm = self.record({**options, **more})
            if gemm is None or gemm.digest in self.seen:
                continue
            self.seen.add(gemm.digest)
            try:
                cost = cost_of(gemm, self.chip)
            except HwsimError:
                continue
            self.best.timed += 1
            if cost.cycles < self.best.cycles:
                self.best.cycles, self.best.options = cost.cycles, {**options, **more}
            if isinstance(self.flow, BoundedDataflow):
                bound = self.busy(gemm, str(cost.facts["unit"]))

    def busy(self, gemm: Gemm, unit: str) -> float:
        """Cycles that no program of the same tile goes below: of engines that no other core can slow."""
        shared = {link.engine for link in self.chip.links.values() if "GM" in (link.source, link.target)}
        _, times = under_load(program_of(gemm, self.chip, is_checked=False), self.chip, unit)
        return sum(
            max((x.busy_cycles for name, x in kernel.engines.items() if name not in shared), default=0.0) / kernel.cores
            for kernel in times.kernels
        )


def _combined(axes: dict[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def best_of_all(chip: Device, plan: Plan, sizes: tuple[int, int, int]) -> Best:
    """The best of all mappings with the order of summation of a run. sizes: m, n, k.

    Raises HwsimError where the product has no program or no times.
    """
    return _AllMappings(chip, plan, sizes).run()
