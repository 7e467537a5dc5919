"""GEMM libraries as data: their kernels, their split-K rules, and what was observed of them on chips.

The files in configs/libraries are validated like device files: every row has a source and an evidence level. A device
file names the library that runs on the chip; dataflows take their candidate tiles from its rows.
"""

from __future__ import annotations

from hwsim.libraries.model.loader import load, names
from hwsim.libraries.model.query import library_of, observed, observed_level

__all__ = ["library_of", "load", "names", "observed", "observed_level"]
