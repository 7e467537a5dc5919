"""Instructions for the expression that joins a plan's terms, on tiles of the vector unit. It knows no kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.residue_pieces import (
    join_remainders,
    remainder_temporaries,
)
from hwsim.dataflows.vector_ops import VectorOps
from hwsim.errors import UnsupportedError
from hwsim.gemm.plan import (
    ChineseRemainder,
    Depth,
    Expression,
    OperandSum,
    Scaled,
    Sum,
    TermValue,
)
from hwsim.program.ir import AnyTile, LocalTile

if TYPE_CHECKING:
    pass


PLAIN_EXPONENT = 126  # powers of two that fp32 holds, both ways


def depth(expression: Expression, converts: bool = False) -> int:
    """The number of scratch tiles that `evaluate` needs. converts: the terms' values are of another format."""
    rights: list[Expression] = []
    while isinstance(expression, Sum):
        rights.append(expression.right)
        expression = expression.left
    is_target_taken = not _is_in_place(expression, converts)
    needed = 0
    if isinstance(expression, Scaled):
        needed = depth(expression.value, converts)
    elif isinstance(expression, ChineseRemainder):
        needed = remainder_temporaries(expression)
    for right in reversed(rights):
        if not _is_in_place(right, converts):
            needed = max(needed, depth(right, converts) + is_target_taken)
        is_target_taken = True
    return needed


def evaluate(
    ops: VectorOps,
    expression: Expression,
    values: Mapping[int, LocalTile],
    target: LocalTile,
    temps: Sequence[LocalTile],
    extra: Mapping[Expression, AnyTile | float] | None = None,
) -> None:
    """Emit target = expression, sums from left to right. The values of terms are read where they are, and converted
    where they are not in the target's format. extra: the tiles of sums of operands, and multiples of K.
    """
    rights: list[Expression] = []
    while isinstance(expression, Sum):
        rights.append(expression.right)
        expression = expression.left
    value = _in_place(expression, values, target, extra) if rights else None
    if value is None:
        _into(ops, expression, values, target, temps, extra)
        value = target
    for right in reversed(rights):
        addend = _in_place(right, values, target, extra)
        if addend is None:
            into, rest = (temps[0], temps[1:]) if value is target else (target, temps)
            addend = _into(ops, right, values, into, rest, extra)
        ops.op("add", target, value, addend)
        value = target


def _into(
    ops: VectorOps,
    expression: Expression,
    values: Mapping[int, LocalTile],
    target: LocalTile,
    temps: Sequence[LocalTile],
    extra: Mapping[Expression, AnyTile | float] | None,
) -> LocalTile:
    """Emit the value of an expression into a tile; returns it, or the element of it that counts for all."""
    if isinstance(expression, Depth):
        assert extra is not None
        element, number = replace(target, rows=1, cols=1), extra[expression]
        assert isinstance(number, float)
        ops.op("fill", element, scalar=number)
        return element
    if isinstance(expression, TermValue):
        value = values[expression.term]
        ops.op("copy" if value.format == target.format else "cast", target, value)
    elif isinstance(expression, Scaled):
        source = _in_place(expression.value, values, target, extra)
        if source is None:
            source = target
            evaluate(ops, expression.value, values, target, temps, extra)
        ops.op("scale", target, source, **power_of_two(expression.exponent))
    elif isinstance(expression, ChineseRemainder):
        join_remainders(ops, expression, values, target, temps)
    else:
        evaluate(ops, expression, values, target, temps, extra)
    return target


def power_of_two(exponent: int) -> dict[str, Any]:
    """The fields of a `scale` by 2^exponent."""
    return {"scalar": 2.0**exponent} if abs(exponent) <= PLAIN_EXPONENT else {"scale_exponent": -exponent}


def _is_in_place(expression: Expression, converts: bool) -> bool:
    return isinstance(expression, OperandSum) or (isinstance(expression, TermValue) and not converts)


def _in_place(
    expression: Expression,
    values: Mapping[int, LocalTile],
    target: LocalTile,
    extra: Mapping[Expression, AnyTile | float] | None,
) -> AnyTile | None:
    """The tile that has the value of an expression; None where it is to be computed."""
    if isinstance(expression, OperandSum):
        tile = None if extra is None else extra[expression]
        if tile is None or isinstance(tile, float):
            raise UnsupportedError("sums of an operand need the pass that adds it up")
        return tile
    if isinstance(expression, TermValue) and values[expression.term].format == target.format:
        return values[expression.term]
    return None
