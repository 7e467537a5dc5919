"""One step of a block-scaled unit on whole arrays, in 64-bit integers: what the compiled kernels do not have.

Bit for bit hwsim.numerics.reference, which says what each stage does and why; here only how it fits arrays.
It knows units and formats; it knows no device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from hwsim._kernels.convert import encode
from hwsim.formats import decode, format_of
from hwsim.numerics.units import BlockScaledUnit, DotSpec, FusedUnit

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
CHUNK = 1 << 19  # products at a time
NOTHING = -(1 << 20)  # exponent of a term that takes no part
MOST = 62  # longest shift of a 64-bit integer that keeps its sign


@dataclass(frozen=True, slots=True)
class _Terms:
    """Numbers: signed significand times 2^last_place; exponent, as the aligner sees it; kind: 0, 1, -1, inf or NaN."""

    significand: Integers
    last_place: Integers
    exponent: Integers
    kind: Floats

    def __getitem__(self, at: Any) -> _Terms:
        return _Terms(self.significand[at], self.last_place[at], self.exponent[at], self.kind[at])

    def times(self, other: _Terms) -> _Terms:
        """Products, element by element. An infinity times zero is a NaN, as in the floating-point `kind`."""
        with np.errstate(invalid="ignore"):
            return _Terms(
                self.significand * other.significand,
                self.last_place + other.last_place,
                self.exponent + other.exponent,
                self.kind * other.kind,
            )


def serves(spec: DotSpec, k: int) -> bool:
    """Whether `step` computes this unit with these formats for K = k: NVIDIA's, with results in fp32."""
    unit = spec.unit
    if not isinstance(unit, FusedUnit | BlockScaledUnit) or not spec.scale_format or not spec.scale_block:
        return False
    plain = unit.specials.operands == "ieee" and unit.specials.zero == "positive"
    flushes = unit.specials.flush_operands or unit.specials.flush_results
    if isinstance(unit, FusedUnit):
        fits = unit.result_format is None and unit.fraction_bits <= 40 and unit.terms <= 64
    else:  # 2^12 is what 16 products of 4-bit numbers and their scales' significands may reach
        fits = (
            unit.group <= 16
            and spec.scale_block % unit.group == 0
            and k % unit.group == 0
            and (unit.fraction_bits <= 36 and unit.terms <= 256 and (spec.a, spec.b) == ("e2m1", "e2m1"))
        )
    narrow = all(format_of(fmt).bits <= 8 for fmt in (spec.a, spec.b, spec.scale_format))
    return (
        fits
        and plain
        and not flushes
        and narrow
        and (spec.c, spec.d) == ("fp32", "fp32")
        and (k <= unit.terms and k % spec.scale_block == 0)
    )


