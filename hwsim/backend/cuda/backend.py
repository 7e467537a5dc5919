"""The GPU as a backend: large products on it, everything else by the CPU's kernels, on NumPy arrays.

The module decides where a product is computed; it computes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hwsim.backend.cpu import CPU
from hwsim.backend.cuda.device import architecture, cupy, failures, is_out_of_memory, to_gpu
from hwsim.backend.cuda.on_device import device_backend
from hwsim.backend.cuda.unit_programs import MATRIX_AXES, add_chains, product
from hwsim.formats import code_dtype, format_of
from hwsim.host.warned import warn_once
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import DotSpec

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend

#: Of a product that pays for the way to the GPU and back: an estimate, some milliseconds of one host thread.
LEAST_MACS = 1 << 24
#: Multiply-accumulates for each byte that moves, an estimate: a host thread computes as many while the byte moves.
LEAST_MACS_PER_BYTE = 2
#: Of a product of several pieces that moves to the GPU as a whole: an estimate, thousands of starts of kernels.
LEAST_WHOLE_MACS = 1 << 32
RESULT_BYTES = 4  # of most units
FEWEST_ROWS = 1024  # of a product that a GPU with too little memory is given
MOST_LINES = 1 << 30  # rows, columns and K of a matrix: the kernels count them in 32 bits


class CudaBackend:
    """NVIDIA's GPUs by CuPy. Raises UnsupportedError where CuPy or a GPU is missing.

    A product that the GPU fails at (too little memory) is computed by the CPU's kernels; a warning says so.
    """

    name = "cuda"
    calls_at_once = 64  # an estimate: the 256 rows of one thread have fewer tiles than an H200 has processors

    encode, decode, split = staticmethod(CPU.encode), staticmethod(CPU.decode), staticmethod(CPU.split)
    scale, largest = staticmethod(CPU.scale), staticmethod(CPU.largest)
    combine, specials = staticmethod(CPU.combine), staticmethod(CPU.specials)
    from_host, to_host, result = (staticmethod(move) for move in (CPU.from_host, CPU.to_host, CPU.result))
    empty, zeros = staticmethod(CPU.empty), staticmethod(CPU.zeros)
    takes, promotes = staticmethod(CPU.takes), staticmethod(CPU.promotes)

    def __init__(self) -> None:
        cupy()
        self.variant = architecture()
        self.variants = (self.variant,)

    def for_whole(self, macs: int) -> Backend | None:
        """See Backend.for_whole."""
        return device_backend() if macs >= LEAST_WHOLE_MACS else None

    def gemm(
        self, spec: DotSpec, operands: DotOperands, *, threads: int = 1, out: npt.NDArray[Any] | None = None
    ) -> npt.NDArray[Any]:
        """See Backend.gemm."""
        a, b = operands.a, operands.b
        if not _pays(a, b) or not CPU.takes(spec):
            return CPU.gemm(spec, operands, threads=threads, out=out)
        _check(spec, operands, out)

        whole = np.empty((*a.shape[:-1], b.shape[-1]), code_dtype(format_of(spec.d))) if out is None else out

        def by_gpu() -> npt.NDArray[Any]:
            _by_parts(spec, operands, whole)
            return whole

        return _or_else(by_gpu, lambda: CPU.gemm(spec, operands, threads=threads, out=whole))

    def promote(
        self, spec: DotSpec, operands: DotOperands, total: npt.NDArray[Any], **arguments: Any
    ) -> npt.NDArray[Any]:
        """See Backend.promote."""
        if not _pays(operands.a, operands.b):
            return CPU.promote(spec, operands, total, **arguments)
        _check_promotion(spec, operands, total, arguments)

        def by_gpu() -> npt.NDArray[Any]:
            sums = to_gpu(total)
            saturate, nan_code = bool(arguments.get("saturate")), arguments.get("nan_code")
            add_chains(spec, _on_gpu(operands), sums, length=arguments["length"], saturate=saturate, nan_code=nan_code)
            total[...] = sums.get()  # whole, or not at all
            return total

        return _or_else(by_gpu, lambda: CPU.promote(spec, operands, total, **arguments))


def cuda_backend() -> Backend:
    """The backend, where there is a GPU."""
    return CudaBackend()


def _pays(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Whether a product is worth the way to the GPU, and fits its kernels."""
    if a.ndim < MATRIX_AXES or b.ndim < MATRIX_AXES or max(*a.shape, *b.shape) > MOST_LINES:
        return False
    macs, results = math.prod(a.shape) * b.shape[-1], math.prod(a.shape[:-1]) * b.shape[-1]
    return bool(macs >= max(LEAST_MACS, LEAST_MACS_PER_BYTE * (a.nbytes + b.nbytes + RESULT_BYTES * results)))


