"""Exact text for numbers: hexadecimal floating point, and decimal, marked ~ where digits are left out."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

DIGITS = 12  # decimal digits that are shown; a number that needs more is marked ~
FAR = 4096  # binary exponents beyond it have no decimal text


def hex_float(sign: int, significand: int, exponent: int) -> str:
    """The number (-1)^sign * significand * 2^exponent as `-0x1.8p+3`, exactly."""
    lead = "-" if sign else ""
    if not significand:
        return f"{lead}0x0p+0"
    places = significand.bit_length() - 1
    digits = -(-places // 4)
    fraction = (significand - (1 << places)) << (4 * digits - places)
    text = f"{fraction:0{digits}x}".rstrip("0") if digits else ""
    return f"{lead}0x1{'.' if text else ''}{text}p{exponent + places:+d}"


def decimal(sign: int, significand: int, exponent: int) -> str:
    """The number in decimal: exactly, or DIGITS digits after a ~."""
    lead = "-" if sign else ""
    if not significand:
        return f"{lead}0"
    if abs(exponent + significand.bit_length()) > FAR:
        return f"~{lead}2^{exponent + significand.bit_length() - 1}"
    value = Fraction(significand) * Fraction(2) ** exponent
    with localcontext() as context:
        context.prec = DIGITS
        shown = (Decimal(value.numerator) / Decimal(value.denominator)).normalize()
    plain = -6 < shown.adjusted() < DIGITS
    text = f"{shown:f}" if plain else f"{shown:e}".replace("e+", "e")
    return f"{'' if Fraction(shown) == value else '~'}{lead}{text}"


def power_form(sign: int, significand: int, exponent: int) -> str:
    """The number as `-1027 * 2^-10`: its significand, and the weight of its last place."""
    return f"{'-' if sign else ''}{significand} * 2^{exponent}"


def code_text(code: int, bits: int) -> str:
    """A code in hexadecimal, with the digits for that number of bits: `0x3c00`."""
    return f"0x{code:0{-(-bits // 4)}x}"
