"""Benchmarks and performance targets of `hwsim bench`, as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from hwsim.numerics.units import DotSpec, FmaChainUnit

Exponents = Literal["ordinary", "full"]


@dataclass(frozen=True, slots=True)
class UnitRow:
    """Benchmark of one dot unit with one kind of operands.

    device: name; empty for a `spec` given directly. exponents: "ordinary": N(0, 1); "full": spread from the least
    normal number up. wanted: target as a share of NumPy's rate (float32; float64 for fp64), one thread, AVX-512,
    1024^3; None: no target.
    """

    device: str
    format: str
    wanted: float | None = None
    exponents: Exponents = "ordinary"
    spec: DotSpec | None = None


@dataclass(frozen=True, slots=True)
class ConversionRow:
    """Benchmark of a conversion from float32. wanted: target as a share of torch's rate on the CPU (to nearest), one
    thread.
    """

    format: str
    rounding: Literal["RNE", "RZ"]
    wanted: float | None = None


@dataclass(frozen=True, slots=True)
class SchemeRow:
    """Benchmark of a whole GEMM. wanted_outside: target for the share of time outside the dot kernels.

    wanted_times: target for the time, in NumPy float32 products of the same size; None: no target.
    """

    scheme: str
    device: str
    wanted_outside: float = 0.1
    wanted_times: float | None = None


@dataclass(frozen=True, slots=True)
class ExecutionRow:
    """Benchmark of a scheme's program on a device, beside the evaluator of the same product.

    wanted: target for the time of the program, in times of the evaluator.
    """

    device: str
    scheme: str
    wanted: float = 4.0


FP32_CHAIN = DotSpec(FmaChainUnit(), "fp32", "fp32", "fp32", "fp32")
UNITS = (
    UnitRow("h200", "fp16", 1 / 6),
    UnitRow("h200", "bf16", 1 / 8),
    UnitRow("h200", "tf32", 1 / 8),
    UnitRow("h200", "bf16", 1 / 20, "full"),
    UnitRow("h200", "tf32", 1 / 20, "full"),
    UnitRow("a100", "fp16", 1 / 8),
    UnitRow("v100", "fp16", 1 / 10),
    UnitRow("h200", "e4m3", 1 / 5),
    UnitRow("mi210", "fp16", 1 / 5),
    UnitRow("ascend910a", "fp16", 1 / 5),
    UnitRow("mi300x", "fp16", 1 / 15),
    UnitRow("", "fp32", 1 / 2, spec=FP32_CHAIN),
    UnitRow("h200", "int8", 1 / 4),
    UnitRow("h200", "fp64", 1 / 2),
)
CONVERSIONS = (
    ConversionRow("fp16", "RNE", 0.7),
    ConversionRow("fp16", "RZ", 0.7),
    ConversionRow("bf16", "RNE", 0.7),
    ConversionRow("bf16", "RZ", 0.7),
    ConversionRow("e4m3", "RNE", 2.0),
    ConversionRow("e4m3", "RZ", 2.0),
    ConversionRow("e5m2", "RNE"),
    ConversionRow("e5m2", "RZ"),
)
SCHEMES = (SchemeRow("sgemm-cube", "h200"), SchemeRow("bf16x9", "b200", wanted_times=80))
# Programs for the timing engine: one or more of each family, (device, scheme, format).
PROGRAMS = (
    ("ascend910a", "sgemm-cube", None),
    ("ascend910b3", "native", "fp16"),
    ("v100", "native", "fp16"),
    ("a100", "tf32x3", None),
    ("h200", "native", "fp16"),
    ("b200", "bf16x9", None),
    ("mi210", "le-gemm", None),
    ("mi300x", "native", "fp16"),
)
# Programs whose bits are computed: these devices, with each scheme that has one there.
EXECUTED_ON = ("v100", "a100", "h200", "b200", "mi210", "mi300x", "tf64", "ascend910a", "ascend910b3")
ENGINE_WANTED = 5e6  # simulated instructions per second, one core


def executions(devices: Iterable[str], names: Iterable[str]) -> list[ExecutionRow]:
    """The benchmarks of the programs of these schemes on these devices."""
    listed = list(names)
    return [ExecutionRow(device, scheme) for device in devices for scheme in listed]


def rows_of(device: str, formats: list[str]) -> list[UnitRow]:
    """The benchmarks of a device: those of the table, and its other native formats without a target."""
    known = [row for row in UNITS if row.device == device and row.format in formats]
    return known + [UnitRow(device, name) for name in formats if name not in {row.format for row in known}]
