"""CUDA's tanhf, erff, sinf and cosf, of fp32 arrays, on top of the unit of special functions.

It knows polynomials and reductions of ranges; it knows no device and no table. Source of the constants: libdevice.10.bc
of CUDA 12.8, as Triton 3.9 compiles it to PTX; without .ftz, as nvcc compiles PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.cuda_math import CudaMath
from hwsim.arithmetic.rounded_once import multiply_add

Single = NDArray[np.float32]
ONE, ZERO = np.float32(1), np.float32(0)


def _of_words(*words: int) -> tuple[np.float32, ...]:
    return tuple(np.array(words, np.uint32).view(np.float32))


#: tanhf: below SMALL a polynomial of x^2; above, 1 - 2 / (2^(|x| TWICE_LOG2E) + 1); from LARGE on 1.
TANH_SMALL, TANH_LARGE, TWICE_LOG2E = _of_words(0x3F19999A, 0x41102CB4, 0x4038AA3B)
TANH = _of_words(0x3C80F082, 0xBD563CAE, 0x3E085941, 0xBEAAA9ED)
#: erff: below LARGE a polynomial of x^2, above 1 - 2^p(|x|).
ERF_LARGE = _of_words(0x3F8060FE)[0]
ERF = _of_words(0x38B1E96A, 0xBA574D20, 0x3BAAD5EA, 0xBCDC1BE7, 0x3DE718AF, 0xBEC093AC, 0x3E0375D3)
ERF_TAIL = _of_words(0x38EB4C3A, 0xBAAE005B, 0x3C09919F, 0xBD24D99A, 0x3E235519, 0x3F69B4F9, 0x3F210A14)
#: sinf, cosf: x - q pi/2, q = x 2/pi to nearest, by three parts of pi/2; from FAR on by the bits of 2/pi.
TWO_OVER_PI, FAR = _of_words(0x3F22F983, 0x47CE4780)
HALF_PI = _of_words(0xBFC90FDA, 0xB3A22168, 0xA7C234C5)
TWO_OVER_PI_BITS = (0x3C439041, 0xDB629599, 0xF534DDC0, 0xFC2757D1, 0x4E441529, 0xA2F9836E)  # the highest last
HALF_PI_SCALED = np.array([0x3BF921FB54442D19], np.uint64).view(np.float64)[0]  # pi/2 times 2^-64
SINE = _of_words(0xB94D4153, 0x3C0885E4, 0xBE2AAAA8)
COSINE = _of_words(0x37CBAC00, 0xBAB607ED, 0x3D2AAABB, 0xBEFFFFFF)


def tanhf(math: CudaMath, x: Single) -> Single:
    """The hyperbolic tangent."""
    size = np.abs(x)
    power = math.exp2f(size * TWICE_LOG2E) + ONE
    far = np.where(size >= TANH_LARGE, ONE, _fused(math.rcp(power), np.float32(-2), ONE))
    square = x * x
    near = _fused(_fused(_polynomial(square, TANH), square, ZERO), x, x)
    result: Single = np.where(size >= TANH_SMALL, np.copysign(far, x), near)
    return result


def erff(math: CudaMath, x: Single) -> Single:
    """The error function."""
    size = np.abs(x)
    near = _fused(_polynomial(x * x, ERF), x, x)
    far = ONE - math.exp2f(_fused(_polynomial(size, ERF_TAIL), -size, -size))
    result: Single = np.where(size >= ERF_LARGE, np.copysign(far, x), near)
    return result


def sinf(math: CudaMath, x: Single) -> Single:
    """The sine."""
    quarters, rest = _reduced(x)
    return _of_quarter(quarters, rest)


def cosf(math: CudaMath, x: Single) -> Single:
    """The cosine: the sine a quarter of a turn on."""
    quarters, rest = _reduced(x)
    return _of_quarter(quarters + 1, rest)


def _of_quarter(quarters: NDArray[np.int64], rest: Single) -> Single:
    """The sine of so many quarters of a turn and a rest."""
    is_cosine = (quarters & 1) != 0
    square = rest * rest
    first = np.where(is_cosine, ONE, rest)
    factors = _fused(square, first, ZERO)
    of_sine = _polynomial(square, SINE)
    of_cosine = _polynomial(square, COSINE)
    result = _fused(np.where(is_cosine, of_cosine, of_sine), factors, first)
    return np.where((quarters & 2) != 0, _fused(result, np.float32(-1), ZERO), result)


def _reduced(x: Single) -> tuple[NDArray[np.int64], Single]:
    """Quarters of a turn, and what is left of the angle. NaN of what is infinite or NaN."""
    is_near = np.abs(x) < FAR
    near = np.where(is_near, x, ZERO)
    whole, rest = np.rint(near * TWO_OVER_PI).astype(np.int64), near
    for part in HALF_PI:
        rest = _fused(whole.astype(np.float32), part, rest)
    if is_near.all():
        return whole, rest
    is_far = ~is_near & np.isfinite(x)
    whole[is_far], rest[is_far] = _reduced_far(x[is_far])
    rest[~is_near & ~is_far] = np.nan
    return whole, rest


def _reduced_far(x: Single) -> tuple[NDArray[np.int64], Single]:
    """The same of large x, by 96 bits of the product with 2/pi."""
    codes = x.view(np.uint32).astype(np.uint64)
    significand = (codes << np.uint64(8)) & np.uint64(0xFFFFFFFF) | np.uint64(0x80000000)
    words, carry = [], np.zeros_like(codes)
    for part in TWO_OVER_PI_BITS:
        product = np.uint64(part) * significand + carry
        words.append(product & np.uint64(0xFFFFFFFF))
        carry = product >> np.uint64(32)
    words.append(carry)
    exponent = (codes >> np.uint64(23)) & np.uint64(0xFF)
    first = (exponent - np.uint64(128)) >> np.uint64(5)  # words that the point has passed
    shift = exponent & np.uint64(31)
    table = np.stack(words)
    high, middle, low = (
        np.take_along_axis(table, (np.uint64(place) - first)[None].astype(np.int64), 0)[0] for place in (6, 5, 4)
    )
    top = _shifted(high, middle, shift)
    below = np.where(shift == 0, middle, _shifted(middle, low, shift))
    fraction = ((top << np.uint64(32) | below) << np.uint64(2)).view(np.int64)  # of a quarter of a turn, as a number
    is_below, is_negative = fraction < 0, x < 0
    quarters = (top >> np.uint64(30)).astype(np.int64) + is_below
    size = np.where(is_below, ~fraction, fraction).astype(np.float64)
    rest = (size * HALF_PI_SCALED).astype(np.float32)
    return np.where(is_negative, -quarters, quarters), np.where(is_negative ^ is_below, -rest, rest)


def _shifted(high: NDArray[np.uint64], low: NDArray[np.uint64], shift: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The upper word of two words of 32 bits, shifted left together."""
    both = high << np.uint64(32) | low
    return (both << shift) >> np.uint64(32) & np.uint64(0xFFFFFFFF)


def _polynomial(x: Single, coefficients: Sequence[np.float32]) -> Single:
    """By fused multiply-adds, the highest power's coefficient first."""
    total: Single = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = _fused(total, x, coefficient)
    return total


def _fused(x: Any, y: Any, z: Any) -> Single:
    result: Single = multiply_add(*np.broadcast_arrays(x, y, z))
    return result


__all__ = ["cosf", "erff", "sinf", "tanhf"]
