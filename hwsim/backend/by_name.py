"""Backends by name. The module knows which there are; it knows nobody who asks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from hwsim.backend.cpu import CPU
from hwsim.errors import InputError, nearest

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend

BACKENDS: Mapping[str, Backend] = MappingProxyType({CPU.name: CPU})


def backend(name: str | None = None) -> Backend:
    """The backend of that name; None: the CPU's. Raises InputError for an unknown name."""
    if name is None:
        return CPU
    if name not in BACKENDS:
        raise InputError(f"backend {name!r}; allowed: {', '.join(BACKENDS)}{nearest(name, tuple(BACKENDS))}")
    return BACKENDS[name]