def step(
    spec: DotSpec,
    a: npt.NDArray[Any],
    b: npt.NDArray[Any],
    c: npt.NDArray[Any],
    scale_a: npt.NDArray[Any],
    scale_b: npt.NDArray[Any],
) -> npt.NDArray[Any]:
    """Codes (..., M, N) of c + a b for one step of a unit that `serves`.

    Codes a (..., M, K), b (..., K, N), c (..., M, N), scale_a (..., M, K / block), scale_b (..., K / block, N) of
    equal leading dimensions.
    """
    m, k = a.shape[-2:]
    n = b.shape[-1]
    left, right = a.reshape(-1, m, k), b.reshape(-1, k, n).swapaxes(-1, -2)
    left_scale = scale_a.reshape(-1, m, scale_a.shape[-1])
    right_scale = scale_b.reshape(-1, scale_b.shape[-2], n).swapaxes(-1, -2)
    start = c.reshape(-1, m, n)
    d = np.empty(start.shape, np.uint32)
    batches = max(1, CHUNK // (m * n * k))
    rows = max(1, min(m, CHUNK // (n * k)))
    for first in range(0, len(left), batches):
        some = slice(first, first + batches)
        for row in range(0, m, rows):
            lines = slice(row, row + rows)
            d[some, lines] = _step(
                spec, left[some, lines], right[some], start[some, lines], left_scale[some, lines], right_scale[some]
            )
    return d.reshape(c.shape)


def _step(
    spec: DotSpec,
    a: npt.NDArray[Any],
    b: npt.NDArray[Any],
    c: npt.NDArray[Any],
    scale_a: npt.NDArray[Any],
    scale_b: npt.NDArray[Any],
) -> npt.NDArray[Any]:
    unit = spec.unit
    assert isinstance(unit, FusedUnit | BlockScaledUnit) and spec.scale_format and spec.scale_block
    pairs = np.s_[:, :, None, :], np.s_[:, None, :, :]
    products = _read(spec.a, a)[pairs[0]].times(_read(spec.b, b)[pairs[1]])
    scales = _read(spec.scale_format, scale_a)[pairs[0]].times(_read(spec.scale_format, scale_b)[pairs[1]])
    accumulator = _read_fp32(c)
    each = np.arange(a.shape[-1]) // spec.scale_block
    scaled = products.times(scales[..., each])
    with np.errstate(invalid="ignore"):  # infinities of both signs: NaN
        kind = scaled.kind.sum(-1) + accumulator.kind
    if isinstance(unit, FusedUnit):
        terms = scaled
        exponents = np.where(terms.significand != 0, terms.exponent, NOTHING)
    else:
        terms, exponents = _groups(unit, products, scales, spec.scale_block)
    own = np.where(accumulator.significand != 0, accumulator.exponent, NOTHING)
    top = np.maximum(np.maximum(exponents.max(-1), own), unit.floor_exponent)
    last_place = top - unit.fraction_bits
    total = _cut(terms, last_place[..., None]).sum(-1) + _cut(accumulator, last_place)
    value = np.ldexp(total.astype(np.float64), last_place.astype(np.int32))  # exact: fewer than 53 bits
    codes: npt.NDArray[Any] = encode(value, format_of(spec.d), unit.rounding, unit.specials.overflow)
    codes[codes & 0x7FFFFFFF == 0] = 0
    fmt = format_of(spec.d)
    codes[np.isposinf(kind)], codes[np.isneginf(kind)] = fmt.infinity_code(0), fmt.infinity_code(1)
    codes[np.isnan(kind)] = fmt.nan_code if unit.specials.nan_code is None else unit.specials.nan_code
    return codes


def _groups(unit: BlockScaledUnit, products: _Terms, scales: _Terms, block: int) -> tuple[_Terms, Integers]:
    """Sums of groups times their scales, and their exponents: those of the scales, whatever the sums are."""
    shape = (*products.significand.shape[:-1], -1, unit.group)
    lowest = int(products.last_place.min(initial=0))
    fixed = (products.significand << (products.last_place - lowest)).reshape(shape)
    scale = scales[..., np.arange(fixed.shape[-2]) * unit.group // block]
    sums = _Terms(fixed.sum(-1) * scale.significand, lowest + scale.last_place, scale.exponent, scale.kind)
    is_zero = (fixed == 0).all(-1) | (scale.significand == 0)
    return sums, np.where(is_zero, unit.zero_exponent, scale.exponent)


def _cut(terms: _Terms, last_place: Integers) -> Integers:
    """The terms in units of 2^last_place, places below it dropped toward zero."""
    shift = last_place - terms.last_place
    magnitude = np.abs(terms.significand)
    down = magnitude >> np.clip(shift, 0, MOST)
    up = down << np.clip(-shift, 0, MOST)
    result: Integers = np.sign(terms.significand) * np.where(terms.significand == 0, 0, up)
    return result


def _read(name: str, codes: npt.NDArray[Any]) -> _Terms:
    table = _table(name)
    return table[codes.astype(np.intp)]


@cache
def _table(name: str) -> _Terms:
    """Every code of a format of 8 bits or fewer."""
    fmt = format_of(name)
    values = [decode(fmt, code) for code in range(1 << fmt.bits)]
    signs = [-1 if value.sign else 1 for value in values]
    kinds = {"nan": np.nan, "infinity": np.inf}
    return _Terms(
        np.array([sign * value.significand for sign, value in zip(signs, values, strict=True)], np.int64),
        np.array([value.exponent for value in values], np.int64),
        np.array([value.exponent + fmt.fraction_bits for value in values], np.int64),
        np.array(
            [
                sign * kinds.get(value.kind, float(value.significand != 0))
                for sign, value in zip(signs, values, strict=True)
            ]
        ),
    )


def _read_fp32(codes: npt.NDArray[Any]) -> _Terms:
    fmt = format_of("fp32")
    word = codes.astype(np.int64)
    biased, fraction = word >> fmt.fraction_bits & 0xFF, word & (1 << fmt.fraction_bits) - 1
    sign = np.where(word >> 31 == 1, -1, 1)
    special = biased == 0xFF
    significand = np.where(special, 0, np.where(biased == 0, fraction, fraction | 1 << fmt.fraction_bits))
    exponent = np.maximum(biased, 1) - fmt.bias
    kind = np.where(special, np.where(fraction == 0, np.inf, np.nan), significand != 0)
    return _Terms(sign * significand, exponent - fmt.fraction_bits, exponent, sign * kind)
