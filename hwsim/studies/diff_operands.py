"""Random operands of a comparison, drawn in the format that the units multiply. It knows formats, no unit."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from hwsim.analysis.inputs import NORMAL, drawn, words_of_draw
from hwsim.formats import format_of
from hwsim.operands.operand import operand

AnyArray = NDArray[Any]


def operands_text(seed: int, distribution: str, format: str) -> str:
    """Random operands in words."""
    return f"random {words_of_draw(distribution, format)}, seed {seed}, drawn in {format}"


def random_operands(
    m: int, n: int, k: int, *, seed: int = 0, distribution: str = NORMAL, format: str = "fp32"
) -> tuple[AnyArray, AnyArray]:
    """A (m, k) and B (k, n) whose elements are numbers of `format`, so that nothing rounds them again: the ones that
    `hwsim.run` draws, rounded to it.

    Arrays are of the format's dtype (tf32: float32). Raises InputError for an unknown distribution or format.
    """
    a, b = drawn(m, n, k, seed, format_of(format).name, distribution)
    left, right = (operand(name, x).converted(format).array for name, x in (("A", a), ("B", b)))
    return left, right
