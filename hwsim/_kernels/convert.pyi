"""Conversions between float arrays and codes; bit for bit `round_to` and `decode` of hwsim.formats."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hwsim.formats import Format

def variants() -> tuple[str, ...]:
    """Names of the builds of the kernels that this processor runs, fastest first."""

def encode(
    x: npt.NDArray[np.float32] | npt.NDArray[np.float64],
    fmt: Format,
    rounding: str = "RNE",
    overflow: str = "ieee",
    *,
    nan: str = "quiet",
    out: npt.NDArray[Any] | None = None,
    threads: int = 1,
    variant: str | None = None,
) -> npt.NDArray[Any]:
    """Codes of x, each element rounded once to fmt.

    x: float32 or float64, any shape and strides; may be read-only. Returns an array of
    `code_dtype(fmt)`, x's shape, C order; `out`, if given, is filled and returned (that dtype and shape,
    C order, no memory shared with x). Rounding, overflow, infinities and zeros are `round_to`'s of
    hwsim.formats; integers saturate.
    rounding: RNE, RNA, RZ, RU, RD. overflow: "ieee", "infinity", "saturate".
    nan: "quiet" gives the format's default quiet NaN, and 0 for integers; "zero" gives what +0 gives
    (Ascend's saturation mode); "all-ones": in IEEE's formats every bit but the sign (NVIDIA's units), else as "quiet".
    threads: ranges of rows, or of elements where x is contiguous; no influence on the result.
    variant: one of `variants()`; None, the one that the package uses.
    Raises InputError for another dtype, an unknown option, an unfit `out`, and for a NaN into a format
    that has none (e3m2, e2m3, e2m1) unless nan="zero".
    """

def decode(
    codes: npt.NDArray[Any],
    fmt: Format,
    dtype: npt.DTypeLike = ...,
    *,
    out: npt.NDArray[Any] | None = None,
    threads: int = 1,
    variant: str | None = None,
) -> npt.NDArray[Any]:
    """Exact values of codes as float32 (default) or float64, same shape, C order.

    codes: `code_dtype(fmt)`, any shape and strides. Ignored and unused bits have no influence. A NaN
    becomes the default quiet NaN with the code's sign (payloads are not kept).
    `out`, `threads`, `variant`: as for `encode`.
    Raises InputError for another dtype, an unfit `out`, and for float32 where it does not hold every value
    (fp64, int32).
    """

Piece = tuple[Format, str, int] | tuple[Format, str, int, str | None]

def split(
    x: npt.NDArray[np.float32] | npt.NDArray[np.float64],
    pieces: Sequence[Piece],
    *,
    overflow: str = "ieee",
    nan: str = "quiet",
    clamp: bool = False,
    out: Sequence[npt.NDArray[Any]] | None = None,
    threads: int = 1,
    variant: str | None = None,
) -> list[npt.NDArray[Any]]:
    """Codes of the pieces (format, rounding, scale_exponent[, overflow]) of x, one array per piece.

    rest = x; then for each piece: rest = rest * 2^scale_exponent, piece = rest rounded to the format,
    rest = rest - piece; product and difference are one operation of x's type each, nearest even, subnormals kept.
    A piece's overflow ("ieee", "infinity", "saturate"): of its conversion, where it differs from the split's.
    overflow="saturate": an infinity, in x or from one of the two operations, is the largest finite value.
    clamp: infinities in x become the largest finite value before all else.
    nan="zero": a NaN, likewise, is +0 (together: Ascend's saturation mode).
    x: float32 or float64, any shape and strides. Each result: `code_dtype(format)`, x's shape, C order; `out`, if
    given, holds an array for each, filled and returned.
    Raises InputError for another dtype, no pieces, an unknown option, a scale that x's type has not, a format
    that it does not hold, or one without NaN (e3m2, e2m3, e2m1) unless nan="zero".
    """

def scale(
    x: npt.NDArray[np.float32] | npt.NDArray[np.float64],
    exponent: int,
    *,
    out: npt.NDArray[Any] | None = None,
    threads: int = 1,
    variant: str | None = None,
) -> npt.NDArray[Any]:
    """x times 2^exponent, each product rounded once to x's type, to nearest even; subnormals are kept.

    x: float32 or float64, any shape and strides. exponent: -149 to 127, or -1074 to 1023: those of powers of two that
    the type has. Returns an array of x's dtype and shape, C order. `out`: as for `encode`; x itself, where it is in C
    order, is overwritten. `threads`, `variant`: as for `encode`.
    Raises InputError for another dtype, another exponent, an unfit `out`.
    """

def largest(
    x: npt.NDArray[np.float32] | npt.NDArray[np.float64], *, threads: int = 1, variant: str | None = None
) -> float:
    """The largest magnitude in x; infinity where there is one, a NaN where there is one, 0 where x is empty.

    x: float32 or float64, any shape and strides. `threads`, `variant`: as for `encode`. Raises InputError for another
    dtype.
    """

DEFAULT_ENVIRONMENT: int
FLUSHING_ENVIRONMENT: int

def environment() -> int:
    """The floating-point control register of this thread: rounding, and whether subnormals are flushed to zero."""

def set_environment(value: int) -> None:
    """Set it: DEFAULT_ENVIRONMENT, FLUSHING_ENVIRONMENT (subnormals to zero, as some libraries set), or an earlier
    value.
    """
