"""The best blocking of a plan on a device by search: every configuration is a program that the timing machine times.

First every tile with the rest as the lowering chooses it, then from the best of them one option at a time, as long as
that helps; or all combinations. What the lowering refuses is kept with its reason. It knows lowerings by their options.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.davinci.coupled_tiling import Limits, estimate_cycles, legal
from hwsim.dataflows.instructions import Instructions
from hwsim.dataflows.registry import dataflow
from hwsim.devices import find, instruction_for
from hwsim.errors import HwsimError, InputError, UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.plan import Mixed, Plan
from hwsim.resolve.cost import PlanCost, cost, plan_record
from hwsim.studies.analytic_tiles import eq11, tlp

if TYPE_CHECKING:
    from hwsim.devices.device import Device

OBJECTIVES, CHOOSERS = ("cycles", "traffic"), ("search", "eq11", "tlp")
SIDES = (32, 64, 96, 128, 192, 256)  # of a tile of C
DEPTHS = (1, 2, 4, 8)  # of a tile, in the K of an instruction
STARTS = 3  # of the best tiles, to go on from
BUDGET = 400  # programs timed, by default
FEW = 64  # tiles of a DaVinci core looked at first


@dataclass(frozen=True, slots=True)
class TunedPoint:
    """One configuration: `options` as the lowering takes them (absent: it chooses); what came of it, or why nothing.

    facts: the lowering's full choice. tflops: 2 m n k / time. hbm_bytes: read and written.
    """

    options: dict[str, Any]
    cycles: int | None = None
    seconds: float | None = None
    tflops: float | None = None
    hbm_bytes: int | None = None
    refused: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """Flat, for a table: the tile's sides by name, then the other facts, then the numbers."""
        given = {**self.options, **{name: self.facts[name] for name in self.facts if name in _SHOWN}}
        tile = given.pop("tile", None) or {}
        sides = {f"tile_{side}": tile.get(side) for side in ("m", "n", "k")}
        rest = {name: given.get(name) for name in _SHOWN if name != "tile" and name in given}
        numbers = {name: getattr(self, name) for name in ("cycles", "seconds", "tflops", "hbm_bytes", "refused")}
        return sides | rest | numbers


_SHOWN = ("tile", "stages", "split_k", "swizzle", "unit", "cta_group", "n_fused", "buffering", "step_ka", "step_kb")


@dataclass(frozen=True, slots=True)
class Landscape:
    """What a search found. default: as the lowering chooses. analytic: what formulas choose, by name. complete: whether
    the search ended by itself and not at its budget."""

    objective: str
    points: list[TunedPoint]
    best: TunedPoint
    default: TunedPoint
    analytic: dict[str, TunedPoint]
    complete: bool


def tune(
    chip: Device,
    plan: Plan | Mixed,
    sizes: tuple[int, int, int],
    *,
    objective: str = "cycles",
    chooser: str = "search",
    exhaustive: bool = False,
    budget: int = BUDGET,
    progress: Callable[[float], None] | None = None,
) -> Landscape:
    """Search (or a formula: chooser "eq11", "tlp") for the configuration with the fewest cycles or bytes of HBM.

    sizes: m, n, k. exhaustive: all combinations. budget: programs that are timed at most.
    Raises InputError for an unknown objective or chooser, UnsupportedError where the device has no dataflow or no times
    for the plan, or the formula is for other devices.
    """
    for name, value, allowed in (("objective", objective, OBJECTIVES), ("chooser", chooser, CHOOSERS)):
        if value not in allowed:
            raise InputError(f"{name} = {value!r}; allowed: {', '.join(allowed)}")
    if isinstance(plan, Mixed):
        raise UnsupportedError(f"scheme {plan.scheme}: its blocks follow different plans; tune one of those")
    if budget < 1:
        raise InputError(f"budget = {budget}; allowed: at least 1")
    search = _Search(chip, plan, sizes, objective, budget, progress)
    default = search.time({})
    if default.cycles is None:
        raise UnsupportedError(default.refused)
    space = _space(chip, plan, sizes)
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
    best = min(measured, key=search.order) if chooser == "search" else analytic[chooser]
    return Landscape(objective, list(search.points.values()), best, default, analytic, search.complete)


@dataclass(frozen=True, slots=True)
class _Space:
    """Tiles to begin with, and what else may vary: values by option; "k" stands for the tile's."""

    tiles: list[dict[str, int]]
    others: dict[str, tuple[Any, ...]]


def _space(chip: Device, plan: Plan, sizes: tuple[int, int, int]) -> _Space:
    flow = dataflow(chip)
    i, j = plan.terms[0].products[0]
    unit = instruction_for(chip, plan.a_pieces[i].format, plan.b_pieces[j].format)
    others = {option.name: option.axis for option in flow.options if option.axis}
    if any(option.name == "n_fused" for option in flow.options):
        return _Space(_davinci_tiles(chip, plan, unit, sizes), others)
    model = find(chip, unit)
    assert model is not None
    depth = max(model.k, 1)
    depths = tuple(depth * count for count in DEPTHS)
    tiles = [{"m": m, "n": n, "k": k} for m, n, k in itertools.product(SIDES, SIDES, depths)]
    kinds = Instructions(chip).kinds(unit)
    if len(kinds) > 1:
        others["instruction"] = (None, *kinds)
    return _Space(tiles, others)


