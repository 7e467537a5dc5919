"""Ape: FP32 from FP16, BF16 or TF32 products, INT16 from INT8 products, and an adaptive choice per block (Ape, sections
4 and 5).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hwsim.gemm.option_types import Option
from hwsim.gemm.plan import Depth, Expression, Mixed, OperandSum, Piece, Plan, Scaled, TermValue, chain, sums
from hwsim.gemm.problem import Problem
from hwsim.schemes.piece_notices import below, counted, fp16_pieces, outside
from hwsim.schemes.power_scale import with_scale
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
    terms_of,
)

SOURCE = "Ape, ICS 2022"
RELEASED = "termwise: github JohndeVostok/APE ee14409"
SHIFT = 12  # of the low fp16 piece
FP32_F_RANGE = (2.0**-14, 65504.0)  # 6.1e-5 to 6.55e4, section 4.1
# Section 4.3 has 3.4e38 as the end, as FP32 has; from 2^128 - 2^119 on bfloat16 rounds to infinity, and sums are NaN.
FP32_B_RANGE = (7.7e-34, 2.0**128 - 2.0**119 - 2.0**104)
FP32_T_RANGE = (4.81e-35, 2.0**128 - 2.0**116 - 2.0**104)  # section 4.2, with the end of TF32 likewise
WRAPS_FROM = 32640  # int16 from here on: the released split's high byte, (x - low) / 256, is 128
# Four products of bytes, 255^2 at most, summed in int32: no longer than this can be exact.
INT16_GROUP = 32768
LARGEST_BLOCK = (1 << 31) - 1  # beyond any matrix that fits a host: all of it is one block


def plan_f(options: Mapping[str, Any], problem: Problem) -> Plan:
    """ape-fp32-f: two FP16 pieces, x2 = RN((x - x1) 2^12); acc0 = A1 B1, acc1 = A1 B2 + A2 B1, C = acc0 + acc1 2^-12.

    termwise: C = A1 B1; C += 2^-12 A2 B1; C += 2^-12 A1 B2, as the authors' released code calls the library.
    """
    pieces = (Piece("fp16"), Piece("fp16", scale_exponent=SHIFT))
    calls = is_termwise("ape-fp32-f", options)
    cross = (chain((1, 0)), chain((0, 1))) if calls else (chain((0, 1), (1, 0), interleave=options["interleave"]),)
    terms = (chain((0, 0)), *cross)
    return Plan(
        "ape-fp32-f",
        pieces,
        pieces,
        terms,
        sums(TermValue(0), *(Scaled(TermValue(i), -SHIFT) for i in range(1, len(terms)))),
        k_group=options["k_group"],
        input_format=problem.input_format,
        calls=calls,
        order="calls" if calls else "ours",
    )


def plan_b(options: Mapping[str, Any], problem: Problem) -> Plan:
    """ape-fp32-b: three BF16 pieces, six products chained in one accumulator in the order of Listing 4.

    termwise: each product is added to C, in the order of the authors' released code.
    """
    listed = ((0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (2, 0))
    released = ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2))
    terms = terms_of("ape-fp32-b", options, listed, released)
    return plan_of_sums("ape-fp32-b", (Piece("bf16"),) * 3, terms, options, problem)


def plan_t(options: Mapping[str, Any], problem: Problem) -> Plan:
    """ape-fp32-t: two TF32 pieces, three products chained in one accumulator."""
    products = chain((0, 0), (0, 1), (1, 0), interleave=options["interleave"])
    return plan_of_sums("ape-fp32-t", (Piece("tf32"),) * 2, (products,), options, problem)


def plan_int16(options: Mapping[str, Any], problem: Problem) -> Plan:
    """ape-int16: x = 2^8 h + l; four INT8 products shifted by 16, 8, 8, 0.

    With biased low bytes, l' = l - 128, a correction by the sums over K of both operands is added: 128 (sum a + sum b)
    - 128^2 K. With signed ones, as in the authors' released code, l is the byte as a signed number and h is (x - l) /
    256, which wraps from 127.5 x 256 on.
    """
    biased = options["low_byte"] == "biased"
    pieces = (Piece("int8"), Piece("uint8" if options["low_byte"] == "unsigned" else "int8"))
    value: Expression = sums(Scaled(TermValue(0), 16), Scaled(TermValue(1), 8), Scaled(TermValue(2), 8), TermValue(3))
    if biased:
        value = sums(value, OperandSum("a", 128), OperandSum("b", 128), Depth(-(128 * 128)))
    return Plan(
        "ape-int16",
        pieces,
        pieces,
        (chain((0, 0)), chain((0, 1)), chain((1, 0)), chain((1, 1))),
        value,
        k_group=INT16_GROUP if problem.k > INT16_GROUP else None,
        input_format=problem.input_format,
        output_format=options["accumulate"],
        split="signed_bytes" if options["low_byte"] == "signed" else "bytes",
        arithmetic=options["accumulate"],
    )


def plan_adaptive(options: Mapping[str, Any], problem: Problem) -> Mixed:
    """ape: blocks in fp32-f's range use it, the others fp32-b, and native fp32 beyond fp32-b's range (section 5)."""
    part = {"accumulation": "chained", "interleave": options["interleave"], "k_group": None}
    native = Plan(
        "native", (Piece("fp32"),), (Piece("fp32"),), (chain((0, 0)),), TermValue(0), input_format=problem.input_format
    )
    size = options["block"]
    return Mixed(
        "ape",
        (plan_f(part, problem), plan_b(part, problem), native),
        (FP32_F_RANGE, FP32_B_RANGE),
        (size, size, size),
        options["strategy"],
        options["wide_percent"],
        zeros_fit=options["zeros"] == "narrow",
    )


def inspect_f(a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> list[Notice]:
    """Notices: NaNs and infinities, and elements that two FP16 pieces cannot represent in full."""
    low = below(a, b, FP32_F_RANGE[0], "below 6.1e-5 keep fewer than 22 bits")
    return special_notices(a, b) + low + fp16_pieces(a, b, SHIFT)


def inspect_b(a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> list[Notice]:
    """Notices: NaNs and infinities, and elements outside the range of three BF16 pieces."""
    return special_notices(a, b) + outside(a, b, FP32_B_RANGE, "bfloat16")


def inspect_t(a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> list[Notice]:
    """Notices: NaNs and infinities, and elements outside the range of two TF32 pieces."""
    return special_notices(a, b) + outside(a, b, FP32_T_RANGE, "tf32")


def inspect_int16(a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> list[Notice]:
    """Notices: elements whose released split wraps."""
    if options["low_byte"] != "signed":
        return []
    count = sum(int((x.astype(np.int64) >= WRAPS_FROM).sum()) for x in (a, b))
    what = f"elements of {WRAPS_FROM} or more have a high byte that wraps, as in the released split: 65536 too small"
    return counted(("high_byte_wraps", count, what))


def inspect(a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> list[Notice]:
    """Notices: NaNs and infinities."""
    return special_notices(a, b)


SCHEMES = (
    with_scale(
        Scheme(
            "ape-fp32-f",
            "FP32 from 3 FP16 products",
            f"{SOURCE}, 4.1, Listing 2; {RELEASED}",
            (ACCUMULATION, INTERLEAVE, K_GROUP),
            plan_f,
            inspect_f,
        )
    ),
    Scheme(
        "ape-fp32-b",
        "FP32 from 6 BF16 products",
        f"{SOURCE}, 4.3, Listing 4; {RELEASED}",
        (ACCUMULATION, INTERLEAVE, K_GROUP),
        plan_b,
        inspect_b,
    ),
    Scheme("ape-fp32-t", "FP32 from 3 TF32 products", f"{SOURCE}, 4.2", (INTERLEAVE, K_GROUP), plan_t, inspect_t),
    Scheme(
        "ape-int16",
        "INT16 from 4 INT8 products",
        f"{SOURCE}, 4.4",
        (
            Option(
                "low_byte",
                str,
                None,
                "unsigned, where the unit multiplies u8; else biased by 128; signed: as released, wraps from 32640",
                choices=("unsigned", "biased", "signed"),
            ),
            Option("accumulate", str, "int64", "sum of the products; int32 wraps", choices=("int64", "int32")),
        ),
        plan_int16,
        inspect_int16,
        input_formats=("int16",),
        alternatives="low_byte",
    ),
    Scheme(
        "ape",
        "FP32 from FP16, BF16 or native FP32 products, chosen per block",
        f"{SOURCE}, 5",
        (
            Option("block", int, 128, "elements of a block along m, n and k", least=16, most=LARGEST_BLOCK),
            Option(
                "strategy",
                str,
                "hybrid",
                "hybrid: each block its own plan; else one plan for all; decide: the fastest that the operands allow",
                choices=("hybrid", "fp32-f", "fp32-b", "native", "decide"),
            ),
            Option(
                "zeros",
                str,
                "narrow",
                "narrow: a zero is in every range (ours); wide: below every range, as Listing 5 compares, so that its "
                "block is native fp32",
                choices=("narrow", "wide"),
            ),
            Option(
                "wide_percent", int, None, "without operands: percent of block products for fp32-b", least=0, most=100
            ),
            INTERLEAVE,
        ),
        plan_adaptive,
        inspect,
    ),
)
