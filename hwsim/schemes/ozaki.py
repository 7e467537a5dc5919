"""Ozaki's scheme: FP64 from integer slices whose products the unit accumulates without rounding (Ozaki et al., 2012).

Slices are truncated toward zero here. The 2012 paper rounds them to nearest, by (x + s) - s, so that they may have
either sign, and other digits. Truncation is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from hwsim.errors import InputError
from hwsim.gemm.option_types import Option
from hwsim.gemm.plan import Piece, Plan, Scaled, TermValue, chain, sums
from hwsim.gemm.problem import Problem
from hwsim.schemes.scheme import AnyArray, Notice, Scheme, special_notices
from hwsim.schemes.span_notices import lost_elements

FP64_DIGITS = 53
FP64_SPAN = 2098  # digits from 2^1023 down to 2^-1074
# Bits that the accumulator holds exactly, and digits of a slice that the operand format holds.
WIDTH = {"fp16": (24, 11), "int8": (31, 7)}


def slice_bits(fmt: str, k: int) -> int:
    """Bits per slice, beta, such that 2 beta + ceil(log2 k) fits the accumulator. Raises InputError where not even one
    bit fits.
    """
    accumulator, digits = WIDTH[fmt]
    bits = min(digits, (accumulator - (k - 1).bit_length()) // 2)
    if bits < 1:
        raise InputError(f"scheme ozaki-{fmt}: k = {k} products of one bit overflow the accumulator; split K")
    return bits


def default_slices(bits: int) -> int:
    """Slices of so many bits that hold an FP64 significand."""
    return -(-FP64_DIGITS // bits)


def plan(fmt: str, options: Mapping[str, Any], problem: Problem) -> Plan:
    """Slices of beta bits; products with i + j < s (or all s^2), added from the least significant."""
    bits = slice_bits(fmt, problem.k)
    count = default_slices(bits) if options["slices"] is None else options["slices"]
    if not count:
        raise InputError(f"scheme ozaki-{fmt}: slices = 0 takes their number from the data; give A and B, or a number")
    if count > (most := -(-FP64_SPAN // bits)):
        raise InputError(
            f"scheme ozaki-{fmt}: slices = {count}; allowed: at most {most} (of {bits} bits at k = {problem.k}: they "
            "reach the last digit of any double; truncate=False keeps all of their products)"
        )
    pairs = [(i, j) for i in range(count) for j in range(count) if not options["truncate"] or i + j < count]
    pairs.sort(key=lambda pair: (-sum(pair), pair))
    piece = (Piece(fmt, "RZ"),) * count
    return Plan(
        f"ozaki-{fmt}",
        piece,
        piece,
        tuple([chain(pair) for pair in pairs]),
        sums(*(Scaled(TermValue(t), -bits * (i + j + 2)) for t, (i, j) in enumerate(pairs))),
        input_format=problem.input_format,
        output_format="fp64",
        split="slices",
        slice_bits=bits,
        specials="fma_chain",
        arithmetic="exact" if options["sum"] == "exact" else "fp64",
    )


def survey(fmt: str, a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> dict[str, Any]:
    """Resolves slices = 0: the number of slices that represents every element of A and B exactly."""
    if options["slices"] != 0:
        return dict(options)
    bits, needed = slice_bits(fmt, a.shape[-1]), 1
    for x, axis in ((a, -1), (b, -2)):  # stacks too
        finite = np.where(np.isfinite(x), x, 0).astype(np.float64)
        largest = np.frexp(np.abs(finite).max(axis=axis, keepdims=True, initial=0))[1]
        significand, exponent = np.frexp(finite)
        whole = np.abs(significand * 2.0**FP64_DIGITS).astype(np.int64)
        ones = np.where(whole, whole & -whole, 1)  # lowest digit that is not zero
        last = exponent - FP64_DIGITS + np.log2(ones).astype(np.int64)
        span = np.where(whole != 0, largest - last, 0)
        needed = max(needed, int(-(-span.max(initial=0) // bits)))
    return dict(options) | {"slices": needed}


def inspect(fmt: str, a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> list[Notice]:
    """Notices: NaNs and infinities, and elements below the last slice."""
    bits = slice_bits(fmt, a.shape[-1])
    kept = bits * (options["slices"] or default_slices(bits))
    return special_notices(a, b) + lost_elements(a, b, (kept, kept), "slices")


OPTIONS = (
    Option(
        "slices",
        int,
        None,
        "slices per operand; default: enough for 53 bits; 0: as many as represent the operands exactly",
        least=0,
    ),
    Option("truncate", bool, True, "leave out products of slices i + j >= slices (counted from 0)"),
    Option(
        "sum",
        str,
        "fp64",
        "fp64: rounded additions from the least significant; exact: one rounding",
        choices=("fp64", "exact"),
    ),
)

SCHEMES = tuple(
    Scheme(
        f"ozaki-{fmt}",
        f"FP64 from exact products of {fmt.upper()} slices",
        "Ozaki, Ogita, Oishi and Rump, Numer. Algorithms 59 (2012); Ootomo, Ozaki and Yokota, IJHPCA 2024 (int8)",
        OPTIONS,
        partial(plan, fmt),
        partial(inspect, fmt),
        input_formats=("fp64", "fp32"),
        survey=partial(survey, fmt),
        survey_if=("slices", 0),
    )
    for fmt in WIDTH
)
