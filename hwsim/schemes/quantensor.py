"""QuanTensor: FP32 from integer products of fixed-point pieces, with a scale per row of A and column of B (Li et
al.).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwsim.errors import InputError
from hwsim.gemm.option_types import Option
from hwsim.gemm.plan import Piece, Plan, Scaled, TermValue, chain, sums
from hwsim.gemm.problem import Problem
from hwsim.schemes.scheme import AnyArray, Notice, Scheme, special_notices

SLICE_BITS = {"int8": 7, "int4": 3}
FP32_SPAN = 277  # digits from 2^127 down to 2^-149


def plan(options: Mapping[str, Any], problem: Problem) -> Plan:
    """Pieces from the most significant on, the last one rounded; products combined in fp32 from the least
    significant.
    """
    bits, count = SLICE_BITS[options["format"]], options["pieces"]
    if count > (most := -(-FP32_SPAN // bits)):
        raise InputError(
            f"scheme quantensor: pieces = {count}; allowed: at most {most} (of {bits} bits: they reach the last digit "
            "of any fp32 number)"
        )
    pairs = [(i, j) for i in range(count) for j in range(count) if options["all_products"] or i + j < count]
    if options["residual"]:  # what quantisation left, one more piece, against the other side's first
        pairs += [(0, count), (count, 0)]
        count += 1
    pairs.sort(key=lambda pair: (-sum(pair), pair))
    piece = (Piece(options["format"]),) * count
    # int32 holds sums of this many products: 2^31 / (2^bits)^2, the last piece may reach 2^bits.
    longest = 1 << (30 - 2 * bits)
    return Plan(
        "quantensor",
        piece,
        piece,
        tuple([chain(pair) for pair in pairs]),
        sums(*(Scaled(TermValue(t), -bits * (i + j + 2)) for t, (i, j) in enumerate(pairs))),
        k_group=longest if problem.k > longest else None,
        input_format=problem.input_format,
        split="slices",
        slice_bits=bits,
        specials="fma_chain",
    )


def inspect(a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> list[Notice]:
    """Notices: NaNs and infinities."""
    return special_notices(a, b)


SCHEME = Scheme(
    "quantensor",
    "FP32 from INT8 or INT4 products, a scale per row and column",
    "Li et al., QuanTensor",
    (
        Option("format", str, "int8", "format of the pieces", choices=tuple(SLICE_BITS)),
        Option("pieces", int, 2, "pieces per operand", least=1),
        Option("all_products", bool, True, "all products of pieces, or those with i + j below `pieces`"),
        Option("residual", bool, False, "one more piece of each operand, multiplied by the other's first"),
    ),
    plan,
    inspect,
)
