"""Formats, pieces, scales, products and bands of BF16x9 and its relatives: Sections 1, 2 and 4, Eq. 4 and 5, Fig. 1.

It reads hwsim's formats, schemes' plans and the device's instructions; no product is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log2
from typing import Any

import numpy as np

import hwsim
from hwsim.devices import instruction, instruction_for, load
from hwsim.formats import array_of, format_of
from hwsim.gemm.plan import Plan
from hwsim.gemm.problem import Problem
from hwsim.result import Result
from hwsim.schemes import scheme_of
from hwsim_lab.papers.bf16x9 import runs, scaling
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale
from hwsim_lab.papers.splits import products

DEVICE = "gb200"
EVERY = tuple((i, j) for i in range(3) for j in range(3))  # the order of Eq. 5
Pair = tuple[int, int]


def plan_of(name: str, **options: Any) -> Plan:
    """A scheme's plan for FP32 operands."""
    scheme = scheme_of(name)
    plan = scheme.plan(scheme.complete(options), Problem.of("fp32", 1, 1, 1))
    assert isinstance(plan, Plan)
    return plan


def run_plan(name: str) -> Plan:
    """A scheme's plan for FP32 operands as it runs on the device: with the accumulation that is chosen for it."""
    options = hwsim.run(device=DEVICE, scheme=name, m=128, n=128, k=64, exact=False).options
    return plan_of(name, accumulation=options["accumulation"])


def scales(plan: Plan, side: str = "a") -> list[int]:
    """log2 of what each piece is multiplied by in the sum that is the operand."""
    found, total = [], 0
    for piece in plan.a_pieces if side == "a" else plan.b_pieces:
        total -= piece.scale_exponent
        found.append(total)
    return found


def product_scales(plan: Plan) -> Mapping[Pair, int]:
    """log2 of the scale with which each product enters: by the scalings of the accumulator that come after it."""
    found: dict[Pair, int] = {}
    for term in plan.terms:
        total = 0
        for stage in reversed(term.stages):
            found |= dict.fromkeys(stage.products, total)
            total -= stage.scale_exponent
    return found


def format_exponents(name: str) -> tuple[int, int, int]:
    """Exponent bits, and the exponents of the least normal and the greatest number."""
    found = format_of(name)
    return found.exponent_bits, found.min_exponent, found.max_exponent


def width_bits(name: str | None) -> int:
    """Storage width of a format."""
    assert name is not None
    return format_of(name).bits


def measure_definitions(scale: Scale) -> Found:
    """What the formats and plans say."""
    x9, x6 = run_plan("bf16x9"), run_plan("bf16x6")
    nine, six = products(x9), products(x6)
    fp32, bf16 = format_of("fp32"), format_of("bf16")
    bits, least, greatest = format_exponents("bf16")
    wide_bits, wide_least, wide_greatest = format_exponents("fp32")
    device = load(DEVICE)
    unit = instruction(device, instruction_for(device, "bf16", "bf16"))
    entering = product_scales(x9)
    rows, columns = scales(x9), scales(x9, "b")
    least_power = log2(float(array_of(np.ones(1, np.uint32), fp32)[0]))
    bands: dict[int, list[Pair]] = {}
    for stage in x9.terms[0].stages:
        for pair in stage.products:
            bands.setdefault(entering[pair], []).append(pair)
    per_band = [sum(i + j == band for pairs in bands.values() for i, j in pairs) for band in range(5)]
    measured: dict[str, dict[str, Quantity]] = {
        "abstract-same-range": {
            "bf16_exponent_bits": bits, "fp32_exponent_bits": wide_bits, "bf16_least_exponent": least,
            "fp32_least_exponent": wide_least, "bf16_greatest_exponent": greatest,
            "fp32_greatest_exponent": wide_greatest,
        },
        "sec2-mantissa-bits": {
            "fp32_bits": fp32.precision, "bf16_bits": bf16.precision, "pieces": len(x9.a_pieces),
        },
        "sec2-fp32-additions": {
            "c_bits": width_bits(unit.c), "d_bits": width_bits(unit.d),
            "outside_bits": width_bits(x9.arithmetic),
        },
        "sec2-nine-and-six-products": {
            "x9_products": len(nine), "x6_products": len(six),
            "dropped": sorted(10 * i + j for i, j in set(nine) - set(six)),
        },
        "sec2-fp32-exponents": {
            "least_exponent": wide_least, "explicit_bits": fp32.fraction_bits, "least_power": least_power,
        },
        "sec2-cascading-count": {
            "pieces_a": len(x9.a_pieces), "pieces_b": len(x9.b_pieces), "products": len(set(nine)),
            "uses_per_piece": sum(i == 0 for i, _ in nine),
        },
        "eq4-split-scales": {"scale_exponents_a": rows, "scale_exponents_b": columns},
        "eq4-step-is-mantissa": {"step_bits": rows[0] - rows[1], "bf16_bits": bf16.precision},
        "eq5-terms": {"products": len(nine), "scale_exponents": [entering[pair] for pair in EVERY]},
        "fig1-slices-and-bands": {
            "matrices_a": len(x9.a_pieces), "matrices_b": len(x9.b_pieces), "bands": len(bands),
            "products_per_band": per_band,
        },
        "fig1-row-and-column-scales": {
            "row_exponents": rows, "column_exponents": columns,
            "not_separable": sum(entering[i, j] != rows[i] + columns[j] for i, j in EVERY),
        },
    }  # fmt: skip
    return Found(measured)


