"""GEMM libraries as data: their kernels, how they cut K, and what they were seen to do on chips.

Files stand in configs/libraries and are validated as device files are: a source and a level of evidence for every row.
A device file names the library that runs on the chip; dataflows take their candidate tiles from its rows.
"""

from __future__ import annotations

from hwsim.libraries.loader import load, names
from hwsim.libraries.query import library_of, observed, observed_level

__all__ = ["library_of", "load", "names", "observed", "observed_level"]
