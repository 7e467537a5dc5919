"""Numbers as text without loss: hexadecimal floating point, and decimal, marked ~ where it is not the whole number."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

DIGITS = 12  # decimal digits that are shown; a number that needs more is marked ~
FAR = 4096  # binary exponents beyond it have no decimal text


def hex_float(sign: int, significand: int, exponent: int) -> str:
    """(-1)^sign * significand * 2^exponent as `-0x1.8p+3`: every bit of it."""
    lead = "-" if sign else ""
    if not significand:
        return f"{lead}0x0p+0"
    places = significand.bit_length() - 1
    digits = -(-places // 4)
    fraction = (significand - (1 << places)) << (4 * digits - places)
    text = f"{fraction:0{digits}x}".rstrip("0") if digits else ""
    return f"{lead}0x1{'.' if text else ''}{text}p{exponent + places:+d}"


def decimal(sign: int, significand: int, exponent: int) -> str:
    """The number in decimal: all of it, or DIGITS digits behind a ~."""
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
    """`-1027 * 2^-10`: the significand as it is held, and the weight of its last place."""
    return f"{'-' if sign else ''}{significand} * 2^{exponent}"


def code_text(code: int, bits: int) -> str:
    """A code of a format of so many bits, `0x3c00`."""
    return f"0x{code:0{-(-bits // 4)}x}"
