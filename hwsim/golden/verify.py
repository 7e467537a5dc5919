"""Verification of golden sets, bit for bit, against any implementation. It knows files and codes, no unit and no
device.

The implementation is a callable `mma(device, instruction, a, b, c, **scales)`: codes a (cases, M, K), b (cases, K, N),
c (cases, M, N) in, codes d (cases, M, N) out. A verification that compares nothing is an error, not a success.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hwsim.errors import InputError, MismatchError
from hwsim.golden.format import GoldenSet, Meta, UnsignedCodes, is_of_sets, read_meta, read_sets
from hwsim.golden.instructions import parse
from hwsim.golden.thirdparty import is_third_party, read_third_party


class Mma(Protocol):
    """The type of an implementation of matrix instructions (module docstring); scales are as in `GoldenSet.scales`,
    b's transposed.
    """

    def __call__(
        self, device: str, instruction: str, a: UnsignedCodes, b: UnsignedCodes, c: UnsignedCodes, **scales: Any
    ) -> UnsignedCodes: ...


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One differing output element. a, b, c, expected, got: codes in hex; row of A, column of B.

    bits: positions of the differing bits, 0 the lowest. ulps: distance in places of the result's format, or None
    where one of the two is a NaN or the format is not known.
    """

    path: str
    instruction: str
    set: str
    case: int
    row: int
    column: int
    a: tuple[str, ...]
    b: tuple[str, ...]
    c: str
    expected: str
    got: str
    bits: tuple[int, ...]
    ulps: int | None
    replay: str


@dataclass(frozen=True, slots=True)
class SetReport:
    """The report on one set: number of results compared, number that differ, seconds of the computation."""

    path: str
    instruction: str
    set: str
    device: str
    origin: str
    results: int
    mismatches: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """The report on all sets, with the first mismatches of each set that has any."""

    sets: tuple[SetReport, ...]
    first: tuple[Mismatch, ...]

    @property
    def results(self) -> int:
        """Number of results compared."""
        return sum(entry.results for entry in self.sets)

    @property
    def mismatches(self) -> int:
        """Number of results that differ."""
        return sum(entry.mismatches for entry in self.sets)

    def to_json(self) -> dict[str, Any]:
        """Plain data for json.dumps."""
        return {
            "results": self.results,
            "mismatches": self.mismatches,
            "sets": [asdict(entry) for entry in self.sets],
            "first": [asdict(entry) for entry in self.first],
        }

    def to_text(self) -> str:
        """One line per set, the first mismatches, a line of totals."""
        lines = [
            f"{'FAIL' if entry.mismatches else 'ok':4}  {entry.device:10}  {entry.origin:11}  "
            f"{entry.mismatches:>8} of {entry.results:>9}  {entry.instruction}/{entry.set}  ({entry.path})"
            for entry in self.sets
        ]
        for miss in self.first:
            lines += [
                f"{miss.instruction}/{miss.set} case {miss.case} row {miss.row} column {miss.column}: expected "
                f"{miss.expected}, got {miss.got}, bits {list(miss.bits)}, ulps {miss.ulps}",
                f"    {miss.replay}",
            ]
        lines.append(f"{self.mismatches} of {self.results} results differ, {len(self.sets)} sets")
        return "\n".join(lines)


