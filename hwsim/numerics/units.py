"""Dot units as data: the parameters of the arithmetic that a matrix unit applies in one step.

A unit describes a datapath and knows nothing of devices, instruction shapes or time. A `DotSpec` combines it with the
formats of an instruction; that is all that the reference and the kernels need. Device files hold these records as
they are: a field's range stands in its type, `model` is the key that selects the unit.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

from annotated_types import Interval

from hwsim.errors import UnsupportedError

RoundingName = Literal["RNE", "RNA", "RZ", "RU", "RD"]
NanOrder = Literal["abc", "acb", "bac", "bca", "cab", "cba"]
Terms = Annotated[int, Interval(ge=1, le=4096)]  # products that a unit adds at once, elements of a block
Index = Annotated[int, Interval(ge=0, le=4096)]  # of an operand's element
Bits = Annotated[int, Interval(ge=1, le=1000)]
Exponent = Annotated[int, Interval(ge=-5000, le=5000)]
NanCode = Annotated[int, Interval(ge=0, lt=1 << 64)]


@dataclass(frozen=True, slots=True)
class Specials:
    """How a unit treats infinities, NaNs, overflow, signed zeros and subnormals."""

    # "ieee" takes infinities and NaNs as such; "saturate" reads an infinity as the largest finite value of its sign and
    # a NaN as +0 (Ascend's saturation mode).
    operands: Literal["ieee", "saturate"] = "ieee"
    overflow: Literal["infinity", "saturate"] = "infinity"  # after rounding; "saturate": the largest finite value
    nan_code: NanCode | None = None  # of every NaN result in the result format (None: the format's default quiet NaN)
    # Sign of a zero result: "positive" always +0; "ieee" -0 only when every term is -0.
    zero: Literal["positive", "ieee"] = "positive"
    flush_operands: bool = False  # subnormal operands and accumulators are read as +0
    flush_results: bool = False  # subnormal products and sums become zero of their sign


@dataclass(frozen=True, slots=True)
class FusedUnit:
    """NVIDIA's fused dot product: align all terms to the largest exponent, truncate, add exactly, round once."""

    model: Literal["fused"] = field(default="fused", kw_only=True, repr=False)
    terms: Terms  # products per step
    fraction_bits: Bits  # below the leading place of the largest exponent
    floor_exponent: Exponent  # the alignment never goes below it
    rounding: RoundingName = "RZ"  # of the sum to the result
    result_format: str | None = None  # of the rounded sum, where it is narrower than the instruction's d (e8m13)
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
    """A chain of fused multiply-adds in increasing k, each rounded to the result format."""

    model: Literal["fma_chain"] = field(default="fma_chain", kw_only=True, repr=False)
    rounding: RoundingName = "RNE"
    # "bca" and the like: a NaN result is the first NaN among the operands in this order, made quiet, its sign and
    # payload kept; without a NaN operand it is specials.nan_code. None: always specials.nan_code.
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
    6). E: the largest exponent of the products and the accumulator.
    """

    model: Literal["two_level"] = field(default="two_level", kw_only=True, repr=False)
    terms: Terms
    product_fraction_bits: Bits = 24  # products are cut toward zero at 2^(largest product exponent - this)
    sum_fraction_bits: Bits = 32  # the sum of products is cut down at 2^(E - this) before the addition
    accumulator_fraction_bits: Bits = 24  # so is the accumulator
    final_fraction_bits: Bits = 31  # the sum is cut down at this many bits below its own exponent, then rounded
    interleaved: bool = False  # sum even and odd elements apart first (fp8), both cut down at product_fraction_bits
    accumulator_drop_bits: Bits | None = None  # the accumulator is dropped when its exponent is below E - this (fp8)
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
    """Groups of products summed exactly, multiplied by their shared scales, then aligned once (FP4 block scaling)."""

    model: Literal["block_scaled"] = field(default="block_scaled", kw_only=True, repr=False)
    terms: Terms  # products per step
    group: Terms  # products per exactly added group, whose exponent is the one of its scales only
    fraction_bits: Bits  # below the leading place of the largest exponent
    floor_exponent: Exponent  # the alignment never goes below it
    zero_exponent: Exponent  # of a group whose products, or whose scale, are all zero
    rounding: RoundingName = "RZ"
    specials: Specials = field(default_factory=Specials)


@dataclass(frozen=True, slots=True)
class CompositeUnit:
    """A short sequence of steps of another unit from zero, then an ordinary addition of the accumulator.

    The accumulator is added last by one IEEE addition, nearest even, in the result format.
    """

    model: Literal["composite"] = field(default="composite", kw_only=True, repr=False)
    terms: Terms
    inner: FusedUnit  # of the steps; its specials are of the operands, in operand_format
    operand_format: str  # the operands are first widened to it (exactly)
    modulus: Terms
    selections: tuple[tuple[Index, ...], ...]  # for each step the residues of k mod `modulus` that it takes
    specials: Specials = field(default_factory=Specials)  # of the accumulator and the result


Unit = (
    FusedUnit | ExactUnit | FmaChainUnit | PairwiseUnit | TwoLevelUnit | IntegerUnit | BlockScaledUnit | CompositeUnit
)


def of_sparse(unit: Unit) -> Unit:
    """The unit as an instruction with a 2:4 sparse A uses it, over all elements of K, where those not stored are +0.

    A step takes as many stored elements as without sparsity, in their order: so it covers twice the length of K. Zero
    products change no sum of a unit whose zero results are positive, or whose sums are exact. Raises UnsupportedError
    for a unit whose steps select places of K: they would select places among the stored elements.
    """
    if isinstance(unit, CompositeUnit) or (isinstance(unit, TwoLevelUnit) and unit.interleaved):
        raise UnsupportedError("this unit selects places of K, which a sparse A moves; no instruction has both")
    if isinstance(unit, FmaChainUnit):  # an addition is a step
        return unit
    return replace(unit, terms=2 * unit.terms)


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
