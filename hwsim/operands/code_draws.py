"""Eight random distributions of operands, each built from bit fields to exercise a stage of a datapath.

A distribution takes a generator, a product, a number of cases and whether C is wanted, and returns the codes
a (cases, M, K), b (cases, N, K), c (cases, M, N). A and B are the same with C and without: where C comes before them,
its random numbers are drawn, though not kept. It knows formats only; no unit, no device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from hwsim.backend.cpu import CPU
from hwsim.errors import InputError, nearest
from hwsim.formats import Format, array_dtype, code_dtype, format_of
from hwsim.operands.matrix_product import MatrixProduct

UnsignedCodes = npt.NDArray[np.unsignedinteger[Any]]


CodePair = tuple[UnsignedCodes, UnsignedCodes]
CodeTriple = tuple[UnsignedCodes, UnsignedCodes, UnsignedCodes]
DrawnCodes = tuple[UnsignedCodes, UnsignedCodes, UnsignedCodes | None]
#: Draws the codes of a product: a generator, the product, a number of cases, and whether C is wanted (else None).
CodeDraw = Callable[[np.random.Generator, MatrixProduct, int, bool], DrawnCodes]
ArrayShape = tuple[int, ...]
BLOCK = 1 << 16  # random numbers that are passed over at once
NARROW, NARROW_C = 3, 4  # binades around 1 that A and B, and C, have on each side
WORD_BYTES = 4  # of a number that takes whole words of the generator


def draw(name: str, rng: np.random.Generator, product: MatrixProduct, cases: int) -> CodeTriple:
    """Operands from the distribution of that name. Raises InputError for an unknown one."""
    a, b, c = _distribution(name)(rng, product, cases, True)
    assert c is not None
    return a, b, c


def draw_pair(name: str, rng: np.random.Generator, product: MatrixProduct, cases: int) -> CodePair:
    """A and B with the codes that `draw` gives them; C is not built."""
    a, b, _ = _distribution(name)(rng, product, cases, False)
    return a, b


def _distribution(name: str) -> CodeDraw:
    if name not in DISTRIBUTIONS:
        names = tuple(DISTRIBUTIONS)
        raise InputError(f"{name!r} is not a distribution; allowed: {', '.join(names)}{nearest(name, names)}")
    return DISTRIBUTIONS[name]


def random_bits(rng: np.random.Generator, fmt: Format, shape: ArrayShape) -> UnsignedCodes:
    """Codes with every bit random, ignored ones (tf32) included; unused high bits are zero."""
    dtype = code_dtype(fmt)
    codes: UnsignedCodes = rng.integers(0, (1 << fmt.bits) - 1, shape, dtype, endpoint=True)
    return codes


def finite(fmt: Format, codes: UnsignedCodes) -> UnsignedCodes:
    """The codes with every infinity and NaN replaced by a large finite number of its sign (FNUZ: by zero)."""
    if fmt.nan == "none":
        return codes
    scalar = codes.dtype.type
    if fmt.nan == "minus_zero":
        return np.where(codes == scalar(1 << fmt.magnitude_bits), scalar(0), codes)
    mask = scalar((1 << fmt.magnitude_bits) - 1)
    special = ((codes >> scalar(fmt.ignored_bits)) & mask) > scalar(fmt.largest_magnitude)
    lowest = fmt.fraction_bits if fmt.has_infinity else 0
    cleared = codes & ~scalar(1 << lowest + fmt.ignored_bits)
    return np.where(special, cleared, codes)


def fields(rng: np.random.Generator, fmt: Format, shape: ArrayShape, low: Any, high: Any) -> UnsignedCodes:
    """Finite codes with a biased exponent uniform in [low, high], limited to the format's; sign and fraction random.

    low, high: integers, or arrays that broadcast to the shape.
    """
    low, high = _biased_limits(fmt, low, high)
    dtype = code_dtype(fmt)
    if np.ndim(low) or np.ndim(high):
        span = (high - low + 1).astype(np.uint32)
        biased = (low + (rng.integers(0, 1 << 16, shape, np.uint16) * span >> np.uint32(16))).astype(dtype)
    else:
        biased = rng.integers(low, high, shape, dtype, endpoint=True)
    place = dtype.type(fmt.fraction_bits + fmt.ignored_bits)
    rest = random_bits(rng, fmt, shape) & ~dtype.type(((1 << fmt.exponent_bits) - 1) << int(place))
    return finite(fmt, rest | biased << place)


def _biased_limits(fmt: Format, low: Any, high: Any) -> tuple[Any, Any]:
    """The limits of biased exponents, limited to the format's."""
    largest = fmt.largest_magnitude >> fmt.fraction_bits
    return np.clip(low, 0, largest), np.clip(high, 0, largest)


