"""Analysis of the expression that combines a plan's terms: as sequential additions, and its operations per element.

It knows expressions; it knows no device and no kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwsim.errors import UnsupportedError
from hwsim.gemm.plan import ChineseRemainder, Depth, Expression, OperandSum, Scaled, Sum, TermValue


@dataclass(frozen=True, slots=True)
class JoinStep:
    """One sequential addition: C = term * 2^term_exponent + C * 2^exponent; order: the left operand of the two."""

    term: int
    term_exponent: int
    exponent: int
    order: str


def sequential_form(expression: Expression) -> list[JoinStep] | None:
    """The expression as steps that each add one term to C, or None where it has another form."""
    steps: list[JoinStep] = []  # the last first; a loop, as sums of many slices are deeper than Python calls may be
    while True:
        exponent = 0
        while isinstance(expression, Scaled):
            exponent += expression.exponent
            expression = expression.value
        if isinstance(expression, TermValue):
            return [JoinStep(expression.term, exponent, 0, "value"), *reversed(steps)]
        if not isinstance(expression, Sum) or exponent:
            return None
        leaf, rest, order = expression.right, expression.left, "c"
        scaled_term = _leaf(leaf)
        if scaled_term is None:
            leaf, rest, order = rest, leaf, "value"
            scaled_term = _leaf(leaf)
        if scaled_term is None:
            return None
        scale = 0
        while isinstance(rest, Scaled) and _leaf(rest) is None:
            scale += rest.exponent
            rest = rest.value
        steps.append(JoinStep(scaled_term[0], scaled_term[1], scale, order))
        expression = rest


def _leaf(expression: Expression) -> tuple[int, int] | None:
    """(term, exponent), for a term times a power of two."""
    exponent = 0
    while isinstance(expression, Scaled):
        exponent += expression.exponent
        expression = expression.value
    return (expression.term, exponent) if isinstance(expression, TermValue) else None


def scaled(value: Expression, exponent: int) -> Expression:
    """The expression value * 2^exponent."""
    return Scaled(value, exponent) if exponent else value


def parts_of(expression: Expression) -> list[Expression]:
    """All nodes of an expression."""
    parts: list[Expression] = []
    left = [expression]
    while left:
        part = left.pop()
        parts.append(part)
        if isinstance(part, Sum):
            left += [part.right, part.left]
        elif isinstance(part, Scaled):
            left.append(part.value)
    return parts


def has_integer_parts(expression: Expression) -> bool:
    """Whether the expression has nodes for integer plans only (OperandSum, Depth)."""
    return any(isinstance(part, OperandSum | Depth) for part in parts_of(expression))


def operations(expression: Expression) -> int:
    """The number of elementwise operations of an expression, including the conversion of each term."""
    return sum(_operations(part) for part in parts_of(expression))


def _operations(part: Expression) -> int:
    if isinstance(part, ChineseRemainder):  # of each term a conversion, a residue, the fused multiply-adds
        terms = sum(len(congruence.terms) for congruence in part.congruences)
        return 2 * terms + (1 + len(part.product)) * len(part.congruences) + 3 + 2 * len(part.product)
    return 0 if isinstance(part, Depth) else 1


def terms_at_places(expression: Expression) -> list[tuple[int, int]]:
    """(term, exponent) of a sum of terms that count times powers of two, in order.

    Raises UnsupportedError for an expression that has other parts.
    """
    places: list[tuple[int, int]] = []
    left: list[tuple[Expression, int]] = [(expression, 0)]
    while left:
        part, exponent = left.pop()
        if isinstance(part, Sum):
            left += [(part.right, exponent), (part.left, exponent)]
        elif isinstance(part, Scaled):
            left.append((part.value, exponent + part.exponent))
        elif isinstance(part, TermValue):
            places.append((part.term, exponent))
        else:
            raise UnsupportedError("exact sums are of terms; sums of operands and remainders have other arithmetic")
    return places
