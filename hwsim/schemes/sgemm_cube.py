"""SGEMM-cube: FP32 from three FP16 products, low pieces scaled by 2^scaling_exponent (arXiv 2507.23387, Eq. 2-7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hwsim.gemm.option_types import Option
from hwsim.gemm.plan import Expression, Piece, Plan, Scaled, Sum, TermValue, chain
from hwsim.gemm.problem import Problem
from hwsim.schemes.piece_notices import counted, finite_magnitudes, fp16_pieces
from hwsim.schemes.power_scale import with_scale
from hwsim.schemes.scheme import K_GROUP_OR_TILE, AnyArray, Notice, Scheme, special_notices

FP16_LARGEST_EXPONENT = 15


def plan(options: Mapping[str, Any], problem: Problem) -> Plan:
    """x1 = RN(x), x2 = RN((x - x1) 2^sb); C = A1 B1 + (A1 B2 + A2 B1) 2^-sb, smaller terms first."""
    sb = options["scaling_exponent"]
    pieces = (Piece("fp16"), Piece("fp16", scale_exponent=sb))
    small: Expression = Sum(TermValue(1), TermValue(2))
    return Plan(
        "sgemm-cube",
        pieces,
        pieces,
        (chain((0, 0)), chain((0, 1)), chain((1, 0))),
        Sum(TermValue(0), Scaled(small, -sb) if sb else small),
        join="end" if options["accumulation"] == "termwise" else "group",
        k_group=options["k_group"],
        input_format=problem.input_format,
        order="calls" if options["accumulation"] == "termwise" else "ours",
    )


def inspect(a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> list[Notice]:
    """Notices: elements that Eq. 6 excludes, and pieces that overflow or underflow to zero."""
    sb = options["scaling_exponent"]
    exponent = np.frexp(finite_magnitudes(a, b))[1] - 1
    outside = counted(
        ("eq6_low", int((exponent < -2 - sb).sum()), f"elements below 2^{-2 - sb} (Eq. 6) keep fewer than 22 bits"),
        (
            "eq6_high",
            int((exponent > FP16_LARGEST_EXPONENT + 12 - sb).sum()),
            f"elements of 2^{28 - sb} or more (Eq. 6) may overflow the low piece",
        ),
    )
    return special_notices(a, b) + outside + fp16_pieces(a, b, sb)


SCHEME = with_scale(
    Scheme(
        "sgemm-cube",
        "FP32 from 3 FP16 products, termwise or elementwise",
        "SGEMM-cube, arXiv 2507.23387, Eq. 2-7",
        (
            Option(
                "scaling_exponent",
                int,
                12,
                "the low piece is scaled by 2^this (0 to 12 in the paper)",
                least=0,
                most=126,
            ),
            Option(
                "accumulation",
                str,
                "termwise",
                "combine the three terms after all of K (termwise), or after every k_group (elementwise)",
                choices=("termwise", "elementwise"),
            ),
            K_GROUP_OR_TILE,
        ),
        plan,
        inspect,
    )
)
