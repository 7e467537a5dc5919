"""Backends compute bits: the protocol that a backend fulfils, the compiled CPU kernels, and the choice of a backend."""

from __future__ import annotations
