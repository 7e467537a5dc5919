"""Terms (products and accumulators inside a datapath), and the stages that all dot-unit models share.

A term is a decoded operand, a product or an accumulator, with its exponent as the hardware sees it. The module knows
formats and a unit's special cases (`Specials`); it knows no model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import index

from hwsim.errors import InputError
from hwsim.formats import Exact, Format, NumberKind, Rounding, decode, encode, format_of, round_to
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import DotSpec, Specials


@dataclass(frozen=True, slots=True)
class Addend:
    """One term of a sum: (-1)^sign * significand * 2^last_place, an infinity of that sign, or a NaN.

    exponent: what the aligner compares. It is the format's exponent (a subnormal has the lowest normal
        one), or the sum of the operands' for a product; it is not normalised, so the significand of a
        product lies in [1, 4) times 2^exponent, or below.
    """

    kind: NumberKind
    sign: int
    significand: int = 0
    last_place: int = 0
    exponent: int = 0

    @property
    def is_zero(self) -> bool:
        """Whether the term is +0 or -0."""
        return self.kind == "finite" and self.significand == 0

    @property
    def signed_significand(self) -> int:
        """The significand with the term's sign."""
        return -self.significand if self.sign else self.significand


#: What an operand that a short step lacks contributes.
ZERO_TERM = Addend("finite", 0)

MOST_OPERANDS = 1 << 15  # of a format under a unit's rules that are kept


class DecodedOperands(dict[int, Addend]):
    """Operands of one format under a unit's rules by their codes, each decoded once, MOST_OPERANDS at most."""

    def __init__(self, fmt: Format, specials: Specials) -> None:
        self.fmt, self.specials = fmt, specials

    def __missing__(self, code: int) -> Addend:
        if len(self) >= MOST_OPERANDS:
            self.clear()
        number = index(code)  # of any integer type; else TypeError
        term = self[number] = _read(self.fmt, number, self.specials)
        return term


@lru_cache(maxsize=16)
def operands_of(fmt: Format, specials: Specials) -> DecodedOperands:
    """The operands of a format under a unit's rules (see `read_operand`)."""
    return DecodedOperands(fmt, specials)


def read_operand(fmt: Format, code: int, specials: Specials) -> Addend:
    """Decode an operand, with the unit's rules for subnormals, infinities and NaNs.

    Inputs and width: a code of `fmt`.
    Exact result: its value, with the format's exponent.
    Dropped: ignored low bits of the word; subnormals (read as +0) where operands are flushed.
    Specials: where operands saturate, an infinity is the largest finite value of its sign and a NaN is +0.
    Source: numerics reference, sections 1.1 (NVIDIA), 6 (CDNA2 flushing), 7 (Ascend saturation).
    """
    return operands_of(fmt, specials)[code]


def _read(fmt: Format, code: int, specials: Specials) -> Addend:
    value = decode(fmt, code)
    if specials.operands == "saturate" and value.kind != "finite":
        value = decode(fmt, fmt.zero_code() if value.kind == "nan" else fmt.largest_code(value.sign))
    exponent = value.exponent + fmt.fraction_bits
    is_subnormal = value.significand >> fmt.fraction_bits == 0 and not fmt.is_integer
    if value.kind == "finite" and is_subnormal and specials.flush_operands:
        return Addend("finite", 0, 0, value.exponent, exponent)
    return Addend(value.kind, value.sign, value.significand, value.exponent, exponent)


def multiply_terms(x: Addend, y: Addend) -> Addend:
    """The exact product of two terms.

    Inputs and width: significands of p and q bits.
    Exact result: p + q bits, exponents added, not normalised.
    Dropped: nothing.
    Specials: NaN for a NaN and for infinity times zero; otherwise an infinity times anything is one.
    Source: numerics reference, sections 1.1 and 1.7.
    """
    sign = x.sign ^ y.sign
    if x.kind == y.kind == "finite":
        places, exponent = x.last_place + y.last_place, x.exponent + y.exponent
        return Addend("finite", sign, x.significand * y.significand, places, exponent)
    if "nan" in (x.kind, y.kind) or x.is_zero or y.is_zero:
        return Addend("nan", sign)
    return Addend("infinity", sign)


def form_products(spec: DotSpec, specials: Specials, operands: DotOperands) -> tuple[Addend, ...]:
    """The products of one step, padded with +0 to `unit.terms` (see `multiply_terms`).

    Raises InputError when a and b differ in length or are longer than a step.
    """
    terms = spec.unit.terms
    if len(operands.a) != len(operands.b) or len(operands.a) > terms:
        raise InputError(
            f"one step of the {spec.unit.model} unit takes a and b of one length, at most {terms}; "
            f"got {len(operands.a)} and {len(operands.b)}"
        )
    left, right = operands_of(format_of(spec.a), specials), operands_of(format_of(spec.b), specials)
    products = tuple([multiply_terms(left[x], right[y]) for x, y in zip(operands.a, operands.b, strict=True)])
    return products + (ZERO_TERM,) * (terms - len(products))


