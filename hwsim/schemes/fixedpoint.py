"""FP64 from INT8 slices in fixed point, as cuBLAS 13 emulates it: slices, diagonals, parts of K, bits that data needs.

The rules are cuBLAS 13.1's on an H100, where they were compared with its results. The module knows operands and plans;
it knows no device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hwsim.gemm.option_types import Option
from hwsim.gemm.plan import Piece, Plan, Scaled, Stage, Term, TermValue, chain, sums
from hwsim.gemm.problem import Problem
from hwsim.schemes.scheme import AnyArray, Notice, Scheme, special_notices

NAME = "fixedpoint-fp64"
DYNAMIC = "dynamic"
SLICE_BITS = 8
FP64_DIGITS = 53
ASSUMED_BITS = 55  # of data that are not known, as cuBLAS without dynamic control
NATIVE = 0  # bits of a product that is not emulated
MOST_BITS = 79  # of cuBLAS: where the data need more, the product is native
TILE = 128  # rows and columns of a CTA tile, and the multiple of K in parts
LEAST_K = 1024  # of a product that is cut along K
CTAS = 32  # that a product is cut into along K, if it has fewer tiles
BLOCK_K = 64  # elements of K whose exponents count together
ROWS_AT_ONCE = 512
MOST_HELD = 1000  # bits that slices hold: an element times 2 to the bits of all slices is still an FP64 number
NOTHING = -(1 << 20)  # exponent of a zero, below all others


def plan(options: Mapping[str, Any], problem: Problem) -> Plan:
    """Slices of A and B, products i + j < count by diagonals of equal i + j, added from the most significant.

    bits = 0: a plan of one native FP64 product; "dynamic", of sizes alone: of 55 bits.
    """
    bits = ASSUMED_BITS if options["bits"] == DYNAMIC else options["bits"]
    if bits == NATIVE:
        piece = (Piece("fp64"),)
        return Plan(NAME, piece, piece, (chain((0, 0)),), TermValue(0), input_format="fp64", output_format="fp64")
    count = slices(bits)
    pieces = (Piece("int8", "RZ"),) * count
    diagonals = [tuple([(i, total - i) for i in range(total + 1)]) for total in range(count)]
    parts = parts_of_k(*problem.sizes)
    return Plan(
        NAME,
        pieces,
        pieces,
        tuple([Term((Stage(products),)) for products in diagonals]),
        sums(*(Scaled(TermValue(i), -SLICE_BITS * (i + 2)) for i in range(count))),
        input_format=problem.input_format,
        output_format="fp64",
        split="signed_slices",
        slice_bits=SLICE_BITS,
        specials="fma_chain",
        arithmetic="fp64",
        k_parts=parts if len(parts) > 1 else (),
        order="calls",
    )


def slices(bits: int) -> int:
    """Slices of 8 bits that hold so many bits and a sign."""
    return -(-(bits + 1) // SLICE_BITS)


def parts_of_k(m: int, n: int, k: int) -> tuple[int, ...]:
    """Lengths of the parts of K: whole multiples of 128 but for the last, the later parts the longer ones."""
    steps, tiles = -(-k // TILE), -(-m // TILE) * -(-n // TILE)
    count = min(steps, -(-CTAS // tiles)) if k >= LEAST_K else 1
    length, longer = divmod(steps, count)
    lengths = [(length + (index >= count - longer)) * TILE for index in range(count)]
    return (*lengths[:-1], k - sum(lengths[:-1]))


def needed_bits(a: AnyArray, b: AnyArray) -> int:
    """Bits with which no product of a row of A and a column of B loses more than FP64 does: 54 + span of exponents.

    a (..., m, k), b (..., k, n): finite. The span of an element of C is the largest exponent of its row plus that of
    its column, minus a lower bound of its largest product. The bound takes for each 64 of K the largest exponent of one
    operand and the smallest of the other. Zeros take no part, which no capture tells.
    Source: Automatic dynamic precision, arXiv 2511.13778; 267 counts that cuBLAS 13.1 gave on an H100.
    """
    left, right = _exponents(a), _exponents(np.swapaxes(b, -1, -2))
    stack = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    pairs = [np.broadcast_to(x, (*stack, *x.shape[-2:])) for x in (left, right)]
    spans = [_span(pairs[0][place], pairs[1][place]) for place in np.ndindex(stack)]
    return FP64_DIGITS + 1 + max(spans, default=0)


def _exponents(x: AnyArray) -> AnyArray:
    exponents: AnyArray = np.where(x == 0, NOTHING, np.frexp(x)[1].astype(np.int32))
    return exponents


def _span(left: AnyArray, right: AnyArray) -> int:
    """The largest span of exponents of one product; left (m, k), right (n, k)."""
    blocks = [
        (_range(left[:, s : s + BLOCK_K]), _range(right[:, s : s + BLOCK_K])) for s in range(0, left.shape[1], BLOCK_K)
    ]
    tops = left.max(axis=1), right.max(axis=1)
    span = 0
    for start in range(0, len(left), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        bound = np.full((len(left[rows]), len(right)), 2 * NOTHING, np.int32)
        for (low_a, top_a), (low_b, top_b) in blocks:
            np.maximum(bound, top_a[rows, None] + low_b, out=bound)
            np.maximum(bound, low_a[rows, None] + top_b, out=bound)
        spans = tops[0][rows, None] + tops[1] - bound
        is_product = bound > NOTHING // 2  # below it one of the two is a zero
        span = max(span, int(np.where(is_product, spans, 0).max(initial=0)))
    return span


def _range(exponents: AnyArray) -> tuple[AnyArray, AnyArray]:
    """The smallest and the largest exponent of each row, zeros left out; both NOTHING for a row of zeros."""
    top = exponents.max(axis=1)
    low = np.where(exponents == NOTHING, -NOTHING, exponents).min(axis=1)
    return np.where(top == NOTHING, NOTHING, low), top


def survey(a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> dict[str, Any]:
    """Resolves bits="dynamic" from the data: native where they need more than most_bits.

    Infinities and NaNs make the product native, whatever `bits`.
    """
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return dict(options) | {"bits": NATIVE}
    if options["bits"] != DYNAMIC:
        return dict(options)
    bits = needed_bits(a.astype(np.float64), b.astype(np.float64))
    return dict(options) | {"bits": bits if bits <= options["most_bits"] else NATIVE}


def assumes(options: Mapping[str, Any]) -> str:
    """What a plan of sizes alone assumes of the data."""
    if options["bits"] != DYNAMIC:
        return ""
    return f"bits dynamic: {ASSUMED_BITS} assumed without data; data may need more"


def inspect(a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> list[Notice]:
    """Notices: NaNs and infinities, and data that need more bits than are emulated."""
    notices = special_notices(a, b)
    if not notices and options["bits"] == NATIVE:
        text = f"bits is 0, or data need more than {options['most_bits']}: a native FP64 product in its unit's order"
        notices.append(Notice("native_instead", 1, text))
    return notices


SCHEME = Scheme(
    NAME,
    "FP64 from INT8 slices in fixed point, as cuBLAS 13",
    "cuBLAS 13, floating-point emulation; cuBLASDx sample 16_dgemm_emulation; compared with cuBLAS 13.1 on an H100",
    (
        Option(
            "bits",
            int,
            DYNAMIC,
            "bits of an element that slices hold; dynamic: as many as the data need for FP64's accuracy; 0: a "
            "native FP64 product",
            words=(DYNAMIC,),
            least=0,
            most=MOST_HELD,
        ),
        Option(
            "most_bits",
            int,
            MOST_BITS,
            "dynamic: where more bits are needed, the product is one of native FP64",
            least=1,
            most=MOST_HELD,
        ),
    ),
    plan,
    inspect,
    input_formats=("fp64", "fp32"),
    survey=survey,
    assumes=assumes,
)
