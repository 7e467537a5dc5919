"""Dot units as data: the parameters of the arithmetic that a matrix unit applies in one step.

A unit describes a datapath and knows nothing of devices, instruction shapes or time. A `DotSpec` combines it with the
formats of an instruction; that is all that the reference and the kernels need. Device files hold these records as
they are: a field's range stands in its type, `model` is the key that selects the unit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from annotated_types import Interval

RoundingName = Literal["RNE", "RNA", "RZ", "RU", "RD"]
NanOrder = Literal["abc", "acb", "bac", "bca", "cab", "cba"]
Terms = Annotated[int, Interval(ge=1, le=4096)]  # products that a unit adds at once, elements of a block
Index = Annotated[int, Interval(ge=0, le=4096)]  # of an operand's element
Bits = Annotated[int, Interval(ge=1, le=1000)]
Exponent = Annotated[int, Interval(ge=-5000, le=5000)]
NanCode = Annotated[int, Interval(ge=0, lt=1 << 64)]


@dataclass(frozen=True, slots=True)
class Specials:
    """How a unit treats infinities, NaNs, overflow, signed zeros and subnormals.

    operands: "ieee" takes infinities and NaNs as such; "saturate" reads an infinity as the largest
        finite value of its sign and a NaN as +0 (Ascend's saturation mode).
    overflow: "infinity" or "saturate" (largest finite value), after rounding.
    nan_code: code of every NaN result in the result format (None: the format's default quiet NaN).
    zero: sign of a zero result: "positive" always +0; "ieee" -0 only when every term is -0.
    flush_operands: subnormal operands and accumulators are read as +0.
    flush_results: subnormal products and sums become zero of their sign.
    """

    operands: Literal["ieee", "saturate"] = "ieee"
    overflow: Literal["infinity", "saturate"] = "infinity"
    nan_code: NanCode | None = None
    zero: Literal["positive", "ieee"] = "positive"
    flush_operands: bool = False
    flush_results: bool = False


@dataclass(frozen=True, slots=True)
class FusedUnit:
    """NVIDIA's fused dot product: align all terms to the largest exponent, truncate, add exactly, round once.

    terms: products per step. fraction_bits: bits kept below the leading place of the largest exponent.
    floor_exponent: the alignment never goes below it. rounding: of the sum to the result.
    result_format: format of the rounded sum when it is narrower than the instruction's d (e8m13).
    """

    model: Literal["fused"] = field(default="fused", kw_only=True, repr=False)
    terms: Terms
    fraction_bits: Bits
    floor_exponent: Exponent
    rounding: RoundingName = "RZ"
    result_format: str | None = None
    specials: Specials = field(default_factory=Specials)


@dataclass(frozen=True, slots=True)
class ExactUnit:
    """An exact dot product: the accumulator and `terms` products added exactly, rounded once."""

    model: Literal["exact"] = field(default="exact", kw_only=True, repr=False)
    terms: Terms
    rounding: RoundingName = "RNE"
    specials: Specials = field(default_factory=Specials)


@dataclass(frozen=True, slots=True)
class FmaChainUnit:
    """A chain of fused multiply-adds in increasing k, each rounded to the result format.

    nan_order: "bca" and the like: a NaN result is the first NaN among the operands in this order, made quiet, its
        sign and payload kept; without a NaN operand it is specials.nan_code. None: always specials.nan_code.
    """

    model: Literal["fma_chain"] = field(default="fma_chain", kw_only=True, repr=False)
    rounding: RoundingName = "RNE"
    nan_order: NanOrder | None = None
    specials: Specials = field(default_factory=lambda: Specials(zero="ieee"))
    terms: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class PairwiseUnit:
    """A rounded adder tree: products and sums each rounded to the result format, a balanced tree over `terms`, then c +
    tree.
    """

    model: Literal["pairwise"] = field(default="pairwise", kw_only=True, repr=False)
    terms: Terms
    rounding: RoundingName = "RNE"
    specials: Specials = field(default_factory=lambda: Specials(zero="ieee"))


@dataclass(frozen=True, slots=True)
class TwoLevelUnit:
    """CDNA3's two-level dot product: products first, then the accumulator, truncated toward minus infinity (numerics.md
    6).

    product_fraction_bits: products are cut toward zero at 2^(largest product exponent - this).
    sum_fraction_bits, accumulator_fraction_bits: both cut down at 2^(E - this) before they are added.
    final_fraction_bits: the sum is cut down at this many bits below its own exponent, then rounded.
    interleaved: sum even and odd elements apart first (fp8), both cut down at product_fraction_bits.
    accumulator_drop_bits: the accumulator is dropped when its exponent is below E - this (fp8), or None.
    """

    model: Literal["two_level"] = field(default="two_level", kw_only=True, repr=False)
    terms: Terms
    product_fraction_bits: Bits = 24
    sum_fraction_bits: Bits = 32
    accumulator_fraction_bits: Bits = 24
    final_fraction_bits: Bits = 31
    interleaved: bool = False
    accumulator_drop_bits: Bits | None = None
    rounding: RoundingName = "RNE"
    specials: Specials = field(default_factory=Specials)


@dataclass(frozen=True, slots=True)
class IntegerUnit:
    """Exact integer products added to an int32 accumulator that wraps or saturates."""

    model: Literal["integer"] = field(default="integer", kw_only=True, repr=False)
    terms: Terms = 1
    overflow: Literal["wrap", "saturate"] = "wrap"


@dataclass(frozen=True, slots=True)
class BlockScaledUnit:
    """Groups of products summed exactly, each multiplied by its shared scales, then aligned once (FP4 block scaling).

    group: products per exactly added group. The group's exponent is that of its scales only.
    zero_exponent: exponent of a group whose products, or whose scale, are all zero.
    """

    model: Literal["block_scaled"] = field(default="block_scaled", kw_only=True, repr=False)
    terms: Terms
    group: Terms
    fraction_bits: Bits
    floor_exponent: Exponent
    zero_exponent: Exponent
    rounding: RoundingName = "RZ"
    specials: Specials = field(default_factory=Specials)


@dataclass(frozen=True, slots=True)
class CompositeUnit:
    """A short sequence of steps of another unit from zero, then an ordinary addition of the accumulator.

    operand_format: the operands are first widened to it (exactly).
    selections: for each step the residues r of k mod `modulus` that it takes, from a zero accumulator.
    The accumulator is added last by one IEEE addition, nearest even, in the result format. specials: of the accumulator
    and the result; those of the inner unit are of the operands, in operand_format.
    """

    model: Literal["composite"] = field(default="composite", kw_only=True, repr=False)
    terms: Terms
    inner: FusedUnit
    operand_format: str
    modulus: Terms
    selections: tuple[tuple[Index, ...], ...]
    specials: Specials = field(default_factory=Specials)


Unit = (
    FusedUnit | ExactUnit | FmaChainUnit | PairwiseUnit | TwoLevelUnit | IntegerUnit | BlockScaledUnit | CompositeUnit
)


@dataclass(frozen=True, slots=True)
class DotSpec:
    """A dot unit with the formats of its operands, by name (hwsim.formats): everything that fixes the bits of an
    instruction.

    scale_format, scale_block: format and length in k of block scales, or None.
    """

    unit: Unit
    a: str
    b: str
    c: str
    d: str
    scale_format: str | None = None
    scale_block: int | None = None
