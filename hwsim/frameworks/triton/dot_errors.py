"""How far a computed dot is from the exact one, on a sample of its elements.

The module knows what the codes of a dot's operands mean; it knows no device and no compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.backend.cpu import CPU
from hwsim.formats import format_of
from hwsim.frameworks.triton.dot_question import PACKED, DotQuestion
from hwsim.frameworks.triton.dot_steps import FORMATS, SCALE_FORMATS
from hwsim.frameworks.triton.dot_text import MLIR_TYPES, SCALED_TYPES
from hwsim.frameworks.triton.tile_operations import unpacked

Codes = NDArray[Any]
Doubles = NDArray[np.float64]
SAMPLED_ROWS, SAMPLED_COLUMNS = 8, 64  # the first ones


def error_of(question: DotQuestion, arrays: Mapping[str, Codes], result: Codes) -> float | None:
    """||got - fp64|| / ||fp64|| of a dot of codes; None where either is infinite, NaN or zero."""
    rows, columns = slice(SAMPLED_ROWS), slice(SAMPLED_COLUMNS)
    a, b = _operands(question, arrays)
    c, got = (_values(x, FORMATS[MLIR_TYPES[question.d_type]]) for x in (arrays["c"], result))
    with np.errstate(all="ignore"):
        exact = c[..., rows, columns] + a[..., rows, :] @ b[..., columns]
        size = float(np.linalg.norm(exact))
        distance = float(np.linalg.norm(got[..., rows, columns] - exact))
    return distance / size if np.isfinite(size) and np.isfinite(distance) and size else None


def _operands(question: DotQuestion, arrays: Mapping[str, Codes]) -> tuple[Doubles, Doubles]:
    scaling = question.scaling
    if scaling is None:
        names = (question.a_type, question.b_type)
        a, b = (_values(arrays[x], FORMATS[MLIR_TYPES[name]]) for x, name in zip("ab", names, strict=True))
        return a, b
    a = _scaled(arrays["a"], scaling.a_format, -1 if scaling.a_along_k else -2, arrays.get("a_scale"), scaling.a_scale)
    b = _scaled(
        arrays["b"].swapaxes(-1, -2),
        scaling.b_format,
        -1 if scaling.b_along_k else -2,
        arrays.get("b_scale"),
        scaling.b_scale,
    )
    return a, b.swapaxes(-1, -2)


def _scaled(
    codes: Codes, fmt: str, axis: int, scale: Codes | None, of_scale: tuple[tuple[int, ...], str] | None
) -> Doubles:
    """Values (..., rows, K) of codes with scales of blocks of K."""
    values = _values(unpacked(codes, axis) if fmt == PACKED else codes, fmt)
    if scale is None or of_scale is None:
        return values
    factors = _values(scale, SCALE_FORMATS[SCALED_TYPES[of_scale[1]]])
    with np.errstate(all="ignore"):
        return values * np.repeat(factors, values.shape[-1] // factors.shape[-1], axis=-1)


def _values(codes: Codes, name: str) -> Doubles:
    fmt = format_of(name)
    if fmt.name.startswith("int"):
        return codes.view(f"i{codes.itemsize}").astype(np.float64)
    values: Doubles = CPU.decode(np.ascontiguousarray(codes), fmt, np.float64)
    return values
