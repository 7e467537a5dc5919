"""The element of a product with the largest error, and the errors without the elements that are not finite.

The module knows arrays; it knows no plan and no device.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from hwsim.analysis.exact_product import two_product
from hwsim.analysis.metrics import errors, last_place
from hwsim.analysis.run_records import FiniteErrors, WorstElement

AnyArray = NDArray[Any]


def worst_element(
    a: AnyArray, b: AnyArray, c: AnyArray, exact: AnyArray, low: AnyArray | float, rows: slice
) -> WorstElement | None:
    """The element with the largest finite relative error; None where none has an error.

    a (..., m, k), b (..., k, n), c (..., m, n). exact, low: of the rows `rows` of each matrix, fp64 and the part of it
    below that precision.
    """
    with np.errstate(all="ignore"):
        error = np.abs((exact - c[..., rows, :].astype(np.float64)) + low)
        relative = error / np.abs(exact)
        relative[~np.isfinite(relative)] = 0.0  # an exact zero, and what is not finite
        if not relative.any():
            return None
        at = tuple(int(index) for index in np.unravel_index(int(np.argmax(relative)), relative.shape))
        lead, row, column = at[:-2], at[-2] * (rows.step or 1), at[-1]
        place = (*lead, row, column)
        x, y = (np.broadcast_to(side, (*c.shape[:-2], *side.shape[-2:]))[lead] for side in (a, b))
        condition = _condition(x[row].astype(np.float64), y[:, column].astype(np.float64))
        try:
            about = ml_dtypes.finfo(c.dtype)  # type: ignore[no-untyped-call]
        except ValueError:
            ulps = None
        else:
            ulps = float(np.ldexp(error[at], -last_place(exact[at], about)))
    return WorstElement(list(place), float(relative[at]), float(c[place]), float(exact[at]), condition, ulps)


def _condition(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """sum |x y| / |sum x y|, of exact sums; infinite where the sum is 0 or not finite. x, y: (k,)."""
    products, cut = two_product(x, y)
    cut[~np.isfinite(cut)] = 0.0  # beyond the magnitudes of which two_product is exact
    try:
        total = abs(math.fsum((*products.tolist(), *cut.tolist())))
        return math.fsum(np.abs(products).tolist()) / total if total else math.inf
    except (OverflowError, ValueError):  # products that are not finite
        return math.inf


def finite_errors(exact: AnyArray, c: AnyArray, low: AnyArray | float) -> FiniteErrors | None:
    """The errors of the elements that have one; None where all have. Arrays of one shape.

    An element has none where it is infinite or NaN, in C or exactly, or where it is exactly 0 and C is not.
    """
    with np.errstate(all="ignore"):
        is_finite = np.isfinite(c.astype(np.float64))
        is_exact = np.isfinite(exact)
        is_off_zero = is_finite & (exact == 0) & ((exact - c.astype(np.float64)) + low != 0)
        is_defined = is_finite & is_exact & ~is_off_zero
        if is_defined.all():
            return None
        rest = low[is_defined] if isinstance(low, np.ndarray) else low
        of_rest = errors(exact[is_defined], c[is_defined], rest)
    undefined, overflowed = int((~is_defined).sum()), int((is_exact & ~is_finite).sum())
    elements, zero = int(is_defined.sum()), int(is_off_zero.sum()) or None
    return FiniteErrors(undefined, overflowed, elements, of_rest.relative_frobenius, of_rest.max_relative, zero)
