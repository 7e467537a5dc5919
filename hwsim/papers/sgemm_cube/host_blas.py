"""FP32 SGEMM of this host, by the BLAS that NumPy was built with: a baseline that no one here wrote.

Its last bits follow from the host's cores and the library's version; nothing may rest on them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.api import fma_chain

Array = NDArray[Any]
OPENBLAS = "openblas"


def blas_name() -> str:
    """Name and version of NumPy's BLAS; "unknown" where NumPy does not say."""
    try:
        found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    except (KeyError, TypeError):
        return "unknown"
    return f"{found.get('name', 'unknown')} {found.get('version', '')}".strip()


def has_openblas() -> bool:
    """Whether NumPy multiplies by OpenBLAS."""
    return OPENBLAS in blas_name().lower()


def sgemm(a: Array, b: Array) -> Array:
    """A (m, k) times B (k, n), float32, by OpenBLAS; where NumPy has another BLAS, by one chain of FMAs over K."""
    found: Array = np.matmul(a, b) if has_openblas() else fma_chain(a, b)
    return found


def said() -> str:
    """A sentence on what the baseline is."""
    if has_openblas():
        return f"OpenBLAS SGEMM is that of NumPy on this host ({blas_name()}), not on the paper's Kunpeng 920. "
    return f"NumPy has {blas_name()} here, not OpenBLAS: the baseline is one FP32 chain of FMAs over all of K. "
