"""What a run that measures claims of a paper gives: quantities by claim, series for tables and plots, notes.

It knows the form alone; neither what is measured, nor what the paper says of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hwsim_lab.papers.cells import CellCall

Scale = Literal["quick", "full"]
SCALES: tuple[Scale, ...] = ("quick", "full")


@dataclass(frozen=True, slots=True)
class Series:
    """Columns of numbers or names of equal length, for a CSV file and a plot laid out as the paper's.

    x, y: columns of the plot's axes, where it has one; by: the column whose values are its lines; log: axes that are
    logarithmic ("x", "y", "xy"). An x of names gives groups of bars. value: the column that a map over x and y shows as
    colours.
    """

    name: str
    columns: Mapping[str, list[Any]]
    x: str | None = None
    y: str | None = None
    by: str | None = None
    log: str = ""
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """measured: by claim's id, its quantities by name. notes: by claim's id, what was run otherwise than its setting
    says, or which assumption moves the result and how far. readings: by claim's id and by the name of another reading
    of the paper's words, the same quantities under that reading.
    """

    measured: Mapping[str, Mapping[str, Any]]
    notes: Mapping[str, str] = field(default_factory=dict)
    series: tuple[Series, ...] = ()
    readings: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)


def no_cells(scale: Scale) -> Sequence[CellCall]:
    """Of an experiment that is one piece of work."""
    return ()


@dataclass(frozen=True, slots=True)
class Experiment:
    """One run. claims: the ids that it measures. seconds: what it takes on two cores, by scale; said beforehand.

    cells: the parts that it asks for, which processes may compute before; one left out is computed when asked for.
    """

    name: str
    claims: tuple[str, ...]
    measure: Callable[[Scale], Found]
    seconds: Mapping[Scale, float]
    cells: Callable[[Scale], Sequence[CellCall]] = no_cells
