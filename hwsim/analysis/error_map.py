"""Where the error of a product is: in units in the last place, and block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from hwsim.analysis.errors import LinearEpilogue, as_fp64, exact_pair
from hwsim.analysis.metrics import last_place

CELLS = 64


@dataclass(frozen=True, slots=True)
class ErrorMap:
    """The error of a product's elements against the exact product (fp64, for an fp64 product a pair of doubles).

    ulps: (elements,) fp64, |c - exact| in units of the last place that the product's format has at the exact value;
    undefined: elements left out, as one of the two is not finite. blocks: (rows, columns) fp64 of at most CELLS x CELLS
    blocks of the (first) matrix: root mean square of the block's error over that of the whole exact product; a block
    without finite elements is NaN. spans: elements of C per block, (rows, columns). rows: compared rows of each matrix.
    """

    ulps: NDArray[np.float64]
    undefined: int
    blocks: NDArray[np.float64]
    spans: tuple[int, int]
    rows: int


def error_map(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], epilogue: LinearEpilogue) -> ErrorMap | None:
    """The errors of c (..., m, n) as the product of a (..., m, k) and b (..., k, n); None where c is empty, or of a
    type without a last place.
    """
    if not c.size:
        return None
    try:
        about = ml_dtypes.finfo(c.dtype)  # type: ignore[no-untyped-call]
    except ValueError:
        return None
    with np.errstate(all="ignore"):
        if c.dtype == np.float64:
            high, low, rows = exact_pair(a, b, c.shape, epilogue)
            error = np.abs((c[..., rows, :] - high) - low)
        else:
            high, rows = epilogue.apply(as_fp64(a) @ as_fp64(b)), slice(None)
            error = np.abs(as_fp64(c) - high)
        is_defined = np.isfinite(error)
        ulps = np.ldexp(error, -last_place(high, about))[is_defined]
        scale = np.sqrt(np.mean(np.square(high[np.isfinite(high)])))
        first = np.where(is_defined, error, np.nan).reshape(-1, *error.shape[-2:])[0] / (scale or 1.0)
    blocks, spans = _blocks(first)
    step = rows.step or 1
    return ErrorMap(ulps, int(error.size - is_defined.sum()), blocks, (spans[0] * step, spans[1]), error.shape[-2])


def _blocks(error: NDArray[np.float64]) -> tuple[NDArray[np.float64], tuple[int, int]]:
    """Root mean squares of blocks, of equal sizes but for the last ones."""
    spans = [-(-size // CELLS) for size in error.shape]
    starts = [np.arange(0, size, span) for size, span in zip(error.shape, spans, strict=True)]
    total, number = (
        np.add.reduceat(np.add.reduceat(x, starts[0], axis=0), starts[1], axis=1)
        for x in (np.square(np.nan_to_num(error, nan=0.0)), np.isfinite(error).astype(np.float64))
    )
    with np.errstate(invalid="ignore"):
        rms: NDArray[np.float64] = np.where(number > 0, np.sqrt(total / number), np.nan)
    return rms, (spans[0], spans[1])
