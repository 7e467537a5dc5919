"""The GPU by CuPy: compiling programs, starting kernels, arrays to it and back. It knows no unit and no format."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import math
from collections.abc import Sequence
from functools import cache
from typing import Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from hwsim.backend.cuda.source import sources
from hwsim.errors import InputError, UnsupportedError
from hwsim.host.cache import cache_folder
from hwsim.host.files import make_folder, write_whole

THREADS = 128  # of a block, where a kernel says nothing else
BLOCKS_PER_PROCESSOR = 16
SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
MOST_SHARED_BYTES = 97  # cudaDevAttrMaxSharedMemoryPerBlockOptin
OPTIONS = (
    *("--std=c++20", "--fmad=false", "--device-int128", "--device-as-default-execution-space"),
    "--diag-suppress=20044,2361,39,62,68",  # of C sources: extern tables, narrowing, constants of other units
)


class CompilationError(Exception):
    """NVRTC is not there, or refuses a program."""


@cache
def cupy() -> Any:
    """CuPy with a GPU. Raises UnsupportedError where either is missing."""
    try:
        import cupy  # optional
    except ImportError as error:
        raise UnsupportedError(
            f"engine cuda: CuPy is not installed ({error}); pip install 'hwsim[cuda]', or take the engine cpu"
        ) from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise UnsupportedError(f"engine cuda: no GPU answers ({error}); take the engine cpu") from None
    if not count:
        raise UnsupportedError("engine cuda: this machine has no NVIDIA GPU; take the engine cpu")
    return cupy


def current() -> int:
    """The number of the current GPU: programs belong to one."""
    return int(cupy().cuda.Device().id)


def architecture() -> str:
    """Of the current GPU, as NVRTC names it: "sm_90"."""
    return f"sm_{cupy().cuda.Device().compute_capability}"


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that the GPU's memory is too small."""
    return isinstance(error, cupy().cuda.memory.OutOfMemoryError)


def failures() -> tuple[type[Exception], ...]:
    """The errors of a GPU."""
    cuda = cupy().cuda
    of_driver = cuda.driver.CUDADriverError, cuda.runtime.CUDARuntimeError
    return (cuda.memory.OutOfMemoryError, *of_driver, CompilationError)


def to_gpu(x: npt.NDArray[Any]) -> Any:
    """An array of the host on the GPU; axes along which it is repeated are not copied."""
    gpu = cupy()
    if x.size and not all(x.strides):
        once = x[tuple(slice(0, 1) if not stride else slice(None) for stride in x.strides)]
        return gpu.broadcast_to(gpu.asarray(once), x.shape)
    return gpu.asarray(x)


#: Programs with modules, which are let go before the interpreter goes: the driver is not asked after it.
LOADED: WeakSet[CompiledProgram] = WeakSet()


@atexit.register
def _unload() -> None:
    for program in list(LOADED):
        program.functions.clear()
        program.module = None


def compiled(text: str) -> bytes:
    """The machine code of a program for the current GPU, from the cache where it has been compiled before.

    Raises CompilationError.
    """
    nvrtc = _nvrtc()
    parts = (text, *sources().values(), architecture(), *OPTIONS, str(nvrtc.getVersion()))
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    file = cache_folder("cuda") / f"{digest}.cubin"
    with contextlib.suppress(OSError):
        return file.read_bytes()
    code = _compiled_anew(nvrtc, text)
    with contextlib.suppress(InputError, OSError):  # what cannot be kept is compiled again
        make_folder(file.parent)
        write_whole(file, lambda whole: whole.write(code))
    return code


def _nvrtc() -> Any:
    """NVRTC by CuPy. Raises CompilationError where it does not load."""
    try:
        from cupy.cuda import nvrtc  # optional

        nvrtc.getVersion()
    except (ImportError, RuntimeError) as error:
        raise CompilationError(f"NVRTC, which compiles kernels, does not load: {error}") from None
    return nvrtc


def _compiled_anew(nvrtc: Any, text: str) -> bytes:
    texts = sources()
    headers, names = (tuple(part.encode() for part in side) for side in (texts.values(), texts))
    program = nvrtc.createProgram(text, "hwsim.cu", headers, names)
    try:
        nvrtc.compileProgram(program, (f"--gpu-architecture={architecture()}", *OPTIONS))
        return bytes(nvrtc.getCUBIN(program))
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(program)
        raise CompilationError(f"NVRTC refuses a kernel ({error}): {log[:2000]}") from None
    finally:
        nvrtc.destroyProgram(program)


class CompiledProgram:
    """A compiled program of the current GPU. Raises CompilationError."""

    def __init__(self, text: str) -> None:
        code = compiled(text)
        self.module = cupy().cuda.function.Module()
        self.module.load(code)
        self.functions: dict[str, Any] = {}
        LOADED.add(self)

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
        arguments: Sequence[Any],
        *,
        grid: tuple[int, ...],
        threads: int = THREADS,
        shared_bytes: int = 0,
    ) -> None:
        """Start a kernel. arguments: arrays of the GPU and NumPy's scalars."""
        self.kernel(name)(grid, (threads,), tuple(arguments), shared_mem=shared_bytes)


def most_shared_bytes() -> int:
    """Shared memory that a block may have on the current GPU."""
    return int(cupy().cuda.runtime.deviceGetAttribute(MOST_SHARED_BYTES, cupy().cuda.Device().id))


def record_on_gpu(record: Any) -> Any:
    """The bytes of a ctypes structure on the GPU."""
    return cupy().asarray(np.frombuffer(bytes(record), np.uint8))


def grid_for(count: int) -> tuple[int]:
    """Blocks for so many elements."""
    return (max(1, min(math.ceil(count / THREADS), processors() * BLOCKS_PER_PROCESSOR)),)


def processors() -> int:
    """Multiprocessors of the current GPU."""
    return int(cupy().cuda.Device().attributes["MultiProcessorCount"])
