"""Strided batches of matrix-vector products: one way to write each, and the facts that a library's choice rests on.

cuBLASLt chooses for C = A B with n = 1 as for its transpose, a product with one row, and PyTorch calls dot products so.
It knows sizes and layouts; no tree and no device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwsim.libraries.cublas.answers.features import Values, aligned
from hwsim.libraries.cublas.calls import CublasGemm

NAMES = (
    "results", "k", "batch", "blocks of 32 results in the batch", "alignment of results", "alignment of k",
    "vector by columns", "matrix by columns", "bf16", "16-bit result",
)  # fmt: skip
BLOCK = 32  # results
_OTHER = {"rows": "columns", "columns": "rows"}


def is_vector(m: int, n: int) -> bool:
    """Whether one of the operands is a vector."""
    return 1 in (m, n)


def as_row(call: CublasGemm) -> CublasGemm:
    """The product with m = 1 that is chosen for alike: with n = 1 the transposed one, where A and B change places."""
    if call.n > 1:
        return call
    return call._replace(m=1, n=call.m, a_layout=_OTHER[call.b_layout], b_layout=_OTHER[call.a_layout])


def facts(call: CublasGemm, batch: int) -> Values:
    """(features, 1) of one batch, as `vector_features`. call: with m = 1 or n = 1."""
    row = as_row(call)
    layouts = (row.a_layout == "columns", row.b_layout == "columns")
    kinds = (row.operand == "bf16", row.output in ("fp16", "bf16"))
    return vector_features(row.n, row.k, batch, *layouts, *kinds)


def vector_features(results: Any, k: Any, batch: Any, *flags: Any) -> Values:
    """(features, batches) float64, rows in the order of NAMES, of products with m = 1 (numbers or arrays).

    flags: the last four, A by columns, B by columns, operands bf16, a 16-bit result.
    """
    results, k, batch, *rest = (np.atleast_1d(np.asarray(x, np.float64)) for x in (results, k, batch, *flags))
    blocks = np.ceil(results / BLOCK) * batch
    return np.stack([results, k, batch, blocks, aligned(results), aligned(k), *rest])
