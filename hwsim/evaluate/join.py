"""Arithmetic outside the matrix unit: term values are added, scaled and combined, in each arithmetic type of a plan.

Float types follow the device's elementwise lanes, integers wrap, exact sums do not round. The module knows plans'
expressions; it knows no instruction, no schedule and no operand arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.exact_sum import ExactSum
from hwsim.arithmetic.lanes import AdditionSpecials, Lanes
from hwsim.arithmetic.residues import residues
from hwsim.errors import UnsupportedError
from hwsim.formats import Format, array_dtype, format_of
from hwsim.gemm.plan import ChineseRemainder, Congruence, Expression, Scaled, Sum, TermValue

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend, LaneStep
    from hwsim.devices.device import Device
    from hwsim.numerics.units import DotSpec

AnyArray = NDArray[Any]
Value = Any  # an array of the working type, or an ExactSum
STEPS = 60  # of one fused pass over the terms
FUSED = 32
PASSES = 2  # of sums without an error over the parts of a number
PLAIN_EXPONENT = 126  # powers of two that fp32 holds, both ways


class Join(Protocol):
    """The arithmetic on values of one working type. format, dtype: of its arrays (for exact sums, of the rounded
    result). is_array: whether values are arrays.
    """

    lanes: Lanes
    format: Format
    dtype: np.dtype[Any]
    is_array: bool

    def load(self, codes: AnyArray, spec: DotSpec, threads: int = 1) -> Value:
        """The values of a unit's results (`spec.d`), rounded to the working type where it is narrower."""

    def zeros(self, shape: tuple[int, ...]) -> Value:
        """An array of sums that start at +0."""

    def add(self, left: Value, right: Value, *, in_place: bool = False, threads: int = 1) -> Value:
        """The sum left + right. in_place: left may be overwritten."""

    def addition_specials(self, spec: DotSpec) -> AdditionSpecials | None:
        """Parameters with which a backend does this arithmetic's additions beside a unit; None where it cannot."""

    def scaled(self, value: Value, exponent: int) -> Value:
        """The value times 2^exponent."""

    def raised(self, value: Value, exponents: AnyArray) -> Value:
        """The value times 2^exponents, elementwise."""

    def joined(self, expression: Expression, terms: Sequence[Value], extra: Mapping[Expression, AnyArray]) -> Value:
        """The value of an expression over the terms' values. extra: values of its OperandSum and Depth nodes, int64."""


def join_for(arithmetic: str, device: Device, spec: DotSpec, output: str, backend: Backend) -> Join:
    """The arithmetic of that name ("fp32", ...), beside a unit like `spec`. output: format that an exact sum is rounded
    to. backend: computes the bits.
    """
    if arithmetic in ("int32", "int64"):
        return IntegerJoin(arithmetic, device, spec, backend)
    if arithmetic == "exact":
        return ExactJoin(output, device, spec, backend)
    return FloatJoin(arithmetic, device, spec, backend)


