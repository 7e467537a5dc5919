"""The operations that compute bits. The evaluator, the arithmetic and the machines are handed an object with them.

The module knows formats and dot units; it knows no implementation, no plan, no program and no device.

What a backend promises:

* Bits. Each operation gives the bits of the integer reference (hwsim.numerics.reference, hwsim.formats). No tolerance.
* Arrays. Codes, values and flags are arrays of the backend: NumPy's, or arrays that answer NumPy's functions and
  operators (NEP 13 and 18) and have its views, slices and strides. `from_host`, `empty` and `zeros` make them,
  `to_host` and `result` bring them back. A backend takes its own arrays alone. hwsim.compute.bits moves operands and
  results.
* Threads. `threads` is how many host threads an operation may take. It changes no bit. A backend may ignore it.
* Safety. Several threads may call one backend at a time.
* Environment. A flag of the host (subnormals to zero, rounding) changes no bit.

What a backend may refuse: units and formats, by `takes` and `promotes`. Where `takes` is False, single instructions go
to the integer reference (hwsim.devices.arithmetic), and a GEMM ends with the backend's UnsupportedError. Where
`promotes` is False, the evaluator takes `gemm` and `combine` instead. Every other operation is there for all formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt

if TYPE_CHECKING:
    from hwsim.formats import Format
    from hwsim.numerics.dot_operands import DotOperands
    from hwsim.numerics.units import DotSpec

AnyArray = npt.NDArray[Any]

#: One elementwise operation of `combine`.
LaneStep = tuple[str] | tuple[str, int] | tuple[str, float]
#: One piece of `split`: format, rounding, scale exponent, and the overflow where it is another than the split's.
SplitPiece = tuple["Format", str, int] | tuple["Format", str, int, str | None]


class Backend(Protocol):
    """Computes bits. codes: unsigned integers of the format's `code_dtype`; values: float32 or float64.

    Every operation raises InputError for shapes, dtypes and options that do not fit.
    """

    @property
    def name(self) -> str:
        """The name by which hwsim.backend.by_name finds it: "cpu"."""

    @property
    def variant(self) -> str:
        """The build in use, as results show it: "avx512"."""

    @property
    def variants(self) -> tuple[str, ...]:
        """The builds that this machine runs."""

    @property
    def calls_at_once(self) -> int:
        """How many host threads' work one call of `gemm` does at a time by itself: 1 where `threads` says it."""

    def for_whole(self, macs: int) -> Backend | None:
        """The backend to whose arrays a product of several pieces and so many multiply-accumulates moves as a whole,
        and its result back; None: to none.
        """

    # --- arrays ------------------------------------------------------------------------------------------------------

    def from_host(self, x: AnyArray) -> AnyArray:
        """A NumPy array, or an array of the backend, as an array of the backend: itself where it is one."""

    def to_host(self, x: AnyArray) -> AnyArray:
        """An array of the backend as a NumPy array: itself where it is one."""

    def result(self, x: AnyArray) -> AnyArray:
        """A result as the caller of a product gets it: a NumPy array, or one of the backend's where operands are."""

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> AnyArray:
        """An array of the backend with any content, C order."""

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> AnyArray:
        """An array of zeros of the backend, C order."""

    # --- products ----------------------------------------------------------------------------------------------------

    def takes(self, spec: DotSpec) -> bool:
        """Whether `gemm` computes this unit with these formats."""

    def gemm(
        self,
        spec: DotSpec,
        operands: DotOperands,
        *,
        threads: int = 1,
        out: AnyArray | None = None,
    ) -> AnyArray:
        """Codes (..., M, N) of c + a b, as the chain of the unit's steps in order of K computes it.

        operands: a (..., M, K), b (..., K, N): codes of spec.a and spec.b, any strides, equal leading dimensions. c
        (..., M, N): codes of spec.c; None: +0. scale_a (..., M, K / block), scale_b (..., K / block, N): codes of block
        scales, for units with block scales; the last block is as short as K leaves it. scale_d: 0, or uint8 (steps,) of
        the host; before each step the accumulator counts times 2^-scale_d, exactly. out: filled and returned, C order,
        of spec.d; it may be c. What a short last step lacks counts as +0. Raises UnsupportedError where `takes` is
        False.
        """

    def promotes(self, spec: DotSpec) -> bool:
        """Whether `promote` computes this unit with these formats."""

    def promote(
        self,
        spec: DotSpec,
        operands: DotOperands,
        total: AnyArray,
        *,
        length: int,
        saturate: bool = False,
        nan_code: int | None = None,
        threads: int = 1,
    ) -> AnyArray:
        """total (M, N), in place: chains of a b over each `length` of K, begun at +0, added one after the other.

        operands: a (M, K), b (K, N), as of `gemm`; scale_d as of `gemm`, for the steps of one chain; nothing else.
        total: float32 or float64 as spec.d, C order. length: a multiple of the unit's products per step that divides K.
        saturate, nan_code: of the additions, as of `combine`. Raises UnsupportedError where `promotes` is False.
        """

    # --- conversions -------------------------------------------------------------------------------------------------

    def encode(
        self,
        x: AnyArray,
        fmt: Format,
        rounding: str = "RNE",
        overflow: str = "ieee",
        *,
        nan: str = "quiet",
        out: AnyArray | None = None,
        threads: int = 1,
    ) -> AnyArray:
        """Codes of float32 or float64 values, each rounded once, as `round_to` of hwsim.formats; x's shape, C order.

        rounding: RNE, RNA, RZ, RU, RD. overflow: "ieee", "infinity", "saturate"; integers saturate. nan: "quiet" gives
        the format's default NaN, and 0 for integers; "zero" gives +0; "all-ones" gives all bits but the sign. A NaN is
        refused for a format that has none, unless nan="zero".
        """

    def decode(
        self,
        codes: AnyArray,
        fmt: Format,
        dtype: npt.DTypeLike = ...,
        *,
        out: AnyArray | None = None,
        threads: int = 1,
    ) -> AnyArray:
        """Exact values of codes as float32 (default) or float64, same shape, C order. A NaN becomes the default NaN,
        with the sign of its code. float32 is refused for fp64 and int32.
        """

    def split(
        self,
        x: AnyArray,
        pieces: Sequence[SplitPiece],
        *,
        overflow: str = "ieee",
        nan: str = "quiet",
        clamp: bool = False,
        out: Sequence[AnyArray] | None = None,
        threads: int = 1,
    ) -> list[AnyArray]:
        """Codes of the pieces of float32 or float64 values: an array for each, x's shape, C order.

        rest = x; then for each piece (format, rounding, scale exponent[, overflow]): rest = rest * 2^scale, piece =
        rest rounded, rest = rest - piece; product and difference round once each, in x's type, to nearest even.
        overflow, nan: as of `encode`; with "saturate" an infinity, in x or from an operation, is the largest finite
        value. clamp: infinities in x become the largest finite value before all else.
        """

    def scale(self, x: AnyArray, exponent: int, *, out: AnyArray | None = None, threads: int = 1) -> AnyArray:
        """float32 or float64 values times 2^exponent, each rounded once to x's type, to nearest even. exponent: of a
        power of two that the type has. out: x, or no memory of x.
        """

    def largest(self, x: AnyArray, *, threads: int = 1) -> float:
        """The largest magnitude of float32 or float64 values. Infinity or NaN where x has one; 0 where x is empty."""

    # --- elementwise lanes -------------------------------------------------------------------------------------------

    def combine(
        self,
        operands: Sequence[AnyArray],
        steps: Sequence[LaneStep],
        dtype: npt.DTypeLike = ...,
        *,
        saturate: bool = False,
        nan_code: int | None = None,
        out: AnyArray | None = None,
        threads: int = 1,
    ) -> AnyArray:
        """The value of `steps`, which work on a stack, for each element, in an array of `dtype` (default float32).

        operands: up to 32, of dtype; for float64 also float32 and int32, taken exactly; shapes are broadcast. steps, up
        to 64, each one operation of dtype, to nearest even:
            ("load", i)        push operand i
            ("constant", f)    push f, rounded to dtype
            ("add",) ("subtract",) ("times",)   x, y -> x + y, x - y, x * y
            ("scale", f)       x -> f * x, f rounded to dtype first
            ("fused", f)       x, y -> f * x + y, rounded once
            ("fma",)            x, y, z -> x * y + z, rounded once
        saturate: after each step an infinity is the largest finite value of its sign and a NaN is +0. Without it
        infinities stay, and a NaN in the result has the code nan_code (None: the default NaN). out: filled and
        returned; it may be an operand.
        """

    def specials(self, x: AnyArray, *, threads: int = 1) -> tuple[AnyArray, AnyArray]:
        """Which rows and which columns of a float matrix hold an infinity or a NaN: two vectors of booleans."""
