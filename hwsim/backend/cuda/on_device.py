"""The GPU as a backend of its own arrays: every operation on it. The module joins operations; it computes nothing.

It is the backend of products whose operands lie on the GPU already; their results stay there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hwsim.backend.cpu import CPU
from hwsim.backend.cuda import elements
from hwsim.backend.cuda.device import architecture, cupy, failures
from hwsim.backend.cuda.gpu_arrays import GpuArray, on_gpu, word_of
from hwsim.backend.cuda.unit_programs import add_chains, product
from hwsim.errors import UnsupportedError
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import DotSpec

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend


def _without_threads(operation: Callable[..., Any]) -> Any:
    """An operation that takes host threads and needs none, with an error of hwsim's where the GPU fails."""

    @wraps(operation)
    def on_the_gpu(*args: Any, threads: int = 1, **more: Any) -> Any:
        try:
            return operation(*args, **more)
        except failures() as error:
            raise UnsupportedError(
                f"engine cuda: the GPU failed ({error}); give smaller arrays, or NumPy's, whose products the CPU's "
                "kernels compute where the GPU cannot"
            ) from None

    return staticmethod(on_the_gpu)


def gemm(spec: DotSpec, operands: DotOperands, *, out: GpuArray | None = None) -> GpuArray:
    """See Backend.gemm."""
    CPU.gemm(spec, _without_rows(operands))  # what does not fit is refused as by the CPU
    codes = product(spec, _memories(operands))
    if out is None:
        return GpuArray(codes, codes.dtype)
    out[...] = GpuArray(codes, codes.dtype)
    return out


def promote(
    spec: DotSpec,
    operands: DotOperands,
    total: GpuArray,
    *,
    length: int,
    saturate: bool = False,
    nan_code: int | None = None,
) -> GpuArray:
    """See Backend.promote."""
    few = _without_rows(operands)
    CPU.promote(
        spec, few, np.empty((0, *total.shape[1:]), total.dtype), length=length, saturate=saturate, nan_code=nan_code
    )
    add_chains(spec, _memories(operands), total.memory, length=length, saturate=saturate, nan_code=nan_code)
    return total


def _memories(operands: DotOperands) -> DotOperands:
    """CuPy's arrays; the exponents of the steps stay on the host."""
    scale_d = operands.scale_d
    is_zero = isinstance(scale_d, int) or not np.any(scale_d)
    a, b, c, scale_a, scale_b = (None if x is None else x.memory for x in operands[:-1])
    return DotOperands(a, b, c, scale_a, scale_b, 0 if is_zero else scale_d)


def _without_rows(operands: DotOperands) -> DotOperands:
    """Operands of the host of these shapes, of which those with rows of A have none."""

    def empty(x: Any, has_rows: bool) -> Any:
        if x is None:
            return None
        shape = (*x.shape[:-2], 0, x.shape[-1]) if has_rows else x.shape
        return np.broadcast_to(np.zeros((), x.dtype), shape)

    a, b, c, scale_a, scale_b, scale_d = operands
    left, start, left_scale = (empty(x, True) for x in (a, c, scale_a))
    right, right_scale = (empty(x, False) for x in (b, scale_b))
    return DotOperands(left, right, start, left_scale, right_scale, scale_d)


class DeviceBackend:
    """NVIDIA's GPUs by CuPy, on arrays of theirs. Raises UnsupportedError where CuPy or a GPU is missing."""

    name = "cuda"
    calls_at_once = 64  # as of the backend of the host's arrays
    for_whole = staticmethod(CPU.for_whole)

    encode, decode = _without_threads(elements.encode), _without_threads(elements.decode)
    split, scale = _without_threads(elements.split), _without_threads(elements.scale)
    largest, specials = _without_threads(elements.largest), _without_threads(elements.specials)
    combine = _without_threads(elements.combine)
    gemm, promote = _without_threads(gemm), _without_threads(promote)
    from_host = _without_threads(on_gpu)
    takes, promotes = staticmethod(CPU.takes), staticmethod(CPU.promotes)

    def __init__(self) -> None:
        cupy()
        self.variant = architecture()
        self.variants = (self.variant,)

    @_without_threads
    @staticmethod
    def to_host(x: Any) -> npt.NDArray[Any]:
        """The array on the host."""
        return x if isinstance(x, np.ndarray) else x.get()

    @staticmethod
    def result(x: Any) -> Any:
        """The array itself."""
        return x

    @_without_threads
    @staticmethod
    def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> GpuArray:
        """An array of the GPU with any content."""
        return GpuArray(cupy().empty(shape, word_of(np.dtype(dtype))), dtype)

    @_without_threads
    @staticmethod
    def zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> GpuArray:
        """An array of zeros of the GPU."""
        return GpuArray(cupy().zeros(shape, word_of(np.dtype(dtype))), dtype)


def device_backend() -> Backend:
    """The backend, where there is a GPU."""
    return DeviceBackend()
