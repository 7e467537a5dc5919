"""Conditions written as text, such as `near(double, paper.double, 0.1) and double > single`: parsed and evaluated.

It knows numbers, series of numbers and the functions listed in FUNCTIONS; it knows nothing of papers and runs no code
but the operators below. `within` asks the same condition with a factor of slack on each number of the paper.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from hwsim.errors import InputError, nearest

Number = float | int
Quantity = Number | bool | list[float] | list[int]
Array = np.ndarray[Any, np.dtype[Any]]


def _near(x: Array, of: Array, relative: float) -> bool:
    return bool(np.all(np.abs(np.asarray(x) - of) <= relative * np.abs(of)))


def _factor(x: Array, of: Array, factor: float) -> bool:
    x = np.asarray(x, dtype=np.float64)
    return bool(np.all((x >= np.asarray(of) / factor) & (x <= np.asarray(of) * factor)))


def _rising(x: Array) -> bool:
    return bool(np.all(np.diff(np.asarray(x)) > 0))


def _falling(x: Array) -> bool:
    return bool(np.all(np.diff(np.asarray(x)) < 0))


# name -> (function, meaning). x, y: a number or a series; a series and a number are compared element by element.
FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "near": (_near, "near(x, y, r): every |x - y| is at most r |y|"),
    "factor": (_factor, "factor(x, y, f): every x is from y / f to y f"),
    "share": (lambda x: float(np.mean(np.asarray(x, dtype=bool))), "share(x > y): the share of elements that are true"),
    "all": (lambda x: bool(np.all(x)), "all(x > y): true for every element"),
    "any": (lambda x: bool(np.any(x)), "any(x > y): true for an element"),
    "rising": (_rising, "rising(x): each element is above the one before"),
    "falling": (_falling, "falling(x): each element is below the one before"),
    "min": (lambda *x: float(np.min(np.concatenate([np.ravel(i) for i in x]))), "min(x, ...): the least element"),
    "max": (lambda *x: float(np.max(np.concatenate([np.ravel(i) for i in x]))), "max(x, ...): the greatest element"),
    "mean": (lambda x: float(np.mean(x)), "mean(x): arithmetic mean"),
    "median": (lambda x: float(np.median(x)), "median(x)"),
    "geomean": (lambda x: float(np.exp(np.mean(np.log(x)))), "geomean(x): geometric mean"),
    "first": (lambda x: x[0], "first(x)"),
    "last": (lambda x: x[-1], "last(x)"),
    "count": (lambda x: int(np.sum(np.asarray(x, dtype=bool))), "count(x > y): how many elements are true"),
    "abs": (np.abs, "abs(x)"),
    "log2": (np.log2, "log2(x)"),
    "log10": (np.log10, "log10(x)"),
}
_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


@cache
def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise InputError(f"condition {text!r}: {error.msg} at character {error.offset}") from None


def names(text: str) -> tuple[set[str], set[str]]:
    """The quantities that a condition reads, and those after `paper.`. Raises InputError for what is not allowed."""
    own: set[str] = set()
    stated: set[str] = set()

    def visit(node: ast.expr) -> None:
        match node:
            case ast.Constant(value=bool() | int() | float()):
                pass
            case ast.Attribute(value=ast.Name(id="paper"), attr=name):
                stated.add(name)
            case ast.Name(id=name):
                own.add(name)
            case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _BINARY:
                visit(left)
                visit(right)
            case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
                visit(operand)
            case ast.BoolOp(values=values):
                for value in values:
                    visit(value)
            case ast.Compare(left=left, ops=operations, comparators=rest) if all(
                type(x) in _BINARY for x in operations
            ):
                for part in (left, *rest):
                    visit(part)
            case ast.Subscript(value=value, slice=index):
                visit(value)
                visit(index)
            case ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]):
                if function not in FUNCTIONS:
                    raise InputError(
                        f"condition {text!r}: no function {function!r}; there are {', '.join(FUNCTIONS)}"
                        f"{nearest(function, list(FUNCTIONS))}"
                    )
                for argument in arguments:
                    visit(argument)
            case _:
                raise InputError(f"condition {text!r}: {ast.unparse(node)!r} is not allowed; {ALLOWED}")

    visit(_parsed(text))
    return own, stated


ALLOWED = (
    "allowed: numbers, names of measured quantities, paper.NAME, x[i], + - * / **, comparisons, and, or, not, "
    f"and the functions {', '.join(FUNCTIONS)}"
)


def value(text: str, measured: Mapping[str, Quantity], paper: Mapping[str, Quantity], slack: float = 1.0) -> Any:
    """The value of an expression. Lists are series. Raises InputError for an unknown name or what is not allowed.

    slack: factor by which a comparison with a number of the paper may miss it; above 1, comparisons that name no number
    of the paper are true.
    """
    names(text)

    def known(name: str, table: Mapping[str, Quantity], what: str) -> Any:
        if name not in table:
            raise InputError(f"condition {text!r}: no {what} {name!r}; there are {', '.join(table) or 'none'}")
        quantity = table[name]
        return np.asarray(quantity) if isinstance(quantity, list) else quantity

    def of(node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=constant):
                return constant
            case ast.Attribute(attr=name):
                return known(name, paper, "number of the paper")
            case ast.Name(id=name):
                return known(name, measured, "measured quantity")
            case ast.BinOp(left=left, op=operation, right=right):
                return _BINARY[type(operation)](of(left), of(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -of(operand)
            case ast.UnaryOp(operand=operand):
                return True if slack > 1 else not of(operand)
            case ast.BoolOp(op=ast.And(), values=values):
                return all(truth(x) for x in values)
            case ast.BoolOp(values=values):
                return any(truth(x) for x in values)
            case ast.Compare(left=left, ops=operations, comparators=rest):
                sides, results = [left, *rest], []
                for i, comparison in enumerate(operations):
                    results.append(compared(sides[i], comparison, sides[i + 1]))
                return results[0] if len(results) == 1 else np.logical_and.reduce(results)
            case ast.Subscript(value=series, slice=index):
                return of(series)[int(of(index))]
            case ast.Call(func=ast.Name(id=function), args=arguments):
                if slack > 1 and function in ("near", "factor", "rising", "falling"):
                    if not (set(map(_names_paper, arguments)) & {True}):
                        return True
                    first, second, *_ = map(of, arguments)
                    return FUNCTIONS[function][0](*map(of, arguments)) or _factor(first, second, slack)
                return FUNCTIONS[function][0](*(of(x) for x in arguments))
        raise AssertionError(ast.unparse(node))

    def compared(left: ast.expr, operation: ast.cmpop, right: ast.expr) -> Any:
        """Whether a comparison is true, with the slack where it names a number of the paper itself."""
        if slack > 1 and not (_names_paper(left) or _names_paper(right)):
            return True
        strict = _BINARY[type(operation)](of(left), of(right))
        if slack == 1 or _holds_condition(left) or _holds_condition(right):
            return strict
        match left:  # abs(x - paper.y) <= 5: x within the factor of y
            case ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp(left=x, op=ast.Sub(), right=y)]):
                return strict | _is_within(of(x), ast.Eq(), of(y), slack)
        return strict | _is_within(of(left), operation, of(right), slack)

    def truth(node: ast.expr) -> bool:
        part = of(node)
        if np.ndim(part):
            raise InputError(
                f"condition {text!r}: {ast.unparse(node)!r} is a series; say all(...), any(...) or share(...)"
            )
        return bool(part)

    return of(_parsed(text))


def _names_paper(node: ast.expr) -> bool:
    """Whether an expression reads a number of the paper."""
    return any(isinstance(x, ast.Attribute) for x in ast.walk(node))


def _holds_condition(node: ast.expr) -> bool:
    """Whether a comparison stands inside an expression, as in share(x > paper.y): the slack is in there."""
    return any(isinstance(x, ast.Compare) for x in ast.walk(node))


def _is_within(left: Any, operation: ast.cmpop, right: Any, slack: float) -> Any:
    """Whether a comparison is true once one side is multiplied or divided by the slack.

    A zero on the right has no factor: true.
    """
    left, right = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    ends = np.sort(np.stack(np.broadcast_arrays(right / slack, right * slack)), axis=0)
    above, below = left >= ends[0], left <= ends[1]
    match operation:
        case ast.Gt() | ast.GtE():
            return above
        case ast.Lt() | ast.LtE():
            return below
        case ast.Eq():
            return (above & below) | (right == 0)
    return np.ones_like(above)


def within(text: str, measured: Mapping[str, Quantity], paper: Mapping[str, Quantity], slack: float) -> bool:
    """Whether each number of the paper that a condition compares is met within a factor; comparisons without such a
    number are not asked. slack: above 1. Raises InputError as `value` does.
    """
    return bool(np.all(value(text, measured, paper, slack)))


def holds(text: str, measured: Mapping[str, Quantity], paper: Mapping[str, Quantity]) -> bool:
    """Whether a condition is true. Raises InputError as `value` does, and where it is a series or NaN."""
    answer = value(text, measured, paper)
    if np.ndim(answer) or not isinstance(answer, bool | np.bool_):
        raise InputError(f"condition {text!r}: its value is {answer!r}; needed: true or false")
    return bool(answer)