def _on_gpu(operands: DotOperands) -> DotOperands:
    """The operands on the GPU; the exponents of the steps stay on the host."""
    a, b, c, scale_a, scale_b = (None if x is None else to_gpu(x) for x in operands[:-1])
    return DotOperands(a, b, c, scale_a, scale_b, _steps(operands.scale_d))


def _by_parts(spec: DotSpec, operands: DotOperands, out: npt.NDArray[Any]) -> None:
    """The product by the GPU; where its memory is too small, of fewer rows at a time. out: may be operands.c; it is
    filled whole, or not at all.
    """
    try:
        product(spec, _on_gpu(operands)).get(out=out)
    except failures() as error:
        rows = out.shape[-2]
        if not is_out_of_memory(error) or rows < 2 * FEWEST_ROWS:
            raise
    else:
        return
    a, _, c, scale_a, *_ = operands
    halves = []
    for some in (slice(0, rows // 2), slice(rows // 2, rows)):
        left, start, scales = (None if x is None else x[..., some, :] for x in (a, c, scale_a))
        halves.append(np.empty((*out.shape[:-2], some.stop - some.start, out.shape[-1]), out.dtype))
        _by_parts(spec, operands._replace(a=left, c=start, scale_a=scales), halves[-1])
    np.concatenate(halves, -2, out=out)


def _steps(scale_d: Any) -> Any:
    """The exponents of the steps; 0: all are."""
    return 0 if isinstance(scale_d, int) or not np.any(scale_d) else scale_d


def _or_else(by_gpu: Callable[[], npt.NDArray[Any]], by_cpu: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The GPU's result; the CPU's where the GPU fails, which a warning says once."""
    try:
        return by_gpu()
    except failures() as error:
        what = "its memory is too small" if is_out_of_memory(error) else f"it failed ({error})"
        warn_once(f"engine cuda: {what}: the CPU's kernels compute what it could not", 3)
        return by_cpu()


def _check(spec: DotSpec, operands: DotOperands, out: npt.NDArray[Any] | None) -> None:
    """What does not fit is refused as the CPU's kernels refuse it: by a product of the same shapes with no rows."""
    a, b, c, scale_a, scale_b, scale_d = operands
    if out is not None and (out.shape != (*a.shape[:-1], b.shape[-1]) or not out.flags.c_contiguous):
        CPU.gemm(spec, operands, out=out)  # raises
    none = slice(0, 0)
    few = DotOperands(
        a[..., none, :],
        b,
        None if c is None else c[..., none, :],
        None if scale_a is None else scale_a[..., none, :],
        scale_b,
        scale_d,
    )
    CPU.gemm(spec, few)
    if c is not None and c.shape != (*a.shape[:-1], b.shape[-1]):
        CPU.gemm(spec, operands)  # raises
    if scale_a is not None and scale_a.shape[:-1] != a.shape[:-1]:
        CPU.gemm(spec, operands)  # raises
    if out is not None and out.dtype != code_dtype(format_of(spec.d)):
        CPU.gemm(spec, operands, out=out)  # raises


def _check_promotion(spec: DotSpec, operands: DotOperands, total: npt.NDArray[Any], arguments: dict[str, Any]) -> None:
    """The same for `promote`."""
    is_whole = total.shape[:1] == operands.a.shape[:1] and total.flags.c_contiguous
    rows = slice(0, 0) if is_whole else slice(None)  # all rows: raises
    CPU.promote(spec, operands._replace(a=operands.a[rows]), total[rows], **arguments)
