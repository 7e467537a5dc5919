"""The self-test of an installation: bit patterns and runs shipped with hwsim, compared with what it computes.

`patterns/*.npz` are golden archives cut from those of the source tree: for every dot unit of every device one set that
hwsim computed (a regression), and sets captured on silicon. `patterns/runs.json` has whole GEMMs with the SHA-256 of
their bits and their cycles. lab/tools/selftest_patterns.py writes both. Devices are those of the package, also where a
device file of the user's has the same name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.api import run
from hwsim.backend.cpu import CPU
from hwsim.devices.registry import package_folder
from hwsim.errors import InputError
from hwsim.golden import simulated
from hwsim.golden.format import UnsignedCodes
from hwsim.golden.verify import Mma, Report, verify

PATTERNS = Path(__file__).parent / "patterns"
RUNS = "runs.json"
DESCRIBED = 1  # mismatches of each set that are described
SPREAD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class PatternRun:
    """A whole GEMM of patterns/runs.json. options: as of `hwsim.run`, with device, m, n and k. sha256: of the bits
    (`Result.result_sha256`). cycles: of the device's core clock.
    """

    options: Mapping[str, Any]
    sha256: str
    cycles: int | None


@dataclass(frozen=True, slots=True)
class RunComparison:
    """A GEMM's bits and cycles as they should be and as they are."""

    expected: PatternRun
    got: PatternRun

    @property
    def same(self) -> bool:
        """Whether bits and cycles agree."""
        return self.expected == self.got

    def to_text(self) -> str:
        """One line; where something differs, one more for each."""
        setting = " ".join(f"{name}={value}" for name, value in self.expected.options.items())
        lines = [f"{'ok' if self.same else 'FAIL':4}  run         {setting}"]
        pairs = (
            ("SHA-256 of the bits", self.expected.sha256, self.got.sha256),
            ("cycles", self.expected.cycles, self.got.cycles),
        )
        lines += [f"      {what}: expected {wanted}, got {got}" for what, wanted, got in pairs if wanted != got]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The comparison of everything that was installed to be compared. kernel: the build of the kernels that computed
    it. reports: one of each archive of patterns/.
    """

    kernel: str
    reports: tuple[Report, ...]
    runs: tuple[RunComparison, ...]

    @property
    def results(self) -> int:
        """Number of results of matrix instructions that were compared."""
        return sum(report.results for report in self.reports)

    @property
    def mismatches(self) -> int:
        """Number of them that differ."""
        return sum(report.mismatches for report in self.reports)

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not self.mismatches and all(comparison.same for comparison in self.runs)

    def to_json(self) -> dict[str, Any]:
        """Plain data for json.dumps."""
        return {
            "kernel": self.kernel,
            "same": self.same,
            "results": self.results,
            "mismatches": self.mismatches,
            "patterns": [report.to_json() for report in self.reports],
            "runs": [asdict(comparison) | {"same": comparison.same} for comparison in self.runs],
        }

    def to_text(self) -> str:
        """One line for each archive and each run, the first differences, and a line of totals."""
        lines = [line for report in self.reports for line in _report_lines(report)]
        lines += [comparison.to_text() for comparison in self.runs]
        different = sum(not comparison.same for comparison in self.runs)
        lines.append(
            f"kernel {self.kernel}: {self.mismatches} of {self.results:,} results of matrix instructions differ, "
            f"{different} of {len(self.runs)} runs"
        )
        return "\n".join(lines)


def operand(rows: int, columns: int, seed: int) -> NDArray[np.float32]:
    """(rows, columns) of float32 in [-1, 1), multiples of 2^-23, by integer arithmetic alone: the same with every
    version of NumPy.
    """
    place = np.arange(1, rows * columns + 1, dtype=np.uint64) * SPREAD + np.uint64(seed)
    place = (place ^ (place >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (place ^ (place >> np.uint64(31))) >> np.uint64(40)
    return ((word.astype(np.float64) - 2.0**23) / 2.0**23).astype(np.float32).reshape(rows, columns)


def shipped_device(name: str) -> str:
    """The path of the package's file of a device."""
    return str(package_folder() / f"{name}.yaml")


def computed_run(options: Mapping[str, Any]) -> PatternRun:
    """The bits and cycles of the GEMM with these options, on operands of `operand`."""
    values = dict(options)
    m, n, k = (values.pop(name) for name in ("m", "n", "k"))
    result = run(
        operand(m, k, 1), operand(k, n, 2), timing=True, **values | {"device": shipped_device(values["device"])}
    )
    return PatternRun(options, result.result_sha256 or "", result.cycles)


def pattern_runs(folder: Path = PATTERNS) -> list[PatternRun]:
    """The GEMMs of a folder of patterns. Raises InputError where the file is missing or damaged."""
    path = folder / RUNS
    try:
        return [PatternRun(**record) for record in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path}: cannot read it: {error}; install hwsim again") from None


def selftest(
    mma: Mma | None = None,
    compute_run: Callable[[Mapping[str, Any]], PatternRun] = computed_run,
    *,
    folder: Path = PATTERNS,
    progress: Callable[[float], None] | None = None,
) -> SelfTest:
    """Compute everything in `folder` again and compare it. mma: see `hwsim.golden.verify.Mma`, by default the package's
    devices. progress: called with the share done, 0 to 1. Raises InputError where there is nothing to compare.
    """
    archives, runs = sorted(folder.glob("*.npz")), pattern_runs(folder)
    if not archives or not runs:
        raise InputError(f"{folder}: no patterns; zero cases prove nothing; install hwsim again")
    told = _counted(progress, len(archives) + len(runs))
    reports = []
    for path in archives:
        reports.append(verify([path], mma or _shipped_mma, first=DESCRIBED))
        next(told)
    comparisons = []
    for pattern in runs:
        comparisons.append(RunComparison(pattern, compute_run(pattern.options)))
        next(told)
    return SelfTest(CPU.variant, tuple(reports), tuple(comparisons))


def _shipped_mma(
    device: str, instruction: str, a: UnsignedCodes, b: UnsignedCodes, c: UnsignedCodes, **scales: Any
) -> UnsignedCodes:
    """`simulated.mma` with the package's own device file."""
    return simulated.mma(shipped_device(device), instruction, a, b, c, **scales)


def _counted(progress: Callable[[float], None] | None, total: int) -> Iterator[None]:
    for index in range(total):
        if progress is not None:
            progress((index + 1) / total)
        yield


def _report_lines(report: Report) -> Sequence[str]:
    """A line of one archive, and the first difference of each of its sets that has one."""
    first = report.sets[0]
    lines = [
        f"{'FAIL' if report.mismatches else 'ok':4}  {first.device:10}  {first.origin:8}  {len(report.sets):>3} sets  "
        f"{report.results:>6,} results  {report.mismatches} differ"
    ]
    for miss in report.first:
        lines += [
            f"      {miss.instruction}/{miss.set} case {miss.case} row {miss.row} column {miss.column}: expected "
            f"{miss.expected}, got {miss.got}",
            f"      {miss.replay}",
        ]
    return lines
