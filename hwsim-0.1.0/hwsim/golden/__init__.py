"""Golden files: recorded bits of matrix instructions, from hardware or as a regression set.

Reading, writing and checking them, and recording new ones on hardware. Nothing here computes a dot product: the caller
passes a function for that (`Mma`).
"""

from __future__ import annotations

from hwsim.golden.format import GoldenSet, Meta, Origin, read_meta, read_sets, write_sets
from hwsim.golden.verify import Mma, Report, check, verify

__all__ = ["GoldenSet", "Meta", "Mma", "Origin", "Report", "check", "read_meta", "read_sets", "verify", "write_sets"]
