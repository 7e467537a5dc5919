"""Elementwise work beside the matrix unit: joining, promoting, scaling, looking for specials, patching."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Step = tuple[str] | tuple[str, int] | tuple[str, float]

def variants() -> tuple[str, ...]:
    """Names of the builds of the kernels that this processor runs, fastest first."""

def combine(
    operands: Sequence[npt.NDArray[Any]],
    steps: Sequence[Step],
    dtype: npt.DTypeLike = ...,
    *,
    saturate: bool = False,
    nan_code: int | None = None,
    out: npt.NDArray[Any] | None = None,
    threads: int = 1,
    variant: str | None = None,
) -> npt.NDArray[Any]:
    """One pass over the operands that leaves the value of `steps`, worked off on a stack, in an array of `dtype`.

    operands: up to 32, of `dtype` (float32, the default, or float64; for float64 also float32 and int32, taken
    exactly); any strides; shapes are broadcast. steps, up to 64, each one operation of `dtype`, nearest even:
        ("load", i)        push operand i
        ("constant", f)    push f, rounded to dtype
        ("add",) ("subtract",) ("times",)   x, y -> x + y, x - y, x * y
        ("scale", f)       x -> f * x, f rounded to dtype first
        ("fused", f)       x, y -> f * x + y, rounded once
        ("fma",)            x, y, z -> x * y + z, rounded once
    saturate: after each step (loads among them) an infinity is the largest finite value of its sign and a NaN +0.
    Otherwise infinities stay, and a NaN in the result has the code `nan_code` (None: the default quiet NaN).
    out: filled and returned, of dtype and the broadcast shape, columns contiguous; may be one of the operands.
    threads, variant: no influence on the result.
    Raises InputError for other dtypes, steps that do not fit, and an unfit `out`.
    """

def specials(
    x: npt.NDArray[Any], *, threads: int = 1, variant: str | None = None
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which rows and which columns of the float32 or float64 matrix x hold an infinity or a NaN: two boolean vectors.

    Raises InputError for anything else.
    """

def patch(
    target: npt.NDArray[Any],
    source: npt.NDArray[Any],
    rows: npt.NDArray[np.bool_],
    cols: npt.NDArray[np.bool_],
    *,
    threads: int = 1,
) -> npt.NDArray[Any]:
    """target[i, j] = source[i, j], in place, where rows[i] or cols[j]; returns target.

    target, source: matrices of one shape and dtype (1, 2, 4 or 8 bytes), columns contiguous.
    Raises InputError for others, and for flags that are not as many booleans as there are rows or columns.
    """