class _Base:
    """Base class: evaluates an expression by the operations of the subclass."""

    is_array = True

    def __init__(self, fmt: str, device: Device, spec: DotSpec, backend: Backend) -> None:
        self.device, self.format, self.backend = device, format_of(fmt), backend
        # In fp32, the NaN is that of the unit's narrower results.
        nan_of = spec if fmt == "fp32" else None
        self.lanes = Lanes(device, dataclasses.replace(spec, d=fmt), backend, nan_of)
        self.dtype: np.dtype[Any] = array_dtype(self.format)
        self._sources: dict[str, Lanes] = {}

    def _unit_values(self, codes: AnyArray, spec: DotSpec, threads: int = 1) -> AnyArray:
        """The values of the unit's results in the unit's own type."""
        if spec.d == self.format.name:
            return self.lanes.load(codes, threads, from_unit=True)
        if spec.d not in self._sources:
            self._sources[spec.d] = Lanes(self.device, spec, self.backend)
        return self._sources[spec.d].load(codes, threads)

    def addition_specials(self, spec: DotSpec) -> AdditionSpecials | None:
        return None

    def joined(
        self: Any, expression: Expression, terms: Sequence[Value], extra: Mapping[Expression, AnyArray]
    ) -> Value:
        later = []  # right operands of the sums on the left edge: those of many slices are deeper than calls may be
        while isinstance(expression, Sum):
            later.append(expression.right)
            expression = expression.left
        match expression:
            case TermValue(term):
                total = terms[term]
            case Scaled(value, exponent):
                total = self.scaled(self.joined(value, terms, extra), exponent)
            case ChineseRemainder():
                total = self._of_remainders(expression, terms)
            case _:
                total = self._whole(extra[expression])
        for right in reversed(later):
            total = self.add(total, self.joined(right, terms, extra))
        return total

    def _whole(self, values: AnyArray) -> Value:
        raise UnsupportedError("sums of operands are for plans in integer arithmetic")

    def _of_remainders(self, expression: ChineseRemainder, terms: Sequence[Value]) -> Value:
        raise UnsupportedError("the Chinese remainder theorem is for plans in fp64 arithmetic")


class FloatJoin(_Base):
    """fp32 or fp64 arithmetic by the device's lanes, rounded to nearest even each time."""

    def load(self, codes: AnyArray, spec: DotSpec, threads: int = 1) -> AnyArray:
        values = self._unit_values(codes, spec, threads)
        return values.astype(self.dtype, copy=False)

    def addition_specials(self, spec: DotSpec) -> AdditionSpecials | None:
        is_alike = spec.c == spec.d == self.format.name
        return AdditionSpecials(self.lanes.saturates, self.lanes.nan_code(self.dtype)) if is_alike else None

    def zeros(self, shape: tuple[int, ...]) -> AnyArray:
        return self.backend.zeros(shape, self.dtype)

    def add(self, left: AnyArray, right: AnyArray, *, in_place: bool = False, threads: int = 1) -> AnyArray:
        return self.lanes.add(left, right, out=left if in_place else None, threads=threads)

    def scaled(self, value: AnyArray, exponent: int) -> AnyArray:
        if abs(exponent) <= PLAIN_EXPONENT:
            return self.lanes.multiply(2.0**exponent, value)
        return self.lanes.multiply(1.0, np.ldexp(value, exponent))

    def raised(self, value: AnyArray, exponents: AnyArray) -> AnyArray:
        return self.lanes.multiply(1.0, np.ldexp(value, exponents))

    def joined(self, expression: Expression, terms: Sequence[Value], extra: Mapping[Expression, AnyArray]) -> Value:
        """Evaluate the expression, in one pass over memory where it is short."""
        steps: list[LaneStep] = []
        if isinstance(expression, TermValue):
            return terms[expression.term]
        if len(terms) <= FUSED and _program(expression, steps) and len(steps) <= STEPS:
            return self.lanes.combine(terms, steps)
        return super().joined(expression, terms, extra)

    def _of_remainders(self, expression: ChineseRemainder, terms: Sequence[Value]) -> AnyArray:
        lanes = self.lanes
        rests = [_rest(congruence, terms) for congruence in expression.congruences]
        sums: list[AnyArray] = []
        for part in range(len(expression.product)):
            total = lanes.multiply(expression.weights[0][part], rests[0])
            for weight, rest in zip(expression.weights[1:], rests[1:], strict=True):
                total = lanes.fused(weight[part], rest, total)
            sums.append(total)
        quotient = np.rint(lanes.multiply(expression.inverse, sums[0])) + 0.0
        rests_of_parts = [
            lanes.fused(part, quotient, total) for part, total in zip(expression.product, sums, strict=True)
        ]
        value = rests_of_parts[0]
        if expression.sum == "exact":
            value = _added_up(rests_of_parts)
        elif len(sums) > 1:
            value = lanes.fused(expression.product[1], quotient, lanes.add(value, sums[1]))
        return value if expression.format == "fp64" else lanes.rounded(value, format_of(expression.format))


