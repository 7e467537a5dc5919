"""Random input matrices for studies, reproducible by seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyArray = NDArray[Any]
Float32 = NDArray[np.float32]
ElementDraw = Callable[[np.random.Generator, tuple[int, ...], Any], AnyArray]
NORMAL = "normal"


def _normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> AnyArray:
    return rng.standard_normal(shape, dtype)


def _uniform(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> AnyArray:
    return rng.uniform(-1.0, 1.0, shape).astype(dtype)


def _positive(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> AnyArray:
    return rng.uniform(0.0, 1.0, shape).astype(dtype)


#: What random elements are: N(0, 1); uniform in [-1, 1); uniform in [0, 1), where no sum cancels.
DISTRIBUTIONS: Mapping[str, ElementDraw] = MappingProxyType(
    {NORMAL: _normal, "uniform": _uniform, "positive": _positive}
)
WORDS = MappingProxyType({NORMAL: "N(0, 1)", "uniform": "uniform in [-1, 1)", "positive": "uniform in [0, 1)"})


def words_of_draw(distribution: str, format: str) -> str:
    """What random elements for this format are, in words."""
    return "uniform over all values of int16" if format == "int16" else WORDS[distribution]


def normal(m: int, n: int, k: int, seed: int) -> tuple[Float32, Float32]:
    """A[m, k] and B[k, n] from N(0, 1), fp32."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)


def drawn(
    m: int, n: int, k: int, seed: int, format: str, distribution: str = NORMAL, lead: tuple[int, ...] = ()
) -> tuple[NDArray[Any], NDArray[Any]]:
    """A[..., m, k] and B[..., k, n] to be used as `format`, lead being their leading dimensions, of a distribution of
    DISTRIBUTIONS: fp64 with all bits; int16: uniform over all values, whatever the distribution; any other format in
    fp32.
    """
    rng, shapes = np.random.default_rng(seed), ((*lead, m, k), (*lead, k, n))
    if format == "int16":
        low, high = np.iinfo(np.int16).min, np.iinfo(np.int16).max
        return tuple(rng.integers(low, high, shape, np.int16, endpoint=True) for shape in shapes)  # type: ignore[return-value]
    draw, dtype = DISTRIBUTIONS[distribution], np.float64 if format == "fp64" else np.float32
    return tuple(draw(rng, shape, dtype) for shape in shapes)  # type: ignore[return-value]


def offset_uniform(m: int, n: int, k: int, seed: int, exponent: int, *, symmetric: bool) -> tuple[Float32, Float32]:
    """A and B uniform in [-2^exponent, 2^exponent], or in [0, 2^exponent], fp32 (SGEMM-cube, section 4)."""
    rng = np.random.default_rng(seed)
    low = -1.0 if symmetric else 0.0
    scale = np.float32(2.0**exponent)
    return tuple(rng.uniform(low, 1.0, shape).astype(np.float32) * scale for shape in ((m, k), (k, n)))  # type: ignore[return-value]


def spread_normal(m: int, n: int, k: int, seed: int, span: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A and B from N(0, 1), each element times a random power of two from 2^-span to 2^span, fp64."""
    rng = np.random.default_rng(seed)
    return tuple(  # type: ignore[return-value]
        np.ldexp(rng.standard_normal(shape), rng.integers(-span, span, shape, endpoint=True))
        for shape in ((m, k), (k, n))
    )


def conditioned(size: int, seed: int, condition: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A and B, size x size, whose dot products mostly have about this condition number |x| |y| / |x.y| (BF16x9, 5).

    A is the orthogonal matrix of `conditioned_factors` and B = A^T C, so that A B = C, with rows of A and columns of B
    of length about one.
    """
    a, c = conditioned_factors(size, seed, condition)
    return a, a.T @ c


def conditioned_factors(size: int, seed: int, condition: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A, a random orthogonal matrix, and C = A B of `conditioned`.

    C has elements of 0.9 to 1.1 over the condition number, of either sign, and 1 at a random place of each column.
    """
    rng = np.random.default_rng(seed)
    c = rng.uniform(0.9, 1.1, (size, size)) / condition * rng.choice((-1.0, 1.0), (size, size))
    c[rng.integers(0, size, size), np.arange(size)] = 1.0
    return np.linalg.qr(rng.standard_normal((size, size)))[0], c


def dot_conditions(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """The condition number |x| |y| / |x.y| of each dot product of A B, (..., m, n), in fp64; infinite where x.y = 0."""
    left, right = (np.asarray(x, np.float64) for x in (a, b))
    lengths = np.linalg.norm(left, axis=-1)[..., :, None] * np.linalg.norm(right, axis=-2)[..., None, :]
    with np.errstate(divide="ignore"):
        return np.asarray(lengths / np.abs(left @ right))
