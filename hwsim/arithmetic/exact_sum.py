"""Exact accumulation: elementwise sums of integers times powers of two, rounded once at the end.

A sum is kept as int64 arrays by the exponent of their last place; it is rounded in digits of 32 bits. The module knows
formats; it knows no plan and no device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.formats import Exact, Format, code_dtype, round_to

AnyArray = NDArray[Any]
DIGIT = 32
MASK = np.int64((1 << DIGIT) - 1)
U64 = np.uint64
WHOLE = 2.0**40  # integers below it are taken as they are; so many of them still fit 64 bits: 2^23


@dataclass(frozen=True, slots=True, eq=False)
class ExactSum:
    """An array of exact sums. parts: {exponent: int64 array}, the value is the sum of array * 2^exponent, times
    2^exponents elementwise.

    special: the sum of the infinities and NaNs among the addends (0 elsewhere), None where there are none.
    """

    parts: dict[int, AnyArray]
    special: AnyArray | None = None
    exponents: AnyArray | None = None

    @staticmethod
    def of(values: AnyArray) -> ExactSum:
        """An exact sum of one addend: integers, or floats (including infinities and NaNs)."""
        if values.dtype.kind == "i":
            return ExactSum({0: values.astype(np.int64)})
        rest, special = values.astype(np.float64), None
        finite = np.isfinite(rest)
        if not finite.all():
            special, rest = np.where(finite, 0.0, rest), np.where(finite, rest, 0.0)
        largest = float(np.abs(rest).max(initial=0))
        if largest < WHOLE and np.array_equal(rest, np.trunc(rest)):
            return ExactSum({0: rest.astype(np.int64)}, special)
        parts = {}
        place = -(-int(np.frexp(largest)[1]) // DIGIT) * DIGIT - DIGIT
        while rest.any():
            digit = np.trunc(np.ldexp(rest, -place))
            parts[place] = digit.astype(np.int64)
            rest = rest - np.ldexp(digit, place)
            place -= DIGIT
        return ExactSum(parts or {0: np.zeros_like(rest, np.int64, order="C")}, special)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the arrays."""
        return next(iter(self.parts.values())).shape

    def plus(self, other: ExactSum) -> ExactSum:
        """The exact sum of both (neither may be scaled elementwise)."""
        parts = dict(self.parts)
        for place, part in other.parts.items():
            parts[place] = parts[place] + part if place in parts else part
        if self.special is None or other.special is None:
            special = self.special if other.special is None else other.special
        else:
            with np.errstate(invalid="ignore"):
                special = self.special + other.special
        return ExactSum(parts, special)

    def scaled(self, exponent: int) -> ExactSum:
        """The sum times 2^exponent."""
        return ExactSum({place + exponent: part for place, part in self.parts.items()}, self.special)

    def raised(self, exponents: AnyArray) -> ExactSum:
        """The sum times 2^exponents, elementwise."""
        return ExactSum(self.parts, self.special, exponents)

    def rounded(self, fmt: Format, *, saturate: bool = False) -> AnyArray:
        """Codes of the value in a signed float format, rounded once to nearest even; no sum gives -0.

        saturate: the largest finite value in place of infinities (those among the addends too). Formats without
        infinities have a NaN there, or the largest finite value where they have none either.
        """
        digits, base = self._digits()
        negative = digits[-1] < 0
        digits = np.where(negative, -digits, digits)
        _carry(digits)
        window, rest, place = _leading(digits)
        exponent = place + base
        if self.exponents is not None:
            exponent = exponent + self.exponents
        magnitude = _magnitude(window, rest, exponent, fmt)
        is_signed = negative & (window != 0)
        if fmt.nan == "minus_zero":  # there is no -0
            is_signed &= magnitude != 0
        word = magnitude | is_signed.astype(U64) << U64(fmt.magnitude_bits)
        codes: AnyArray = (word << U64(fmt.ignored_bits)).astype(code_dtype(fmt))
        over = magnitude > U64(fmt.largest_magnitude)
        for sign in (0, 1):
            codes[over & (negative == bool(sign))] = _infinity(fmt, sign, saturate)
        if self.special is not None:
            self._mark(codes, fmt, saturate)
        return codes

    def _digits(self) -> tuple[AnyArray, int]:
        """The sum in digits of 32 bits, lowest first, all but the last non-negative; and the place of the lowest."""
        base = min(self.parts)
        count = (max(self.parts) - base) // DIGIT + 4
        digits = np.zeros_like(self.parts[base], np.int64, order="C", shape=(count, *self.shape))
        for place, part in self.parts.items():
            at, shift = divmod(place - base, DIGIT)
            low, high = (part & MASK) << shift, (part >> DIGIT) << shift
            digits[at] += low & MASK
            digits[at + 1] += (low >> DIGIT & MASK) + (high & MASK)
            digits[at + 2] += high >> DIGIT
        _carry(digits)
        return digits, base

    def _mark(self, codes: AnyArray, fmt: Format, saturate: bool) -> None:
        assert self.special is not None
        special = np.broadcast_to(self.special, codes.shape)
        for sign in (0, 1):
            where = np.isinf(special) & (np.signbit(special) == bool(sign))
            codes[where] = _infinity(fmt, sign, saturate)
        codes[np.isnan(special)] = 0 if saturate else fmt.nan_code