def read_scales(spec: DotSpec, operands: DotOperands) -> tuple[Addend, ...] | None:
    """For each block of k the product of its two scales, or None for a unit without scales.

    Raises InputError for scales that are missing, of the wrong number, or not wanted.
    """
    if spec.scale_format is None or spec.scale_block is None:
        if operands.scale_a is not None or operands.scale_b is not None:
            raise InputError("scale_a and scale_b: this instruction takes no block scales")
        return None
    blocks = -(-len(operands.a) // spec.scale_block)
    if operands.scale_a is None or operands.scale_b is None:
        raise InputError(f"scale_a and scale_b: {blocks} codes of {spec.scale_format} each are needed")
    if len(operands.scale_a) != blocks or len(operands.scale_b) != blocks:
        raise InputError(
            f"scale_a and scale_b: one {spec.scale_format} code per {spec.scale_block} of k, {blocks} here; "
            f"got {len(operands.scale_a)} and {len(operands.scale_b)}"
        )
    fmt = format_of(spec.scale_format)
    plain = Specials()
    return tuple(
        multiply_terms(read_operand(fmt, x, plain), read_operand(fmt, y, plain))
        for x, y in zip(operands.scale_a, operands.scale_b, strict=True)
    )


def read_accumulator(spec: DotSpec, specials: Specials, operands: DotOperands) -> Addend:
    """Decode the accumulator and multiply it by 2^-scale_d.

    Inputs and width: a code of c's format; an exponent of 0 to 15.
    Exact result: the exponent is lowered in front of the aligner, without a rounding of its own.
    Dropped: nothing (as `read_operand`).
    Specials: zero, infinity and NaN are not changed by the scale.
    Source: numerics reference, section 4: how hardware rounds a scaled accumulator below the normal range is
        published nowhere; this is an assumption.
    """
    if not 0 <= operands.scale_d <= 15:
        raise InputError(f"scale_d: an exponent from 0 to 15 is allowed; got {operands.scale_d}")
    term = read_operand(format_of(spec.c), operands.c, specials)
    if operands.scale_d == 0 or term.kind != "finite" or term.is_zero:
        return term
    return replace(term, last_place=term.last_place - operands.scale_d, exponent=term.exponent - operands.scale_d)


def forbid_scales(spec: DotSpec, operands: DotOperands) -> None:
    """Raise InputError when scales are given to a model that has none."""
    if (
        spec.scale_format is not None
        or operands.scale_a is not None
        or operands.scale_b is not None
        or operands.scale_d
    ):
        raise InputError(f"the {spec.unit.model} unit takes no scale_a, scale_b or scale_d")


def special_of(terms: Iterable[Addend]) -> Exact | None:
    """The NaN or infinity that results from adding the terms, or None when all are finite.

    A NaN, or infinities of both signs, give NaN; otherwise an infinity stays.
    Source: numerics reference, section 1.7.
    """
    special = [term for term in terms if term.kind != "finite"]
    if not special:
        return None
    signs = {term.sign for term in special}
    if any(term.kind == "nan" for term in special) or len(signs) == 2:
        return Exact("nan", 0)
    return Exact("infinity", signs.pop())


def add_exactly(terms: Sequence[Addend]) -> tuple[int, int]:
    """Exact sum of finite terms: (signed integer, weight of its last place)."""
    last_place = min((term.last_place for term in terms if not term.is_zero), default=0)
    total = sum(term.signed_significand << term.last_place - last_place for term in terms if not term.is_zero)
    return total, last_place


def zero_sign(terms: Iterable[Addend], specials: Specials, rounding: Rounding) -> int:
    """The sign bit of a sum that is zero.

    "positive": +0. "ieee": the common sign when every term is a zero of one sign, else +0, or -0 toward
    minus infinity (IEEE 754, 6.3).
    """
    if specials.zero == "positive":
        return 0
    signs = {term.sign if term.is_zero else None for term in terms}
    if signs == {1}:
        return 1
    return 1 if rounding == "RD" and signs != {0} else 0


def round_sum(total: int, last_place: int, sign_of_zero: int) -> Exact:
    """A signed integer sum as an exact value, ready for rounding."""
    if total == 0:
        return Exact("finite", sign_of_zero)
    return Exact("finite", int(total < 0), abs(total), last_place)


def pack(d: Format, value: Exact, rounding: Rounding, specials: Specials, narrow: Format | None = None) -> int:
    """Normalise a value, round it once, and return its code in d's format: the last stage of every model.

    Inputs and width: any exact value.
    Exact result: d's code; `narrow` rounds to a format with fewer fraction bits that d holds exactly.
    Dropped: what the rounding cuts; subnormal results where results are flushed.
    Specials: NaN is `specials.nan_code`, or d's default quiet NaN; overflow is an infinity or the largest
        finite number, as `specials.overflow` says and whatever the rounding; a result that rounds to zero is
        +0 unless zeros follow IEEE.
    Source: numerics reference, sections 1.5 to 1.7.
    """
    if value.kind == "nan":
        return d.nan_code if specials.nan_code is None else specials.nan_code
    target = d if narrow is None else narrow
    code = round_to(target, value, rounding, overflow=specials.overflow)
    result = decode(target, code)
    flushed = specials.flush_results and result.kind == "finite" and result.significand >> target.fraction_bits == 0
    if flushed or (result.kind == "finite" and result.significand == 0):
        return d.zero_code(0 if specials.zero == "positive" else result.sign)
    return code if target is d else encode(d, result)


def add_rounded(d: Format, terms: Sequence[Addend], rounding: Rounding, specials: Specials) -> int:
    """Add terms exactly and round once, as one ordinary floating-point addition; returns the code."""
    special = special_of(terms)
    if special is not None:
        return pack(d, special, rounding, specials)
    total, last_place = add_exactly(terms)
    return pack(d, round_sum(total, last_place, zero_sign(terms, specials, rounding)), rounding, specials)
