"""The measured points that the timing machine is compared with: anchors.yaml and gemm_times.csv of
lab/hwsim_lab/configs/measured.

anchors.yaml holds what was published and where, the tolerance, and a role: whether a number of a device file was set by
the point (calibration), whether it ever moved a choice (seen), or neither (validation; blind: measured when the model
was finished). For GEMMs timed by this project it names sets; their times are in gemm_times.csv.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import yaml
from pydantic import Field, ValidationError, model_validator

from hwsim.datafiles.yaml_text import common_yaml
from hwsim.errors import InputError
from hwsim.machines.l2_state import DEFAULT
from hwsim_lab.papers import measured
from hwsim_lab.papers.measured import GemmTime
from hwsim_lab.papers.record import PaperRecord

Role = Literal["calibration", "seen", "validation", "blind"]


class MeasuredRun(PaperRecord):
    """One GEMM: sizes, device (changes: dotted paths of its file), clock, power, state of L2, scheme and options as in
    hwsim.run.

    phase: only the kernel of that name counts. squares: sizes m = n = k, of which the source has the fastest; the run's
    own sizes are then one of them.
    """

    device: str
    scheme: str = "native"
    format: str | None = None
    output: str | None = None
    m: int
    n: int
    k: int
    options: dict[str, Any] = Field(default_factory=dict)
    tile: tuple[int, ...] | None = None  # in the family's order: davinci m, k, n; GPUs m, n, k
    stages: int | None = None
    n_fused: int | None = None
    buffering: str | None = None
    b_layout: str | None = None
    swizzle: int | None = None
    cta_group: int | None = None
    split_k: int | Literal["auto"] | None = None
    changes: dict[str, Any] = Field(default_factory=dict)
    clock_mhz: float | None = None  # in place of the file's, sustained clocks too
    power_limit_w: float | None = None
    l2: str = DEFAULT
    squares: tuple[int, ...] = ()
    phase: str | None = None


class Measurement(PaperRecord):
    """One measured quantity. measured: a value, or the ends of a range; tolerance: relative, beyond the ends.

    quantity: tflops; ms; ratio: speed of `run` relative to `over`; idle: share of the time that `engine` is not busy;
    share: of the time, for the kernels named in `kernels`. host_us: host time that the source says its times contain.
    moved: of a point that was seen, the choice that it moved. why: explanation of a miss.
    """

    id: str
    what: str
    quantity: Literal["tflops", "ms", "ratio", "idle", "share"]
    run: MeasuredRun
    over: MeasuredRun | None = None
    engine: str | None = None
    kernels: tuple[str, ...] = ()
    measured: float | tuple[float, float]
    tolerance: float = Field(ge=0)
    role: Role
    source: str
    host_us: float = 0.0
    moved: str = ""
    why: str = ""

    @model_validator(mode="after")
    def _says_what_it_moved(self) -> Self:
        if (self.role == "seen") != bool(self.moved):
            raise ValueError(f"point {self.id}: `moved` is for a point of role seen, which has to say what it moved")
        return self


class Selection(PaperRecord):
    """A set of times: the rows of gemm_times.csv with all of these values. shapes: MxNxK, only those, where given.

    tolerance: of the mean absolute error. why: explanation of a miss.
    """

    set: str
    format: str
    b_layout: Literal["rows", "columns"]
    role: Role
    state: Literal["rested", "held"] = "rested"
    shapes: tuple[str, ...] = ()
    tolerance: float
    source: str
    why: str = ""


KEY = re.compile(r"[A-Z0-9_]+")  # of a reason
Explained = TypeVar("Explained", Measurement, Selection)


class File(PaperRecord):
    """The contents of lab/hwsim_lab/configs/measured/anchors.yaml. reasons: texts that several `why` have in common;
    there stand their keys.
    """

    schema_version: Literal[1]
    sources: dict[str, str]
    reasons: dict[str, str]
    points: tuple[Measurement, ...]
    times: tuple[Selection, ...]

    @model_validator(mode="after")
    def _reasons_are_shared(self) -> Self:
        used = Counter([*(one.why for one in self.points), *(one.why for one in self.times)])
        if unknown := [why for why in used if KEY.fullmatch(why) and why not in self.reasons]:
            raise ValueError(f"why: {', '.join(unknown)}; there is no such reason, there are {', '.join(self.reasons)}")
        if alone := [key for key in self.reasons if used[key] < 2]:
            raise ValueError(f"reasons {', '.join(alone)}: not the `why` of several points; write the text there")
        return self

    def explained(self, one: Explained) -> Explained:
        """The point or set with the text of its reason."""
        return one.model_copy(update={"why": self.reasons.get(one.why, one.why)})


class MeasuredTimes(PaperRecord):
    """Times of native GEMMs of one format by "MxNxK", in microseconds, including `launch_us`.

    columns: B was stored by columns, in the simulated run too.
    """

    device: str
    format: str
    output: str
    launch_us: float
    tolerance: float
    role: Role
    source: str
    us: dict[str, float]
    columns: bool = False
    why: str = ""


class Anchors(PaperRecord):
    """All measured points, and sets of times; sources: their text by key."""

    sources: dict[str, str]
    points: tuple[Measurement, ...]
    times: tuple[MeasuredTimes, ...]


def read(file: Path | None = None, rows: Iterable[GemmTime] | None = None) -> Anchors:
    """The points and sets of `file` (default: anchors.yaml), with times from `rows` (default: gemm_times.csv).

    Raises InputError for what does not fit, and where there is no file.
    """
    given = _file(file or measured.path("anchors.yaml"))
    every = tuple(measured.gemm_times() if rows is None else rows)
    return Anchors(
        sources=given.sources,
        points=tuple(given.explained(point) for point in given.points),
        times=tuple(times_of(given.explained(chosen), every) for chosen in given.times),
    )


def _file(name: Path) -> File:
    try:
        return File.model_validate(common_yaml(name.read_text(encoding="utf-8")))
    except (ValidationError, yaml.YAMLError) as error:
        raise InputError(f"{name}: {error}") from None


def value(id: str) -> float:
    """The measured value of a point that has a single one. Raises InputError where there is no such point."""
    point = next((entry for entry in _file(measured.path("anchors.yaml")).points if entry.id == id), None)
    if point is None or isinstance(point.measured, tuple):
        raise InputError(f"anchors.yaml has no point {id!r} of one value")
    return point.measured


def times_of(chosen: Selection, rows: Iterable[GemmTime]) -> MeasuredTimes:
    """The set of times that a selection names. Raises InputError where the rows are not one set with a launch time."""

    def alike(row: GemmTime) -> bool:
        return (row.set, row.format, row.b_layout) == (chosen.set, chosen.format, chosen.b_layout)

    of_set = [row for row in rows if alike(row)]
    launches = {row.us for row in of_set if row.role == "launch"}
    found = [
        row
        for row in of_set
        if (row.role, row.state, row.operands) == (chosen.role, chosen.state, "random")
        and (not chosen.shapes or row.shape in chosen.shapes)
    ]
    kinds = {(row.device, row.output) for row in found}
    us = {row.shape: row.us for row in found}
    wanted = len(chosen.shapes) or len(found)
    if len(launches) != 1 or len(kinds) != 1 or not len(us) == len(found) == wanted:
        raise InputError(
            f"anchors.yaml, set {chosen.set} {chosen.format}, B by {chosen.b_layout}, {chosen.role}, {chosen.state}: "
            f"gemm_times.csv has {len(found)} rows of {len(us)} shapes, {len(kinds)} devices and outputs, "
            f"{len(launches)} launches; needed: each shape{' of ' + ', '.join(chosen.shapes) if chosen.shapes else ''} "
            "once, one device and output, one launch"
        )
    ((device, output),) = kinds
    return MeasuredTimes(
        device=device,
        format=chosen.format,
        output=output,
        launch_us=launches.pop(),
        tolerance=chosen.tolerance,
        role=chosen.role,
        source=chosen.source,
        us=us,
        columns=chosen.b_layout == "columns",
        why=chosen.why,
    )