# --- instructions and work --------------------------------------------------------------------------------------------

FP16X4 = "markidis"
BEFORE = ("v100", "a100", "h100", "h200")
WORK_SIZE = 4096
SIZES = (2048, 3072, 4096, 6144, 8192, 16384)
SHORT = (1024, 2048, 3072, 4096, 6144, 8192)
OVERRIDE = 3  # lane operations of an element: one for each piece


def rate(inputs: str, accumulator: str) -> float:
    """Greatest multiply-adds per cycle and core of the device's instructions for these formats."""
    found = load(DEVICE).matrix_instructions.values()
    fitting = [x for x in found if (x.a, x.b, x.d) == (inputs, inputs, accumulator) and x.timing is not None]
    return max(float(x.macs_per_cycle) / (x.cores or 1) for x in fitting)


def scales_accumulators(name: str) -> bool:
    """Whether an instruction of a device for BF16 or FP16 scales its accumulator input."""
    return any(x.scale_input_d is not None for x in load(name).matrix_instructions.values())


def scaling_mismatches() -> int:
    """Elements of a 128 x 128 x 16 tile in which 2^-8 by scale-input-d and before the instruction differ."""
    device = load(DEVICE)
    name = next(
        name for name in device.matrix_instructions if "m128nNk16" in name and name.endswith(".f32.bf16.bf16")
    ).replace("nN", "n128")
    random = np.random.default_rng(0)
    a, b, c = (random.standard_normal(shape).astype(np.float32) for shape in ((128, 16), (16, 128), (128, 128)))
    left, right = (array_of((x.view(np.uint32) >> 16).astype(np.uint16), format_of("bf16")) for x in (a, b))
    large = np.ldexp(c, 8).astype(np.float32)
    inside = device.mma(name, left, right, large, scale_d=8)
    outside = device.mma(name, left, right, np.ldexp(large, -8).astype(np.float32))
    return int((inside.view(np.uint32) != outside.view(np.uint32)).sum())


def between_bands(plan: Plan) -> int:
    """Operations outside the unit on an accumulator between bands: joins of accumulators, each a scaling and a sum."""
    return 2 * (len(plan.terms) - 1)


def read_bytes(result: Result) -> int:
    """Bytes read from device memory."""
    return int(result.traffic_bytes["HBM read"])


