"""Error metrics of a computed product relative to a reference. Arrays of any real dtype, equal shapes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hwsim.analysis.run_records import ErrorNorms

AnyArray = NDArray[Any]
NormOrder = float | Literal["fro"]
SMALL = 16  # rows and columns, up to which singular values are computed all
LANCZOS, LANCZOS_STEPS, CHECKED_EVERY = 1e-4, 300, 5


def relative_frobenius(reference: AnyArray, computed: AnyArray, low: AnyArray | float = 0.0) -> float:
    """Relative error ||reference + low - computed|| / ||reference||, Frobenius norms in fp64 (SGEMM-cube, Eq. 12).

    low: the part of the reference below its fp64 precision.
    """
    with np.errstate(all="ignore"):
        exact = np.asarray(reference, np.float64)
        difference = np.linalg.norm((exact - np.asarray(computed, np.float64)) + low)
        return float(difference / np.linalg.norm(exact))


def max_relative(reference: AnyArray, computed: AnyArray, low: AnyArray | float = 0.0) -> float:
    """The largest |reference + low - computed| / |reference| of an element; 0 where both are 0, infinite where only the
    reference is.
    """
    exact = np.asarray(reference, np.float64)
    with np.errstate(all="ignore"):
        difference = np.abs((exact - np.asarray(computed, np.float64)) + low)
        ratio = difference / np.abs(exact)
    ratios = ratio[(exact != 0) | (difference != 0)]
    return float(ratios.max()) if ratios.size else 0.0


def mean_relative(reference: AnyArray, computed: AnyArray) -> float:
    """The mean of |reference - computed| / |reference| over elements with a nonzero reference (MRED; LE-GEMM, Eq.
    20).
    """
    exact = np.asarray(reference, np.float64)
    with np.errstate(all="ignore"):
        ratio = np.abs(exact - np.asarray(computed, np.float64)) / np.abs(exact)
    ratios = ratio[exact != 0]
    return float(ratios.mean()) if ratios.size else 0.0


def max_error(reference: AnyArray, computed: AnyArray) -> float:
    """The largest |reference - computed| / (|reference| + |computed|), 0 where both are 0 (LE-GEMM, Eq. 19)."""
    exact, got = (np.asarray(x, np.float64) for x in (reference, computed))
    with np.errstate(all="ignore"):
        ratio = np.abs(exact - got) / (np.abs(exact) + np.abs(got))
    ratios = ratio[(exact != 0) | (got != 0)]
    return float(ratios.max()) if ratios.size else 0.0


def snr_db(reference: AnyArray, computed: AnyArray) -> float:
    """Signal-to-noise ratio in decibels, -20 log10 of the relative error in the Frobenius norm (BF16x9, Eq. 6-7)."""
    error = relative_frobenius(reference, computed)
    with np.errstate(all="ignore"):
        return float(-20 * np.log10(error))


def errors(reference: AnyArray, computed: AnyArray, low: AnyArray | float = 0.0) -> ErrorNorms:
    """Both errors of a product relative to a reference."""
    return ErrorNorms(relative_frobenius(reference, computed, low), max_relative(reference, computed, low))


def last_place(values: AnyArray, about: Any) -> NDArray[np.int64]:
    """The exponent of the last place that a format has at values in fp64. about: of the format, as ml_dtypes.finfo."""
    exponents = np.maximum(np.frexp(np.abs(values))[1] - 1, int(about.minexp)) - int(about.nmant)
    return np.asarray(exponents, np.int64)


def norm(x: AnyArray, order: NormOrder) -> float:
    """A matrix's norm in fp64: 1 (largest column sum of magnitudes), 2 (spectral), inf (largest row sum) or "fro";
    infinite for a matrix that is not finite. The spectral norm of matrices above SMALL is good to a relative LANCZOS.
    """
    wide = np.asarray(x, np.float64)
    if not np.isfinite(wide).all():
        return float("inf")
    if order != 2:
        return float(np.linalg.norm(wide, order))
    scale = float(np.abs(wide).max(initial=0.0))
    if scale == 0.0:
        return 0.0
    wide = wide / scale
    return scale * (float(np.linalg.norm(wide, 2)) if max(wide.shape) <= SMALL else _spectral(wide))


def _spectral(x: AnyArray) -> float:
    """The largest singular value, by Lanczos' method on X^T X with every vector orthogonalised against all before."""
    vector = np.random.default_rng(0).standard_normal(x.shape[1])
    basis = np.zeros((min(*x.shape, LANCZOS_STEPS) + 1, x.shape[1]))
    basis[0] = vector / np.linalg.norm(vector)
    diagonal: list[float] = []
    beside: list[float] = []
    largest = 0.0
    for i in range(len(basis) - 1):
        vector = (x @ basis[i]) @ x
        diagonal.append(float(vector @ basis[i]))
        for _ in range(2):
            vector -= (basis[: i + 1] @ vector) @ basis[: i + 1]
        beside.append(float(np.linalg.norm(vector)))
        if i % CHECKED_EVERY == 0 or i == len(basis) - 2:
            values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1))
            largest = float(values[-1])
            if beside[-1] * abs(vectors[-1, -1]) <= LANCZOS * largest:
                break
        basis[i + 1] = vector / beside[-1]
    return float(np.sqrt(max(largest, 0.0)))


def norm_error(
    a: AnyArray, b: AnyArray, reference: AnyArray, computed: AnyArray, order: NormOrder = 2, low: AnyArray | float = 0.0
) -> float:
    """||reference + low - computed|| / (||A|| ||B||), norms of an order as `norm` has it (LAPACK; TF32/TF64, 3.1)."""
    with np.errstate(all="ignore"):
        difference = (np.asarray(reference, np.float64) - np.asarray(computed, np.float64)) + low
    return norm(difference, order) / (norm(a, order) * norm(b, order))
