"""Errors of whole GEMMs (Ape's Fig. 15, sections 5.1, 5.2 and 9): growth with K, rounding, kernels, the hybrid.

It knows schemes and the A100 by name, and random numbers in (0, 1); of a product of N x N it computes some elements.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hwsim.analysis.metrics import max_relative
from hwsim.api import matmul, run
from hwsim.devices import changed, dot_spec, load
from hwsim.devices.device import Device
from hwsim.gemm.plan import Mixed, Plan, Stage, Term, TermValue
from hwsim.schemes import Scheme, scheme_of
from hwsim_lab.papers.ape.tensor_core import DEVICE
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series
from hwsim_lab.papers.splits import Array

DEPTHS = (256, 512, 1024, 2048, 4096)
OUTPUTS = 64  # rows and columns that are computed
TYPES: dict[str, dict[str, Any]] = {
    "FP32-F": {"scheme": "ape-fp32-f"},
    "FP32-T": {"scheme": "ape-fp32-t"},
    "FP32-B": {"scheme": "ape-fp32-b"},
    "FP32-M": {"scheme": "markidis", "rounding": "RNE"},
    "FP32": {"format": "fp32"},
    "FP16": {"format": "fp16"},
}
EMULATED = ("FP32-F", "FP32-T", "FP32-B", "FP32-M")
UNIT = "dot_units.f32"  # of FP16's and BF16's instructions
MMA = "mma.m16n8k16.f32.f16.f16.f32"
SHIFT = 12
KERNELS_DEPTH, SLICES = 8192, 8
HYBRID_EDGE, HYBRID_BLOCK, NARROW_SHARE = 1024, 128, 0.6
HYBRID_OUTPUTS: dict[Scale, int] = {"quick": 256, "full": 1024}
GROWTH = (
    "fig15-error-grows-with-size", "fig15-round-to-zero-is-the-cause", "fig15-not-from-emulation",
    "fig15-kernels-differ",
)  # fmt: skip
LEVELS = ("sec9-ape-without-losing-accuracy", "sec5-1-not-bitwise-cuda-core")
HYBRID = ("sec5-2-hybrid-accuracy",)


def uniform(depth: int, seed: int) -> tuple[Array, Array]:
    """Some rows of A and columns of B, uniform in (0, 1)."""
    rng = np.random.default_rng((seed, depth))
    return tuple(rng.uniform(0, 1, shape).astype(np.float32) for shape in ((OUTPUTS, depth), (depth, OUTPUTS)))  # type: ignore[return-value]


def exact(a: Array, b: Array) -> Array:
    """The product in fp64."""
    found: Array = a.astype(np.float64) @ b.astype(np.float64)
    return found


def error(a: Array, b: Array, device: Device | str = DEVICE, **options: Any) -> float:
    """The largest relative error of a simulated product."""
    return max_relative(exact(a, b), matmul(a, b, device=device, **options))


def rounded_to_nearest() -> Device:
    """The A100 with the sum of each step rounded to nearest even, all else as it is."""
    return changed(load(DEVICE), {f"{UNIT}.rounding": "RNE"})


def with_exact_sums(rounding: str) -> Device:
    """The A100 with each step's addends added as they are, not cut before, and their sum rounded once."""
    chip = load(DEVICE)
    unit = {"model": "exact", "terms": dot_spec(chip, MMA).unit.terms, "rounding": rounding}
    return changed(chip, {UNIT: unit})


def with_one_accumulator() -> tuple[Scheme, Device]:
    """FP32-F whose mixed products come first and are scaled by 2^-12 before Hi Hi joins them; a unit that can."""
    own = scheme_of("ape-fp32-f")

    def plan(options: Any, problem: Any) -> Plan:
        made = own.plan(options, problem)
        assert isinstance(made, Plan)
        term = Term((Stage(((0, 1), (1, 0))), Stage(((0, 0),), scale_exponent=SHIFT)))
        return replace(made, terms=(term,), combine=TermValue(0))

    return replace(own, plan=plan), changed(load(DEVICE), {f"instructions.{MMA}.scale_input_d": SHIFT})


