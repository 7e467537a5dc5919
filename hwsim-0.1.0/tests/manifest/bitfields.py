"""Operands from bit fields by an integer hash: the same codes with every version of NumPy and on every machine."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: Width of a code, exponent bits, fraction bits, low bits that no unit reads. Exponent bits 0: two's complement.
FIELDS = {
    "fp64": (64, 11, 52, 0),
    "fp32": (32, 8, 23, 0),
    "tf32": (32, 8, 10, 13),
    "hf32": (32, 8, 11, 12),
    "fp16": (16, 5, 10, 0),
    "bf16": (16, 8, 7, 0),
    "e5m2": (8, 5, 2, 0),
    "e4m3": (8, 4, 3, 0),
    "e5m2fnuz": (8, 5, 2, 0),
    "e4m3fnuz": (8, 4, 3, 0),
    "e3m2": (6, 3, 2, 0),
    "e2m3": (6, 2, 3, 0),
    "e2m1": (4, 2, 1, 0),
    "ue8m0": (8, 8, 0, 0),
    "int32": (32, 0, 31, 0),
    "int16": (16, 0, 15, 0),
    "int8": (8, 0, 7, 0),
    "uint8": (8, 0, 8, 0),
    "int4": (4, 0, 3, 0),
}
#: Given as typed arrays; all others as codes, with `input_format`.
TYPED = {"fp64": "f8", "fp32": "f4", "fp16": "f2", "int32": "i4", "int16": "i2", "int8": "i1"}
#: Binades below 4 of the kinds "wide" and "mid", by exponent bits.
WIDE = {11: 60, 8: 24, 5: 12, 4: 8, 3: 5, 2: 3}
MID = {11: 12, 8: 6, 5: 5, 4: 5, 3: 4, 2: 2}
DENSITY = 256  # one element in so many is an infinity or a NaN, where the kind has them
KINDS = ("mid", "wide", "ties", "cancel", "pairs", "subnormal", "large", "special", "infinite", "zeros", "any")


def seed_of(text: str) -> int:
    """64 bits that follow from a text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def words(seed: int, count: int) -> Array:
    """`count` 64-bit words: splitmix64 from `seed`."""
    x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def codes(fmt: str, shape: tuple[int, ...], kind: str, seed: int) -> Array:
    """Codes of a format, in its storage width.

    kind: "mid", "wide" (binades, full significands), "ties" (fractions that end 1000... where fp16, bf16 or tf32 end),
    "cancel" (odd columns nearly minus their left neighbours), "pairs" (odd rows like the ones above: beside "cancel"
    products cancel), "subnormal" (exponent field 0 to 2), "large" (four of the highest), "special" (some infinities,
    NaNs, zeros of both signs, extremes), "infinite" (infinities, no NaN), "zeros" (both signs, some others), "any".
    """
    assert kind in KINDS, kind
    bits, exponent, _, ignored = FIELDS[fmt]
    dtype = np.dtype(f"u{max(bits, 8) // 8}")
    word = words(seed, math.prod(shape)).reshape(shape)
    other = words(seed ^ 0x5DEECE66D, math.prod(shape)).reshape(shape)
    whole = np.uint64((1 << bits) - 1)
    if kind == "any" or not exponent:
        found = _integers(word, other, kind, bits) if not exponent else word & whole
    else:
        found = _floats(word, other, kind, fmt)
    if kind == "cancel":
        odd = found[..., : found.shape[-1] // 2 * 2 : 2]
        if exponent:
            odd = (
                odd
                ^ np.uint64(1 << (bits - 1))
                ^ ((word[..., : 2 * odd.shape[-1] : 2] >> np.uint64(60)) & np.uint64(1))
            )
        else:
            odd = (~odd + (word[..., : 2 * odd.shape[-1] : 2] >> np.uint64(63))) & whole  # -x or -x - 1
        found[..., 1::2] = odd
    if kind == "pairs":
        found[..., 1::2, :] = found[..., : found.shape[-2] // 2 * 2 : 2, :]
    if ignored:
        found &= ~np.uint64((1 << ignored) - 1)
    return found.astype(dtype)


def array(fmt: str, shape: tuple[int, ...], kind: str, seed: int) -> Array:
    """A typed array where NumPy has the type, else codes."""
    found = codes(fmt, shape, kind, seed)
    return found.view(TYPED[fmt]) if fmt in TYPED else found


def _integers(word: Array, other: Array, kind: str, bits: int) -> Array:
    whole = (1 << bits) - 1
    if kind in ("large", "special", "infinite"):
        extremes = np.array([1 << (bits - 1), whole >> 1, whole, 1, 0, whole >> 1], np.uint64)
        return extremes[(other % np.uint64(6)).astype(np.intp)]
    if kind == "zeros":
        word = np.where(other % np.uint64(4) == 0, word, np.uint64(0))
    if kind == "subnormal":
        word = word % np.uint64(4)
    return word & np.uint64(whole)


def _floats(word: Array, other: Array, kind: str, fmt: str) -> Array:
    bits, exponent, fraction, ignored = FIELDS[fmt]
    low, top, bias = np.uint64(ignored), (1 << exponent) - 1, (1 << (exponent - 1)) - 1
    sign = (word & np.uint64(1)) << np.uint64(bits - 1)
    tail = (word >> np.uint64(8)) & np.uint64((1 << fraction) - 1)
    if kind == "subnormal":
        field = other % np.uint64(min(3, top))
    elif kind == "large":
        below = 5 if exponent > 5 else 1  # sums of some overflow
        field = np.uint64(top - below) - other % np.uint64(min(4, top - 1))
    else:
        span = (WIDE if kind in ("wide", "special", "infinite") else MID)[exponent]
        first = max(1, min(bias + 2, top) - span)
        field = np.uint64(first) + other % np.uint64(min(span, top - first))
    if kind == "ties":
        place = (
            np.uint64(max(fraction, 3))
            - np.array([11, 8, 12, 3], np.uint64)[(other >> np.uint64(40)).astype(np.intp) % 4]
        )
        place = np.minimum(place, np.uint64(max(fraction - 1, 0)))  # a fraction shorter than that wraps round
        tail = (tail >> place | np.uint64(1)) << place & np.uint64((1 << fraction) - 1)
    found = sign | ((field << np.uint64(fraction) | tail) << low)
    if kind == "zeros":
        found = np.where(other % np.uint64(4) == 0, found, sign)
    if kind in ("special", "infinite"):
        found = _sprinkled(found, sign, other >> np.uint64(20), kind, fmt)
    return found


def _sprinkled(found: Array, sign: Array, other: Array, kind: str, fmt: str) -> Array:
    bits, exponent, fraction, ignored = FIELDS[fmt]
    top = ((1 << exponent) - 1) << fraction
    if fmt.endswith("fnuz"):
        infinity, nan, largest = top + (1 << fraction) - 1, 1 << (bits - 1), top + (1 << fraction) - 1
    elif fmt == "e4m3":
        infinity, nan, largest = top + 6, top + 7, top + 6
    elif fmt in ("e3m2", "e2m3", "e2m1"):
        infinity = nan = largest = top + (1 << fraction) - 1
    else:
        infinity, nan, largest = top, top | (1 << fraction >> 1), top - 1
    chosen = other % np.uint64(DENSITY)
    values = [infinity, nan if kind == "special" else infinity, 0, 0, 0, 0, largest, 1, 1]
    for which, value in enumerate(values):
        signed = sign if not (fmt.endswith("fnuz") and value in (0, nan)) else np.uint64(0)
        found = np.where(chosen == np.uint64(which), np.uint64(value << ignored) | signed, found)
    return found
