"""Bits by an NVIDIA GPU: the operations of hwsim.backend.operations on CuPy's arrays. The extra `cuda` installs CuPy."""

from __future__ import annotations
