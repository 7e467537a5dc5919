"""The compiled kernels as a backend. The module knows hwsim._kernels; no other imports the kernels that give bits."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hwsim import _kernels
from hwsim._kernels import convert, dot, lanes
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import code_dtype, format_of
from hwsim.numerics.units import DotSpec

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.numerics.dot_operands import DotOperands

MOST_UNITS = 1024  # whose support is remembered
PROMOTED = ("fp32", "fp64")  # formats of accumulators that `promote` adds


class CpuBackend:
    """The kernels of this machine's processor, on NumPy arrays. Its operations but the products are the compiled
    functions themselves: a call through the backend costs what a call of the function costs.
    """

    name = "cpu"
    variant = _kernels.variant
    variants = _kernels.variants
    calls_at_once = 1

    @staticmethod
    def for_whole(macs: int) -> None:
        """See Backend.for_whole."""

    encode = staticmethod(convert.encode)
    decode = staticmethod(convert.decode)
    split = staticmethod(convert.split)
    scale = staticmethod(convert.scale)
    largest = staticmethod(convert.largest)
    combine = staticmethod(lanes.combine)
    specials = staticmethod(lanes.specials)

    @staticmethod
    def gemm(
        spec: DotSpec, operands: DotOperands, *, threads: int = 1, out: npt.NDArray[Any] | None = None
    ) -> npt.NDArray[Any]:
        """See Backend.gemm."""
        a, b, c, scale_a, scale_b, scale_d = operands
        return dot.gemm(
            spec, a, b, c, scale_a=scale_a, scale_b=scale_b, divide=_by_step(scale_d), threads=threads, out=out
        )

    @staticmethod
    def promote(spec: DotSpec, operands: DotOperands, total: npt.NDArray[Any], **arguments: Any) -> npt.NDArray[Any]:
        """See Backend.promote."""
        a, b = operands.a, operands.b
        return dot.promote(spec, a, b, total, divide=_by_step(operands.scale_d), **arguments)

    @staticmethod
    def from_host(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The array itself."""
        return x

    @staticmethod
    def to_host(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The array itself."""
        return x

    result = to_host

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A NumPy array with any content."""
        return np.empty(shape, dtype)

    @staticmethod
    def zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A NumPy array of zeros."""
        return np.zeros(shape, dtype)

    @staticmethod
    @lru_cache(MOST_UNITS)
    def takes(spec: DotSpec) -> bool:
        """Whether a kernel computes this unit with these formats: asked by a product with no rows."""
        a, b = (np.zeros(shape, code_dtype(format_of(fmt))) for shape, fmt in (((0, 1), spec.a), ((1, 1), spec.b)))
        scale_a = scale_b = None
        if spec.scale_format is not None:
            codes = code_dtype(format_of(spec.scale_format))
            scale_a, scale_b = np.zeros((0, 1), codes), np.zeros((1, 1), codes)
        try:
            dot.gemm(spec, a, b, scale_a=scale_a, scale_b=scale_b)
        except (UnsupportedError, InputError):  # the reference says what is wrong, if anything is
            return False
        return True

    @staticmethod
    def promotes(spec: DotSpec) -> bool:
        """Whether the sums are fp32 or fp64 in the unit and outside it, without block scales."""
        return spec.c == spec.d and spec.d in PROMOTED and spec.scale_format is None


def _by_step(scale_d: Any) -> Any:
    """The exponents of each step; None: all are 0."""
    return None if isinstance(scale_d, int) and not scale_d else scale_d


CPU: Backend = CpuBackend()
