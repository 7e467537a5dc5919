"""Eight random distributions of operands, each built from bit fields to exercise a stage of a datapath.

A distribution takes a generator, a product (an instruction, or a GEMM: shape and formats) and a number of cases, and
returns the codes a (cases, M, K), b (cases, N, K), c (cases, M, N). It knows formats only; no unit, no device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hwsim.backend.cpu import CPU
from hwsim.errors import InputError, nearest
from hwsim.formats import Format, array_dtype, code_dtype, format_of

UnsignedCodes = npt.NDArray[np.unsignedinteger[Any]]


class ProductShape(Protocol):
    """What is multiplied: columns of B, products in each dot product, and the formats' names."""

    @property
    def n(self) -> int: ...

    @property
    def k(self) -> int: ...

    @property
    def a(self) -> str: ...

    @property
    def b(self) -> str: ...

    @property
    def c(self) -> str: ...

    @property
    def d(self) -> str: ...

    def shape(self, operand: str, cases: int) -> tuple[int, int, int]:
        """The shape of the codes of "a", "b" or "c"."""
        ...


CodeTriple = tuple[UnsignedCodes, UnsignedCodes, UnsignedCodes]
CodeDraw = Callable[[np.random.Generator, ProductShape, int], CodeTriple]
ArrayShape = tuple[int, ...]


def draw(name: str, rng: np.random.Generator, product: ProductShape, cases: int) -> CodeTriple:
    """Operands from the distribution of that name. Raises InputError for an unknown one."""
    if name not in DISTRIBUTIONS:
        names = tuple(DISTRIBUTIONS)
        raise InputError(f"{name!r} is not a distribution; allowed: {', '.join(names)}{nearest(name, names)}")
    return DISTRIBUTIONS[name](rng, product, cases)


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
    largest = fmt.largest_magnitude >> fmt.fraction_bits
    low, high = np.clip(low, 0, largest), np.clip(high, 0, largest)
    dtype = code_dtype(fmt)
    if np.ndim(low) or np.ndim(high):
        span = (high - low + 1).astype(np.uint32)
        biased = (low + (rng.integers(0, 1 << 16, shape, np.uint16) * span >> np.uint32(16))).astype(dtype)
    else:
        biased = rng.integers(low, high, shape, dtype, endpoint=True)
    place = dtype.type(fmt.fraction_bits + fmt.ignored_bits)
    rest = random_bits(rng, fmt, shape) & ~dtype.type(((1 << fmt.exponent_bits) - 1) << int(place))
    return finite(fmt, rest | biased << place)


def integers(rng: np.random.Generator, fmt: Format, shape: ArrayShape, low: int, high: int) -> UnsignedCodes:
    """Integers uniform in [low, high], limited to the format's range."""
    least, most = (-(1 << fmt.fraction_bits) if fmt.signed else 0), (1 << fmt.fraction_bits) - 1
    drawn = rng.integers(max(low, least), min(high, most), shape, np.int64, endpoint=True)
    return drawn.astype(array_dtype(fmt)).view(code_dtype(fmt))


def _formats(product: ProductShape) -> tuple[Format, Format, Format]:
    return format_of(product.a), format_of(product.b), format_of(product.c)


def _each(
    rng: np.random.Generator,
    product: ProductShape,
    cases: int,
    draw_one: Callable[[np.random.Generator, Format, ArrayShape], UnsignedCodes],
) -> CodeTriple:
    a, b, c = (
        draw_one(rng, fmt, product.shape(operand, cases)) for operand, fmt in zip("abc", _formats(product), strict=True)
    )
    return a, b, c


def normal(rng: np.random.Generator, product: ProductShape, cases: int) -> CodeTriple:
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

    return _each(rng, product, cases, codes_of)


def anybits(rng: np.random.Generator, product: ProductShape, cases: int) -> CodeTriple:
    """Random bits, including infinities and NaNs."""
    return _each(rng, product, cases, random_bits)


def any_finite(rng: np.random.Generator, product: ProductShape, cases: int) -> CodeTriple:
    """Random bits without infinities and NaNs: the whole range of exponents."""
    return _each(rng, product, cases, lambda rng, fmt, shape: finite(fmt, random_bits(rng, fmt, shape)))


def narrow(rng: np.random.Generator, product: ProductShape, cases: int) -> CodeTriple:
    """Exponents within 3 of 0 (C: within 4); integers up to 7 in magnitude."""
    fa, fb, fc = _formats(product)

    def operand_codes(fmt: Format, operand: str, width: int) -> UnsignedCodes:
        shape = product.shape(operand, cases)
        if fmt.is_integer:
            return integers(rng, fmt, shape, -7, 7)
        return fields(rng, fmt, shape, max(fmt.bias - width, 1), fmt.bias + width)

    return operand_codes(fa, "a", 3), operand_codes(fb, "b", 3), operand_codes(fc, "c", 4)


