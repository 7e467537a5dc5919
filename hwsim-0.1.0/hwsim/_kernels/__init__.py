"""Compiled dot units: matrix products on arrays of codes, bit for bit those of the reference in hwsim.numerics.

`variants` are the builds that this machine can run ("baseline" always; "avx2", "avx512"). `variant` is the one in use:
the last of them, or the one that the environment variable HWSIM_KERNEL names. All give the same bits.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hwsim.errors import InputError, NotBuiltError

try:
    from hwsim._kernels.dot import choose_variant, chosen_variant, gemm, promote, runnable_variants
except ModuleNotFoundError as error:
    if error.name != "hwsim._kernels.dot":
        raise
    root, python = Path(__file__).parents[2], f"Python {sys.version_info.major}.{sys.version_info.minor}"
    raise NotBuiltError(
        f"{root} has hwsim's sources, but not its compiled parts for {python} (no {error.name}); "
        f"run pip install -e . there, or, with hwsim installed elsewhere, run from another folder: Python takes the "
        "hwsim that lies in the current one"
    ) from None

variants: tuple[str, ...] = runnable_variants()
_wanted = os.environ.get("HWSIM_KERNEL", "")
if _wanted:
    try:
        choose_variant(_wanted)
    except InputError as error:
        raise InputError(f"HWSIM_KERNEL: {error}") from None
variant: str = chosen_variant()

__all__ = ["gemm", "promote", "variant", "variants"]
