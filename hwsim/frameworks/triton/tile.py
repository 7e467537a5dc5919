"""Computes one lowered dot on arrays: Triton's own operations around the dots, and the dots by a device's unit.

The module knows how a lowered dot runs; hwsim.frameworks.triton.tile_operations computes what stands around it. It
knows no compiler and no interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hwsim.arithmetic.lanes import Lanes
from hwsim.backend.cpu import CPU
from hwsim.devices.device import Device
from hwsim.errors import UnsupportedError
from hwsim.formats import format_of
from hwsim.frameworks.triton.dot_question import PACKED
from hwsim.frameworks.triton.dot_steps import OPERANDS, DotStep, step_of, types_of
from hwsim.frameworks.triton.tile_operations import (
    Address,
    Codes,
    LoweredValue,
    Memory,
    lane_step,
    read,
    result_of,
    unpacked,
)
from hwsim.frameworks.triton.ttgir import Function, Operation
from hwsim.numerics.dot_operands import DotOperands


class LoweredDot:
    """A lowered dot on a device. Raises UnsupportedError for a dot that the device has no instruction for."""

    def __init__(self, device: Device, function: Function, assembly: str) -> None:
        self._operations, self._arguments = function.operations, function.arguments
        self._steps: dict[int, DotStep] = {
            place: step_of(device, function, operation, assembly)
            for place, operation in enumerate(function.operations)
            if operation.name in OPERANDS
        }
        if not self._steps:
            raise UnsupportedError("Triton's compiler lowered this tl.dot to no dot that hwsim knows")
        self._lanes = Lanes(device, next(iter(self._steps.values())).spec, CPU)

    @property
    def instruction(self) -> str:
        """The matrix instruction of its dots."""
        return next(iter(self._steps.values())).instruction

    @property
    def dots(self) -> int:
        """How many products of the operands' sizes it runs."""
        return len(self._steps)

    def __call__(self, arrays: Mapping[str, Codes]) -> Codes:
        """Codes (..., M, N) of the result. arrays: codes by the names of the kernel's arguments, in their order: a
        (..., M, K), b (..., K, N), c (..., M, N), scales.

        Raises UnsupportedError for an operation on values that hwsim does not know.
        """
        roles = (*arrays, "d")  # further arguments are the compiler's own
        values: dict[str, Any] = {name: Address(role) for name, role in zip(self._arguments, roles, strict=False)}
        for place, operation in enumerate(self._operations):
            inputs = [values.get(name) for name in operation.operands]
            if operation.name == "tt.store" or operation.name.endswith("buffer_store"):
                return _stored(inputs).codes
            if place in self._steps:
                result = _product(self._steps[place], operation, inputs, self._lanes)
            else:
                result = result_of(operation, inputs, dict(arrays), self._lanes)
            for index, name in enumerate(operation.results):
                values[name] = inputs[index] if len(operation.results) > 1 else result
        raise UnsupportedError("Triton's lowered kernel stores nothing")


def _stored(inputs: list[Any]) -> LoweredValue:
    stored = [x for x in inputs if isinstance(x, LoweredValue)]
    if len(stored) != 1:
        raise UnsupportedError("Triton's lowered kernel stores what hwsim does not follow")
    return stored[0]


def _product(step: DotStep, operation: Operation, inputs: list[Any], lanes: Lanes) -> LoweredValue | None:
    """d, or None where it goes to the tensor memory that holds the accumulator."""
    by_name = dict(zip(OPERANDS[operation.name], inputs, strict=False))
    a, b, target = read(by_name["a"]).codes, read(by_name["b"]).codes, by_name["c"]
    c = None if by_name.get("reads_c") is False else read(target).codes
    if step.scaled is None:
        codes = _chained(step, np.ascontiguousarray(a), np.ascontiguousarray(b), c, lanes)
    else:
        m, n = types_of(operation)["d"].shape[-2:]
        if step.scaled[0] == PACKED:
            a = unpacked(a, -1 if a.shape[-2] == m else -2)
        if step.scaled[1] == PACKED:
            b = unpacked(b, -2 if b.shape[-1] == n else -1)
        scales = read(by_name["a_scale"]).codes, read(by_name["b_scale"]).codes.swapaxes(-1, -2)
        a, b, a_scale, b_scale = map(np.ascontiguousarray, (a, b, *scales))
        codes = CPU.gemm(step.spec, DotOperands(a, b, c, a_scale, b_scale))
    result = LoweredValue(codes, format_of(step.spec.d))
    if not isinstance(target, Memory):
        return result
    target.value = result
    return None


def _chained(step: DotStep, a: Codes, b: Codes, c: Codes | None, lanes: Lanes) -> Codes:
    if step.order is not None:
        a, b = a[..., step.order], b[..., step.order, :]
    if not step.partial_k:
        return CPU.gemm(step.spec, DotOperands(a, b, c))
    total = c
    for first in range(0, a.shape[-1], step.partial_k):
        last = first + step.partial_k
        partial = CPU.gemm(step.spec, DotOperands(a[..., first:last], b[..., first:last, :], None))
        total = partial if total is None else lane_step("add", partial, total, lanes)
    assert total is not None
    return total
