"""Markidis and EGEMM-TC: FP32 from all four products of two unscaled FP16 pieces."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from hwsim.gemm.option_types import Option
from hwsim.gemm.plan import Piece, Plan
from hwsim.gemm.problem import Problem
from hwsim.schemes.piece_notices import fp16_pieces
from hwsim.schemes.power_scale import with_scale
from hwsim.schemes.scheme import (
    ACCUMULATION,
    INTERLEAVE,
    K_GROUP,
    AnyArray,
    Notice,
    Scheme,
    plan_of_sums,
    special_notices,
    terms_of,
)

PRODUCTS = ((1, 1), (0, 1), (1, 0), (0, 0))


def plan(name: str, options: Mapping[str, Any], problem: Problem) -> Plan:
    """x1 = fp16(x), x2 = fp16(x - x1); A2 B2, A1 B2, A2 B1, A1 B1 in one chain; termwise: each product added to C."""
    pieces = (Piece("fp16", options["rounding"]),) * 2
    return plan_of_sums(name, pieces, terms_of(name, options, PRODUCTS), options, problem)


def inspect(a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> list[Notice]:
    """Notices: NaNs and infinities, and elements that two FP16 pieces cannot represent."""
    return special_notices(a, b) + fp16_pieces(a, b, 0, options["rounding"])


def _rounding(default: str, help: str) -> Option:
    return Option("rounding", str, default, help, choices=("RZ", "RNE"))


SCHEMES = tuple(
    with_scale(Scheme(name, title, source, (rounding, ACCUMULATION, INTERLEAVE, K_GROUP), partial(plan, name), inspect))
    for name, title, source, rounding in (
        (
            "markidis",
            "FP32 from 4 FP16 products, truncated pieces",
            "Markidis et al., NVIDIA tensor core programmability, performance and precision, IPDPSW 2018",
            _rounding(
                "RZ",
                "of both pieces: RZ as EGEMM-TC and SGEMM-cube (Table 2) describe it; RNE is CUDA's own conversion, "
                "which Ape's errors (Fig. 14) fit",
            ),
        ),
        (
            "egemm-tc",
            "FP32 from 4 FP16 products, pieces rounded",
            "Feng et al., EGEMM-TC, PPoPP 2021",
            _rounding("RNE", "of both pieces: its text says round-split; SGEMM-cube's Table 2 says RZ"),
        ),
    )
)
