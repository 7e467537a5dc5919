"""Products of fp64 matrices to about 104 bits: products and sums as pairs of doubles.

Dekker's product and Knuth's sum (T. J. Dekker, Numer. Math. 18, 1971; Ogita, Rump and Oishi, SIAM J. Sci. Comput. 26,
2005). It knows nothing of schemes; it is the reference that their errors are measured against.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
SPLITTER = float(2**27 + 1)


def two_sum(a: Float64, b: Float64) -> tuple[Float64, Float64]:
    """a + b rounded, and what the rounding cut, exactly."""
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


def two_product(a: Float64, b: Float64) -> tuple[Float64, Float64]:
    """a * b rounded, and what the rounding cut, exactly; for magnitudes from 2^-480 to 2^480 (and 0)."""
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


def _halves(x: Float64) -> tuple[Float64, Float64]:
    scaled = SPLITTER * x
    high = scaled - (scaled - x)
    return high, x - high
