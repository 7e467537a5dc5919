"""TF32 and TF64 multiword GEMM: 1, 3 or 4 products of two pieces, one library call each (TF32/TF64, SC'23 workshops).

Each call accumulates its product from zero over all of K in the unit and adds it to C outside, nearest even, as cuBLAS
on an H200 does for accumulating calls. Chained, the products of TF32 pieces are one kernel's; Triton's tf32x3
alternates them in one accumulator after each block of K.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from hwsim.gemm.plan import ArithmeticName, Piece, Plan, TermValue, chain, sums
from hwsim.gemm.problem import Problem
from hwsim.schemes.scheme import (
    ACCUMULATION,
    INTERLEAVE,
    K_GROUP,
    AnyArray,
    Notice,
    Scheme,
    is_termwise,
    plan_of_sums,
    special_notices,
)

PRODUCTS = ((0, 0), (0, 1), (1, 0), (1, 1))
COUNTS = (1, 3, 4)


def plan(
    name: str, piece: str, arithmetic: ArithmeticName, count: int, options: Mapping[str, Any], problem: Problem
) -> Plan:
    """C = A1 B1; C += A1 B2; C += A2 B1; and C += A2 B2 for four. chained: in this order in one accumulator."""
    pieces = (Piece(piece),) * (1 if count == 1 else 2)
    if not is_termwise(name, {**TERMWISE, **options}):
        return plan_of_sums(
            name, pieces, (chain(*PRODUCTS[:count], interleave=options["interleave"]),), options, problem
        )
    return Plan(
        name,
        pieces,
        pieces,
        tuple([chain(pair) for pair in PRODUCTS[:count]]),
        sums(*(TermValue(i) for i in range(count))),
        k_group=options["k_group"],
        input_format=problem.input_format,
        output_format=arithmetic,
        arithmetic=arithmetic,
        calls=True,
        order="calls",
    )


def inspect(a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> list[Notice]:
    """Notices: NaNs and infinities."""
    return special_notices(a, b)


BY_CALLS = replace(ACCUMULATION, default="termwise")
TERMWISE = {"accumulation": "termwise", "interleave": INTERLEAVE.default}  # of schemes without these options


def _scheme(base: str, piece: str, arithmetic: ArithmeticName, what: str, count: int) -> Scheme:
    name = f"{base}x{count}"
    in_one_kernel = (BY_CALLS, INTERLEAVE) if arithmetic == "fp32" and count > 1 else ()
    return Scheme(
        name,
        f"{what} from {count} product{'s' if count > 1 else ''} of {piece.upper()} pieces",
        "Valero-Lara et al., Mixed-precision S/DGEMM using the TF32 and TF64 frameworks, SC'23 workshops",
        (*in_one_kernel, K_GROUP),
        partial(plan, name, piece, arithmetic, count),
        inspect,
        input_formats=(arithmetic,),
    )


SCHEMES = tuple(
    _scheme(*family, count)
    for family in (("tf32", "tf32", "fp32", "FP32"), ("tf64", "fp32", "fp64", "FP64"))
    for count in COUNTS
)
