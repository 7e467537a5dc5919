"""Operands and products behind BF16x9's claims on accuracy: the matrices of Fig. 4, spreads of exponents, variants.

It knows how a variant of BF16x9 is made from the scheme's plan, and the errors that the claims ask for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hwsim
from hwsim.analysis import inputs, metrics
from hwsim.gemm.plan import Expression, Plan, Scaled, Stage, Sum, Term, TermValue
from hwsim.schemes import scheme_of
from hwsim.schemes.scheme import Scheme
from hwsim_lab.papers.experiment import Scale

Array = NDArray[Any]
Pair = tuple[Array, Array]
DEVICE = "b200"
SIZE = 160  # of Fig. 4
DELTAS = (1e1, 1e2, 1e3, 1e4, 1e5, 1e6)
PAIRS: dict[Scale, int] = {"quick": 10, "full": 100}
NATIVE, X9, X6 = "native", "x9", "x6"
FP16_SHIFT = 11


def wide(a: Array, b: Array) -> Array:
    """DGEMM of the same operands."""
    return a.astype(np.float64) @ b.astype(np.float64)


def changed_plan(name: str, change: Callable[[Plan], Plan]) -> Scheme:
    """A scheme whose plan is changed."""
    scheme = scheme_of(name)

    def plan(options: Any, problem: Any) -> Plan:
        made = scheme.plan(options, problem)
        assert isinstance(made, Plan)
        return change(made)

    return replace(scheme, plan=plan)


def _without_scales(plan: Plan) -> Plan:
    pieces = tuple(replace(one, scale_exponent=0) for one in plan.a_pieces)
    terms = tuple(replace(one, stages=tuple(replace(x, scale_exponent=0) for x in one.stages)) for one in plan.terms)
    return replace(plan, a_pieces=pieces, b_pieces=pieces, terms=terms)


def _row_by_row(plan: Plan) -> Plan:
    every = tuple(Stage(((i, j),)) for i in range(3) for j in range(3))
    return replace(_without_scales(plan), terms=(Term(every),))


def _fourth_product(plan: Plan) -> Plan:
    small: Expression = Sum(TermValue(1), Scaled(TermValue(2), -FP16_SHIFT))
    combine = Sum(TermValue(0), Scaled(small, -FP16_SHIFT))
    return replace(plan, terms=(*plan.terms, Term((Stage(((1, 1),)),))), combine=combine)


def unscaled(name: str) -> Scheme:
    """BF16x9 or BF16x6 whose pieces and sums are not scaled; otherwise the same."""
    return changed_plan(name, _without_scales)


def row_by_row() -> Scheme:
    """BF16x9 whose products run in the order of Eq. 5, row by row, on one accumulator."""
    return changed_plan("bf16x9", _row_by_row)


def fp16x4() -> Scheme:
    """Ootomo's halfhalf with the product of the low pieces as well."""
    return changed_plan("ootomo-fp16", _fourth_product)


#: Method -> arguments of hwsim.matmul.
METHODS: dict[str, dict[str, Any]] = {
    NATIVE: {"format": "fp32"},
    X9: {"scheme": "bf16x9"},
    X6: {"scheme": "bf16x6"},
    "markidis": {"scheme": "markidis"},
    "ootomo": {"scheme": "ootomo-fp16"},
}


def product(method: str, a: Array, b: Array, **options: Any) -> Array:
    """A B by a method of METHODS on the device, FP32."""
    return np.asarray(hwsim.matmul(a, b, device=DEVICE, **(METHODS[method] | options)))


@cache
def operands(delta: float, seed: int) -> Pair:
    """A pair of Fig. 4, FP32."""
    a, b = inputs.conditioned(SIZE, seed, delta)
    return a.astype(np.float32), b.astype(np.float32)


def relative_errors(delta: float, seed: int, multiply: Callable[[Array, Array], Array]) -> Array:
    """|C - C64| / |C64| of each element of a pair of Fig. 4."""
    a, b = operands(delta, seed)
    exact = wide(a, b)
    return np.asarray(np.abs(multiply(a, b) - exact) / np.abs(exact))


@cache
def of_pairs(method: str, delta: float, count: int) -> Array:
    """relative_errors of all elements of `count` pairs, by a method of METHODS."""
    return np.stack([relative_errors(delta, seed, partial(product, method)) for seed in range(count)])


def rms(a: Array, b: Array, c: Array) -> float:
    """The error in the Frobenius norm, relative to DGEMM's (Eq. 6)."""
    return metrics.relative_frobenius(wide(a, b), c)


def rms_ratio(a: Array, b: Array, method: str, over: str) -> float:
    """The error of a method by another's."""
    return rms(a, b, product(method, a, b)) / rms(a, b, product(over, a, b))


def geomean(values: list[float]) -> float:
    """Geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def normal(m: int, n: int, k: int, seed: int) -> Pair:
    """Standard normal operands, FP32."""
    return inputs.normal(m, n, k, seed)


def uniform(m: int, n: int, k: int, seed: int) -> Pair:
    """Operands uniform in [-1, 1], FP32."""
    return inputs.offset_uniform(m, n, k, seed, 0, symmetric=True)


def spread(shape: tuple[int, int], low: int, high: int, random: np.random.Generator) -> Array:
    """Numbers of random sign and mantissa, exponents uniform from low to high; FP32's denormals below its normals."""
    size = np.ldexp(random.uniform(1, 2, shape), random.integers(low, high, shape, endpoint=True))
    return np.asarray((size * random.choice((-1.0, 1.0), shape)).astype(np.float32))
