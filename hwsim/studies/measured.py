"""Measured times of kernels beside the simulated ones: one run of cycles per GEMM, and how far the two agree."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hwsim.api import run
from hwsim.devices import load
from hwsim.devices.device import Device
from hwsim.errors import InputError, UnsupportedError

SIZES = ("m", "n", "k")


@dataclass(frozen=True, slots=True)
class MeasuredKernel:
    """One measured kernel. name: as the profiler gives it; seconds: its duration; where: "file:line" for messages.

    gemm: the GEMM that it computes, as options of hwsim.run (m, n and k; format, scheme, a_layout, ...); None where
    that is not known.
    """

    name: str
    seconds: float
    gemm: Mapping[str, Any] | None = None
    where: str = ""


@dataclass(frozen=True, slots=True)
class ComparedKernel:
    """A measured kernel and its simulated time. simulated_seconds: None where hwsim has none; `refused` says why."""

    measured: MeasuredKernel
    simulated_seconds: float | None
    refused: str = ""

    @property
    def error(self) -> float | None:
        """simulated / measured - 1: positive where the simulation is slower. None without a simulated time."""
        return None if self.simulated_seconds is None else self.simulated_seconds / self.measured.seconds - 1.0


@dataclass(frozen=True, slots=True)
class MeasuredComparison:
    """Kernels in the order of the report. device: its name; library: as given; without_gemm: {kernel's name: count} of
    those whose GEMM is not known.
    """

    device: str
    library: str | None
    kernels: tuple[ComparedKernel, ...]
    without_gemm: Mapping[str, int] = field(default_factory=dict)

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """(measured, simulated) seconds of the kernels that have both."""
        timed = ((kernel.measured.seconds, kernel.simulated_seconds) for kernel in self.kernels)
        return [(measured, simulated) for measured, simulated in timed if simulated is not None]

    @property
    def pairs_above_zero(self) -> list[tuple[float, float]]:
        """The pairs that have logarithms: a library's kernel that takes no longer than a launch has a time of 0."""
        return [(measured, simulated) for measured, simulated in self.pairs if simulated > 0]

    @property
    def mean_absolute_error(self) -> float | None:
        """Mean of |simulated / measured - 1|; None without a pair."""
        return statistics.fmean(self._absolute()) if self.pairs else None

    @property
    def median_absolute_error(self) -> float | None:
        """Median of |simulated / measured - 1|; None without a pair."""
        return statistics.median(self._absolute()) if self.pairs else None

    @property
    def log_correlation(self) -> float | None:
        """Pearson correlation of log(measured) and log(simulated); None below three pairs, or where one is constant."""
        logs = [(math.log(measured), math.log(simulated)) for measured, simulated in self.pairs_above_zero]
        measured, simulated = [x for x, _ in logs], [y for _, y in logs]
        if len(logs) < 3 or len(set(measured)) < 2 or len(set(simulated)) < 2:
            return None
        return min(1.0, max(-1.0, statistics.correlation(measured, simulated)))  # rounding may go beyond

    def _absolute(self) -> list[float]:
        return [abs(simulated / measured - 1.0) for measured, simulated in self.pairs]


def compare_measured(
    rows: Sequence[MeasuredKernel],
    *,
    device: str | Path | Mapping[str, Any] | Device,
    library: str | None = None,
    progress: Callable[[float], None] | None = None,
    **options: Any,
) -> MeasuredComparison:
    """Run every kernel's GEMM with exact=False and put its time beside the measured one.

    rows: measured kernels (hwsim.libraries.recording.ncu_csv.read_ncu_csv reads them); equal GEMMs run once. device,
    library, options: of hwsim.run, for all kernels; those of a kernel's own GEMM take precedence. progress: called with
    shares of the work, 0 to 1.

    Raises InputError for a duration that is not above 0, for options that do not fit, and where no kernel has a GEMM;
    ConfigError for a bad device file. What the device or library cannot do is the `refused` of its kernel, and an
    UnsupportedError where no kernel has a simulated time.
    """
    chip = load(device)
    common = options if library is None else {**options, "library": library}
    unknown: dict[str, int] = {}
    with_gemm: list[tuple[MeasuredKernel, dict[str, Any]]] = []
    for row in rows:
        if not (math.isfinite(row.seconds) and row.seconds > 0):
            raise InputError(f"{_place(row)}: duration {row.seconds!r} s; allowed: a number above 0")
        if row.gemm is None:
            unknown[row.name] = unknown.get(row.name, 0) + 1
        else:
            with_gemm.append((row, {**common, **row.gemm}))
    if not with_gemm:
        raise InputError(_nothing_known(unknown))
    times: dict[str, tuple[float | None, str]] = {}
    compared = []
    for number, (row, gemm) in enumerate(with_gemm, 1):
        key = repr(sorted(gemm.items(), key=lambda item: item[0]))
        if key not in times:
            times[key] = _simulated(row, chip, gemm)
        compared.append(ComparedKernel(row, *times[key]))
        if progress is not None:
            progress(number / len(with_gemm))
    comparison = MeasuredComparison(chip.name, library, tuple(compared), unknown)
    if not comparison.pairs:
        raise UnsupportedError(f"no kernel has a simulated time: {_place(with_gemm[0][0])}: {compared[0].refused}")
    return comparison


def _simulated(row: MeasuredKernel, chip: Device, gemm: Mapping[str, Any]) -> tuple[float | None, str]:
    """(seconds, "") or (None, why there are none)."""
    missing = [size for size in SIZES if gemm.get(size) is None]
    if missing:
        raise InputError(f"{_place(row)}: no {', '.join(missing)}; give m, n and k of its GEMM")
    try:
        result = run(device=chip, **{**gemm, "exact": False})
    except UnsupportedError as error:
        return None, str(error)
    except InputError as error:
        raise InputError(f"{_place(row)}: {error}") from error
    return result.seconds, "" if result.seconds is not None else str(result.timing_note)


def _place(row: MeasuredKernel) -> str:
    return f"{row.where}: kernel {row.name}" if row.where else f"kernel {row.name}"


def _nothing_known(unknown: Mapping[str, int]) -> str:
    if not unknown:
        return "no kernels to compare"
    names = list(unknown)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        f"what GEMM a kernel was is not known for any of the kernels ({', '.join(names[:3])}{more}); add columns m, n "
        "and k to the report, or give a map from kernels' names to GEMMs (--map)"
    )