def _pass_over(rng: np.random.Generator, low: int, high: int, shape: ArrayShape, dtype: Any) -> None:
    """Draw integers from low to high as rng.integers(low, high, shape, dtype, endpoint=True) does, and keep none.

    Blocks take the numbers that one call takes, but for dtypes of 8 and 16 bits: a call leaves a part of a word unused.
    """
    left = math.prod(shape)
    block = BLOCK if np.dtype(dtype).itemsize >= WORD_BYTES else left
    while left > 0:
        rng.integers(low, high, min(left, block), dtype, endpoint=True)
        left -= block


def _pass_over_fields(rng: np.random.Generator, fmt: Format, shape: ArrayShape, low: int, high: int) -> None:
    """Draw the random numbers of `fields` and keep none."""
    low, high = _biased_limits(fmt, low, high)
    dtype = code_dtype(fmt)
    _pass_over(rng, low, high, shape, dtype)
    _pass_over(rng, 0, (1 << fmt.bits) - 1, shape, dtype)


def _integer_limits(fmt: Format, low: int, high: int) -> tuple[int, int]:
    """The limits of integers, limited to the format's."""
    least, most = (-(1 << fmt.fraction_bits) if fmt.signed else 0), (1 << fmt.fraction_bits) - 1
    return max(low, least), min(high, most)


def integers(rng: np.random.Generator, fmt: Format, shape: ArrayShape, low: int, high: int) -> UnsignedCodes:
    """Integers uniform in [low, high], limited to the format's range."""
    drawn = rng.integers(*_integer_limits(fmt, low, high), shape, np.int64, endpoint=True)
    return drawn.astype(array_dtype(fmt)).view(code_dtype(fmt))


def _formats(product: MatrixProduct) -> tuple[Format, Format, Format]:
    return format_of(product.a), format_of(product.b), format_of(product.c)


def _each(
    rng: np.random.Generator,
    product: MatrixProduct,
    cases: int,
    draw_one: Callable[[np.random.Generator, Format, ArrayShape], UnsignedCodes],
    wants_c: bool,
) -> DrawnCodes:
    """A, B and, where it is wanted, C, each drawn in the same way."""
    fa, fb, fc = _formats(product)
    a = draw_one(rng, fa, product.shape("a", cases))
    b = draw_one(rng, fb, product.shape("b", cases))
    return a, b, draw_one(rng, fc, product.shape("c", cases)) if wants_c else None


def normal(rng: np.random.Generator, product: MatrixProduct, cases: int, wants_c: bool) -> DrawnCodes:
    """N(0, 1) rounded to the format (nearest even); integers: N(0, 40^2) rounded, C N(0, 4000^2)."""

    def codes_of(rng: np.random.Generator, fmt: Format, shape: ArrayShape) -> UnsignedCodes:
        if fmt.is_integer:
            scale = 40.0 if fmt.bits == 8 else 4000.0
            codes: UnsignedCodes = CPU.encode(rng.standard_normal(shape) * scale, fmt, "RNE", "ieee", nan="quiet")
        elif fmt.name == "fp64":
            codes = rng.standard_normal(shape).view(np.uint64)
        else:
            codes = CPU.encode(rng.standard_normal(shape, np.float32), fmt, "RNE", "ieee", nan="quiet")
        return codes

    return _each(rng, product, cases, codes_of, wants_c)


def anybits(rng: np.random.Generator, product: MatrixProduct, cases: int, wants_c: bool) -> DrawnCodes:
    """Random bits, including infinities and NaNs."""
    return _each(rng, product, cases, random_bits, wants_c)


def any_finite(rng: np.random.Generator, product: MatrixProduct, cases: int, wants_c: bool) -> DrawnCodes:
    """Random bits without infinities and NaNs: the whole range of exponents."""
    return _each(rng, product, cases, lambda rng, fmt, shape: finite(fmt, random_bits(rng, fmt, shape)), wants_c)


def narrow(rng: np.random.Generator, product: MatrixProduct, cases: int, wants_c: bool) -> DrawnCodes:
    """Exponents within 3 of 0 (C: within 4); integers up to 7 in magnitude."""
    a, b = _narrow_pair(rng, product, cases)
    c = _narrow_codes(rng, format_of(product.c), product.shape("c", cases), NARROW_C) if wants_c else None
    return a, b, c


