"""Golden files: bit patterns of matrix instructions, from silicon or kept as a regression.

Reading and writing them, checking a simulator against them, recording new ones on hardware. Nothing here
knows how a dot product is computed: whoever calls says how (`Mma`).
"""

from __future__ import annotations

from hwsim.golden.format import GoldenSet, Meta, Origin, read_meta, read_sets, write_sets
from hwsim.golden.verify import Mma, Report, check, verify

__all__ = ["GoldenSet", "Meta", "Mma", "Origin", "Report", "check", "read_meta", "read_sets", "verify", "write_sets"]
