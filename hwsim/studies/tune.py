"""Search for the best mapping of a plan on a device; every configuration is a program that the timing machine times.

First the slices of K that a run with split_k="auto" takes, and tiles with the other options as the dataflow chooses
them, unlike ones first, for half of the budget. Then, from the best of these, one option at a time, as long as that
helps; then the other tiles, and so on from the best of them; or all combinations. Configurations that the dataflow
refuses are kept with the reason. The module knows dataflows by what they declare: tiles and options.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hwsim.analysis.energy import Energy, energy
from hwsim.analysis.program_times import TimedWork, times_of
from hwsim.dataflows.options import AUTO, SPLIT_K, asks_for_stream_k
from hwsim.dataflows.registry import dataflow
from hwsim.errors import HwsimError, InputError, UnsupportedError
from hwsim.gemm.plan import Mixed, Plan
from hwsim.gemm.schedule import Schedule
from hwsim.machines.l2_state import DEFAULT, STATES
from hwsim.machines.timing import missing
from hwsim.request.epilogue import with_epilogue
from hwsim.resolve.choice.cost import plan_record
from hwsim.resolve.mapping_choice import has_stack_programs, program_of
from hwsim.resolve.record_cost import PlanCost, cost_of
from hwsim.studies.analytic_tiles import eq11, tlp
from hwsim.studies.landscape import OBJECTIVES, Landscape
from hwsim.studies.search_space import SearchSpace, search_space
from hwsim.studies.tuned_point import TunedPoint

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.problem import OperandScale
    from hwsim.gemm.record import Gemm

CHOOSERS = ("search", "eq11", "tlp")
STARTS = 3  # of the best tiles, to go on from
BUDGET = 400  # programs timed, by default


def tune(
    chip: Device,
    plan: Plan | Mixed,
    sizes: tuple[int, int, int],
    *,
    objective: str = "time",
    chooser: str = "search",
    exhaustive: bool = False,
    budget: int = BUDGET,
    same_bits: bool = False,
    output: str | None = None,
    scales: tuple[OperandScale | None, OperandScale | None] = (None, None),
    lead: tuple[int, ...] = (),
    fixed: Mapping[str, Any] | None = None,
    l2: str = DEFAULT,
    progress: Callable[[float], None] | None = None,
) -> Landscape:
    """Search (or a formula: chooser "eq11", "tlp") for the configuration with the least time, cycles, bytes of HBM
    traffic or energy (hwsim.analysis.energy).

    sizes: m, n, k. exhaustive: all combinations. budget: maximum number of programs timed. same_bits: K is not cut, and
    mappings that change the order of summation are refused. output: the format of C; None: the plan's. scales: of A and
    B. lead: leading dimensions of a stack. fixed: options of the mapping that all configurations have, storage orders
    among them. l2: the state of L2 before each timed run (hwsim.machines.l2_state).

    Raises InputError for an unknown objective or chooser, UnsupportedError where the device has no dataflow or no times
    or energies for the plan, or the formula is for other devices.
    """
    for name, value, allowed in (
        ("objective", objective, OBJECTIVES),
        ("chooser", chooser, CHOOSERS),
        ("l2", l2, STATES),
    ):
        if value not in allowed:
            raise InputError(f"{name} = {value!r}; allowed: {', '.join(allowed)}")
    if isinstance(plan, Mixed):
        raise UnsupportedError(f"scheme {plan.scheme}: its blocks follow different plans; tune one of those")
    if budget < 1:
        raise InputError(f"budget = {budget}; allowed: at least 1")
    if (reason := missing(chip)) is not None:
        raise UnsupportedError(f"tune needs cycles: {reason}; hwsim run gives its bits")
    search = _Search(
        chip,
        plan,
        sizes,
        objective,
        budget,
        progress,
        output=output,
        scales=scales,
        lead=lead,
        fixed=fixed or {},
        l2=l2,
    )
    search.record({})  # raises what is wrong with the call itself
    default = search.time({})
    if default.cycles is None:
        raise UnsupportedError(default.refused)
    if same_bits:
        search.schedule = search.record({}).schedule
    space = search_space(search.record({}), chip, keeps_order=same_bits, fixed=search.fixed)
    if chooser == "search":
        search.run(space, exhaustive)
    analytic = {}
    for name in ("eq11", "tlp"):
        try:
            analytic[name] = search.time({"tile": _by_formula(name, search, space)}, is_extra=True)
        except UnsupportedError:
            if chooser == name:
                raise
    measured = [point for point in search.points.values() if point.cycles is not None]
    return Landscape(
        device=chip.name,
        scheme=plan.scheme,
        sizes=sizes,
        objective=objective,
        points=list(search.points.values()),
        best=min(measured, key=search.order) if chooser == "search" else analytic[chooser],
        default=default,
        analytic=analytic,
        complete=search.complete,
        lead=lead,
        l2=l2,
        combinations=len(space.tiles) * math.prod(len(values) for values in space.others.values()),
    )


class _Search:
    """The points timed so far."""

    def __init__(
        self,
        chip: Device,
        plan: Plan,
        sizes: tuple[int, int, int],
        objective: str,
        budget: int,
        progress: Callable[[float], None] | None,
        *,
        output: str | None,
        scales: tuple[OperandScale | None, OperandScale | None],
        lead: tuple[int, ...],
        fixed: Mapping[str, Any],
        l2: str,
    ) -> None:
        self.chip, self.plan, self.sizes, self.budget, self.progress = chip, plan, sizes, budget, progress
        self.objective, self.scales, self.lead, self.fixed, self.l2 = objective, scales, lead, fixed, l2
        self.order_of_default: Schedule | None = None  # of summation; it is timed first
        self.points: dict[str, TunedPoint] = {}
        self.timed, self.complete = 0, True
        self.schedule: Schedule | None = None  # that all points have
        self.wanted = None if output is None else with_epilogue(Schedule(), output=output)
        self.shown = (*(option.name for option in dataflow(chip).options), "unit")

    def record(self, options: Mapping[str, Any]) -> Gemm:
        """The record with these options of the mapping, in the order of summation and the format of C that all have."""
        values = {**self.fixed, **options}
        schedule = self.wanted if asks_for_stream_k(values) else self.schedule or self.wanted  # it cuts K itself
        is_open = self.schedule is None
        return plan_record(
            self.plan, self.chip, self.sizes, values, schedule, self.scales, self.lead, cuts_open_k=is_open
        )

    def order(self, point: TunedPoint) -> tuple[float, float]:
        """The sort key of a point; least at the best point."""
        other = "time" if self.objective in ("traffic", "energy") else "traffic"
        return point.value(self.objective), point.value(other)

    def time(self, options: Mapping[str, Any], is_extra: bool = False) -> TunedPoint:
        """Time one configuration and return its point; is_extra: also beyond the budget."""
        values = {name: value for name, value in options.items() if value is not None}
        key = repr(sorted(values.items(), key=lambda item: item[0]))
        if key in self.points:
            return self.points[key]
        if self.timed >= self.budget and not is_extra:
            self.complete = False
            return TunedPoint(values, refused="not timed: the budget is spent")
        point = self._timed(values)
        self.points[key] = point
        if point.cycles is not None:
            self.timed += 1
        return point

    def _timed(self, values: dict[str, Any]) -> TunedPoint:
        try:
            gemm = self.record(values)
            if self.schedule not in (None, gemm.schedule):
                raise InputError("it adds K in another order")
            if self.order_of_default is None:
                self.order_of_default = gemm.schedule
            plan_cost: PlanCost = cost_of(gemm, self.chip, l2=self.l2)
            programs = 1 if has_stack_programs(gemm, dataflow(self.chip)) else gemm.problem.matrices
            spent = self._energy(gemm, plan_cost, programs) if self.objective == "energy" else None
        except HwsimError as error:
            return TunedPoint({**self.fixed, **values}, refused=str(error), shown=self.shown)
        m, n, k = self.sizes
        seconds = programs * plan_cost.seconds
        return TunedPoint(
            options={**self.fixed, **values},
            cycles=programs * plan_cost.cycles,
            seconds=seconds,
            tflops=2 * gemm.problem.matrices * m * n * k / seconds / 1e12,
            hbm_bytes=programs * plan_cost.hbm_bytes,
            joules=None if spent is None else spent.joules,
            energy_evidence=None if spent is None else spent.evidence,
            facts=dict(plan_cost.facts),
            shown=self.shown,
            has_same_bits=gemm.schedule == self.order_of_default,
        )

    def _energy(self, gemm: Gemm, cost: PlanCost, programs: int) -> Energy:
        """The energy of a timed record. Raises UnsupportedError where the device's energies are not known."""
        work = TimedWork(self.sizes, self.plan.products, str(cost.facts["unit"]), gemm.problem.matrices, programs)
        return energy(times_of(program_of(gemm, self.chip, is_checked=False), self.chip, work, l2=self.l2), gemm)

    def is_legal(self, tile: dict[str, int]) -> bool:
        """Whether the dataflow accepts the tile."""
        try:
            self.record({"tile": tile})
        except HwsimError:
            return False
        return True

    def run(self, space: SearchSpace, exhaustive: bool) -> None:
        """Search the space."""
        if exhaustive:
            combinations = [
                {"tile": tile, **dict(zip(space.others, values, strict=True))}
                for tile in space.tiles
                for values in itertools.product(*space.others.values())
            ]
            self._all([*self._of_auto(space), *combinations], 0.0, 1.0)
            return
        tiles, half = unlike_first(space.tiles), self.budget // 2
        starts = [self.time({}), *(self.time(options) for options in self._of_auto(space))]
        for part, low, high in ((tiles[:half], 0.0, 0.7), (tiles[half:], 0.7, 1.0)):
            between = high - 0.3 * (high - low)
            starts += self._all([{"tile": tile} for tile in part], low, between)
            self._climb_from(starts, space, between, high)
            starts = []

    def _climb_from(self, points: Sequence[TunedPoint], space: SearchSpace, low: float, high: float) -> None:
        """Climb from the best of the points, each mapping once. low, high: shares of the search's work."""
        ranked = sorted((point for point in points if point.cycles is not None), key=self.order)
        starts: list[TunedPoint] = []
        for point in ranked:
            if len(starts) < STARTS and all(point.facts != start.facts for start in starts):
                starts.append(point)
        for index, start in enumerate(starts):
            self._climb(start, space)
            self._report(low + (high - low) * (index + 1) / len(starts))

    def _of_auto(self, space: SearchSpace) -> list[dict[str, Any]]:
        """The options of a run with as many slices of K as `split_k="auto"` takes; none where that is not varied."""
        if SPLIT_K.name not in space.others:
            return []
        try:
            schedule = self.record({SPLIT_K.name: AUTO}).schedule
        except HwsimError:
            return []
        return [{SPLIT_K.name: schedule.split_k}]

    def _all(self, options: Sequence[dict[str, Any]], low: float, high: float) -> list[TunedPoint]:
        points = []
        for index, values in enumerate(options):
            points.append(self.time(values))
            self._report(low + (high - low) * (index + 1) / len(options))
        return points

    def _climb(self, point: TunedPoint, space: SearchSpace) -> None:
        """Coordinate search: one option at a time, the best value of each, until a whole round changes nothing."""
        while True:
            before = point
            for name, values in space.others.items():
                tried = [self.time({**point.options, name: value}) for value in values]
                point = min(
                    [point, *(candidate for candidate in tried if candidate.cycles is not None)], key=self.order
                )
            if point is before:
                return

    def _report(self, share: float) -> None:
        if self.progress is not None:
            self.progress(share)


def unlike_first(tiles: Sequence[dict[str, int]]) -> list[dict[str, int]]:
    """The tiles, in another order: the first ones of all magnitudes of m and n, then the second ones, and so on.

    A budget that is smaller than their number then goes to unlike tiles. Sides of one magnitude have equally many bits.
    """
    counts: dict[tuple[int, int], int] = {}
    places = []
    for tile in tiles:
        magnitude = tile["m"].bit_length(), tile["n"].bit_length()
        places.append(counts.get(magnitude, 0))
        counts[magnitude] = places[-1] + 1
    return [tile for _, tile in sorted(zip(places, tiles, strict=True), key=lambda pair: pair[0])]


def _by_formula(name: str, search: _Search, space: SearchSpace) -> dict[str, int]:
    if name == "eq11":
        return eq11(search.chip, search.plan, *search.sizes)
    return tlp(search.chip, space.tiles, search.is_legal, search.sizes[0], search.sizes[1])
