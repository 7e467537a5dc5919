"""The result of a search over mappings: all configurations, the best, the default. It prints as `hwsim tune` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hwsim.host.renderers import rendered
from hwsim.machines.l2_state import DEFAULT
from hwsim.studies.tuned_point import TunedPoint

#: What can be made least, and what it is called. The clock depends on the load, so the fewest cycles may not be the
#: least time.
OBJECTIVES = {"time": "time", "cycles": "cycles", "traffic": "HBM traffic", "energy": "energy"}


@dataclass(frozen=True, slots=True)
class LibraryKernel:
    """What a library runs for the GEMM: its kernel, slices of K, and the cycles and seconds of a program with its tile
    (None: there is no such program). seconds: that `hwsim run --library` shows; is_fitted: by fitted times.
    """

    name: str
    kernel: str
    split_k: int
    cycles: int | None
    program_seconds: float | None = None
    seconds: float | None = None
    is_fitted: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Landscape:
    """The result of a search; str() is the report of `hwsim tune`.

    device, scheme: their names. sizes: m, n, k. points: all that were timed or refused. best: of these, or the choice
    of the formula that was asked for alone. default: what a run takes. analytic: the choices of formulas, by name.

    complete: whether the search finished, rather than reaching its budget. library: what a library runs, where one was
    named. lead: leading dimensions of a stack of products. l2: the state of L2 before each timed run. call: arguments
    of hwsim.run that all configurations share, beside those of the mapping. scheme_options: complete. combinations: of
    the tiles and the values of options that a search may take, legal or not.
    """

    device: str
    scheme: str
    sizes: tuple[int, int, int]
    objective: str
    points: list[TunedPoint]
    best: TunedPoint
    default: TunedPoint
    analytic: dict[str, TunedPoint]
    complete: bool
    library: LibraryKernel | None = None
    l2: str = DEFAULT
    lead: tuple[int, ...] = ()
    call: Mapping[str, Any] = field(default_factory=dict)
    scheme_options: Mapping[str, Any] = field(default_factory=dict)
    combinations: int = 0

    def __str__(self) -> str:
        return str(rendered("text of a search", self))

    def __repr__(self) -> str:
        sizes = " x ".join(map(str, self.sizes))
        tile = " x ".join(map(str, self.best.facts.get("tile", {}).values()))
        timed, best = len(self.ranked), f"tile {tile}, {self.best.cycles} cycles"
        return f"<Landscape {self.scheme} on {self.device}, {sizes}: {timed} configurations timed, best {best}>"

    @property
    def quantity(self) -> str:
        """What the objective makes least, in words."""
        return OBJECTIVES[self.objective]

    @property
    def ranked(self) -> list[TunedPoint]:
        """The points that were timed, best first."""
        timed = [point for point in self.points if point.cycles is not None]
        return sorted(timed, key=lambda point: point.value(self.objective))

    @property
    def best_with_same_bits(self) -> TunedPoint:
        """The best point whose C has the default's bits."""
        return next((point for point in self.ranked if point.has_same_bits), self.default)

    @property
    def refused(self) -> list[TunedPoint]:
        """The points that are not legal, in the order of the search."""
        return [point for point in self.points if point.cycles is None]
