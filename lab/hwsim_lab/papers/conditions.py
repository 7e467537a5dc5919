"""Conditions written as text, such as `near(double, paper.double, 0.1) and double > single`: parsed and evaluated.

It knows numbers, series of numbers and the functions listed in FUNCTIONS; it knows nothing of papers and runs no code
but the operators below.
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


def value(text: str, measured: Mapping[str, Quantity], paper: Mapping[str, Quantity]) -> Any:
    """The value of an expression. Lists are series. Raises InputError for an unknown name or what is not allowed."""
    names(text)

    def known(name: str, table: Mapping[str, Quantity], what: str) -> Any:
        if name not in table:
            raise InputError(f"condition {text!r}: no {what} {name!r}; there are {', '.join(table) or 'none'}")
        found = table[name]
        return np.asarray(found) if isinstance(found, list) else found

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
                return not of(operand)
            case ast.BoolOp(op=ast.And(), values=values):
                return all(truth(x) for x in values)
            case ast.BoolOp(values=values):
                return any(truth(x) for x in values)
            case ast.Compare(left=left, ops=operations, comparators=rest):
                sides = [of(left), *(of(x) for x in rest)]
                results = [_BINARY[type(op)](sides[i], sides[i + 1]) for i, op in enumerate(operations)]
                return results[0] if len(results) == 1 else np.logical_and.reduce(results)
            case ast.Subscript(value=series, slice=index):
                return of(series)[int(of(index))]
            case ast.Call(func=ast.Name(id=function), args=arguments):
                return FUNCTIONS[function][0](*(of(x) for x in arguments))
        raise AssertionError(ast.unparse(node))

    def truth(node: ast.expr) -> bool:
        found = of(node)
        if np.ndim(found):
            raise InputError(
                f"condition {text!r}: {ast.unparse(node)!r} is a series; say all(...), any(...) or share(...)"
            )
        return bool(found)

    return of(_parsed(text))


def holds(text: str, measured: Mapping[str, Quantity], paper: Mapping[str, Quantity]) -> bool:
    """Whether a condition is true. Raises InputError as `value` does, and where it is a series or NaN."""
    found = value(text, measured, paper)
    if np.ndim(found) or not isinstance(found, bool | np.bool_):
        raise InputError(f"condition {text!r}: its value is {found!r}; needed: true or false")
    return bool(found)