def _infinity(fmt: Format, sign: int, saturate: bool) -> int:
    """What a float format has for an infinity: without one a NaN, or the largest finite value."""
    return round_to(fmt, Exact("infinity", sign), "RNE", overflow="saturate" if saturate else "ieee")


def _carry(digits: AnyArray) -> None:
    for i in range(len(digits) - 1):
        digits[i + 1] += digits[i] >> DIGIT
        digits[i] &= MASK


def _leading(digits: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray]:
    """The 64 bits from the leading set bit on (uint64), whether any bit below them is set, and the position of the
    leading one.
    """
    count = len(digits)
    first = (count - 1) - np.argmax(digits[::-1] != 0, axis=0)
    below = np.zeros_like(first, bool)
    for i in range(count - 3):
        below |= (digits[i] != 0) & (i < first - 2)
    head, second, third = (
        np.where(first >= i, np.take_along_axis(digits, np.maximum(first - i, 0)[None], 0)[0], 0).astype(U64)
        for i in range(3)
    )
    length = np.frexp(head.astype(np.float64))[1].astype(np.int64)  # of the head: 1 to 32, 0 for zero
    up = (DIGIT - length).astype(U64)
    down = length.astype(U64)
    window = (head << (up + U64(DIGIT))) | second << up | third >> down
    window = np.where(length == 0, U64(0), window)
    below |= (third & ((U64(1) << down) - U64(1))) != 0
    return window, below, first.astype(np.int64) * DIGIT + length - 1


def _magnitude(window: AnyArray, below: AnyArray, exponent: AnyArray, fmt: Format) -> AnyArray:
    """The exponent and fraction fields of a 64-bit significand (leading bit set) at an exponent, rounded to nearest
    even.
    """
    drop = 64 - fmt.precision + np.maximum(fmt.min_exponent - exponent, 0)
    cut = np.minimum(drop, 63).astype(U64)
    shifted = np.where(drop < 64, window >> cut, U64(0))
    rest = np.where(drop < 64, window & ((U64(1) << cut) - U64(1)), window)
    half = U64(1) << np.minimum(drop - 1, 63).astype(U64)
    is_up = (rest > half) | ((rest == half) & (below | (shifted & U64(1) == U64(1))))
    shifted = shifted + (is_up & (drop <= 64)).astype(U64)
    raised = np.minimum(np.maximum(exponent, fmt.min_exponent) - fmt.min_exponent, 1 << 20).astype(U64)
    magnitude: AnyArray = np.where(window == 0, U64(0), (raised << U64(fmt.fraction_bits)) + shifted)
    return magnitude
