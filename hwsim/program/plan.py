"""The plan: a GEMM scheme as data, free of any device.

A plan knows pieces, products and how partial sums are joined. It does not know engines, tiles or cycles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of an operand: what is left of it, times 2^scale_exponent, rounded to `format`.

    What is left for the next piece is (scaled rest - piece), kept at that scale; both steps are fp32.
    """

    format: str
    rounding: str = "RNE"
    scale_exponent: int = 0


@dataclass(frozen=True, slots=True)
class Term:
    """One accumulator of the matrix unit: products (piece of A, piece of B) chained in it, in this order."""

    products: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class TermValue:
    """The value of a term, fp32."""

    term: int


@dataclass(frozen=True, slots=True)
class Sum:
    """left + right, one fp32 addition, nearest even."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Scaled:
    """value * 2^exponent in fp32."""

    value: Expression
    exponent: int


Expression = TermValue | Sum | Scaled


@dataclass(frozen=True, slots=True)
class Plan:
    """How C is made of products of pieces.

    a_pieces, b_pieces: the split of each operand (of `input_format` elements); a single piece of
    that same format is the operand itself. combine: how the terms' values join to C, outside the unit.
    join: "end" joins the terms once, after all of K; "group" joins them after every `k_group` of K and
    adds the joined value to C (both outside the unit).
    k_group: length of K that one term accumulates in the unit from zero; None: the lowering's choice.
    The values of successive groups are added outside, nearest even, in order of K.
    """

    scheme: str
    a_pieces: tuple[Piece, ...]
    b_pieces: tuple[Piece, ...]
    terms: tuple[Term, ...]
    combine: Expression
    join: Literal["end", "group"] = "end"
    k_group: int | None = None
    input_format: str = "fp32"
    output_format: str = "fp32"
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def products(self) -> int:
        """Number of products of pieces that the matrix unit forms."""
        return sum(len(term.products) for term in self.terms)
