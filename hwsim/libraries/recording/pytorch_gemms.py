"""GEMMs as PyTorch calls cuBLAS, on a GPU: the call, its time, and the kernels that ran.

It knows PyTorch, which is imported when an object is made; not which GEMMs are worth running, and nothing of hwsim,
whose tools load it by its path.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: hwsim's format, PyTorch's dtype, and a dtype of as many bytes that NumPy has too.
DTYPES = {
    "fp16": ("float16", "int16"),
    "bf16": ("bfloat16", "int16"),
    "tf32": ("float32", "int32"),
    "fp32": ("float32", "int32"),
    "fp64": ("float64", "int64"),
    "e4m3": ("float8_e4m3fn", "uint8"),
    "e5m2": ("float8_e5m2", "uint8"),
    "int8": ("int8", "uint8"),
    "int32": ("int32", "int32"),
}
REPLAYS = 7
FEW_COPIES, MANY_COPIES, LARGE_PRODUCTS = 4, 20, 2**36  # of a GEMM in a graph; m n k from which there are few

Tensor = Any  # torch.Tensor; PyTorch is optional
Work = Callable[[], Tensor]


class PytorchGemms:
    """PyTorch with reduced-precision reductions off, on its current CUDA device. Raises ImportError without PyTorch,
    RuntimeError where it has no CUDA device.
    """

    def __init__(self) -> None:
        import torch  # type: ignore[import-not-found, unused-ignore]  # optional

        if not torch.cuda.is_available():
            raise RuntimeError(f"PyTorch {torch.__version__} has no CUDA device")
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        self.torch: Any = torch

    def dtype(self, format: str) -> Any:
        """PyTorch's dtype of a format."""
        return getattr(self.torch, DTYPES[format][0])

    def tensor(self, values: NDArray[Any], format: str) -> Tensor:
        """An array of a format's elements on the GPU, bit for bit."""
        words = np.ascontiguousarray(values).view(DTYPES[format][1])
        return self.torch.from_numpy(words).cuda().view(self.dtype(format))

    def words(self, values: Tensor, format: str) -> NDArray[Any]:
        """The bits of a tensor, as integers of as many bytes."""
        bits: NDArray[Any] = values.contiguous().view(getattr(self.torch, DTYPES[format][1])).cpu().numpy()
        return bits

    def fill(self, rows: int, columns: int, format: str) -> Tensor:
        """(rows, columns) random values of a format."""
        torch, dtype = self.torch, self.dtype(format)
        if format == "int8":
            return torch.randint(-128, 128, (rows, columns), device="cuda", dtype=dtype)
        if format == "fp64":
            return torch.randn(rows, columns, device="cuda", dtype=dtype)
        return torch.randn(rows, columns, device="cuda").to(dtype)

    def call(
        self, operand: str, output: str, fast: bool | None, a: Tensor, b: Tensor, bias: Tensor | None = None
    ) -> Work:
        """The PyTorch call for a (m, k) times b (k, n), or stacks of them. fast: accumulation of 8-bit floats, None
        for other operands.

        TF32 is allowed, for all fp32 matmuls, as `operand` says.
        """
        torch, out = self.torch, self.dtype(output)
        if fast is not None:
            unit_scale = torch.ones((), device="cuda")
            return lambda: torch._scaled_mm(
                a, b, scale_a=unit_scale, scale_b=unit_scale, bias=bias, out_dtype=out, use_fast_accum=fast
            )
        if operand == "int8":
            return lambda: torch._int_mm(a, b)
        torch.backends.cuda.matmul.allow_tf32 = operand == "tf32"
        if bias is not None:
            weight = b.t()
            return lambda: torch.nn.functional.linear(a, weight, bias)
        multiply = torch.mm if a.ndim == 2 else torch.bmm
        if out == a.dtype:
            return lambda: multiply(a, b)
        return lambda: multiply(a, b, out_dtype=out)

    def kernels(self, work: Work) -> list[str]:
        """Names of what the device ran, in order."""
        torch = self.torch
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            work()
            torch.cuda.synchronize()
        events = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
        return [event.name for event in sorted(events, key=lambda event: event.time_range.start)]

    def microseconds(self, work: Work, products: float) -> float:
        """Of one GEMM, in copies of it in one CUDA graph: the median replay. products: m n k."""
        torch = self.torch
        copies = MANY_COPIES if products < LARGE_PRODUCTS else FEW_COPIES
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(copies):
                work()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 1)]
        graph.replay()
        events[0].record()
        for event in events[1:]:
            graph.replay()
            event.record()
        torch.cuda.synchronize()
        milliseconds: list[float] = [x.elapsed_time(y) for x, y in itertools.pairwise(events)]
        return statistics.median(milliseconds) * 1e3 / copies

    def launch_microseconds(self, operand: str, output: str, fast: bool | None, has_bias: bool) -> float:
        """What a GEMM of 16 x 16 x 16 takes (int8: 32 x 16 x 16), B by columns: a launch."""
        a, b = self.fill(32 if operand == "int8" else 16, 16, operand), self.fill(16, 16, operand).t()
        work = self.call(operand, output, fast, a, b, self.fill(1, 16, output)[0] if has_bias else None)
        work()
        self.torch.cuda.synchronize()
        return self.microseconds(work, 16**3)


def stored(values: Tensor, by_columns: bool) -> Tensor:
    """The same matrix, stored by rows or by columns."""
    return values.t().contiguous().t() if by_columns else values.contiguous()
