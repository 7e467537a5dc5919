"""Backends by name: the engine that computes bits. The module knows which there are; it knows nobody who asks."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from hwsim.backend.cpu import CPU
from hwsim.errors import InputError, nearest

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend

CUDA = "cuda"
NAMES = (CPU.name, CUDA)
GPU = "hwsim.backend.cuda.backend:cuda_backend"  # imported where it is asked for: it needs the extra `cuda`


def backend(name: str | None = None) -> Backend:
    """The backend of that name; None: of the environment variable HWSIM_ENGINE, else the CPU's.

    Raises InputError for an unknown name, UnsupportedError where this machine lacks what the backend needs.
    """
    return CPU if chosen(name) == CPU.name else _cuda()


def chosen(name: str | None = None) -> str:
    """The name of the backend that `backend` gives. Raises InputError for an unknown name."""
    named = name or os.environ.get("HWSIM_ENGINE") or CPU.name
    if named not in NAMES:
        where = "engine" if name else "HWSIM_ENGINE"
        raise InputError(f"{where} = {named!r}; allowed: {', '.join(NAMES)}{nearest(named, NAMES)}")
    return named


@cache
def _cuda() -> Backend:
    """The GPU's."""
    module, _, maker = GPU.partition(":")
    gpu: Backend = getattr(import_module(module), maker)()
    return gpu
