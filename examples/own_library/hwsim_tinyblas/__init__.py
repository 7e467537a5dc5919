"""TinyBLAS, a GEMM library that hwsim does not know: its choice, its order of summation and its times.

It reads tinyblas.yaml and knows its own two kernels; hwsim finds it by the entry point in pyproject.toml.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import hwsim
from hwsim.devices.least_time import LeastTime
from hwsim.errors import UnsupportedError
from hwsim.gemm.record import LibraryId
from hwsim.gemm.schedule import Schedule
from hwsim.libraries.protocol import (
    LibraryChoice,
    LibraryProvider,
    LibraryRequest,
    LibraryRules,
    OperationCall,
    SummationOrder,
    gemm_of,
)

NAME = "tinyblas"
DATA: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("tinyblas.yaml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class TinyTimes:
    """What a kernel takes: its program, a launch and a sum of the slices."""

    split_k: int
    evidence: str = DATA["evidence"]
    why: str = "a launch and a sum of the slices, as tinyblas.yaml has them"
    launch_us: float = 0.0  # seconds have it

    def seconds(self, program_us: float, least: LeastTime) -> float:
        """Seconds of the call."""
        return float(program_us + DATA["launch_us"] + self.split_k * DATA["slice_us"]) * 1e-6


@dataclass(frozen=True, slots=True)
class TinyRules(LibraryRules):
    """TinyBLAS on a device."""

    id: LibraryId
    device: str
    cores: int

    def choose(self, call: OperationCall) -> LibraryChoice:
        """The first kernel that fits m, and slices of K where C has too few tiles for the cores."""
        gemm = gemm_of(call, self.id)
        if gemm.format not in DATA["formats"] or gemm.format_b not in (None, gemm.format):
            raise UnsupportedError(f"{NAME}: operands of {gemm.format}; allowed: {', '.join(DATA['formats'])}")
        name, kernel = next((name, x) for name, x in DATA["kernels"].items() if gemm.m >= x["least_m"])
        rows, columns = kernel["tile"]
        tiles = math.ceil(gemm.m / rows) * math.ceil(gemm.n / columns) * gemm.batch
        slices = 1
        if tiles < self.cores / 2:
            slices = max(1, min(DATA["split_k"]["most"], gemm.k // DATA["split_k"]["least_slice"]))
        return LibraryChoice(
            family=f"tiny_{name}",
            kernel=f"tiny_{name} {rows}x{columns}",
            operand=gemm.format,
            split_k=slices,
            tile=(rows, columns),
            tile_k=kernel["tile_k"],
            evidence=DATA["evidence"],
        )

    def order(self, call: OperationCall, choice: LibraryChoice) -> SummationOrder:
        """Slices of whole tiles of K, each a chain; their sums are added in ascending order."""
        gemm = gemm_of(call, self.id)
        length = math.ceil(gemm.k / choice.split_k / choice.tile_k) * choice.tile_k
        lengths = tuple(min(length, gemm.k - start) for start in range(0, gemm.k, length))
        return SummationOrder(Schedule(slice_k=lengths if len(lengths) > 1 else None, shape=(gemm.m, gemm.n)))

    def times(self, call: OperationCall, choice: LibraryChoice) -> TinyTimes:
        """The program's time, and what the kernel takes beside it."""
        return TinyTimes(choice.split_k)


class TinyBlas(LibraryProvider):
    """TinyBLAS by its name; it runs on every device."""

    name = NAME

    def on(self, request: LibraryRequest) -> TinyRules:
        """The rules of its one version. Raises UnsupportedError for another one."""
        if request.version not in (None, DATA["version"]):
            raise UnsupportedError(f"{NAME}: no version {request.version!r}; there is {DATA['version']!r}")
        chip = hwsim.device(request.device)
        return TinyRules(LibraryId(NAME, DATA["version"]), chip.name, chip.cores)


TINYBLAS = TinyBlas()
