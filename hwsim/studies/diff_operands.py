"""Random operands of a comparison, drawn in the format that the units multiply. It knows formats, no unit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.analysis.inputs import NORMAL, distribution_of, drawn
from hwsim.errors import InputError
from hwsim.formats import format_of
from hwsim.operands.operand import operand

AnyArray = NDArray[Any]


def operands_text(seed: int, distribution: str, format: str) -> str:
    """Random operands in words."""
    chosen = distribution_of(distribution)
    words = "over all values" if format_of(format).is_integer and not chosen.is_of_codes else chosen.words
    return f"random {words}, seed {seed}, drawn in {format}"


def random_operands(
    m: int, n: int, k: int, *, seed: int = 0, distribution: str = NORMAL, format: str = "fp32"
) -> tuple[AnyArray, AnyArray]:
    """A (m, k) and B (k, n) whose elements are numbers of `format`: fp32 values rounded to it, so that nothing rounds
    them again. Integers are uniform over all their values, or of bit fields. fp64 has all bits.

    Arrays are of the format's dtype (tf32: float32). Raises InputError for an unknown distribution or format.
    """
    try:
        chosen = distribution_of(distribution)
    except InputError as error:
        raise InputError(f"distribution: got {distribution!r}; allowed: {error}") from None
    fmt = format_of(format)
    if fmt.is_integer and not chosen.is_of_codes and fmt.name != "int16":
        rng = np.random.default_rng(seed)
        low = -(1 << (fmt.bits - 1)) if fmt.signed else 0
        high = low + (1 << fmt.bits)
        a, b = (rng.integers(low, high, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    else:
        a, b = drawn(m, n, k, seed, format, distribution)
    left, right = (operand(name, x).converted(format).array for name, x in (("A", a), ("B", b)))
    return left, right
