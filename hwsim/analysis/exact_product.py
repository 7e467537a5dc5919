"""Reference products of fp64 matrices, accurate to about 104 bits: products and sums as pairs of doubles.

Dekker's product and Knuth's sum (T. J. Dekker, Numer. Math. 18, 1971; Ogita, Rump and Oishi, SIAM J. Sci. Comput. 26,
2005); for large matrices, slices whose products fp64 matrix products compute exactly (Ozaki, Ogita, Oishi and Rump,
Numer. Algorithms 59, 2012). Single elements exactly, in fractions. The module knows nothing of schemes; it is the
reference for their errors.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
SPLITTER = float(2**27 + 1)
DIGITS = 53  # of fp64
MOST_SLICES = 8  # of an operand
SLICED_PRODUCTS = 1 << 36  # multiply-adds of fp64 matrix products, some seconds
PAIRED_PRODUCTS = 1 << 26  # of `product`, some seconds


def two_sum(a: Float64, b: Float64) -> tuple[Float64, Float64]:
    """The rounded sum a + b, and its rounding error, exactly."""
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


def two_product(a: Float64, b: Float64) -> tuple[Float64, Float64]:
    """The rounded product a * b, and its rounding error, exactly; for magnitudes from 2^-480 to 2^480 (and 0)."""
    product = a * b
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    return product, a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2)


def product(a: NDArray[Any], b: NDArray[Any]) -> tuple[Float64, Float64]:
    """A[m, k] B[k, n] as a pair of doubles, the second below half a unit of the first's last place."""
    left, right = (np.asarray(x, np.float64) for x in (a, b))
    high = np.zeros((left.shape[0], right.shape[1]))
    low = np.zeros_like(high)
    for i in range(left.shape[1]):
        term, cut = two_product(left[:, i, None], right[i])
        high, lost = two_sum(high, term)
        low += lost + cut
    return two_sum(high, low)


def reference(a: NDArray[Any], b: NDArray[Any], matrices: int = 1) -> tuple[Float64, Float64, slice]:
    """A[m, k] B[k, n] as a pair of doubles, and the slice of rows that it has: all, or evenly spaced ones.

    Computed in slices, whose products are exact and independent of the order in which a library adds; their sums are
    good to about 104 bits. Rows are left out where there would be more than SLICED_PRODUCTS products. Operands whose
    range exceeds MOST_SLICES slices go through `product`, at most PAIRED_PRODUCTS products. matrices: number of
    matrices that share these limits. With NaN or infinities: the product in fp64, and 0.
    """
    left, right = (np.asarray(x, np.float64) for x in (a, b))
    (m, k), n = left.shape, right.shape[1]
    if not (m and k and n and np.isfinite(left).all() and np.isfinite(right).all()):
        with np.errstate(all="ignore"):
            high = left @ right
        return high, np.zeros_like(high), slice(None)
    width = (DIGITS - (k - 1).bit_length()) // 2  # k products of 2 * width bits add up to 53 at most
    rows, cols = _slices(left, width), _slices(right.T, width)
    if rows is None or cols is None:
        sampled = _spaced(m, k * n * matrices, PAIRED_PRODUCTS)
        return *product(left[sampled], right), sampled
    sampled = _spaced(m, k * n * matrices * len(rows[1]) * len(cols[1]), SLICED_PRODUCTS)
    high = low = np.zeros((len(range(m)[sampled]), n))
    pairs = sorted((i + j, i, j) for i in range(len(rows[1])) for j in range(len(cols[1])))
    for weight, i, j in pairs:
        exact = np.ldexp(rows[1][i][sampled] @ cols[1][j].T, -(weight + 2) * width)
        high, lost = two_sum(high, exact)
        low = low + lost
    high, low = two_sum(high, low)
    exponents = rows[0][sampled, None] + cols[0]
    return np.ldexp(high, exponents), np.ldexp(low, exponents), sampled


def exact_sum(row: NDArray[Any], column: NDArray[Any]) -> Fraction | None:
    """The exact sum of products of a row (k,) of A and a column (k,) of B, of types that fp64 holds; None with an
    infinity or NaN.
    """
    x, y = row.astype(np.float64), column.astype(np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return None
    products = (Fraction(left) * Fraction(right) for left, right in zip(x.tolist(), y.tolist(), strict=True))
    return sum(products, Fraction(0))


def _spaced(count: int, each: int, most: int) -> slice:
    """A slice of evenly spaced indices of `count`, as many as cost at most `most` at `each`; at least one."""
    return slice(None, None, -(-count // max(1, most // max(1, each))))


def _slices(x: Float64, width: int) -> tuple[NDArray[Any], list[Float64]] | None:
    """x[i] = 2^exponents[i] sum_j slices[j][i] 2^-((j + 1) width), integers of `width` bits; None where a row has too
    wide a range.
    """
    exponents = np.frexp(np.abs(x).max(axis=1))[1]
    rest = np.ldexp(x, -exponents[:, None])
    if not np.array_equal(np.ldexp(rest, exponents[:, None]), x):
        return None
    slices: list[Float64] = []
    while rest.any():
        if len(slices) == MOST_SLICES:
            return None
        places = (len(slices) + 1) * width
        slices.append(np.rint(np.ldexp(rest, places)))
        rest = rest - np.ldexp(slices[-1], -places)
    return exponents, slices


def _halves(x: Float64) -> tuple[Float64, Float64]:
    scaled = SPLITTER * x
    high = scaled - (scaled - x)
    return high, x - high