def _narrow_pair(rng: np.random.Generator, product: MatrixProduct, cases: int) -> CodePair:
    """A and B of `narrow`."""
    fa, fb, _ = _formats(product)
    a = _narrow_codes(rng, fa, product.shape("a", cases), NARROW)
    return a, _narrow_codes(rng, fb, product.shape("b", cases), NARROW)


def _narrow_codes(rng: np.random.Generator, fmt: Format, shape: ArrayShape, width: int) -> UnsignedCodes:
    if fmt.is_integer:
        return integers(rng, fmt, shape, -7, 7)
    return fields(rng, fmt, shape, max(fmt.bias - width, 1), fmt.bias + width)


def _pass_over_narrow(rng: np.random.Generator, fmt: Format, shape: ArrayShape, width: int) -> None:
    """Draw the random numbers of `_narrow_codes` and keep none."""
    if fmt.is_integer:
        _pass_over(rng, *_integer_limits(fmt, -7, 7), shape, np.int64)
    else:
        _pass_over_fields(rng, fmt, shape, max(fmt.bias - width, 1), fmt.bias + width)


def spread(rng: np.random.Generator, product: MatrixProduct, cases: int, wants_c: bool) -> DrawnCodes:
    """Exponents within 15 of 0 (as far as the format has them), half of A and B powers of two; C within 30."""
    fa, fb, fc = _formats(product)
    shape_c, limits_c = product.shape("c", cases), (max(fc.bias - 30, 1), fc.bias + 30)

    def operand(fmt: Format, shape: ArrayShape) -> UnsignedCodes:
        scalar = code_dtype(fmt).type
        if fmt.is_integer:
            powers: UnsignedCodes = scalar(1) << rng.integers(0, fmt.bits, shape, np.uint8).astype(scalar)
            return powers
        codes = fields(rng, fmt, shape, max(fmt.bias - 15, 1), fmt.bias + 15)
        power = rng.integers(0, 2, shape, np.uint8).astype(bool)
        return np.where(power, codes & ~scalar((1 << fmt.fraction_bits + fmt.ignored_bits) - 1), codes)

    c = None
    if wants_c:
        c = operand(fc, shape_c) if fc.is_integer else fields(rng, fc, shape_c, *limits_c)
    elif fc.is_integer:
        _pass_over(rng, 0, fc.bits - 1, shape_c, np.uint8)
    else:
        _pass_over_fields(rng, fc, shape_c, *limits_c)
    return operand(fa, product.shape("a", cases)), operand(fb, product.shape("b", cases)), c


