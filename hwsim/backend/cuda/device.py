"""The GPU by CuPy: compiling programs, starting kernels, its errors as hwsim's. It knows no unit and no format."""

from __future__ import annotations

import atexit
import math
from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from hwsim.backend.cuda.records import together
from hwsim.backend.cuda.source import sources
from hwsim.errors import InputError, UnsupportedError

P = ParamSpec("P")
R = TypeVar("R")
THREADS = 128  # of a block of elementwise kernels
BLOCKS_PER_PROCESSOR = 16
SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
OPTIONS = (
    *("--std=c++20", "--fmad=false", "--device-int128", "--device-as-default-execution-space"),
    "--diag-suppress=20044,2361,39,62,68",  # of C sources: extern tables, narrowing, constants of other units
)


@cache
def cupy() -> Any:
    """CuPy with a GPU. Raises UnsupportedError where either is missing."""
    try:
        import cupy  # optional
    except ImportError as error:
        raise UnsupportedError(f"engine cuda: CuPy is not installed ({error}); pip install 'hwsim[cuda]'") from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise UnsupportedError(f"engine cuda: no GPU answers ({error}); take engine='cpu'") from None
    if not count:
        raise UnsupportedError("engine cuda: this machine has no NVIDIA GPU; take engine='cpu'")
    return cupy


def with_clear_errors(function: Callable[P, R]) -> Callable[P, R]:
    """The function; an error of the GPU becomes one of hwsim's."""

    @wraps(function)
    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        gpu = cupy()
        try:
            return function(*args, **kwargs)
        except gpu.cuda.memory.OutOfMemoryError as error:
            raise InputError(
                f"engine cuda: the GPU's memory is too small ({error}); compute a part of the result (rows=, cols=), or "
                "take engine='cpu'"
            ) from None
        except (gpu.cuda.driver.CUDADriverError, gpu.cuda.runtime.CUDARuntimeError) as error:
            raise UnsupportedError(f"engine cuda: the GPU failed ({error}); take engine='cpu'") from None

    return inside


@cache
def architecture() -> str:
    """Of the current GPU, as NVRTC names it: "sm_90"."""
    return f"sm_{cupy().cuda.Device().compute_capability}"


@cache
def processors() -> int:
    """Streaming multiprocessors of the current GPU."""
    return int(cupy().cuda.Device().attributes["MultiProcessorCount"])


LOADED: list[Program] = []  # by whose modules the driver must not be asked when the interpreter has gone


@atexit.register
def _unload() -> None:
    for program in LOADED:
        program.functions.clear()
        program.module = None


class Program:
    """A compiled program. Raises UnsupportedError where NVRTC refuses the text."""

    def __init__(self, text: str) -> None:
        from cupy.cuda import nvrtc  # optional

        texts = sources()
        headers, names = (tuple(part.encode() for part in side) for side in (texts.values(), texts))
        program = nvrtc.createProgram(text, "hwsim.cu", headers, names)
        try:
            nvrtc.compileProgram(program, (f"--gpu-architecture={architecture()}", *OPTIONS))
            code = nvrtc.getCUBIN(program)
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(program)
            raise UnsupportedError(f"engine cuda: NVRTC refuses a kernel ({error}): {log[:2000]}") from None
        finally:
            nvrtc.destroyProgram(program)
        self.module = cupy().cuda.function.Module()
        self.module.load(code)
        self.functions: dict[str, Any] = {}
        LOADED.append(self)

    def kernel(self, name: str) -> Any:
        """A kernel by name."""
        if name not in self.functions:
            self.functions[name] = self.module.get_function(name)
        return self.functions[name]

    def allow_shared_bytes(self, name: str, count: int) -> None:
        """Allow a kernel so much dynamic shared memory."""
        cupy().cuda.driver.funcSetAttribute(self.kernel(name).ptr, SHARED_BYTES, count)

    def start(
        self,
        name: str,
        records: Sequence[Any],
        others: Sequence[Any] = (),
        *,
        grid: tuple[int, ...],
        threads: int = THREADS,
        shared_bytes: int = 0,
    ) -> None:
        """Start a kernel; its arguments are the addresses of the records, then `others`."""
        text, places = together(records)
        memory = cupy().asarray(np.frombuffer(text, np.uint8)) if text else None
        base = 0 if memory is None else memory.data.ptr
        arguments = [np.uint64(base + place) for place in places]
        self.kernel(name)(grid, (threads,), (*arguments, *others), shared_mem=shared_bytes)


def grid_for(count: int) -> tuple[int]:
    """Blocks for so many elements."""
    return (max(1, min(math.ceil(count / THREADS), processors() * BLOCKS_PER_PROCESSOR)),)
