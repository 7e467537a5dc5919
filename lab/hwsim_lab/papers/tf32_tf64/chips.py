"""Peaks and formats of the V100, A100 and H100 (Table 1), what the peaks project for 3xTF32 (Section 3.2), the size of
a Tensor Core (Section 2.1).

It reads device files: multiply-adds per cycle, cores, the boost clock, and the formats of matrix instructions. How many
Tensor Cores a multiprocessor has is published, not in the files.
"""

from __future__ import annotations

import math

from hwsim.devices import load
from hwsim.devices.query import instruction
from hwsim.formats import format_of
from hwsim.numerics.units import FusedUnit
from hwsim_lab.papers import published_units
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series
from hwsim_lab.papers.rates import takes
from hwsim_lab.papers.splits import SchemeSplit, products

V100, A100, H100 = "v100", "a100", "h100"
FORMATS = ("fp64", "tf32", "bf16", "fp16", "int8")
CLAIMS = (
    "abstract-tensor-core-speedup", "table1-v100", "table1-formats", "table1-a100", "table1-h100-fp64",
    "table1-h100-low", "table1-h100-over-a100", "table1-a100-steps", "sec2-3-tf32-uplift", "sec3-2-3xtf32-peak",
    "sec3-2-uplift-peak",
)  # fmt: skip
LANES = "FMA"  # the engine of the ordinary cores


def supported(device: str) -> list[int]:
    """1 for each of Table 1's formats that a Tensor Core of the device multiplies, else 0."""
    chip = load(device)
    engines = {
        name: [one.engine for one in chip.matrix_instructions.values() if name in (one.a, one.b)] for name in FORMATS
    }
    return [int(takes(device, name) and any(x != LANES for x in engines[name])) for name in FORMATS]


def macs(device: str, format: str) -> float:
    """Multiply-adds per cycle of one multiprocessor."""
    chip = load(device)
    return float(instruction(chip, chip.native[format]).macs_per_cycle)


def peak_tflops(device: str, format: str) -> float:
    """The peak of the unit that multiplies a format, all multiprocessors, at the boost clock: no power limit."""
    chip = load(device)
    return 2 * macs(device, format) * chip.cores * chip.clock_mhz * 1e-6


def measure(scale: Scale) -> Found:
    """Table 1, and the peaks of Sections 2.3 and 3.2."""
    peak = {(d, x): peak_tflops(d, x) for d in (A100, H100) for x in (*FORMATS, "fp32")}
    peak |= {(V100, x): peak_tflops(V100, x) for x in ("fp16", "fp32")}
    rows = {d: [peak[d, x] for x in FORMATS] for d in (A100, H100)}
    pairs = ((V100, "fp16"), (A100, "tf32"), (A100, "fp16"), (H100, "tf32"), (H100, "fp16"))
    of_three = len(products(SchemeSplit("tf32x3", A100).plan))
    three = peak[A100, "tf32"] / of_three
    measured: dict[str, dict[str, Quantity]] = {
        "abstract-tensor-core-speedup": {"ratios": [peak[d, x] / peak[d, "fp32"] for d, x in pairs]},
        "table1-v100": {"fp16": peak[V100, "fp16"]},
        "table1-formats": {d: supported(d) for d in (V100, A100, H100)},
        "table1-a100": {"peaks": rows[A100]},
        "table1-h100-fp64": {"fp64": peak[H100, "fp64"]},
        "table1-h100-low": {"peaks": rows[H100][1:]},
        "table1-h100-over-a100": {"ratios": [x / y for x, y in zip(rows[H100], rows[A100], strict=True)]},
        "table1-a100-steps": {
            "tf32_over_fp64": macs(A100, "tf32") / macs(A100, "fp64"),
            "fp16_over_tf32": macs(A100, "fp16") / macs(A100, "tf32"),
            "bf16_over_fp16": macs(A100, "bf16") / macs(A100, "fp16"),
            "int8_over_fp16": macs(A100, "int8") / macs(A100, "fp16"),
        },
        "sec2-3-tf32-uplift": {"tf32": peak[A100, "tf32"], "fp32": peak[A100, "fp32"]},
        "sec3-2-3xtf32-peak": {"peak": three},
        "sec3-2-uplift-peak": {"uplift": three / peak[A100, "fp32"]},
    }
    vector = load(H100).vector
    assert vector is not None
    lanes = vector.repeat_bytes / (format_of("fp32").bits / 8)
    sparse = (
        "The paper's row is twice this in every format but FP64: peaks of a datasheet for products with 2:4 sparsity, "
        "beside the A100's row for dense ones."
    )
    notes = {
        "table1-h100-low": sparse,
        "table1-h100-over-a100": f"{sparse} Dense, every format gains {rows[H100][1] / rows[A100][1]:.2f} times.",
        "abstract-tensor-core-speedup": (
            f"Dense, the H100's FP16 is the furthest with {peak[H100, 'fp16'] / peak[H100, 'fp32']:.1f}: its FP32 rate "
            f"is a measured one of {macs(H100, 'fp32'):.0f} multiply-adds per cycle; at one for each of its "
            f"{lanes:.0f} lanes it would be {peak[H100, 'fp16'] / peak[H100, 'fp32'] * macs(H100, 'fp32') / lanes:.1f}."
        ),
    }
    columns: dict[str, list[object]] = {"format": [], "device": [], "tflops": []}
    for device in (V100, A100, H100):
        for name, offered in zip(FORMATS, supported(device), strict=True):
            columns["format"].append(name)
            columns["device"].append(device)
            columns["tflops"].append(peak[device, name] if offered else 0.0)
    return Found(measured, notes, (Series("table1", columns),))


def measure_units(scale: Scale) -> Found:
    """Multiply-adds per cycle of one Tensor Core, FP16; of the V100's, its shape."""
    cores = {name: one.per_sm for name, one in published_units.read().tensor_cores.items()}
    units = [macs(device, "fp16") / cores[device] for device in (V100, A100, H100)]
    chip = load(V100)
    unit = chip.dot_units[instruction(chip, chip.native["fp16"]).unit]
    assert isinstance(unit, FusedUnit)
    depth = unit.terms
    side = math.sqrt(units[0] / depth)
    return Found(
        {"sec2-1-unit-4x4": {"m": side, "n": side, "k": depth}, "sec2-1-units-grow": {"macs": units}},
        {
            "sec2-1-unit-4x4": f"k is the number of products that the unit adds in one step, by its bits; m n = "
            f"{units[0] / depth:g} follows from the rate of a multiprocessor and its {cores[V100]} Tensor Cores "
            "(white paper); that m = n is an assumption.",
            "sec2-1-units-grow": "Rates of a multiprocessor (device files) over its Tensor Cores (white papers): "
            + ", ".join(f"{device} {count}" for device, count in cores.items())
            + ".",
        },
    )


EXPERIMENTS = (
    Experiment("chips", CLAIMS, measure, {"quick": 4.0, "full": 4.0}),
    Experiment("units", ("sec2-1-unit-4x4", "sec2-1-units-grow"), measure_units, {"quick": 1.0, "full": 1.0}),
)