class IntegerJoin(_Base):
    """Wrapping int32 or int64 arithmetic."""

    def load(self, codes: AnyArray, spec: DotSpec, threads: int = 1) -> AnyArray:
        if not format_of(spec.d).is_integer:
            raise UnsupportedError(f"the unit gives {spec.d}; {self.format.name} sums need an integer unit")
        values: AnyArray = codes.view(format_of(spec.d).dtype_name).astype(self.dtype, copy=False)
        return values

    def zeros(self, shape: tuple[int, ...]) -> AnyArray:
        return self.backend.zeros(shape, self.dtype)

    def add(self, left: AnyArray, right: AnyArray, *, in_place: bool = False, threads: int = 1) -> AnyArray:
        total: AnyArray = np.add(left, right, out=left if in_place else None)
        return total

    def scaled(self, value: AnyArray, exponent: int) -> AnyArray:
        if exponent < 0:
            raise UnsupportedError(f"an integer cannot be scaled by 2^{exponent} without a rounding")
        width = self.dtype.itemsize * 8
        return value << self.dtype.type(exponent) if exponent < width else np.zeros_like(value)

    def raised(self, value: AnyArray, exponents: AnyArray) -> AnyArray:
        raise UnsupportedError("slices have exponents; integer arithmetic has no place for them")

    def _whole(self, values: AnyArray) -> AnyArray:
        return values.astype(self.dtype)  # wraps


class ExactJoin(_Base):
    """Arithmetic without rounding; `format` is what its sums are rounded to at the end."""

    is_array = False

    def load(self, codes: AnyArray, spec: DotSpec, threads: int = 1) -> ExactSum:
        return ExactSum.of(self._unit_values(codes, spec))

    def zeros(self, shape: tuple[int, ...]) -> ExactSum:
        return ExactSum({0: self.backend.zeros(shape, np.int64)})

    def add(self, left: ExactSum, right: ExactSum, *, in_place: bool = False, threads: int = 1) -> ExactSum:
        return left.plus(right)

    def scaled(self, value: ExactSum, exponent: int) -> ExactSum:
        return value.scaled(exponent)

    def raised(self, value: ExactSum, exponents: AnyArray) -> ExactSum:
        return value.raised(exponents)

    def _whole(self, values: AnyArray) -> ExactSum:
        return ExactSum.of(values)


def _added_up(parts: list[AnyArray]) -> AnyArray:
    """The sum of parts of a number, the largest first (see ChineseRemainder)."""
    for _ in range(PASSES):
        for j in range(len(parts) - 1, 0, -1):
            total = parts[j - 1] + parts[j]
            back = total - parts[j - 1]
            parts[j] = (parts[j - 1] - (total - back)) + (parts[j] - back)
            parts[j - 1] = total
    total = parts[-1]
    for part in parts[-2::-1]:
        total = part + total
    return total


def _rest(congruence: Congruence, terms: Sequence[AnyArray]) -> AnyArray:
    """The residue of a congruence, as fp64; every step is exact."""
    total = congruence.factors[0] * terms[congruence.terms[0]]
    for factor, term in zip(congruence.factors[1:], congruence.terms[1:], strict=True):
        total = total + factor * terms[term]
    low_bits: AnyArray = residues(total, congruence.modulus).astype(format_of(congruence.format).dtype_name)
    return low_bits.astype(np.float64)


def _program(expression: Expression, steps: list[LaneStep]) -> bool:
    """Append the steps of an expression; False where one of its nodes is not supported in a single pass."""
    match expression:
        case TermValue(term):
            steps.append(("load", term))
            return True
        case Sum(left, right):
            if not (_program(left, steps) and _program(right, steps)):
                return False
            steps.append(("add",))
            return True
        case Scaled(value, exponent):
            if abs(exponent) > PLAIN_EXPONENT or not _program(value, steps):
                return False
            steps.append(("scale", 2.0**exponent))
            return True
    return False
