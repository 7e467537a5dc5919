"""Bounds of errors as text, such as "3 K u": a factor times K, sqrt(K) or 1, times u or a number.

The module knows the text and what it comes to at a K; it knows no figure.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from hwsim.errors import InputError, nearest

NAMED = ("K u", "sqrt(K) u", "u")
FORMS = f"{', '.join(NAMED)}, or factors of them with numbers: '3 K u', '0.5 sqrt(K) u', 'K 2^-16', '2^-16'"
POWERS = {"K": 1.0, "sqrt(K)": 0.5}
NUMBER = re.compile(r"\d+(\.\d*)?(e[+-]?\d+)?")
POWER_OF_TWO = re.compile(r"2\^([+-]?\d{1,4})")


@dataclass(frozen=True, slots=True)
class ErrorBound:
    """factor * K^power, times the unit roundoff u where has_roundoff."""

    factor: float
    power: float
    has_roundoff: bool

    def at(self, k: float, roundoff: float) -> float:
        """The bound at a K, with this unit roundoff."""
        return self.factor * math.pow(k, self.power) * (roundoff if self.has_roundoff else 1.0)


def error_bound(text: str) -> ErrorBound:
    """The bound that a text means: factors with spaces (or *) between them. Raises InputError for another text."""
    words = text.replace("*", " ").split()
    powers, roundoffs = [POWERS[word] for word in words if word in POWERS], words.count("u")
    numbers = [_number(word) for word in words if word not in POWERS and word != "u"]
    factors = [number for number in numbers if number is not None]
    is_known = words and len(factors) == len(numbers) and len(powers) <= 1 and roundoffs <= 1
    factor = math.prod(factors)
    if not is_known or not 0 < factor < math.inf:
        raise InputError(f"bound {text!r}; allowed: {FORMS}{nearest(text, NAMED)}")
    return ErrorBound(factor, sum(powers), bool(roundoffs))


def _number(word: str) -> float | None:
    """The number that a word is: decimal, or a power of two such as 2^-16; None: it is none."""
    if power := POWER_OF_TWO.fullmatch(word):
        exponent = int(power[1])
        return math.ldexp(1.0, exponent) if exponent < 1024 else math.inf
    return float(word) if NUMBER.fullmatch(word) else None