def _davinci_tiles(chip: Device, plan: Plan, unit: str, sizes: tuple[int, int, int]) -> list[dict[str, int]]:
    """For each (b_m, b_n) the b_k with the least estimate, and of those the few best."""
    limits = Limits.of(chip, -(-format_of(plan.a_pieces[0].format).bits // 8))
    best: dict[tuple[int, int], tuple[float, int]] = {}
    for b_m, b_k, b_n in legal(limits):
        estimate = estimate_cycles(chip, unit, limits, (b_m, b_k, b_n), *sizes)
        best[b_m, b_n] = min(best.get((b_m, b_n), (estimate, b_k)), (estimate, b_k))
    ranked = sorted(best, key=lambda pair: best[pair])[:FEW]
    return [{"m": b_m, "k": best[b_m, b_n][1], "n": b_n} for b_m, b_n in ranked]


class _Search:
    """Points timed so far."""

    def __init__(
        self,
        chip: Device,
        plan: Plan,
        sizes: tuple[int, int, int],
        objective: str,
        budget: int,
        progress: Callable[[float], None] | None,
    ) -> None:
        self.chip, self.plan, self.sizes, self.budget, self.progress = chip, plan, sizes, budget, progress
        self.by_traffic = objective == "traffic"
        self.points: dict[str, TunedPoint] = {}
        self.timed, self.complete = 0, True

    def order(self, point: TunedPoint) -> tuple[float, float]:
        """What is least at the best point."""
        pair = (float(point.cycles or 0), float(point.hbm_bytes or 0))
        return pair[::-1] if self.by_traffic else pair

    def time(self, options: Mapping[str, Any], is_extra: bool = False) -> TunedPoint:
        """The point of these options; is_extra: also beyond the budget."""
        given = {name: value for name, value in options.items() if value is not None}
        key = repr(sorted(given.items(), key=lambda item: item[0]))
        if key in self.points:
            return self.points[key]
        if self.timed >= self.budget and not is_extra:
            self.complete = False
            return TunedPoint(given, refused="not timed: the budget is spent")
        point = self._timed(given)
        self.points[key] = point
        if point.cycles is not None:
            self.timed += 1
        return point

    def _timed(self, given: dict[str, Any]) -> TunedPoint:
        try:
            found: PlanCost = cost(self.plan, self.chip, self.sizes, given)
        except HwsimError as error:
            return TunedPoint(given, refused=str(error))
        m, n, k = self.sizes
        return TunedPoint(
            given,
            found.cycles,
            found.seconds,
            2 * m * n * k / found.seconds / 1e12,
            found.hbm_bytes,
            "",
            dict(found.facts),
        )

    def is_legal(self, tile: dict[str, int]) -> bool:
        """Whether the lowering takes the tile."""
        try:
            plan_record(self.plan, self.chip, self.sizes, {"tile": tile})
        except HwsimError:
            return False
        return True

    def run(self, space: _Space, exhaustive: bool) -> None:
        """Time points of the space."""
        if exhaustive:
            combinations = [
                {"tile": tile, **dict(zip(space.others, values, strict=True))}
                for tile in space.tiles
                for values in itertools.product(*space.others.values())
            ]
            self._all(combinations, 0.0, 1.0)
            return
        found = self._all([{"tile": tile} for tile in space.tiles], 0.0, 0.7)
        starts = sorted((x for x in found if x.cycles is not None), key=self.order)[:STARTS]
        for index, start in enumerate(starts):
            self._climb(start, space)
            self._report(0.7 + 0.3 * (index + 1) / len(starts))

    def _all(self, options: Sequence[dict[str, Any]], low: float, high: float) -> list[TunedPoint]:
        found = []
        for index, given in enumerate(options):
            found.append(self.time(given))
            self._report(low + (high - low) * (index + 1) / len(options))
        return found

    def _climb(self, point: TunedPoint, space: _Space) -> None:
        """One option at a time, the best value of each, until a whole round changes nothing."""
        while True:
            before = point
            for name, values in space.others.items():
                tried = [self.time({**point.options, name: value}) for value in values]
                point = min([point, *(x for x in tried if x.cycles is not None)], key=self.order)
            if point is before:
                return

    def _report(self, share: float) -> None:
        if self.progress is not None:
            self.progress(share)


def _by_formula(name: str, search: _Search, space: _Space) -> dict[str, int]:
    if name == "eq11":
        return eq11(search.chip, search.plan, *search.sizes)
    return tlp(search.chip, space.tiles, search.is_legal, search.sizes[0], search.sizes[1])
