"""A power of two for each operand, by which a scheme of FP16 pieces multiplies it first and divides the result.

The module knows operands' largest elements and plans; it knows no device.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from hwsim.gemm.option_types import Option
from hwsim.gemm.plan import Expression, Piece, Plan, Scaled, Sum
from hwsim.gemm.problem import Problem
from hwsim.schemes.scheme import AnyArray, Notice, Scheme

POWER_OF_TWO = "power-of-two"
SCALED_BY = "scaled_by"  # of the options, once the operands are known: the exponents of A and B
TOP = 15  # largest elements are brought below 2^TOP: scaled low pieces of these still fit FP16
MOST = 126  # exponent of a factor, an fp32 number
SCALE = Option(
    "scale",
    str,
    None,
    "power-of-two: A and B are first multiplied by the powers of two that bring their largest elements near FP16's",
    choices=(POWER_OF_TWO,),
    default_text="none",
)


def with_scale(scheme: Scheme) -> Scheme:
    """The scheme with the option `scale`."""
    return dataclasses.replace(
        scheme,
        options=(*scheme.options, SCALE),
        plan=_ScaledPlan(scheme),
        inspect=_ScaledInspection(scheme),
        survey=_survey,
        survey_if=(SCALE.name, POWER_OF_TWO),
    )


@dataclasses.dataclass(frozen=True)
class _ScaledPlan:
    """A scheme's `plan`, scaled once the exponents are known. An object, because results are pickled."""

    scheme: Scheme

    def __call__(self, options: Mapping[str, Any], problem: Problem) -> Plan:
        unscaled: Any = self.scheme.plan(options, problem)
        return _scaled(unscaled, options[SCALED_BY]) if SCALED_BY in options else unscaled


@dataclasses.dataclass(frozen=True)
class _ScaledInspection:
    """A scheme's `inspect`, of scaled operands."""

    scheme: Scheme

    def __call__(self, a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> list[Notice]:
        if options.get(SCALE.name) is not None:
            a, b = (np.ldexp(x, _exponent(x)) for x in (a, b))
        return self.scheme.inspect(a, b, options)


def _survey(a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with both exponents."""
    return dict(options) | {SCALED_BY: (_exponent(a), _exponent(b))}


def _exponent(x: AnyArray) -> int:
    """The exponent e with the largest finite element of x times 2^e in [2^(TOP - 1), 2^TOP); 0 for zeros."""
    largest = float(np.abs(x).max(initial=0.0, where=np.isfinite(x)))
    return min(TOP - math.frexp(largest)[1], MOST) if largest else 0


def _scaled(plan: Plan, exponents: tuple[int, int]) -> Plan:
    """The plan with the pieces of both operands scaled, and its value scaled back: of library calls each term."""
    first, second = exponents
    total = first + second
    return dataclasses.replace(
        plan,
        a_pieces=_from(plan.a_pieces, first),
        b_pieces=_from(plan.b_pieces, second),
        combine=_back(plan.combine, total) if plan.calls else Scaled(plan.combine, -total),
    )


def _from(pieces: tuple[Piece, ...], exponent: int) -> tuple[Piece, ...]:
    leading = pieces[0]
    return dataclasses.replace(leading, scale_exponent=leading.scale_exponent + exponent), *pieces[1:]


def _back(expression: Expression, exponent: int) -> Expression:
    """A sum with each of its addends times 2^-exponent."""
    if isinstance(expression, Sum):
        return Sum(_back(expression.left, exponent), _back(expression.right, exponent))
    if isinstance(expression, Scaled):
        return Scaled(expression.value, expression.exponent - exponent)
    return Scaled(expression, -exponent)
