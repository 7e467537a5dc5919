"""ape-int16, quantensor and ozaki, written down step by step."""

from __future__ import annotations

import math
from fractions import Fraction

import gmpy2
import numpy as np
from straight_unit import F32, Outside, Unit, codes
from straight_wide import patched

FP64_BITS = 53


def ape_int16(a, b, device, low_byte, accumulate="int64"):
    """Bytes: four products shifted by 16, 8, 8, 0; biased low bytes are put right with sums of rows and columns."""
    dtype = np.dtype(accumulate)
    k = a.shape[1]
    unit = Unit(device, "int8")
    names = {"ss": unit.name}
    if low_byte == "unsigned":
        names = {x + y: unit.name.replace(".s8.s8", f".{x}8.{y}8") for x in "su" for y in "su"}
    bias = 128 if low_byte == "biased" else 0

    def pieces(x):
        wide = x.astype(np.int32)
        low = wide % 256
        if low_byte == "signed":
            low = np.where(low < 128, low, low - 256)
        return ((wide - low) // 256).astype(np.int8).view(np.uint8), (low - bias).astype(np.uint8)

    (ah, al), (bh, bl) = pieces(a), pieces(b)
    low = "u" if low_byte == "unsigned" else "s"
    total = np.zeros((a.shape[0], b.shape[1]), dtype)
    for x, y, kinds, shift in (
        (ah, bh, "ss", 16),
        (ah, bl, "s" + low, 8),
        (al, bh, low + "s", 8),
        (al, bl, low * 2, 0),
    ):
        product = Unit(device, "int8", names[kinds]).chain((x, y)).astype(dtype)
        total = total + (product << dtype.type(shift))
    if bias:
        rows, columns = a.astype(np.int64).sum(1), b.astype(np.int64).sum(0)
        extra = bias * (rows[:, None] + columns) - bias * bias * k
        total = total + extra.astype(dtype)
    return total


def slices(x, axis, bits, count, last):
    """Exponent of each row (axis 1) or column, and integer slices toward zero; the last by `last`, one at a time."""
    finite = np.where(np.isfinite(x), x, 0).astype(np.float64)
    exponents, digits = [], np.zeros((count, *x.shape), np.int64)
    lines = finite if axis == 1 else finite.T
    for index, line in enumerate(lines):
        largest = max(abs(v) for v in line)
        exponent = math.frexp(largest)[1] if largest else 0
        exponents.append(exponent)
        for position, v in enumerate(line):
            rest = Fraction(v) / Fraction(2) ** exponent
            for i in range(count):
                rest *= 1 << bits
                whole = round(rest) if i == count - 1 and last == "RNE" else math.trunc(rest)
                digits[(i, index, position) if axis == 1 else (i, position, index)] = whole
                rest -= whole
    return np.array(exponents), digits


def quantensor(a, b, device, format="int8", pieces=2, all_products=True, residual=False):
    """Fixed point with a power of two per row and column; int32 products joined in fp32 from the least significant."""
    bits, top = {"int8": (7, 127), "int4": (3, 7)}[format]
    unit, out = Unit(device, format), Outside(device)
    pairs = [(i, j) for i in range(pieces) for j in range(pieces) if all_products or i + j <= pieces - 1]
    if residual:
        pairs += [(0, pieces), (pieces, 0)]
        pieces += 1
    ea, da = slices(a, 1, bits, pieces, "RNE")
    eb, db = slices(b, 0, bits, pieces, "RNE")
    left, right = (codes(np.minimum(np.maximum(d, -top - 1), top), format) for d in (da, db))
    total = None
    for i, j in sorted(pairs, key=lambda p: (-(p[0] + p[1]), p)):
        product = unit.chain((left[i], right[j])).astype(F32)
        term = out.times(product, -bits * (i + j + 2))
        total = term if total is None else out.add(total, term)
    with np.errstate(over="ignore", under="ignore"):
        raised = np.ldexp(total, ea[:, None] + eb)
    return patched(raised, a, b)


def ozaki(a, b, device, fmt, slices_kept=None, truncate=True, sum="fp64"):
    """Error-free slices, products exact in the accumulator, added in fp64 from the least significant, or exactly."""
    accumulator, most = {"fp16": (24, 11), "int8": (31, 7)}[fmt]
    k = a.shape[1]
    bits = min(most, (accumulator - math.ceil(math.log2(k))) // 2)
    count = slices_kept or math.ceil(FP64_BITS / bits)
    unit, out = Unit(device, fmt), Outside(device, np.float64)
    ea, da = slices(a, 1, bits, count, "RZ")
    eb, db = slices(b, 0, bits, count, "RZ")
    left, right = (codes(d.astype(np.float32), fmt) if fmt == "fp16" else codes(d, fmt) for d in (da, db))
    pairs = [(i, j) for i in range(count) for j in range(count) if not truncate or i + j + 2 <= count + 1]
    total, exact = None, np.zeros((a.shape[0], b.shape[1]), object)
    for i, j in sorted(pairs, key=lambda p: (-(p[0] + p[1]), p)):
        product = unit.chain((left[i], right[j])).astype(np.float64)
        assert np.array_equal(product.astype(np.int64), da[i] @ db[j])  # the unit rounded nothing
        if sum == "exact":
            exact = exact + product.astype(np.int64).astype(object) * (1 << (2 * bits * count - bits * (i + j + 2)))
        else:
            term = np.ldexp(product, -bits * (i + j + 2))
            total = term if total is None else out.add(total, term)
    exponents = ea[:, None] + eb
    if sum == "exact":
        shifts = exponents - 2 * bits * count
        value = np.vectorize(correctly_rounded, otypes=[np.float64])(exact, shifts)
    else:
        value = np.ldexp(total, exponents)
    return patched(value, a.astype(np.float64), b.astype(np.float64))


def correctly_rounded(whole, exponent) -> float:
    """whole 2^exponent in binary64, nearest even, by MPFR with binary64's exponents."""
    with gmpy2.context(precision=53, emin=-1073, emax=1024, subnormalize=True) as _:
        exact = gmpy2.mpq(int(whole)) * (gmpy2.mpq(2) ** int(exponent))
        return float(gmpy2.mpfr(exact))
