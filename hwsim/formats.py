"""Number formats: descriptions, decoding to exact values, encoding, and the rounding functions that all of hwsim uses.

A code is the bit pattern of a number, an unsigned integer of the format's storage width. An exact value is held in
Python integers. Nothing here knows dot units, devices or result arrays; every other rounding in the package goes
through `round_shift` and `round_to`.

Sources: IEEE 754-2019 (fp64, fp32, fp16); PTX ISA (tf32, bf16, the e-m formats and ue8m0, ue4m3); OCP 8-bit Floating
Point 1.0 (e4m3, e5m2); OCP Microscaling Formats 1.0 (e3m2, e2m3, e2m1, ue8m0); AMD CDNA3 instruction set (e4m3fnuz,
e5m2fnuz); CANN documents (hf32: 11 fraction bits).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from operator import index
from types import MappingProxyType
from typing import Any, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

from hwsim.errors import InputError, nearest

NumberKind = Literal["finite", "infinity", "nan"]
Rounding = Literal["RNE", "RNA", "RZ", "RU", "RD"]
Overflow = Literal["ieee", "infinity", "saturate"]
NanEncoding = Literal["ieee", "all_ones", "minus_zero", "none"]

ROUNDINGS: tuple[Rounding, ...] = ("RNE", "RNA", "RZ", "RU", "RD")
WORD_BITS = 32  # of fp32 and int32
BYTE_BITS = 8
#: What to do with two 4-bit codes in a byte.
PACKED = "; np.stack([x & 15, x >> 4], -1).reshape(*x.shape[:-1], -1) unpacks two in a byte along the last axis"


@dataclass(frozen=True, slots=True)
class Format:
    """The description of one number format: field widths, exponent bias, and how it encodes infinities, NaNs and
    subnormals.

    bits: storage width of a code. The code's fields are, from the top: unused bits (ue4m3), sign,
        exponent, fraction, `ignored_bits` (tf32 in its 32-bit word).
    exponent_bits: 0 for an integer (two's complement when signed).
    bias: exponent = biased exponent - bias.
    nan: "ieee" exponent all ones and fraction not zero; "all_ones" exponent and fraction all ones;
        "minus_zero" the code of -0 (there is no -0 then); "none".
    subnormals: biased exponent 0 means zero and subnormals; False: it is an exponent like any other, and
        the format has no zero (ue8m0).
    ignored_bits: low bits of the word that a unit does not read; written as zero.
    dtype_name: dtype of an array of the format, NumPy's name, or ml_dtypes' where NumPy has none.

    Made of these once, as decoding asks for them with each code:
    is_integer: whether it is a two's complement or unsigned integer.
    magnitude_bits: width of the exponent and fraction fields together.
    largest_magnitude: exponent and fraction fields of the largest finite number, as one integer.
    min_exponent: lowest exponent of a normal number, also of every subnormal and of zero.
    """

    name: str
    bits: int
    exponent_bits: int
    fraction_bits: int
    bias: int
    signed: bool
    has_infinity: bool
    nan: NanEncoding
    dtype_name: str
    subnormals: bool = True
    ignored_bits: int = 0
    is_integer: bool = field(init=False, repr=False, compare=False)
    magnitude_bits: int = field(init=False, repr=False, compare=False)
    largest_magnitude: int = field(init=False, repr=False, compare=False)
    min_exponent: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        bits = self.exponent_bits + self.fraction_bits
        all_ones = (1 << bits) - 1
        largest = all_ones - 1 if self.nan == "all_ones" else all_ones
        if self.has_infinity:
            largest = all_ones - (1 << self.fraction_bits)
        object.__setattr__(self, "is_integer", self.exponent_bits == 0)
        object.__setattr__(self, "magnitude_bits", bits)
        object.__setattr__(self, "largest_magnitude", largest)
        object.__setattr__(self, "min_exponent", 1 - self.bias if self.subnormals else -self.bias)

    def holds(self, other: Format) -> bool:
        """Whether both are float formats, and this one has all values of the other one, -0 and infinities too."""
        is_float = not self.is_integer and not other.is_integer
        is_marked = self._has_minus_zero >= other._has_minus_zero and self.has_infinity >= other.has_infinity
        return is_float and is_marked and self.has_numbers_of(other)

    def has_numbers_of(self, other: Format) -> bool:
        """Whether it has all finite numbers of another format, which may be integers; both zeros are one number."""
        if self.signed < other.signed or self.subnormals < other.subnormals:
            return False
        digits = other.precision - other.is_integer  # the lowest integer, a power of two, has one
        is_precise = self.is_integer or self.precision >= digits
        return is_precise and self._last_place <= other._last_place and self._largest >= other._largest

    @property
    def _has_minus_zero(self) -> bool:
        return self.signed and self.subnormals and self.nan != "minus_zero" and not self.is_integer

    @property
    def _last_place(self) -> int:
        """Exponent of the last place of the smallest numbers."""
        return 0 if self.is_integer else self.min_exponent - self.fraction_bits

    @property
    def _largest(self) -> Fraction:
        """The largest magnitude of a finite number."""
        if self.is_integer:
            return Fraction((1 << self.fraction_bits) - (not self.signed))
        fraction = self.largest_magnitude & ((1 << self.fraction_bits) - 1)
        return Fraction((1 << self.fraction_bits) + fraction) * Fraction(2) ** (self.max_exponent - self.fraction_bits)

    @property
    def precision(self) -> int:
        """Significand bits of a normal number, including the leading one."""
        return self.fraction_bits + 1

    @property
    def max_exponent(self) -> int:
        """Exponent of the largest finite number."""
        return (self.largest_magnitude >> self.fraction_bits) - self.bias

    def word(self, sign: int, magnitude: int) -> int:
        """The code with this sign bit (ignored for an unsigned format) and exponent-and-fraction field."""
        return ((sign if self.signed else 0) << self.magnitude_bits | magnitude) << self.ignored_bits

    def zero_code(self, sign: int = 0) -> int:
        """Code of zero; +0 where the format has no -0. Raises InputError for a format without zero."""
        if not self.subnormals:
            raise InputError(f"format {self.name} has no zero")
        return self.word(sign if self._has_minus_zero else 0, 0)

    def largest_code(self, sign: int = 0) -> int:
        """Code of the largest finite number of this sign."""
        if self.is_integer and self.signed and sign:
            return 1 << self.fraction_bits
        return self.word(sign, self.largest_magnitude)

    def infinity_code(self, sign: int = 0) -> int:
        """Code of an infinity. Raises InputError for a format without infinities."""
        if not self.has_infinity:
            raise InputError(f"format {self.name} has no infinity")
        return self.word(sign, self.largest_magnitude + 1)

    @property
    def nan_code(self) -> int:
        """Code of the default quiet NaN, sign bit clear. Raises InputError for a format without NaN."""
        all_ones = (1 << self.magnitude_bits) - 1
        match self.nan:
            case "ieee":
                return self.word(0, self.largest_magnitude + 1 + (1 << self.fraction_bits - 1))
            case "all_ones":
                return self.word(0, all_ones)
            case "minus_zero":
                return self.word(1, 0)
            case "none":
                raise InputError(f"format {self.name} has no NaN")


def _table(*formats: Format) -> Mapping[str, Format]:
    return MappingProxyType({fmt.name: fmt for fmt in formats})


def _float(
    name: str, bits: int, exponent_bits: int, fraction_bits: int, *, nan: NanEncoding, signed: bool = True, **more: Any
) -> Format:
    """A format of floats. It has infinities exactly where NaNs are IEEE's."""
    return Format(
        name,
        bits=bits,
        exponent_bits=exponent_bits,
        fraction_bits=fraction_bits,
        signed=signed,
        has_infinity=nan == "ieee",
        nan=nan,
        **more,
    )


def _integer(name: str, bits: int, *, signed: bool, dtype_name: str) -> Format:
    return Format(
        name,
        bits=bits,
        exponent_bits=0,
        fraction_bits=bits - signed,
        bias=0,
        signed=signed,
        has_infinity=False,
        nan="none",
        dtype_name=dtype_name,
    )


#: A format named by its widths: e8m10.
SHAPE = re.compile(r"e(\d{1,3})m(\d{1,3})")
#: Every format, by name.
FORMATS: Mapping[str, Format] = _table(
    _float("fp64", 64, 11, 52, bias=1023, nan="ieee", dtype_name="float64"),
    _float("fp32", 32, 8, 23, bias=127, nan="ieee", dtype_name="float32"),
    _float("tf32", 32, 8, 10, bias=127, nan="ieee", dtype_name="float32", ignored_bits=13),
    _float("hf32", 32, 8, 11, bias=127, nan="ieee", dtype_name="float32", ignored_bits=12),
    _float("e8m13", 32, 8, 13, bias=127, nan="ieee", dtype_name="float32", ignored_bits=10),
    _float("fp16", 16, 5, 10, bias=15, nan="ieee", dtype_name="float16"),
    _float("bf16", 16, 8, 7, bias=127, nan="ieee", dtype_name="bfloat16"),
    _float("e5m2", 8, 5, 2, bias=15, nan="ieee", dtype_name="float8_e5m2"),
    _float("e4m3", 8, 4, 3, bias=7, nan="all_ones", dtype_name="float8_e4m3fn"),
    _float("e5m2fnuz", 8, 5, 2, bias=16, nan="minus_zero", dtype_name="float8_e5m2fnuz"),
    _float("e4m3fnuz", 8, 4, 3, bias=8, nan="minus_zero", dtype_name="float8_e4m3fnuz"),
    _float("e3m2", 6, 3, 2, bias=3, nan="none", dtype_name="float6_e3m2fn"),
    _float("e2m3", 6, 2, 3, bias=1, nan="none", dtype_name="float6_e2m3fn"),
    _float("e2m1", 4, 2, 1, bias=1, nan="none", dtype_name="float4_e2m1fn"),
    _float("ue8m0", 8, 8, 0, bias=127, nan="all_ones", dtype_name="float8_e8m0fnu", signed=False, subnormals=False),
    _float("ue4m3", 8, 4, 3, bias=7, nan="all_ones", dtype_name="float8_e4m3fn", signed=False),
    _integer("int64", 64, signed=True, dtype_name="int64"),
    _integer("int32", 32, signed=True, dtype_name="int32"),
    _integer("int16", 16, signed=True, dtype_name="int16"),
    _integer("int8", 8, signed=True, dtype_name="int8"),
    _integer("uint8", 8, signed=False, dtype_name="uint8"),
    _integer("int4", 4, signed=True, dtype_name="int4"),
)


def format_of(name: str) -> Format:
    """The format of this name. Raises InputError for an unknown name and suggests the nearest one."""
    try:
        return FORMATS[name]
    except KeyError:
        allowed = tuple(FORMATS)
        hint = nearest_format(name, allowed)
        raise InputError(f"{name!r} is not a format; allowed: {', '.join(allowed)}{hint}") from None


def nearest_format(name: str, allowed: Collection[str]) -> str:
    """A hint at the format that was meant, or an empty string.

    Of a shape as e8m10 it is the format of that shape, or those with as many exponent bits.
    """
    shape = SHAPE.fullmatch(name)
    if shape is None or name in allowed:
        return nearest(name, list(allowed))
    exponent, fraction = int(shape[1]), int(shape[2])
    alike = [
        other
        for other in map(FORMATS.__getitem__, allowed)
        if other.exponent_bits == exponent and other.signed and not other.is_integer
    ]
    same = [repr(other.name) for other in alike if other.fraction_bits == fraction]
    if same:
        return f"; {name} is {' or '.join(same)}"
    if not alike:
        return ""
    shapes = ", ".join(f"{other.name} has {other.fraction_bits}" for other in alike)
    close = nearest(name, [other.name for other in alike])
    return f"{close}{' F' if close else '; f'}raction bits of formats with {exponent} exponent bits: {shapes}"


@dataclass(frozen=True, slots=True)
class Exact:
    """An exact value: (-1)^sign * significand * 2^exponent, an infinity of that sign, or a NaN.

    `exponent` is the weight of the significand's last place and is not normalised: from `decode` it is the
    format's exponent less its fraction bits, for subnormals and zero as well. Two records may therefore
    differ and have one value; compare `fraction`.
    """

    kind: NumberKind
    sign: int
    significand: int = 0
    exponent: int = 0

    @property
    def fraction(self) -> Fraction:
        """The finite value as a fraction (zero loses its sign). Raises InputError for others."""
        if self.kind != "finite":
            raise InputError(f"{self.kind} has no finite value")
        magnitude = Fraction(self.significand) * Fraction(2) ** self.exponent
        return -magnitude if self.sign else magnitude


def decode(fmt: Format, code: int) -> Exact:
    """The exact value of a code; ignored and unused bits have no influence, and of a NaN only the sign is kept.

    Raises InputError when `code` does not fit the storage width.
    """
    if not 0 <= code < 1 << fmt.bits:
        raise InputError(f"code {code:#x} does not fit the {fmt.bits} bits of {fmt.name}")
    word = index(code) >> fmt.ignored_bits  # NumPy's integers would overflow below
    magnitude = word & ((1 << fmt.magnitude_bits) - 1)
    sign = word >> fmt.magnitude_bits & 1 if fmt.signed else 0
    if fmt.is_integer:
        return Exact("finite", sign, (1 << fmt.fraction_bits) - magnitude if sign else magnitude)
    if _is_nan(fmt, sign, magnitude):
        return Exact("nan", sign)
    if magnitude > fmt.largest_magnitude:
        return Exact("infinity", sign)
    biased, fraction = divmod(magnitude, 1 << fmt.fraction_bits)
    hidden = 0 if fmt.subnormals and biased == 0 else 1 << fmt.fraction_bits
    exponent = max(biased - fmt.bias, fmt.min_exponent)
    return Exact("finite", sign, hidden + fraction, exponent - fmt.fraction_bits)


def _is_nan(fmt: Format, sign: int, magnitude: int) -> bool:
    match fmt.nan:
        case "ieee":
            return magnitude > fmt.largest_magnitude + 1
        case "all_ones":
            return magnitude > fmt.largest_magnitude
        case "minus_zero":
            return sign == 1 and magnitude == 0
        case "none":
            return False


#: Whether a magnitude `kept`, of which `rest` (not zero; half a last place is `half`) is cut, goes up.
_GOES_UP: Mapping[Rounding, Callable[[int, int, int, int], bool]] = MappingProxyType(
    {
        "RNE": lambda truncated, rest, half, sign: rest > half or (rest == half and truncated & 1 == 1),
        "RNA": lambda truncated, rest, half, sign: rest >= half,
        "RZ": lambda truncated, rest, half, sign: False,
        "RU": lambda truncated, rest, half, sign: sign == 0,
        "RD": lambda truncated, rest, half, sign: sign == 1,
    }
)


def round_shift(significand: int, shift: int, rounding: Rounding, sign: int = 0) -> int:
    """significand / 2^shift rounded to an integer; `sign` is the sign of the number whose magnitude it is.

    A negative shift multiplies, exactly. RNE, RNA: to nearest, ties to even or away from zero; RZ toward
    zero; RU, RD toward plus and minus infinity.
    """
    if shift <= 0:
        return significand << -shift
    truncated = significand >> shift
    rest = significand - (truncated << shift)
    return truncated + (rest != 0 and _GOES_UP[rounding](truncated, rest, 1 << (shift - 1), sign))


def round_to(fmt: Format, exact: Exact, rounding: Rounding, *, overflow: Overflow = "infinity") -> int:
    """Code of `exact` in `fmt`, rounded once; subnormals are kept.

    overflow, for a finite value that rounds beyond the largest finite number:
        "ieee"      infinity or the largest finite number, by the direction of the rounding (IEEE 754, 7.4);
        "infinity"  always infinity (NVIDIA's toward-zero step, MI300's adder);
        "saturate"  always the largest finite number; an infinity becomes that too (OCP's saturating casts).
    Where "ieee" or "infinity" asks for an infinity that the format has not, the result is its NaN (OCP's
    non-saturating e4m3, the FNUZ formats) or, without a NaN either, the largest finite number (OCP MX's
    4- and 6-bit formats; integers).
    NaN: the default quiet NaN. Zero keeps its sign where the format has -0. Below zero, an unsigned
    floating-point format gives NaN and an unsigned integer zero. ue8m0 has no zero: zero gives NaN, and a
    value that rounds below its least power of two gives that.
    Raises InputError for a NaN into a format without one.
    """
    if exact.kind == "nan":
        return fmt.nan_code
    if exact.kind == "infinity":
        return _beyond(fmt, exact.sign, to_infinity=overflow != "saturate")
    if exact.significand == 0:
        return fmt.zero_code(exact.sign) if fmt.subnormals else fmt.nan_code
    if fmt.is_integer:
        return _round_to_integer(fmt, exact, rounding)
    if exact.sign and not fmt.signed:
        return fmt.nan_code
    exponent = max(exact.significand.bit_length() - 1 + exact.exponent, fmt.min_exponent)
    last_place = exponent - fmt.fraction_bits
    truncated = round_shift(exact.significand, last_place - exact.exponent, rounding, exact.sign)
    # A carry out of `kept`, or out of the subnormals, lands in the exponent field by itself.
    hidden = 0 if fmt.subnormals else 1 << fmt.fraction_bits
    magnitude = max(((exponent - fmt.min_exponent) << fmt.fraction_bits) + truncated - hidden, 0)
    if magnitude > fmt.largest_magnitude:
        return _beyond(
            fmt,
            exact.sign,
            to_infinity=overflow == "infinity"
            or (overflow == "ieee" and (rounding in ("RNE", "RNA") or rounding == ("RD" if exact.sign else "RU"))),
        )
    return fmt.zero_code(exact.sign) if magnitude == 0 and fmt.subnormals else fmt.word(exact.sign, magnitude)


def _beyond(fmt: Format, sign: int, *, to_infinity: bool) -> int:
    """The code that replaces a magnitude above the largest finite number."""
    if to_infinity and fmt.has_infinity:
        return fmt.infinity_code(sign)
    if sign and not fmt.signed:
        return fmt.zero_code() if fmt.is_integer else fmt.nan_code
    if to_infinity and fmt.nan != "none":
        return fmt.nan_code
    return fmt.largest_code(sign)


def _round_to_integer(fmt: Format, exact: Exact, rounding: Rounding) -> int:
    magnitude = round_shift(exact.significand, -exact.exponent, rounding, exact.sign)
    value = -magnitude if exact.sign else magnitude
    top = 1 << fmt.fraction_bits
    return min(max(value, -top if fmt.signed else 0), top - 1) % (1 << fmt.bits)


def encode(fmt: Format, exact: Exact) -> int:
    """The code of exactly this value (for a NaN, the default quiet NaN).

    Raises InputError when the format has no such value; -0 is not +0 here.
    """
    if exact.kind == "nan":
        return fmt.nan_code
    if exact.kind == "infinity":
        return fmt.infinity_code(exact.sign)
    code = round_to(fmt, exact, "RZ", overflow="saturate")
    back = decode(fmt, code)
    low = min(back.exponent, exact.exponent)
    is_same = back.significand << back.exponent - low == exact.significand << exact.exponent - low
    if back.kind != "finite" or back.sign != exact.sign or not is_same:
        value = f"{'-' if exact.sign else ''}{exact.significand} * 2^{exact.exponent}"
        raise InputError(f"{fmt.name} has no code for {value}; round it first (round_to)")
    return code


_CODES: dict[int, np.dtype[Any]] = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


def code_dtype(fmt: Format) -> np.dtype[Any]:
    """The unsigned dtype with one code per element: uint8 for 4- and 6-bit formats, otherwise of the storage width."""
    return _CODES[max(fmt.bits, 8) // 8]


def array_dtype(fmt: Format) -> np.dtype[Any]:
    """The dtype of an array of values: NumPy's own, or ml_dtypes' where NumPy has none."""
    return _dtype(fmt.dtype_name)


@cache
def _dtype(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype


def codes_of(array: npt.NDArray[Any], fmt: Format) -> npt.NDArray[Any]:
    """Codes of a typed array, any shape: a view; of typed int4 a copy, whose high bits are clear.

    An array of the code dtype is taken as codes already. Raises InputError for any other dtype, and for a code of more
    bits than the format's; high bits of typed int4 may be copies of its sign.
    """
    if array.dtype not in (array_dtype(fmt), code_dtype(fmt)):
        raise InputError(
            f"an array of {fmt.name} has dtype {array_dtype(fmt)}, or {code_dtype(fmt)} for codes; got {array.dtype}"
        )
    codes = array.view(code_dtype(fmt))
    if fmt.bits >= BYTE_BITS:
        return codes
    if fmt.is_integer and array.dtype == array_dtype(fmt) and array.dtype != code_dtype(fmt):
        _check_width(np.where(codes >= (1 << BYTE_BITS) - (1 << fmt.fraction_bits), 0, codes), fmt)
        return codes & np.uint8((1 << fmt.bits) - 1)
    _check_width(codes, fmt)
    return codes


def _check_width(codes: npt.NDArray[Any], fmt: Format) -> None:
    """Raise InputError for a code in a byte that has more bits than the format."""
    high_bits = codes & np.uint8((1 << BYTE_BITS) - (1 << fmt.bits))
    if not high_bits.any():
        return
    number = int(np.argmax(high_bits.reshape(-1) != 0))
    code = int(codes.reshape(-1)[number : number + 1].max())
    place = f" at {list(map(int, np.unravel_index(number, codes.shape)))}" if codes.ndim else ""
    packed = PACKED if 2 * fmt.bits == BYTE_BITS else ""
    raise InputError(
        f"{code:#04x}{place} is no code of {fmt.name}, which has {fmt.bits} bits; "
        f"allowed: a byte for each element, below {1 << fmt.bits:#x}{packed}"
    )


def array_of(codes: npt.NDArray[Any], fmt: Format) -> npt.NDArray[Any]:
    """Typed view of an array of codes, any shape. Raises InputError unless its dtype is `code_dtype(fmt)`."""
    if codes.dtype != code_dtype(fmt):
        raise InputError(f"codes of {fmt.name} have dtype {code_dtype(fmt)}; got {codes.dtype}")
    return codes.view(array_dtype(fmt))
