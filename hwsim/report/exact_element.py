"""The exact value of an element beside the unit's result: the sum of products as a mathematician has it, unrounded.

It knows formats; it knows no unit and no stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from hwsim.formats import decode, format_of
from hwsim.numerics.dot_operands import DotOperands
from hwsim.report.text.number_text import decimal, hex_float

MOST_SHOWN = 1 << 20  # of the denominator of a share of a last place that is shown as a fraction


def exact_element(
    formats: tuple[str, str, str], scale: tuple[str, int] | None, operands: DotOperands, result: tuple[str, int]
) -> dict[str, Any] | None:
    """{"hex", "decimal": of C + the sum of products, "difference": result - exact, "0" or hexadecimal floating point
    (integers: decimal), None where the result is not finite, "last_places": its size in last places of the result's
    format at the exact value, None for integers}.

    None where an operand is infinite or a NaN. formats: of a, b and c. scale: format of block scales, products in a
    block; None without scales. result: format and code.
    """
    a, b, c = ([decode(format_of(fmt), code) for code in codes] for fmt, codes in _codes(formats, operands))
    factors = [[decode(format_of(scale[0]), code) for code in codes or ()] for codes in operands[3:5]] if scale else []
    if any(value.kind != "finite" for values in (a, b, c, *factors) for value in values):
        return None
    total = c[0].fraction / (1 << operands.scale_d)
    for k, (x, y) in enumerate(zip(a, b, strict=True)):
        product = x.fraction * y.fraction
        for values in factors:
            product *= values[k // scale[1]].fraction if scale else 1
        total += product
    return beside(total, result)


def beside(total: Fraction, result: tuple[str, int]) -> dict[str, Any]:
    """The record of a dyadic number and a result, its format and code; keys as of `exact_element`."""
    fmt, value = format_of(result[0]), decode(format_of(result[0]), result[1])
    record: dict[str, Any] = {**_texts(total, fmt.is_integer), "difference": None, "last_places": None}
    if value.kind != "finite":
        return record
    difference = value.fraction - total
    record["difference"] = _texts(difference, fmt.is_integer)["hex"] if difference else "0"
    if not fmt.is_integer:
        leading = _leading_place(total)
        place = max(fmt.min_exponent if leading is None else leading, fmt.min_exponent) - fmt.fraction_bits
        share = abs(difference) / Fraction(2) ** place
        record["last_places"] = str(share) if share.denominator < MOST_SHOWN else f"~{float(share):.6g}"
    return record


def _codes(formats: tuple[str, str, str], operands: DotOperands) -> list[tuple[str, Sequence[int]]]:
    return list(zip(formats, (operands.a, operands.b, (operands.c,)), strict=True))


def _leading_place(value: Fraction) -> int | None:
    """The place of a dyadic number's leading digit; None for zero."""
    if not value:
        return None
    return abs(value.numerator).bit_length() - value.denominator.bit_length()


def _texts(value: Fraction, is_integer: bool) -> dict[str, str]:
    """A dyadic number in hexadecimal floating point (integers: decimal) and in decimal."""
    parts = int(value < 0), abs(value.numerator), 1 - value.denominator.bit_length()
    return {"hex": str(value) if is_integer else hex_float(*parts), "decimal": decimal(*parts)}