def spread(rng: np.random.Generator, product: ProductShape, cases: int) -> CodeTriple:
    """Exponents within 15 of 0 (as far as the format has them), half of A and B powers of two; C within 30."""
    fa, fb, fc = _formats(product)

    def operand(fmt: Format, shape: ArrayShape) -> UnsignedCodes:
        scalar = code_dtype(fmt).type
        if fmt.is_integer:
            powers: UnsignedCodes = scalar(1) << rng.integers(0, fmt.bits, shape, np.uint8).astype(scalar)
            return powers
        codes = fields(rng, fmt, shape, max(fmt.bias - 15, 1), fmt.bias + 15)
        power = rng.integers(0, 2, shape, np.uint8).astype(bool)
        return np.where(power, codes & ~scalar((1 << fmt.fraction_bits + fmt.ignored_bits) - 1), codes)

    shape_c = product.shape("c", cases)
    c = operand(fc, shape_c) if fc.is_integer else fields(rng, fc, shape_c, max(fc.bias - 30, 1), fc.bias + 30)
    return operand(fa, product.shape("a", cases)), operand(fb, product.shape("b", cases)), c


def cancel(rng: np.random.Generator, product: ProductShape, cases: int) -> CodeTriple:
    """Pairs of products that cancel, exactly or up to one last place of B; C zero, of their size, or far below.

    The two products of a pair lie at any two positions of k; a product left over (odd K) stays alone.
    """
    _, fb, fc = _formats(product)
    a, b, c = narrow(rng, product, cases)
    k = product.k
    order = rng.permutation(k)
    first, second = order[: k // 2], order[k // 2 : 2 * (k // 2)]
    a[..., second] = a[..., first]
    b[..., second] = _negated(fb, b[..., first])
    off = rng.integers(0, 4, (cases, product.n, k // 2), np.uint8) == 0
    last = b.dtype.type(1 << fb.ignored_bits)
    b[..., second] = np.where(off, finite(fb, b[..., second] ^ last), b[..., second])
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


def subnormal(rng: np.random.Generator, product: ProductShape, cases: int) -> CodeTriple:
    """Subnormal A and C; in half of the cases B is as small, in the others large enough for subnormal results."""
    fa, fb, fc = _formats(product)
    if fa.is_integer:
        return tuple(
            integers(rng, fmt, product.shape(operand, cases), -1, 1)  # type: ignore[return-value]
            for operand, fmt in zip("abc", (fa, fb, fc), strict=True)
        )
    fd = format_of(product.d)
    a = fields(rng, fa, product.shape("a", cases), 0, 2)
    c = fields(rng, fc, product.shape("c", cases), 0, 3)
    reach = fd.min_exponent - fa.min_exponent + fb.bias
    tiny = rng.integers(0, 2, (cases, 1, 1)).astype(bool)
    b = fields(rng, fb, product.shape("b", cases), np.where(tiny, 0, reach - 4), np.where(tiny, 4, reach + 4))
    return a, b, c


def huge(rng: np.random.Generator, product: ProductShape, cases: int) -> CodeTriple:
    """The largest binades; in half of the cases B is chosen so that products are near the result's largest number.

    Where no product comes near it (fp16 operands, fp32 results), half of C is of the products' size instead.
    """
    fa, fb, fc = _formats(product)
    if fa.is_integer:
        a, b = (
            np.where(
                random_bits(rng, fmt, product.shape(operand, cases)) & 1 == 1,
                code_dtype(fmt).type(fmt.largest_code()),
                code_dtype(fmt).type(fmt.largest_code(1) if fmt.signed else 0),
            )
            for operand, fmt in (("a", fa), ("b", fb))
        )
        near = integers(rng, fc, product.shape("c", cases), -1 << 20, 1 << 20)
        return a, b, near ^ code_dtype(fc).type(1 << fc.fraction_bits)
    fd = format_of(product.d)
    top = {fmt.name: fmt.largest_magnitude >> fmt.fraction_bits for fmt in (fa, fb, fc)}
    a = fields(rng, fa, product.shape("a", cases), top[fa.name] - 4, top[fa.name])
    shape_c = product.shape("c", cases)
    c = fields(rng, fc, shape_c, top[fc.name] - 2, top[fc.name])
    largest_product = fa.max_exponent + fb.max_exponent + fc.bias
    if largest_product < top[fc.name] - 4:
        beside = rng.integers(0, 2, shape_c, np.uint8).astype(bool)
        c = np.where(beside, fields(rng, fc, shape_c, largest_product - 4, largest_product + 4), c)
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
