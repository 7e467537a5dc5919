"""Measured times compared with the timing machine's: one row for each point of hwsim_lab.papers.anchor_data.

No number of a device file is set here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hwsim.compute.call import clocked
from hwsim.devices import changed, load
from hwsim.errors import InputError
from hwsim.gemm.problem import Problem
from hwsim.gemm.schedule import Schedule
from hwsim.machines import timing
from hwsim.machines.load import under_load
from hwsim.request.epilogue import with_epilogue
from hwsim.resolve.choice.cost import plan_record
from hwsim.resolve.mapping_choice import facts_of, program_of
from hwsim.resolve.planning import plan_for
from hwsim.schemes import scheme_of
from hwsim_lab.papers import ascend910b
from hwsim_lab.papers.anchor_data import Anchors, MeasuredRun, MeasuredTimes, Measurement, Role

if TYPE_CHECKING:
    from hwsim.devices.device import Device

Errors = tuple[tuple[str, float], ...]  # relative, by "MxNxK"
LARGE = 1024**3  # m n k from which times of GEMMs are no longer mostly launches
LOWERING = ("tile", "stages", "split_k", "swizzle", "cta_group", "n_fused", "buffering", "b_layout")


@dataclass(frozen=True, slots=True)
class Row:
    """One point, measured and simulated."""

    id: str
    what: str
    quantity: str
    measured: tuple[float, float]
    simulated: float
    tolerance: float
    role: Role
    source: str
    why: str = ""
    moved: str = ""

    @property
    def error(self) -> float:
        """Relative distance from the nearest end of the measured range; 0 inside it."""
        return ascend910b.distance(self.simulated, self.measured)

    @property
    def passes(self) -> bool:
        """Whether the error is within the tolerance."""
        return abs(self.error) <= self.tolerance


@dataclass(frozen=True, slots=True)
class Outcome:
    """Simulated times of one GEMM.

    busy: share of the time that each engine is busy, mean over the cores. kernels: share of the time of each kernel.
    merges: kernels that add up the slices of split-K.
    """

    seconds: float
    tflops: float
    busy: Mapping[str, float]
    kernels: Mapping[str, float]
    merges: int


def simulate(run: MeasuredRun) -> Outcome:
    """Time one GEMM, or the fastest of several squares. Raises UnsupportedError and InputError as the scheme and the
    device's dataflow do.
    """
    if run.squares:
        each = (run.model_copy(update={"m": n, "n": n, "k": n, "squares": ()}) for n in run.squares)
        return max((simulate(square) for square in each), key=lambda outcome: outcome.tflops)
    chip = _device(run)
    scheme = scheme_of(run.scheme)
    operand = run.format if run.scheme == "native" and run.format is not None else "fp32"
    planned = plan_for(chip, scheme, Problem.of(operand, run.m, run.n, run.k), run.format, run.options)
    options = {name: getattr(run, name) for name in LOWERING if getattr(run, name, None) is not None}
    if run.tile is not None:
        options["tile"] = tuple(run.tile)
    schedule = with_epilogue(Schedule(), output=run.output)
    gemm = plan_record(planned.plan, chip, (run.m, run.n, run.k), options, schedule)
    loaded, timed = under_load(program_of(gemm, chip), chip, str(facts_of(gemm, chip)["unit"]), l2=run.l2)
    seconds = timing.seconds(timed, loaded)
    if run.phase is not None:
        seconds = next(k.cycles for k in timed.kernels if k.name == run.phase) / (loaded.clock_mhz * 1e6)
    busy = {name: x.busy_cycles / (timed.cycles * chip.cores) for name, x in timed.engines.items()}
    kernels = {kernel.name: kernel.cycles / timed.cycles for kernel in timed.kernels}
    merges = sum(name.startswith("merge_") for name in kernels)
    return Outcome(seconds, 2 * run.m * run.n * run.k / seconds / 1e12, busy, kernels, merges)


def _device(run: MeasuredRun) -> Device:
    chip = load(run.device)
    chip = changed(chip, run.changes) if run.changes else chip
    return clocked(chip, run.clock_mhz, run.power_limit_w)


def row(entry: Measurement) -> Row:
    """Simulate one point."""
    found = simulate(entry.run)
    seconds = found.seconds + entry.host_us * 1e-6
    if entry.quantity == "tflops":
        value = found.tflops * found.seconds / seconds
    elif entry.quantity == "ms":
        value = seconds * 1e3
    elif entry.quantity == "ratio":
        if entry.over is None:
            raise InputError(f"point {entry.id}: a ratio needs `over`")
        value = simulate(entry.over).seconds / found.seconds
    elif entry.quantity == "share":
        missing = [name for name in entry.kernels if name not in found.kernels]
        if missing or not entry.kernels:
            raise InputError(
                f"point {entry.id}: kernels {missing or 'none'}; the program has {', '.join(found.kernels)}"
            )
        value = math.fsum(found.kernels[name] for name in entry.kernels)
    else:
        if entry.engine is None or entry.engine not in found.busy:
            raise InputError(f"point {entry.id}: engine {entry.engine!r}; the device has {', '.join(found.busy)}")
        value = 1 - found.busy[entry.engine]
    measured = entry.measured if isinstance(entry.measured, tuple) else (entry.measured, entry.measured)
    return Row(
        entry.id,
        entry.what,
        entry.quantity,
        measured,
        value,
        entry.tolerance,
        entry.role,
        entry.source,
        entry.why,
        entry.moved,
    )


def time_errors(times: MeasuredTimes, split_k: int | Literal["auto"] | None = None) -> dict[str, float]:
    """The relative error of each time; launches are added to the simulated time.

    The first launch is the measured one, each merge kernel adds the device's.
    """
    found = {}
    merge_us = load(times.device).launch_overhead_us or 0.0
    for shape, us in times.us.items():
        m, n, k = (int(x) for x in shape.split("x"))
        layout = "columns" if times.columns else None
        run = MeasuredRun(
            device=times.device,
            format=times.format,
            output=times.output,
            m=m,
            n=n,
            k=k,
            b_layout=layout,
            split_k=split_k,
        )
        outcome = simulate(run)
        found[shape] = (outcome.seconds * 1e6 + times.launch_us + outcome.merges * merge_us) / us - 1
    return found


@dataclass(frozen=True, slots=True)
class Spread:
    """Errors of runs without split-K, and of the same with split_k="auto", as libraries choose it."""

    plain: Errors
    cut: Errors

    @property
    def counts(self) -> tuple[int, int]:
        """Number of points with m n k >= LARGE, and of all."""
        return len(large(self.plain)), len(self.plain)

    @property
    def bias(self) -> float:
        """Mean error of all runs without split-K."""
        return math.fsum(e for _, e in self.plain) / len(self.plain)

    def passes(self, tolerance: float) -> bool:
        """Whether the mean absolute error without split-K (of the large ones, where there are any) is within the
        tolerance.
        """
        return mean_absolute(large(self.plain) or self.plain) <= tolerance


def spread(times: MeasuredTimes) -> Spread:
    """The errors of one set of times."""
    return Spread(*(tuple(time_errors(times, split_k).items()) for split_k in (None, "auto")))


def pooled(sets: Iterable[tuple[MeasuredTimes, Spread]]) -> dict[str, Spread]:
    """The errors of each format over all its sets except calibration."""
    found: dict[str, Spread] = {}
    for times, one in sets:
        if times.role != "calibration":
            before = found.get(times.format, Spread((), ()))
            found[times.format] = Spread(before.plain + one.plain, before.cut + one.cut)
    return found


def large(errors: Errors) -> Errors:
    """The errors of points with m n k >= LARGE."""
    return tuple((shape, e) for shape, e in errors if _products(shape) >= LARGE)


def mean_absolute(errors: Errors) -> float:
    """The mean absolute error; NaN for none."""
    return math.fsum(abs(e) for _, e in errors) / len(errors) if errors else math.nan


def _products(shape: str) -> int:
    m, n, k = (int(x) for x in shape.split("x"))
    return m * n * k


def huawei_rows() -> Iterator[Row]:
    """The points of the 910B family, which have configurations of their own (hwsim_lab.papers.ascend910b)."""
    for point in (*ascend910b.huawei(), *ascend910b.guide(), *ascend910b.torch(), *ascend910b.paper()):
        yield Row(
            f"910b {point.what}, {point.quantity}",
            f"910B: {point.what}, {point.quantity}, {point.unit}",
            point.unit,
            point.measured,
            point.simulated,
            0.2 if "busy" in point.quantity else 0.1,
            point.role,
            "see ascend910b.md",
            ascend910b.why(point),
        )


def rows(data: Anchors) -> list[Row]:
    """All points, simulated; takes minutes."""
    return [*(row(entry) for entry in data.points), *huawei_rows()]


def sets(data: Anchors) -> list[tuple[MeasuredTimes, Spread]]:
    """All sets of times, simulated; takes longer."""
    return [(times, spread(times)) for times in data.times]
