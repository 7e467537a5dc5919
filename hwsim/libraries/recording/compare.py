"""A sample of recorded GEMMs, run on the GPU and by hwsim with the library's answers: bits and times side by side.

It knows samples, blocks and hwsim's runs; not what runs them on the GPU (`GemmRunner`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from hwsim.api import run
from hwsim.devices.device import Device
from hwsim.errors import HwsimError, UnsupportedError
from hwsim.libraries.cublas.answers.sweeps import REFUSED_ID, Recorded
from hwsim.libraries.notices import ORDER_UNKNOWN
from hwsim.libraries.recording.answers import Answers
from hwsim.libraries.recording.gemm_list import drawn
from hwsim.libraries.recording.shapes import GemmShape, Wanted

Progress = Callable[[float], None]
NUMPY_DTYPES: dict[str, Any] = {
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "fp32": np.float32,
    "fp64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "int8": np.int8,
}
INTEGER_SCALE = 64  # of drawn values, for int8
MOST_SAID = 200  # characters of a problem


@dataclass(frozen=True, slots=True, eq=False)
class GemmBlock:
    """Rows and columns of a GEMM whose results are compared. a: (rows, k), b: (k, columns), bias: (columns,) or None;
    typed, in the operands' and the result's format."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    a: NDArray[Any]
    b: NDArray[Any]
    bias: NDArray[Any] | None


@dataclass(frozen=True, slots=True, eq=False)
class Ran:
    """What a GPU gave. d: (rows, columns), the bits as integers of the result's width. microseconds: beyond a launch.
    kernels: names of what ran, where known."""

    d: NDArray[Any]
    microseconds: float
    kernels: tuple[str, ...] = ()


class GemmRunner(Protocol):
    """Runs a GEMM with the block's operands among its rows and columns. Raises RuntimeError or ValueError, as PyTorch
    does, where it cannot.
    """

    def run(self, shape: GemmShape, block: GemmBlock) -> Ran: ...


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One GEMM of a sample.

    kernel, split_k: by hwsim, from the library's answer. known: is the rule of the kernel's sums known? results:
    compared. differing: of them. first: (row, column, the GPU's bits, hwsim's) of the first that differs. Microseconds
    are beyond a launch; None: hwsim has no time. kernels: that ran on the GPU. problem: why it was not run there or by
    hwsim, else "".
    """

    shape: GemmShape
    kernel: str = ""
    split_k: int = 1
    known: bool = True
    results: int = 0
    differing: int = 0
    first: tuple[int, int, str, str] | None = None
    measured_us: float | None = None
    simulated_us: float | None = None
    kernels: tuple[str, ...] = ()
    problem: str = ""

    @property
    def error(self) -> float | None:
        """Of hwsim's time, relative; None where there are not two times above 0."""
        if not self.measured_us or self.simulated_us is None:
            return None
        return self.simulated_us / self.measured_us - 1


def sample(wanted: Wanted, answers: Answers, count: int, seed: int) -> tuple[GemmShape, ...]:
    """At most `count` GEMMs: of those asked for, and the first m of each run of a weight's sweep. Kernels take turns:
    one GEMM of each format and algorithm, then a second one, and so on; drawn by `seed`."""
    pool: dict[GemmShape, tuple[str, int]] = {}
    for shape in wanted.shapes:
        runs = answers.by_kind[shape.form.call_kind][shape.form.n, shape.form.k]
        answer = [answer for first, answer in runs if first <= shape.m][-1]
        _add(pool, shape, answer)
    for sweep in wanted.sweeps:
        for first, answer in answers.by_kind[sweep.form.call_kind][sweep.form.n, sweep.form.k]:
            if sweep.first <= first <= sweep.last:
                _add(pool, GemmShape(first, sweep.form), answer)
    order = np.random.default_rng(seed).permutation(len(pool))
    shapes, seen = list(pool), dict[tuple[str, int], int]()
    ranked: list[tuple[int, int, GemmShape]] = []
    for place in order.tolist():
        key = pool[shapes[place]]
        seen[key] = seen.get(key, 0) + 1
        ranked.append((seen[key], len(ranked), shapes[place]))
    return tuple(shape for *_, shape in sorted(ranked, key=lambda row: row[:2])[:count])


