"""Evaluation of variables and affine expressions during the execution of a stream.

It knows the form of expressions, not what a variable counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hwsim.program.ir import Affine, Derived


def evaluate(affine: Affine, values: Mapping[str, int]) -> int:
    """The value of an affine expression; counters that have not advanced are 0."""
    value = affine.constant
    for name, coefficient in affine.terms:
        value += coefficient * values.get(name, 0)
    return value


def derive(derived: Iterable[Derived], values: dict[str, int]) -> None:
    """Set the derived variables from the loops, counters and CORE in `values`; quotients are rounded down."""
    for one in derived:
        quotient, remainder = divmod(evaluate(one.of, values), one.divisor)
        values[one.name] = quotient if one.part == "quotient" else remainder
