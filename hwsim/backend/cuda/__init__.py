"""Products by an NVIDIA GPU. The extra `cuda` installs CuPy; NVRTC compiles a unit's kernels when it is first used."""

from __future__ import annotations
