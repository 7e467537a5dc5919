"""Backends by name: the engine that computes bits. The module knows which there are; it knows nobody who asks."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hwsim.backend.cpu import CPU
from hwsim.errors import InputError, nearest
from hwsim.host.arrays import is_of_a_backend

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend

CUDA = "cuda"
NAMES = (CPU.name, CUDA)
#: Imported where they are asked for: they need the extra `cuda`. Of arrays of the host, and of the GPU.
GPU, ON_GPU = "hwsim.backend.cuda.backend:cuda_backend", "hwsim.backend.cuda.on_device:device_backend"


def backend(name: str | None = None, *, on_gpu: bool = False) -> Backend:
    """The backend of that name; None: of the environment variable HWSIM_ENGINE, else the CPU's. on_gpu: of arrays that
    lie on a GPU.

    Raises InputError for an unknown name and for arrays of a GPU without the engine cuda, UnsupportedError where this
    machine lacks what the backend needs.
    """
    if chosen(name) == CPU.name:
        if on_gpu:
            raise InputError("the operands lie on a GPU, and the engine is cpu; give engine='cuda', or NumPy's arrays")
        return CPU
    return _on_gpu() if on_gpu else _cuda()


def backend_of(x: Any) -> Backend:
    """The backend whose arrays an array is one of."""
    return _on_gpu() if is_of_a_backend(x) else CPU


def chosen(name: str | None = None) -> str:
    """The name of the backend that `backend` gives. Raises InputError for an unknown name."""
    named = name or os.environ.get("HWSIM_ENGINE") or CPU.name
    if named not in NAMES:
        where = "engine" if name else "HWSIM_ENGINE"
        raise InputError(f"{where} = {named!r}; allowed: {', '.join(NAMES)}{nearest(named, NAMES)}")
    return named


@cache
def _cuda() -> Backend:
    """The GPU's, of arrays of the host."""
    return _made(GPU)


@cache
def _on_gpu() -> Backend:
    """The GPU's, of its own arrays."""
    return _made(ON_GPU)


def _made(named: str) -> Backend:
    module, _, maker = named.partition(":")
    gpu: Backend = getattr(import_module(module), maker)()
    return gpu