def measure_design(scale: Scale) -> Found:
    """What the instructions and the timed kernels do."""
    results = {name: runs.timed(name, WORK_SIZE, WORK_SIZE, WORK_SIZE) for name in ("x9", "x6")}
    macs = {name: one.macs["useful"] / WORK_SIZE**3 for name, one in results.items()}
    x9, x6 = run_plan("bf16x9"), run_plan("bf16x6")
    read = {name: read_bytes(one) for name, one in results.items()}
    measured: dict[str, dict[str, Quantity]] = {
        "abstract-fp32-accumulate-full-speed": {"rate_ratio": rate("bf16", "fp32") / rate("fp16", "fp16")},
        "sec2-x6-same-slices": {
            "x9_slices": len(x9.a_pieces) + len(x9.b_pieces), "x6_slices": len(x6.a_pieces) + len(x6.b_pieces),
            "work_ratio": macs["x6"] / macs["x9"], "traffic_ratio": read["x6"] / read["x9"],
        },
        "sec2-ootomo-products": {
            "fp16x4_products": len(products(plan_of(FP16X4))), "tf32x3_products": len(products(plan_of("tf32x3"))),
        },
        "sec4-hardware-scaling": {
            "mismatches": scaling_mismatches(), "software_scaling_operations": between_bands(x9),
        },
        "sec4-scaling-generations": {
            "blackwell": int(scales_accumulators(DEVICE)), "before": sum(map(scales_accumulators, BEFORE)),
        },
    }  # fmt: skip
    notes = {
        "sec4-hardware-scaling": (
            "Operations are those of the plan that joins accumulators of several bands, none here. The additions to an "
            "FP32 sum after each 16 of K are outside the unit and not counted: they are not between bands. Scaled "
            "accumulators are normal numbers; below, the instruction's rounding is assumed."
        ),
        "sec4-scaling-generations": f"Before: {', '.join(BEFORE)}, by their device files.",
        "sec2-ootomo-products": "The FP16 split in two with all products is hwsim's scheme markidis.",
        "sec2-x6-same-slices": (
            "hwsim's kernel splits on chip, so that no BF16 slices lie in device memory: slices are the pieces of "
            "plans, traffic is what the kernel reads of the FP32 operands."
        ),
    }
    return Found(measured, notes)


def measure_times(scale: Scale) -> Found:
    """The speed against native FP32, and the cost of the override for infinities."""
    gain = [runs.speedup(n, n, n) for n in SIZES]
    by_reading = {
        "per element": [scaling.with_extra(n, scaling.EXTRA) for n in SHORT],
        "per piece": [scaling.with_extra(n, OVERRIDE) for n in SHORT],
    }
    claims: dict[str, dict[str, dict[str, Quantity]]] = {
        reading: {
            "sec4-option-b-not-critical": {"time_ratio": [time for time, _ in pairs]},
            "sec4-option-b-energy": {"energy_ratio": [energy for _, energy in pairs]},
        }
        for reading, pairs in by_reading.items()
    }
    measured: dict[str, dict[str, Quantity]] = {"abstract-faster": {"speedup": gain}, **claims["per element"]}
    readings = {claim: {"per piece": claims["per piece"][claim]} for claim in claims["per piece"]}
    notes = {
        "sec4-option-b-not-critical": (
            "hwsim's kernel splits an element once for each tile that reads it, and its lanes are in step with the "
            "matrix unit: operations of the split show in time. A kernel that splits each element once would have "
            "fewer of them."
        ),
        "sec4-option-b-energy": "Energies: typical level of configs/energy, assumed.",
    }
    return Found(measured, notes, readings=readings)


EXPERIMENTS = (
    Experiment(
        "definitions",
        (
            "abstract-same-range", "sec2-mantissa-bits", "sec2-fp32-additions", "sec2-nine-and-six-products",
            "sec2-fp32-exponents", "sec2-cascading-count", "eq4-split-scales", "eq4-step-is-mantissa", "eq5-terms",
            "fig1-slices-and-bands", "fig1-row-and-column-scales",
        ),
        measure_definitions,
        {"quick": 0.1, "full": 0.1},
    ),
    Experiment(
        "instructions",
        (
            "abstract-fp32-accumulate-full-speed", "sec2-x6-same-slices", "sec2-ootomo-products",
            "sec4-hardware-scaling", "sec4-scaling-generations",
        ),
        measure_design,
        {"quick": 3.0, "full": 3.0},
    ),
    Experiment(
        "method-times",
        (
            "abstract-faster", "sec4-option-b-not-critical", "sec4-option-b-energy",
        ),
        measure_times,
        {"quick": 12.0, "full": 12.0},
    ),
)  # fmt: skip
