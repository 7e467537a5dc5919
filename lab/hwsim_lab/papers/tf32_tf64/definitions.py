"""The schemes, formats, splits and error formulas of the TF32 and TF64 frameworks (Sections 2.2 to 2.4, 3.1; Fig. 3).

It reads hwsim's formats and plans, and runs the schemes' splits on numbers; no product is computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim._kernels.convert import decode, encode
from hwsim.analysis import metrics
from hwsim.devices import load
from hwsim.evaluate.split import pieces_of
from hwsim.formats import format_of
from hwsim.gemm.plan import Plan
from hwsim.gemm.problem import Problem
from hwsim.operands.operand import Operand
from hwsim.schemes import scheme_of
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale
from hwsim_lab.papers.splits import SchemeSplit, products

Array = NDArray[Any]
A100, TF64 = "a100", "tf64"
COUNT = 100_000
CLAIMS = (
    "sec2-2-products", "sec2-2-split-tf32", "fig3-tf32-layout", "fig3-other-layouts", "sec2-3-range",
    "sec2-3-precision-rank", "sec2-4-tf64-format", "sec2-4-split", "sec2-4-products", "sec3-1-error-formulas",
)  # fmt: skip


def plan_of(name: str) -> Plan:
    """The plan of one of the schemes."""
    scheme = scheme_of(name)
    plan = scheme.plan(scheme.complete({}), Problem.of("fp64" if name.startswith("tf64") else "fp32", 1, 1, 1))
    assert isinstance(plan, Plan)
    return plan


def double_parts(x: Array, name: str = "tf64x3") -> tuple[Array, ...]:
    """The parts that a TF64 scheme splits FP64 numbers (n,) into, as FP64."""
    plan, chip = plan_of(name), load(TF64)
    given = Operand(np.ascontiguousarray(x, np.float64).view(np.uint64).reshape(1, -1), "fp64")
    codes = pieces_of(given, plan, "a", chip).codes
    every = zip(codes, plan.a_pieces, strict=True)
    return tuple(decode(np.asarray(one).ravel(), format_of(part.format), np.float64) for one, part in every)


def converted(x: Array, name: str) -> Array:
    """FP32 numbers rounded to a format, to nearest even, in FP64."""
    fmt = format_of(name)
    return decode(encode(np.ascontiguousarray(x, np.float32), fmt), fmt, np.float32).astype(np.float64)


def inexact(parts: tuple[Array, ...], fraction_bits: int) -> int:
    """Numbers of the parts that need more fraction bits than these."""
    mantissas = [np.frexp(part)[0] * 2.0 ** (fraction_bits + 1) for part in parts]
    return int(sum((x != np.rint(x)).sum() for x in mantissas))


def measure(scale: Scale) -> Found:
    """Counts of words and products, formats, errors of the splits, and the error formulas' example."""
    x = np.random.default_rng(0).uniform(-1, 1, COUNT)
    single, double = x.astype(np.float32), x
    single, double = single[single != 0], double[double != 0]
    split = SchemeSplit("tf32x3", A100)
    tf32, fp32 = format_of("tf32"), format_of("fp32")
    others = [format_of(name) for name in ("fp64", "fp32", "fp16", "bf16")]
    powers = np.exp2(np.arange(fp32.min_exponent, fp32.max_exponent + 1, dtype=np.float64)).astype(np.float32)
    near_one = np.random.default_rng(0).uniform(1, 2, COUNT).astype(np.float32)
    near_one = near_one[near_one < 2]
    errors = {n: float(np.max(np.abs(converted(near_one, n) - near_one) / near_one)) for n in ("tf32", "fp16", "bf16")}
    tf64 = format_of(plan_of("tf64x3").a_pieces[0].format)
    wide = double_parts(double)
    a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.eye(2)
    apart = np.array([[0.5, 0.0], [0.0, 0.25]])
    example = {
        name: metrics.norm_error(a, b, a @ b, a @ b + apart, order)
        for name, order in (("l1", 1), ("l2", 2), ("linf", np.inf))
    }
    measured: dict[str, dict[str, Quantity]] = {
        "sec2-2-products": {
            "words": len(plan_of("tf32x3").a_pieces),
            "products_full": len(products(plan_of("tf32x4"))),
            "products_kept": len(products(plan_of("tf32x3"))),
        },
        "sec2-2-split-tf32": {
            "worst": float(split.errors(single).max()),
            "inexact": inexact(split.parts(single), tf32.fraction_bits),
        },
        "fig3-tf32-layout": {
            "sign": int(tf32.signed), "exponent": tf32.exponent_bits, "fraction": tf32.fraction_bits
        },
        "fig3-other-layouts": {
            "exponent": [one.exponent_bits for one in others], "fraction": [one.fraction_bits for one in others]
        },
        "sec2-3-range": {
            "tf32_range": [tf32.min_exponent, tf32.max_exponent],
            "fp32_range": [fp32.min_exponent, fp32.max_exponent],
            "lost": int((converted(powers, SchemeSplit("tf32x1", A100).pieces[0].format) != powers).sum()),
        },
        "sec2-3-precision-rank": {
            **errors, "differ": int((converted(near_one, "tf32") != converted(near_one, "fp16")).sum())
        },
        "sec2-4-tf64-format": {
            "exponent": tf64.exponent_bits,
            "fraction": tf64.fraction_bits,
            "exponents": [tf64.min_exponent, tf64.max_exponent],
        },
        "sec2-4-split": {"worst": float(np.max(np.abs(double - np.sum(wide, axis=0)) / np.abs(double)))},
        "sec2-4-products": {
            "products_full": len(products(plan_of("tf64x4"))), "products_kept": len(products(plan_of("tf64x3")))
        },
        "sec3-1-error-formulas": dict(example),
    }  # fmt: skip
    return Found(measured)


EXPERIMENTS = (Experiment("definitions", CLAIMS, measure, {"quick": 1.0, "full": 1.0}),)
