"""Parses operands of one instruction on the command line: lists of codes and numbers, or .npy files.

It knows formats and how numbers are written; it knows no device.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError
from hwsim.formats import Exact, Format, array_dtype, code_dtype, decode, format_of, round_to
from hwsim.report.text.number_text import code_text, decimal

FORMS = "codes as 0x3c00, numbers as 1.5, -2e-3, 0x1.8p+3, inf, nan; v: before a number is allowed, as v:-1"
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,4})?", re.IGNORECASE)
_HEX_FLOAT = re.compile(r"([+-]?)0x([0-9a-f]+)(?:\.([0-9a-f]*))?p([+-]?\d{1,5})", re.IGNORECASE)
_CODE = re.compile(r"0x[0-9a-f]+", re.IGNORECASE)
GUARD = 1200  # binary places of a decimal number that are looked at: below the last of every format, and then some


@dataclass(frozen=True, slots=True)
class Operands:
    """The codes of a list, and a note for each number that had to be rounded."""

    codes: list[int]
    notes: list[str]


def read_list(option: str, text: str, fmt: str) -> Operands:
    """The codes of a comma-separated list of numbers in a format. Raises InputError for invalid text."""
    number_format = format_of(fmt)
    codes, notes = [], []
    for index, word in enumerate(text.split(",")):
        code, rounded = _code_of(option, word.strip(), number_format)
        codes.append(code)
        if rounded:
            value = decode(number_format, code)
            shown = {"nan": "NaN", "infinity": "-infinity" if value.sign else "infinity"}.get(value.kind)
            shown = shown or decimal(value.sign, value.significand, value.exponent)
            notes.append(
                f"{option.lstrip('-')}[{index}] = {word.strip()} is not in {fmt}: rounded to nearest even to "
                f"{code_text(code, number_format.bits)} = {shown}"
            )
    return Operands(codes, notes)


def read_one(option: str, text: str, fmt: str) -> Operands:
    """As `read_list`, for exactly one number."""
    operands = read_list(option, text, fmt)
    if len(operands.codes) != 1:
        raise InputError(f"{option}: one value is needed; got {len(operands.codes)}")
    return operands


def _code_of(option: str, word: str, fmt: Format) -> tuple[int, bool]:
    """The code of one word, and whether it was rounded."""
    if _CODE.fullmatch(word):
        code = int(word, 16)
        if code >> fmt.bits:
            raise InputError(f"{option}: {word} does not fit the {fmt.bits} bits of {fmt.name}")
        return code, False
    number = word.removeprefix("v:")
    lowered = number.lower()
    if lowered in ("nan", "inf", "+inf", "-inf", "infinity", "-infinity"):
        kind = "nan" if lowered == "nan" else "infinity"
        if (kind == "nan" and fmt.nan == "none") or (kind == "infinity" and not fmt.has_infinity):
            raise InputError(f"{option}: {fmt.name} has no {kind}")
        return (fmt.nan_code if kind == "nan" else fmt.infinity_code(int(lowered[0] == "-"))), False
    value = _value(number)
    if value is None:
        raise InputError(f"{option}: {word!r} is no operand of {fmt.name}; allowed: {FORMS}, with commas between")
    negative = number.startswith("-")
    code = round_to(fmt, _exact(value, negative), "RNE", overflow="ieee")
    back = decode(fmt, code)
    return code, back.kind != "finite" or back.fraction != value


def _value(number: str) -> Fraction | None:
    match = _HEX_FLOAT.fullmatch(number)
    if match is not None:
        sign, whole, part, exponent = match.groups()
        part = part or ""
        magnitude = Fraction(int(whole + part, 16)) * Fraction(2) ** (int(exponent) - 4 * len(part))
        return -magnitude if sign == "-" else magnitude
    return Fraction(number) if _NUMBER.fullmatch(number) else None


def _exact(value: Fraction, negative: bool) -> Exact:
    """The value to GUARD binary places plus a sticky bit, so that it rounds as the exact value does."""
    whole, rest = divmod(abs(value.numerator) << GUARD, value.denominator)
    return Exact("finite", int(negative), whole << 1 | int(rest != 0), -GUARD - 1)


def is_file(text: str | None) -> bool:
    """Whether an operand is given as a .npy file."""
    return text is not None and text.endswith(".npy")


def read_array(option: str, path: Path, fmt: str) -> NDArray[Any]:
    """The array of a .npy file, for an operand of a format.

    NumPy writes ml_dtypes' types without their names: such an array of the format's width is taken as values of it.
    Raises InputError for an invalid file.
    """
    try:
        array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise InputError(f"{option} from {path}: cannot read it: {error.strerror or error}") from error
    except Exception as error:  # a damaged header can fail in any way
        raise InputError(
            f"{option} from {path}: not a .npy file that NumPy reads ({error}); for types that it does not know save "
            f"codes, as array.view(numpy.uint8)"
        ) from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{option} from {path}: an archive; allowed: one array, as numpy.save writes it")
    number_format = format_of(fmt)
    wanted = array_dtype(number_format)
    if (
        array.dtype.kind == "V"
        and array.dtype.names is None
        and array.dtype.itemsize == code_dtype(number_format).itemsize
    ):
        return array.view(wanted)
    return array