def cancel(rng: np.random.Generator, product: MatrixProduct, cases: int, wants_c: bool) -> DrawnCodes:
    """Pairs of products that cancel, exactly or up to one last place of B; C zero, of their size, or far below.

    The two products of a pair lie at any two positions of k; a product left over (odd K) stays alone.
    """
    _, fb, fc = _formats(product)
    a, b = _narrow_pair(rng, product, cases)
    k, shape_c, c = product.k, product.shape("c", cases), None
    if wants_c:
        c = _narrow_codes(rng, fc, shape_c, NARROW_C)
    else:
        _pass_over_narrow(rng, fc, shape_c, NARROW_C)
    order = rng.permutation(k)
    first, second = order[: k // 2], order[k // 2 : 2 * (k // 2)]
    a[..., second] = a[..., first]
    b[..., second] = _negated(fb, b[..., first])
    off = rng.integers(0, 4, (cases, product.n, k // 2), np.uint8) == 0
    last = b.dtype.type(1 << fb.ignored_bits)
    b[..., second] = np.where(off, finite(fb, b[..., second] ^ last), b[..., second])
    if c is None:
        return a, b, None
    kind = rng.integers(0, 3, c.shape, np.uint8)
    small = (
        random_bits(rng, fc, c.shape) & c.dtype.type(7)
        if fc.is_integer
        else fields(rng, fc, c.shape, fc.bias - 30, fc.bias - 6)
    )
    return a, b, np.where(kind == 0, c.dtype.type(0), np.where(kind == 1, c, small))


def _negated(fmt: Format, codes: UnsignedCodes) -> UnsignedCodes:
    """Codes of the negated values; integers by two's complement (unsigned ones wrap), FNUZ zeros unchanged."""
    scalar = codes.dtype.type
    if fmt.is_integer:
        return (~codes + scalar(1)) & scalar((1 << fmt.bits) - 1)
    sign = scalar(1 << fmt.magnitude_bits + fmt.ignored_bits)
    if fmt.nan == "minus_zero":
        return np.where(codes == 0, codes, codes ^ sign)
    return codes ^ sign


def subnormal(rng: np.random.Generator, product: MatrixProduct, cases: int, wants_c: bool) -> DrawnCodes:
    """Subnormal A and C; in half of the cases B is as small, in the others large enough for subnormal results."""
    fa, fb, fc = _formats(product)
    if fa.is_integer:
        return _each(rng, product, cases, lambda rng, fmt, shape: integers(rng, fmt, shape, -1, 1), wants_c)
    fd = format_of(product.d)
    a = fields(rng, fa, product.shape("a", cases), 0, 2)
    shape_c, c = product.shape("c", cases), None
    if wants_c:
        c = fields(rng, fc, shape_c, 0, 3)
    else:
        _pass_over_fields(rng, fc, shape_c, 0, 3)
    reach = fd.min_exponent - fa.min_exponent + fb.bias
    tiny = rng.integers(0, 2, (cases, 1, 1)).astype(bool)
    b = fields(rng, fb, product.shape("b", cases), np.where(tiny, 0, reach - 4), np.where(tiny, 4, reach + 4))
    return a, b, c


def huge(rng: np.random.Generator, product: MatrixProduct, cases: int, wants_c: bool) -> DrawnCodes:
    """The largest binades; in half of the cases B is chosen so that products are near the result's largest number.

    Where no product comes near it (fp16 operands, fp32 results), half of C is of the products' size instead.
    """
    fa, fb, fc = _formats(product)
    if fa.is_integer:
        return _huge_integers(rng, product, cases, wants_c)
    fd = format_of(product.d)
    top = {fmt.name: fmt.largest_magnitude >> fmt.fraction_bits for fmt in (fa, fb, fc)}
    a = fields(rng, fa, product.shape("a", cases), top[fa.name] - 4, top[fa.name])
    largest_product = fa.max_exponent + fb.max_exponent + fc.bias
    binades = [(top[fc.name] - 2, top[fc.name])]
    if largest_product < top[fc.name] - 4:
        binades.append((largest_product - 4, largest_product + 4))
    shape_c, c = product.shape("c", cases), None
    if wants_c:
        c = _of_either(rng, fc, shape_c, binades)
    else:
        _pass_over_either(rng, fc, shape_c, binades)
    reach = fd.max_exponent - fa.max_exponent + fb.bias
    beyond = rng.integers(0, 2, (cases, 1, 1)).astype(bool)
    b = fields(
        rng,
        fb,
        product.shape("b", cases),
        np.where(beyond, top[fb.name] - 4, reach - 2),
        np.where(beyond, top[fb.name], reach + 2),
    )
    return a, b, c


def _of_either(
    rng: np.random.Generator, fmt: Format, shape: ArrayShape, binades: list[tuple[int, int]]
) -> UnsignedCodes:
    """Codes of the first binades; where there are second ones, each code is of either."""
    codes = fields(rng, fmt, shape, *binades[0])
    for low, high in binades[1:]:
        beside = rng.integers(0, 2, shape, np.uint8).astype(bool)
        codes = np.where(beside, fields(rng, fmt, shape, low, high), codes)
    return codes


def _pass_over_either(rng: np.random.Generator, fmt: Format, shape: ArrayShape, binades: list[tuple[int, int]]) -> None:
    """Draw the random numbers of `_of_either` and keep none."""
    _pass_over_fields(rng, fmt, shape, *binades[0])
    for low, high in binades[1:]:
        _pass_over(rng, 0, 1, shape, np.uint8)
        _pass_over_fields(rng, fmt, shape, low, high)


def _huge_integers(rng: np.random.Generator, product: MatrixProduct, cases: int, wants_c: bool) -> DrawnCodes:
    """A and B at the ends of the range; C within 2^20 of an end."""
    fa, fb, fc = _formats(product)
    a, b = (
        np.where(
            random_bits(rng, fmt, product.shape(operand, cases)) & 1 == 1,
            code_dtype(fmt).type(fmt.largest_code()),
            code_dtype(fmt).type(fmt.largest_code(1) if fmt.signed else 0),
        )
        for operand, fmt in (("a", fa), ("b", fb))
    )
    if not wants_c:
        return a, b, None
    near = integers(rng, fc, product.shape("c", cases), -1 << 20, 1 << 20)
    return a, b, near ^ code_dtype(fc).type(1 << fc.fraction_bits)


#: The distributions by name, as docs/golden.md describes them.
DISTRIBUTIONS: Mapping[str, CodeDraw] = MappingProxyType(
    {
        "normal": normal,
        "finite": any_finite,
        "anybits": anybits,
        "narrow": narrow,
        "spread": spread,
        "cancel": cancel,
        "subnormal": subnormal,
        "huge": huge,
    }
)