def growth(scale: Scale) -> Found:
    """Fig. 15: errors over K, and what makes them."""
    seeds = range(1 if scale == "quick" else 4)
    inputs = {depth: [uniform(depth, seed) for seed in seeds] for depth in DEPTHS}

    def over(depth: int, device: Device | str = DEVICE, **options: Any) -> float:
        return max(error(a, b, device, **options) for a, b in inputs[depth])

    found = {name: [over(depth, **TYPES[name]) for depth in DEPTHS] for name in (*EMULATED, "FP32")}
    outer = (DEPTHS[0], DEPTHS[-1])
    zero, nearest, exact_nearest, exact_zero = (
        [over(depth, device, **TYPES["FP32-F"]) for depth in outer]
        for device in (DEVICE, rounded_to_nearest(), with_exact_sums("RNE"), with_exact_sums("RZ"))
    )
    halves = [tuple(x.astype(np.float16).astype(np.float32) for x in pair) for pair in inputs[outer[1]]]
    plain = max(error(a, b, **TYPES["FP16"]) for a, b in halves)
    a, b = uniform(KERNELS_DEPTH, 0)
    single, device = with_one_accumulator()
    kernels = [
        error(a, b, device, scheme=single),
        error(a, b, scheme="ape-fp32-f", schedule={"split_k": SLICES}),
        error(a, b, scheme="ape-fp32-f"),
    ]
    measured: dict[str, dict[str, Quantity]] = {
        "fig15-error-grows-with-size": {
            "fp32f": found["FP32-F"], "fp32t": found["FP32-T"], "fp32b": found["FP32-B"], "fp32m": found["FP32-M"],
        },
        "fig15-round-to-zero-is-the-cause": {"zero": zero, "nearest": nearest},
        "fig15-not-from-emulation": {"fp32f": zero[1], "plain": plain},
        "fig15-kernels-differ": {"errors": kernels},
    }  # fmt: skip
    notes = {
        "fig15-error-grows-with-size": f"{OUTPUTS} rows and columns of each product; native FP32: "
        + ", ".join(f"{one:.1e}" for one in found["FP32"]) + ".",
        "fig15-round-to-zero-is-the-cause": "Only the rounding of each step's sum is changed. The A100 also cuts every "
        "addend toward zero, at 2^-24 of the largest, before it adds; without that cut the error at 4096 is "
        f"{exact_nearest[1]:.1e} rounded to nearest and {exact_zero[1]:.1e} rounded to zero, against {zero[1]:.1e}. "
        "So most of the growth is from truncation, but of the addends.",
        "fig15-not-from-emulation": "Hi Hi of FP32-F has an accumulator of its own, and the additions of a plain GEMM.",
        "fig15-kernels-differ": "The kernel with one accumulator runs the mixed products over all of K first, scales "
        "them by 2^-12, then Hi Hi.",
    }  # fmt: skip
    rows = [(name, depth, one) for name, errors in found.items() for depth, one in zip(DEPTHS, errors, strict=True)]
    columns: dict[str, list[Any]] = {
        "type": [row[0] for row in rows],
        "m = n = k": [row[1] for row in rows],
        "largest relative error": [row[2] for row in rows],
    }
    series = Series("fig15", columns, x="m = n = k", y="largest relative error", by="type", log="xy")
    return Found(measured, notes, (series,))


