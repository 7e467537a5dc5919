"""A GPU in the processor's place: CuPy's arrays by NumPy's, the elementwise kernels compiled by g++, products by the
CPU's kernels.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from hwsim.backend.cpu import CPU
from hwsim.backend.cuda import device, elements, gpu_arrays, on_device
from hwsim.backend.cuda.source import sources

HERE = Path(__file__).parent
OPTIONS = ("-std=c++20", "-O1", "-w", "-ffp-contract=off", "-frounding-math", "-fno-strict-aliasing", "-fpermissive")


GPU = SimpleNamespace(id=0, compute_capability="90")


class Memory(np.ndarray):
    """An array that has of CuPy's what the backend asks for. It becomes no other array by itself."""

    data = property(lambda self: SimpleNamespace(ptr=self.ctypes.data))
    device = GPU

    @property
    def flags(self):
        """What CuPy's have: nothing of writing."""
        flags = self.view(np.ndarray).flags
        return SimpleNamespace(c_contiguous=flags.c_contiguous, f_contiguous=flags.f_contiguous)

    def get(self):
        return np.array(self.view(np.ndarray))

    def __dlpack_device__(self):
        return 2, 0

    def __array_wrap__(self, x, *more):
        return x.view(Memory)


def in_memory(x):
    return np.asarray(x).view(Memory)


def _made(function):
    return lambda *args, **more: in_memory(function(*args, **more))


CUPY = SimpleNamespace(
    ndarray=Memory,
    asarray=in_memory,
    array=_made(np.array),
    cuda=SimpleNamespace(Device=lambda: GPU),
    **{name: _made(getattr(np, name)) for name in ("empty", "zeros", "broadcast_to", "expand_dims", "stack", "where")},
    ascontiguousarray=_made(np.ascontiguousarray),
    bitwise_and=_made(np.bitwise_and),
)


def for_host(name, text):
    """A source without what the host's compiler has of its own, and without a GPU's instructions."""
    if name == "machine.cuh":
        text = re.sub(r"(?m)^(typedef|#define (INT32_|__builtin)).*$", "", text)
    return re.sub(
        r'asm\("(\w+)\.rn\.ftz\.f32 %0, %1, %2;" : "=f"\((\w+)\) : "f"\(x\), "f"\(y\)\);',
        r"\2 = \1_rn_ftz(x, y);",
        text,
    )


def library_of(text, folder):
    """A program as a library of this machine."""
    for name, source in sources().items():
        if source:
            (folder / name).write_text(for_host(name, source))
    (folder / "program.cpp").write_text(f'#include "gpu_on_host.h"\n{text}')
    library = folder / "program.so"
    files = ("-I", folder, "-I", HERE, folder / "program.cpp", "-o", library)
    subprocess.run(["g++", *OPTIONS, "-shared", "-fPIC", *files], check=True, capture_output=True, text=True)
    return ctypes.CDLL(str(library))


C_TYPES = {"int32": ctypes.c_int32, "int64": ctypes.c_int64, "uint64": ctypes.c_uint64, "float64": ctypes.c_double}


class ElementKernels:
    """The elementwise kernels, each as one thread."""

    def __init__(self, folder):
        self.library, self.calls = library_of(elements.TEXT, folder), 0

    def start(self, name, arguments, **more):
        self.calls += 1
        getattr(self.library, name)(*(C_TYPES[x.dtype.name](x.item()) for x in arguments))


def put_in_place(monkeypatch, kernels):
    """The backend of arrays of the GPU, with all of it on the host."""
    for module in (device, elements, gpu_arrays, on_device):
        monkeypatch.setattr(module, "cupy", lambda: CUPY)
    monkeypatch.setattr(gpu_arrays, "to_gpu", in_memory)
    monkeypatch.setattr(elements, "grid_for", lambda count: (1,))
    monkeypatch.setattr(elements, "program_of", lambda text, gpu: kernels)
    monkeypatch.setattr(on_device, "architecture", lambda: "sm_90")
    monkeypatch.setattr(on_device, "failures", lambda: (MemoryError,))

    def product(spec, operands):
        *sides, scale_d = operands
        plain = [None if x is None else np.asarray(x).view(np.ndarray) for x in sides]
        return in_memory(CPU.gemm(spec, type(operands)(*plain, scale_d)))

    def add_chains(spec, operands, total, *, length, saturate, nan_code):
        floats = total.view(np.ndarray).view(f"f{total.itemsize}")
        plain = operands._replace(a=operands.a.view(np.ndarray), b=operands.b.view(np.ndarray))
        CPU.promote(spec, plain, floats, length=length, saturate=saturate, nan_code=nan_code)

    monkeypatch.setattr(on_device, "product", product)
    monkeypatch.setattr(on_device, "add_chains", add_chains)
    return on_device.DeviceBackend()
