"""The parts of a result as records: phases, engines, work, tiles, errors and warnings. They know numbers alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict

from hwsim.analysis.indexed import Indexed


@dataclass(frozen=True, eq=False, repr=False)
class Phase(Indexed):
    """One device kernel: its name, core clock cycles and seconds."""

    name: str
    cycles: int
    seconds: float


@dataclass(frozen=True, eq=False, repr=False)
class EngineUse(Indexed):
    """Cycles of an engine, summed over the cores that took part: busy, and stalled by cause."""

    busy_cycles: float
    stall_cycles: dict[str, float]


@dataclass(frozen=True, eq=False, repr=False)
class Macs(Indexed):
    """Multiply-accumulates: of the problem, and with the zeros of padded tiles. None, and no key, without times."""

    useful: int | None = None
    padded: int | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Occupancy(Indexed):
    """Of a GEMM kernel: tiles on all cores, cores, cores without a tile, and tiles of the busiest core.

    slices: of K, where it is cut (else None, and no key); `tiles` counts a tile of C once for each. memory_bytes: that
    its buffers take of each memory of one core; capacity_bytes: that these memories hold.
    """

    kernel: str
    tiles: int
    cores: int
    idle_cores: int
    waves: int
    slices: int | None = None
    memory_bytes: dict[str, int] = field(default_factory=dict)
    capacity_bytes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class ErrorNorms(Indexed):
    """Relative error of a product: in the Frobenius norm, and the largest of an element."""

    relative_frobenius: float
    max_relative: float


@dataclass(frozen=True, eq=False, repr=False)
class WorstElement(Indexed):
    """The element with the largest finite relative error, `relative`.

    element: its indices in the C that was computed. computed, exact: its values, as the nearest fp64. ulps: the error
    in units of the last place that the product's format has at the exact value (None, and no key, of integers).
    condition: sum |a b| / |sum a b| over its products; a sum in rounding arithmetic can err by about this times the
    unit roundoff.
    """

    element: list[int]
    relative: float
    computed: float
    exact: float
    condition: float
    ulps: float | None = None


@dataclass(frozen=True, eq=False, repr=False)
class FiniteErrors(Indexed):
    """Where some elements have no relative error: how many of the compared ones these are (`undefined`), how many of
    them are finite exactly and not in C (`overflowed`), and the errors over the other elements.

    They are infinite or NaN, in C or exactly, or exactly 0 where C is not (`zero`: how many; None, and no key, where
    there is none).
    """

    undefined: int
    overflowed: int
    elements: int
    relative_frobenius: float
    max_relative: float
    zero: int | None = None


@dataclass(frozen=True, eq=False, repr=False)
class ProductErrors(Indexed):
    """Errors of a product, and of a plain fp32 FMA chain of the same operands (`baseline`).

    worst: the element with the largest relative error; finite: errors without the elements that have none; both None,
    and no key, where there is none. baseline_note: why the baseline is not finite; norm_note: why no relative error in
    the norm has a number.
    rows: how many rows of every matrix were compared, where not all were (else None, and no key). input_rounding: where
    the unit takes rounded operands, or a scheme quantises them, the error of their exact product; arithmetic: the error
    of the product relative to that (None, and no key, where nothing is rounded, and of fp64 results).
    """

    relative_frobenius: float
    max_relative: float
    baseline: ErrorNorms
    rows: int | None = None
    input_rounding: ErrorNorms | None = None
    arithmetic: ErrorNorms | None = None
    worst: WorstElement | None = None
    finite: FiniteErrors | None = None
    baseline_note: str | None = None
    norm_note: str | None = None


class TimingState(TypedDict):
    """What a time is of. l2: the state before the run (hwsim.machines.l2_state). clock_mhz, None for a library's time
    without a program, and where it is from: "asked", "under load" or "device file". power_limit_w: of the board,
    where the device file gives it. kernels: that are in the time, passes that split or cast operands among them;
    none where the time is a library's. launches: whether the time has the kernels' launches. by_library: the time
    is a library's kernels', not the program's.
    """

    l2: str
    clock_mhz: float | None
    clock: str
    power_limit_w: float | None
    kernels: list[str]
    launches: bool
    by_library: bool


class RunWarning(TypedDict):
    """A warning of a run: a code for scripts, a count, and a message."""

    code: str
    count: int
    message: str


class Evidence(TypedDict, total=False):
    """The weakest level behind the numerics and the times, and how well it is known that the vendor's library computes
    the product in this way (`schedule`). A part that nothing is said of is no key.
    """

    numerics: str
    schedule: str
    timing: str
