"""Numbers and arithmetic outside the matrix unit: exact values, and one rounding per operation.

It knows formats and a device's special values; it knows no plan and no schedule.
"""

import math
from dataclasses import dataclass

from hwsim.formats import Exact, decode, format_of, round_to

NAN = Exact("nan", 0)
ZERO = Exact("finite", 0)


def finite(value, sign_of_zero=0):
    """An exact value from (integer, exponent of its last place)."""
    integer, place = value
    return Exact("finite", int(integer < 0) if integer else sign_of_zero, abs(integer), place)


def is_zero(x):
    return x.kind == "finite" and not x.significand


def signed(x):
    return -x.significand if x.sign else x.significand


def plus(x, y):
    """x + y, exact; IEEE's infinities, NaNs and signs of zero (to nearest)."""
    if "nan" in (x.kind, y.kind):
        return NAN
    if "infinity" in (x.kind, y.kind):
        if x.kind == y.kind and x.sign != y.sign:
            return NAN
        return x if x.kind == "infinity" else y
    if is_zero(x) and is_zero(y):
        return Exact("finite", x.sign & y.sign)
    if is_zero(x) or is_zero(y):
        return y if is_zero(x) else x
    place = min(x.exponent, y.exponent)
    total = (signed(x) << x.exponent - place) + (signed(y) << y.exponent - place)
    return finite((total, place))


def times(x, y):
    """x * y, exact."""
    sign = x.sign ^ y.sign
    if "nan" in (x.kind, y.kind):
        return NAN
    if "infinity" in (x.kind, y.kind):
        return NAN if is_zero(x) or is_zero(y) else Exact("infinity", sign)
    return Exact("finite", sign, x.significand * y.significand, x.exponent + y.exponent)


def raised(x, exponent):
    """x * 2^exponent, exact."""
    return x if x.kind != "finite" else Exact("finite", x.sign, x.significand, x.exponent + exponent)


def of_float(value):
    """The exact value of a Python float."""
    if value != value:
        return NAN
    if value in (float("inf"), float("-inf")):
        return Exact("infinity", int(value < 0))
    top, below = abs(value).as_integer_ratio()
    return Exact("finite", int(math.copysign(1, value) < 0), top, 1 - below.bit_length())


def wrapped(value, bits):
    """An integer as two's complement of so many bits."""
    half = 1 << bits - 1
    return (value + half) % (1 << bits) - half


@dataclass(frozen=True)
class Conversions:
    """A device's conversions to narrower formats: saturates: beyond the range lies the largest number; nan_is_zero;
    all_ones: of pieces, a NaN has all bits set but the sign, as the unit gives it.
    """

    saturates: bool
    nan_is_zero: bool
    all_ones: bool = False

    def code(self, value, fmt, rounding="RNE", overflow=None, all_ones=False):
        """The code of a value in a format, rounded once."""
        known = format_of(fmt)
        if value.kind == "nan":
            if self.nan_is_zero or known.is_integer or known.nan == "none":
                return round_to(known, ZERO, "RNE", overflow="saturate")
            if (all_ones or self.all_ones) and known.nan == "ieee" and known.signed:
                return ((1 << known.bits - 1) - 1) >> known.ignored_bits << known.ignored_bits
            return known.nan_code
        return round_to(known, value, rounding, overflow=overflow or ("saturate" if self.saturates else "ieee"))


class Floats:
    """Lanes that round each operation to nearest even in fp32 or fp64.

    all_ones: a NaN has all bits set but the sign, as NVIDIA's units give it; else it is the format's default.
    """

    exact = False

    def __init__(self, fmt, conversions, all_ones):
        self.format, self.conversions, self.all_ones = fmt, conversions, all_ones
        self.zero = ZERO

    def settled(self, x):
        """The value as these lanes read it."""
        if not self.conversions.saturates or x.kind == "finite":
            return x
        if x.kind == "nan":
            return ZERO
        return decode(format_of(self.format), format_of(self.format).largest_code(x.sign))

    def rounded(self, x):
        """The value rounded to the working type."""
        if x.kind == "finite":
            x = decode(format_of(self.format), round_to(format_of(self.format), x, "RNE", overflow="ieee"))
        return self.settled(x)

    def add(self, x, y):
        return self.rounded(plus(self.settled(x), self.settled(y)))

    def factor(self, value):
        """A number of the host's, rounded to the working type."""
        x = of_float(float(value))
        known = format_of(self.format)
        return x if x.kind != "finite" else decode(known, round_to(known, x, "RNE", overflow="ieee"))

    def multiply(self, factor, x):
        return self.rounded(times(self.factor(factor), self.settled(x)))

    def fused(self, factor, x, y):
        return self.rounded(plus(times(self.factor(factor), self.settled(x)), self.settled(y)))

    def scaled(self, x, exponent):
        return self.rounded(raised(self.settled(x), exponent))

    def narrowed(self, x, fmt):
        """The value rounded to a narrower format; wider ones change nothing."""
        if format_of(fmt).bits >= format_of(self.format).bits:
            return x
        return self.settled(decode(format_of(fmt), self.conversions.code(x, fmt, all_ones=self.all_ones)))

    def store(self, x, fmt, rounding="RNE"):
        """The code of a value in a format."""
        known, own = format_of(fmt), format_of(self.format)
        if x.kind == "nan" and fmt in (self.format, "fp64") and not self.conversions.saturates:
            code = (1 << own.bits - 1) - 1 if self.all_ones else own.nan_code
            payload = (code & (1 << own.fraction_bits) - 1) << known.fraction_bits - own.fraction_bits
            return known.nan_code | payload  # kept by what widens it
        return self.conversions.code(x, fmt, rounding, all_ones=self.all_ones)


class Integers:
    """Two's complement of 32 or 64 bits that wraps."""

    exact = False

    def __init__(self, fmt):
        self.format, self.bits, self.zero = fmt, format_of(fmt).bits, 0

    def add(self, x, y):
        return wrapped(x + y, self.bits)

    def scaled(self, x, exponent):
        return wrapped(x << exponent, self.bits)


class Exactly:
    """Sums that are not rounded."""

    exact = True

    def __init__(self, fmt, conversions):
        self.format, self.conversions, self.zero = fmt, conversions, ZERO

    def add(self, x, y):
        return plus(x, y)

    def scaled(self, x, exponent):
        return raised(x, exponent)
