"""Ootomo and Yokota: three products; the leading one is promoted after every instruction (IJHPCA 36, 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from hwsim.gemm.option_types import Option
from hwsim.gemm.plan import Expression, Piece, Plan, Scaled, Stage, Sum, Term, TermValue
from hwsim.gemm.problem import Problem
from hwsim.schemes.piece_notices import fp16_pieces
from hwsim.schemes.power_scale import with_scale
from hwsim.schemes.scheme import AnyArray, Notice, Scheme, special_notices

FP16_SHIFT = 11


def plan(name: str, fmt: str, rounding: str, shift: int, options: Mapping[str, Any], problem: Problem) -> Plan:
    """acc0 += A1 B1 of each instruction from zero, added outside the unit to nearest even; acc1 = A1 B2 + A2 B1 chained
    in the unit.

    C = acc0 + acc1 2^-shift. Addition outside the unit avoids the accumulation of the unit's truncation errors; with
    leading="unit" A1 B1 is a chain in the unit too, as in kernels on WMMA that other papers compare with.
    """
    group: Literal["instruction"] | None = "instruction" if options["leading"] == "outside" else None
    pieces = (Piece(fmt, rounding), Piece(fmt, rounding, shift))
    small: Expression = TermValue(1)
    return Plan(
        name,
        pieces,
        pieces,
        (Term((Stage(((0, 0),)),), k_group=group), Term((Stage(((0, 1), (1, 0))),))),
        Sum(TermValue(0), Scaled(small, -shift) if shift else small),
        input_format=problem.input_format,
        split_in="kernel",
    )


def inspect_fp16(a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> list[Notice]:
    """Notices: NaNs and infinities, and elements that FP16 pieces cannot represent."""
    return special_notices(a, b) + fp16_pieces(a, b, FP16_SHIFT)


def inspect(a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> list[Notice]:
    """Notices: NaNs and infinities."""
    return special_notices(a, b)


LEADING = Option(
    "leading",
    str,
    "outside",
    "sums of the product of high pieces: outside the unit after each instruction, or in the unit over all of K",
    choices=("outside", "unit"),
)
SOURCE = "Ootomo and Yokota, Recovering single precision accuracy from tensor cores, IJHPCA 36 (2022)"
SCHEMES = (
    with_scale(
        Scheme(
            "ootomo-fp16",
            "FP32 from 3 FP16 products (halfhalf)",
            SOURCE,
            (LEADING,),
            partial(plan, "ootomo-fp16", "fp16", "RNE", FP16_SHIFT),
            inspect_fp16,
        )
    ),
    Scheme(
        "ootomo-tf32",
        "FP32 from 3 TF32 products (tf32tf32)",
        SOURCE,
        (LEADING,),
        partial(plan, "ootomo-tf32", "tf32", "RNA", 0),
        inspect,
    ),
)
