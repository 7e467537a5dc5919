"""LE-GEMM: FP32 from three FP16 products in two accumulators; pieces are truncated, not rounded (LE-GEMM, Algorithm
1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwsim.gemm.option_types import Option
from hwsim.gemm.plan import Piece, Plan, Scaled, Sum, TermValue, chain
from hwsim.gemm.problem import Problem
from hwsim.schemes.piece_notices import fp16_pieces
from hwsim.schemes.power_scale import with_scale
from hwsim.schemes.scheme import INTERLEAVE, K_GROUP, AnyArray, Notice, Scheme, special_notices

SHIFT = 10


def plan(options: Mapping[str, Any], problem: Problem) -> Plan:
    """x1 = RZ(x), x2 = RZ((x - x1) 2^10); acc0 = A1 B1, acc1 = A1 B2 + A2 B1; C = acc0 + acc1 2^-10."""
    pieces = (Piece("fp16", "RZ", overflow="saturate"), Piece("fp16", options["residual_rounding"], SHIFT, "saturate"))
    return Plan(
        "le-gemm",
        pieces,
        pieces,
        (chain((0, 0)), chain((0, 1), (1, 0), interleave=options["interleave"])),
        Sum(TermValue(0), Scaled(TermValue(1), -SHIFT)),
        k_group=options["k_group"],
        input_format=problem.input_format,
        split_in="kernel",
    )


def inspect(a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> list[Notice]:
    """Notices: NaNs and infinities, and elements that two FP16 pieces cannot represent."""
    return special_notices(a, b) + fp16_pieces(a, b, SHIFT, "RZ")


SCHEME = with_scale(
    Scheme(
        "le-gemm",
        "FP32 from 3 FP16 products, truncated pieces, two accumulators",
        "LE-GEMM, J. Syst. Archit. 160 (2025) 103336, Algorithm 1, Eq. 5-8",
        (
            Option(
                "residual_rounding",
                str,
                "RZ",
                "rounding of the low piece: RZ as Eq. 5-8, RNE as the text of Algorithm 1",
                choices=("RZ", "RNE"),
            ),
            INTERLEAVE,
            K_GROUP,
        ),
        plan,
        inspect,
    )
)