def golden_files(paths: Iterable[Path]) -> list[Path]:
    """The archives under these files and folders that hold sets of instructions, sorted.

    A folder's archives of another kind (whole GEMMs) are left out; one that is named itself must fit. Raises
    InputError for a path that is not there.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += [file for file in sorted(path.rglob("*.npz")) if is_third_party(file) or is_of_sets(file)]
        elif path.exists():
            files.append(path)
        else:
            raise InputError(f"{path}: no such file or folder")
    return files


def all_sets(paths: Iterable[Path], *, device: str = "", only: str = "") -> Iterator[tuple[Path, Meta, GoldenSet]]:
    """Every set with results under `paths`, with the record of its origin.

    device: for archives that do not name theirs. only: part of the set's key. Sets of operands alone are left out.
    Raises InputError for an archive of which nobody says the device.
    """
    for path in golden_files(paths):
        if is_third_party(path):
            for meta, golden in read_third_party(path):
                if only in golden.key:
                    yield path, meta, golden
            continue
        meta = read_meta(path) or Meta("silicon", note="no record in the archive")
        if meta.origin == "operands":
            continue
        if not (device or meta.device):
            raise InputError(
                f"{path}: does not say which device it is of, and has no {path.stem}.meta.json beside it; "
                "name the device"
            )
        for golden in read_sets(path, only):
            yield path, meta if meta.device else Meta(meta.origin, device, note=meta.note), golden


def verify(
    paths: Sequence[Path], mma: Mma, *, device: str = "", only: str = "", first: int = 3, results: int | None = None
) -> Report:
    """Compare every set under `paths` with what `mma` computes, bit for bit.

    device: for archives that do not name theirs. only: part of the key INSTRUCTION/SET. first: mismatches kept per
    set. results: take about so many results of each set only, whole cases spread over it.
    Raises InputError when not one result is there to compare. Mismatches are in the report; `check` raises for them.
    """
    reports: list[SetReport] = []
    misses: list[Mismatch] = []
    for path, meta, golden in all_sets(paths, device=device, only=only):
        chosen = _sample(golden, results)
        start = time.perf_counter()
        got = compute(mma, meta.device, chosen)
        seconds = time.perf_counter() - start
        expected = chosen.d
        if expected is None:
            raise InputError(f"{path}: set {golden.key} has no results")
        if got.shape != expected.shape or got.dtype != expected.dtype:
            raise InputError(
                f"{path}: set {golden.key} holds {expected.shape} of {expected.dtype}; "
                f"the computation gave {got.shape} of {got.dtype}"
            )
        wrong = np.argwhere(got != expected)
        reports.append(
            SetReport(
                path=str(path),
                instruction=golden.instruction,
                set=golden.name,
                device=meta.device,
                origin=meta.origin,
                results=expected.size,
                mismatches=len(wrong),
                seconds=seconds,
            )
        )
        misses += [describe(str(path), meta.device, chosen, got, tuple(int(i) for i in at)) for at in wrong[:first]]
    report = Report(tuple(reports), tuple(misses))
    if not report.results:
        where = ", ".join(str(path) for path in paths) or "no paths"
        raise InputError(
            f"{where}: no golden set{f' with {only!r} in its key' if only else ''} was found; zero cases prove nothing"
        )
    return report


def check(report: Report) -> Report:
    """Return the report; raises MismatchError, with its text, when a result differs."""
    if report.mismatches:
        raise MismatchError(report.to_text())
    return report


def compute(mma: Mma, device: str, golden: GoldenSet) -> UnsignedCodes:
    """The results (cases, M, N) that `mma` computes for a set's operands."""
    scales = {
        name: int(array) if array.ndim == 0 else np.swapaxes(array, -1, -2) if name == "scale_b" else array
        for name, array in golden.scales.items()
    }
    return mma(device, golden.instruction, golden.a, np.swapaxes(golden.b, -1, -2), golden.c, **scales)


def describe(path: str, device: str, golden: GoldenSet, got: UnsignedCodes, at: tuple[int, ...]) -> Mismatch:
    """The mismatch at (case, row, column) of a set, with a command that replays that one element."""
    case, row, column = at
    if golden.d is None:
        raise InputError(f"set {golden.key} has no results")
    a, b = golden.a[case, row], golden.b[case, column]
    c, expected, computed = int(golden.c[at]), int(golden.d[at]), int(got[at])
    width = golden.d.dtype.itemsize * 8
    hex_a, hex_b = (tuple(f"0x{int(code):0{2 * array.dtype.itemsize}x}" for code in array) for array in (a, b))
    differing = expected ^ computed
    hex_c = f"0x{c:0{2 * golden.c.dtype.itemsize}x}"
    scales = "".join(
        f" --{name.replace('_', '-')} {','.join(map(hex, value)) if isinstance(value, list) else value}"
        for name, value in golden.element(case, row, column).items()
        if name in golden.scales
    )
    return Mismatch(
        path=path,
        instruction=golden.instruction,
        set=golden.name,
        case=case,
        row=row,
        column=column,
        a=hex_a,
        b=hex_b,
        c=hex_c,
        expected=f"0x{expected:0{width // 4}x}",
        got=f"0x{computed:0{width // 4}x}",
        bits=tuple(i for i in range(width) if differing >> i & 1),
        ulps=_ulps(golden.instruction, width, expected, computed),
        replay=f"hwsim explain {device or 'DEVICE'} {golden.instruction} "
        f"--a {','.join(hex_a)} --b {','.join(hex_b)} --c {hex_c}{scales}",
    )


def _ulps(instruction: str, width: int, expected: int, got: int) -> int | None:
    """The distance of two codes in codes; None for a NaN, or for an unknown instruction with integers."""
    try:
        integer = parse(instruction).d == "int32"
    except InputError:
        integer = "i32" in instruction
    sign = 1 << width - 1
    if integer:
        return abs((expected ^ sign) - (got ^ sign))
    infinity = {64: 0x7FF << 52, 32: 0xFF << 23, 16: 0x1F << 10}.get(width)
    if infinity is None or (expected & (sign - 1)) > infinity or (got & (sign - 1)) > infinity:
        return None
    places = [-(code & (sign - 1)) if code & sign else code for code in (expected, got)]
    return abs(places[0] - places[1])


def _sample(golden: GoldenSet, results: int | None) -> GoldenSet:
    """Whole cases spread evenly over the set, with about `results` results."""
    cases = golden.c.shape[0]
    if results is None or golden.c.size <= results:
        return golden
    step = max(cases * golden.c[0].size // max(results, 1), 1)
    arrays = (golden.a, golden.b, golden.c, golden.d)
    a, b, c, d = (None if array is None else array[::step] for array in arrays)
    scales = {name: array if array.ndim == 0 else array[::step] for name, array in golden.scales.items()}
    if a is None or b is None or c is None:
        raise InputError(f"set {golden.key} lacks operands")
    return GoldenSet(instruction=golden.instruction, name=golden.name, a=a, b=b, c=c, d=d, scales=scales)
