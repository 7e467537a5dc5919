"""FP32 SGEMM of this host, by the BLAS that NumPy was built with: a baseline that no one here wrote.

Its last bits follow from the host's cores and the library's version; nothing may rest on them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
OPENBLAS = "openblas"


def blas_name() -> str:
    """Name and version of NumPy's BLAS; "an unknown BLAS" where NumPy does not say."""
    try:
        found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    except (KeyError, TypeError):
        return "an unknown BLAS"
    return f"{found.get('name', 'an unknown BLAS')} {found.get('version', '')}".strip()


def has_openblas() -> bool:
    """Whether NumPy multiplies by OpenBLAS."""
    return OPENBLAS in blas_name().lower()


def sgemm(a: Array, b: Array) -> Array:
    """A (m, k) times B (k, n), float32, by NumPy's BLAS in this process."""
    product: Array = np.matmul(a, b)
    return product
