"""The GPU as a backend: hwsim.backend.operations on CuPy's arrays. The module joins the operations; it computes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hwsim.backend.cpu import CPU
from hwsim.backend.cuda import elements, products
from hwsim.backend.cuda.device import architecture, cupy, with_clear_errors
from hwsim.errors import UnsupportedError
from hwsim.numerics.units import DotSpec

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.numerics.dot_operands import DotOperands


def _on_gpu(operation: Callable[..., Any]) -> Any:
    """An operation without the host's threads, with clear errors."""
    computed = with_clear_errors(operation)

    def on_gpu(*args: Any, threads: int = 1, **more: Any) -> Any:
        return computed(*args, **more)

    return staticmethod(on_gpu)


class CudaBackend:
    """NVIDIA's GPUs by CuPy. Raises UnsupportedError where CuPy or a GPU is missing."""

    name = "cuda"
    calls_at_once = 64  # blocks of C that a call takes, beside what a host thread takes

    def __init__(self) -> None:
        cupy()
        self.variant = architecture()
        self.variants = (self.variant,)

    encode = _on_gpu(elements.encode)
    decode = _on_gpu(elements.decode)
    split = _on_gpu(elements.split)
    scale = _on_gpu(elements.scale)
    largest = _on_gpu(elements.largest)
    combine = _on_gpu(elements.combine)
    specials = _on_gpu(elements.specials)

    @staticmethod
    @with_clear_errors
    def gemm(spec: DotSpec, operands: DotOperands, *, threads: int = 1, out: Any = None) -> Any:
        """See Backend.gemm."""
        if not CPU.takes(spec):
            raise UnsupportedError(f"gemm: the kernels have no unit {spec.unit.model} with {spec.a}, {spec.b}, {spec.c}, {spec.d}")
        return products.product(spec, operands, out)

    @staticmethod
    def promote(spec: DotSpec, operands: DotOperands, total: Any, **arguments: Any) -> Any:
        """Refused: the evaluator adds the chains with `combine`."""
        raise UnsupportedError("promote: the GPU's kernels add no chains; `gemm` and `combine` do")

    @staticmethod
    @with_clear_errors
    def from_host(x: Any) -> Any:
        """The array on the GPU."""
        return cupy().asarray(x)

    @staticmethod
    @with_clear_errors
    def to_host(x: Any) -> npt.NDArray[Any]:
        """The array on the host."""
        return x if isinstance(x, np.ndarray) else np.asarray(x.get())

    @staticmethod
    @with_clear_errors
    def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Any:
        """An array of the GPU with any content."""
        return cupy().empty(shape, dtype)

    @staticmethod
    @with_clear_errors
    def zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Any:
        """An array of zeros of the GPU."""
        return cupy().zeros(shape, dtype)

    @staticmethod
    def takes(spec: DotSpec) -> bool:
        """What the CPU's kernels take: the scalar steps are the same sources."""
        return CPU.takes(spec)

    @staticmethod
    def promotes(spec: DotSpec) -> bool:
        """No unit."""
        return False


def cuda_backend() -> Backend:
    """The backend, where there is a GPU."""
    return CudaBackend()