def _add(pool: dict[GemmShape, tuple[str, int]], shape: GemmShape, answer: Recorded | None) -> None:
    if answer is not None and answer[0] != REFUSED_ID:
        pool[shape] = (shape.form.format, answer[0])


def block_of(shape: GemmShape, seed: int, index: int) -> GemmBlock:
    """Rows, columns and operands with full significands, drawn by (seed, index)."""
    m, n, k = shape.sizes
    rows, columns, a, b, bias = drawn(seed, index, m, n, k)
    form = shape.form
    return GemmBlock(
        rows, columns, _typed(a, form.format), _typed(b, form.format), _typed(bias, form.output) if form.bias else None
    )


def _typed(values: NDArray[Any], format: str) -> NDArray[Any]:
    if format == "fp64":
        return values
    if format == "int8":
        values = np.clip(np.rint(values * INTEGER_SCALE), -128, 127)
    typed: NDArray[Any] = values.astype(np.float32).astype(NUMPY_DTYPES[format])
    return typed


def compared(
    shapes: Iterable[GemmShape], runner: GemmRunner, *, device: Device, path: Path, seed: int
) -> Iterator[SampleRow]:
    """Each GEMM, run on the GPU and by hwsim with the answers in the file at `path`."""
    for index, shape in enumerate(shapes):
        block = block_of(shape, seed, index)
        try:
            ran = runner.run(shape, block)
        except (RuntimeError, ValueError) as error:
            yield SampleRow(shape, problem=_first_line(error))
            continue
        try:
            row = _row(shape, block, ran, device, path)
        except HwsimError as error:
            row = SampleRow(
                shape, measured_us=ran.microseconds, kernels=ran.kernels, problem=f"hwsim: {_first_line(error)}"
            )
        yield row


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else f"{type(error).__name__}, which says no more")[:MOST_SAID]


def _row(shape: GemmShape, block: GemmBlock, ran: Ran, device: Device, path: Path) -> SampleRow:
    m, n, _ = shape.sizes
    call: dict[str, Any] = {"device": device, "library": str(path), **shape.form.options}
    at = block.rows.tolist(), block.columns.tolist()
    computed = run(block.a, block.b, bias=block.bias, shape=(m, n), at=at, timing=False, **call)
    words = np.dtype(f"u{ran.d.dtype.itemsize}")
    of_gpu, of_hwsim = ran.d.view(words), np.ascontiguousarray(computed.c).view(words)
    places = np.argwhere(of_gpu != of_hwsim)
    first = None
    if len(places):
        i, j = places[0].tolist()
        digits = 2 * words.itemsize
        first = (
            int(block.rows[i]),
            int(block.columns[j]),
            f"0x{of_gpu[i, j]:0{digits}x}",
            f"0x{of_hwsim[i, j]:0{digits}x}",
        )
    kernel, split_k = (computed.gemm.decided(name) for name in ("kernel", "split_k"))
    assert kernel is not None and split_k is not None
    return SampleRow(
        shape,
        kernel=kernel.value,
        split_k=int(split_k.value),
        known=ORDER_UNKNOWN not in {warning["code"] for warning in computed.warnings},
        results=of_gpu.size,
        differing=len(places),
        first=first,
        measured_us=ran.microseconds,
        simulated_us=_simulated_us(shape, block, call),
        kernels=ran.kernels,
    )


def _simulated_us(shape: GemmShape, block: GemmBlock, call: dict[str, Any]) -> float | None:
    """hwsim's time; None where the device has no data for one."""
    m, n, k = shape.sizes
    bias = None if block.bias is None else np.zeros(n, block.bias.dtype)
    try:
        seconds = run(m=m, n=n, k=k, exact=False, bias=bias, **call).seconds
    except UnsupportedError:
        return None
    return None if seconds is None else seconds * 1e6