def levels(scale: Scale) -> Found:
    """Sections 5.1 and 9: emulations beside native FP32 and FP16 at N = 1024."""
    a, b = uniform(1024, 0)
    products = {name: matmul(a, b, device=DEVICE, **options) for name, options in TYPES.items()}
    found = {name: max_relative(exact(a, b), one) for name, one in products.items()}
    bits = [products[name].view(np.uint32) for name in ("FP32-F", "FP32")]
    measured: dict[str, dict[str, Quantity]] = {
        "sec9-ape-without-losing-accuracy": {
            "emulated": [found[name] for name in EMULATED[:3]], "fp32": found["FP32"], "fp16": found["FP16"],
        },
        "sec5-1-not-bitwise-cuda-core": {
            "differing": float((bits[0] != bits[1]).mean()), "fp32f": found["FP32-F"], "fp32": found["FP32"],
        },
    }  # fmt: skip
    exact_nearest = error(a, b, with_exact_sums("RNE"), **TYPES["FP32-F"])
    shorter = error(a, b, scheme="ape-fp32-f", k_group=32)
    some = f"{OUTPUTS} rows and columns of the product. "
    why = (
        "Sums of positive numbers lose a little with each truncation. With FP32-F, sums that are exact and rounded to "
        f"nearest in each step give {exact_nearest:.1e}; sums of 32 of K, added outside the unit, {shorter:.1e}."
    )
    notes = {"sec9-ape-without-losing-accuracy": some + why, "sec5-1-not-bitwise-cuda-core": some}
    return Found(measured, notes)


def hybrid_masks(outputs: int) -> tuple[Array, Array]:
    """Random masks (true: needs FP32-B) with the share of narrow block products that is nearest to NARROW_SHARE."""
    rows, depth = outputs // HYBRID_BLOCK, HYBRID_EDGE // HYBRID_BLOCK
    drawn = []
    for seed in range(200):
        a, b = np.random.default_rng(seed).random((2, rows, depth)) > NARROW_SHARE**0.5
        drawn.append((abs(float((~a).mean(axis=0) @ (~b).mean(axis=0)) / depth - NARROW_SHARE), seed, a, b.T))
    return min(drawn, key=lambda one: one[:2])[2:]


def hybrid_operand(mask: Array, seed: int) -> Array:
    """Uniform in (0.5, 1), and in the blocks of the mask log-uniform from 2^-30 to 1."""
    rng = np.random.default_rng(seed)
    shape = tuple(HYBRID_BLOCK * size for size in mask.shape)
    wide = np.kron(mask, np.ones((HYBRID_BLOCK, HYBRID_BLOCK), bool))
    return np.where(wide, np.exp2(rng.uniform(-30, 0, shape)), rng.uniform(0.5, 1, shape)).astype(np.float32)


def hybrid(scale: Scale) -> Found:
    """Section 5.2: the hybrid beside FP32-B in all blocks."""
    outputs = HYBRID_OUTPUTS[scale]
    a, b = (hybrid_operand(mask, seed) for seed, mask in enumerate(hybrid_masks(outputs)))
    own = run(a, b, device=DEVICE, scheme="ape", block=HYBRID_BLOCK, timing=False)
    assert own.c is not None and own.gemm is not None and isinstance(own.gemm.plan, Mixed)
    narrow, *_ = own.gemm.plan.blocks
    measured: dict[str, dict[str, Quantity]] = {
        "sec5-2-hybrid-accuracy": {
            "hybrid": max_relative(exact(a, b), own.c),
            "fp32b": error(a, b, scheme="ape", block=HYBRID_BLOCK, strategy="fp32-b"),
        }
    }
    share = 100 * narrow / sum(own.gemm.plan.blocks)
    note = f"{outputs} rows and columns of the product are computed; of their block products {share:.0f} % are FP32-F."
    return Found(measured, {"sec5-2-hybrid-accuracy": note})


EXPERIMENTS = (
    Experiment("errors over sizes", GROWTH, growth, {"quick": 7, "full": 25}),
    Experiment("errors of GEMMs", LEVELS, levels, {"quick": 1, "full": 1}),
    Experiment("errors of the hybrid", HYBRID, hybrid, {"quick": 1, "full": 8}),
)
