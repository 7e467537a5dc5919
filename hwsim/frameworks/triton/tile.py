"""Computes one lowered dot on arrays: Triton's own operations around the dots, and the dots by a device's unit.

The module knows what the operations of a lowered dot mean; it knows no compiler and no interpreter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.lanes import Lanes
from hwsim.backend.cpu import CPU
from hwsim.backend.operations import LaneStep
from hwsim.devices.device import Device
from hwsim.errors import UnsupportedError
from hwsim.formats import Format, code_dtype, format_of
from hwsim.frameworks.triton.dot_steps import FORMATS, DotStep, step_of
from hwsim.frameworks.triton.ttgir import Function, Operation, TensorType
from hwsim.numerics.dot_operands import DotOperands

Codes = NDArray[Any]
DOTS = ("tt.dot", "ttng.warp_group_dot", "ttng.tc_gen5_mma")
#: Operations that move a value and change no element.
MOVES = (
    "ttg.convert_layout",
    "ttg.local_alloc",
    "ttg.local_load",
    "amdg.in_thread_transpose",
    "amdgpu.in_thread_transpose",
    "ttng.warp_group_dot_wait",
)
ADDRESSES = ("tt.splat", "tt.addptr", "tt.broadcast", "ttg.convert_layout")
ARITHMETIC = {"arith.addf": "add", "arith.subf": "subtract", "arith.mulf": "times"}
CONVERSIONS = ("arith.extf", "arith.truncf", "tt.fp_to_fp")
ROUNDED = {"cvt.rna.tf32.f32 $0, $1;": ("tf32", "RNA"), "cvt.rn.tf32.f32 $0, $1;": ("tf32", "RNE")}
DENSE = re.compile(r"dense<([-+.\w]+)>")
ASM = re.compile(r'"([^"]*)"')


@dataclass(frozen=True, slots=True)
class LoweredValue:
    """Codes of a format: an unsigned array of its storage width. Conditions have format None: booleans."""

    codes: Codes
    format: Format | None


@dataclass(slots=True)
class Memory:
    """A block of tensor memory: what was stored last."""

    value: LoweredValue | None = None


@dataclass(frozen=True, slots=True)
class Address:
    """Addresses of an array of the kernel."""

    argument: str


class LoweredDot:
    """A lowered dot on a device. Raises UnsupportedError for a dot that the device has no instruction for."""

    def __init__(self, device: Device, function: Function, assembly: str) -> None:
        self._operations, self._arguments = function.operations, function.arguments
        self._steps: dict[int, DotStep] = {
            place: step_of(device, function, operation, assembly)
            for place, operation in enumerate(function.operations)
            if operation.name in DOTS
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

    def __call__(self, a: Codes, b: Codes, c: Codes) -> Codes:
        """Codes (..., M, N) of the result. a (..., M, K), b (..., K, N), c (..., M, N): codes of their formats.

        Raises UnsupportedError for an operation on values that hwsim does not know.
        """
        arrays = {"a": a, "b": b, "c": c}
        roles = (*arrays, "d")  # further arguments are the compiler's own
        values: dict[str, Any] = {name: Address(role) for name, role in zip(self._arguments, roles, strict=False)}
        for place, operation in enumerate(self._operations):
            inputs = [values.get(name) for name in operation.operands]
            if operation.name == "tt.store" or operation.name.endswith("buffer_store"):
                return _stored(inputs).codes
            if place in self._steps:
                result = _product(self._steps[place], operation, inputs, self._lanes)
            else:
                result = _result(operation, inputs, arrays, self._lanes)
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
    a, b, target = _read(inputs[0]), _read(inputs[1]), inputs[2]
    ignores = operation.name == "ttng.tc_gen5_mma" and inputs[3] is False
    accumulator = None if ignores else _read(target).codes
    result = LoweredValue(_chained(step, a.codes, b.codes, accumulator, lanes), format_of(step.spec.d))
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
        total = partial if total is None else _arithmetic("add", partial, total, lanes)
    assert total is not None
    return total


def _result(operation: Operation, inputs: list[Any], arrays: dict[str, Codes], lanes: Lanes) -> Any:
    """What an operation that is no dot gives: a value, memory, an address, a constant; None for an index or barrier."""
    name, first = operation.name, inputs[0] if inputs else None
    if name == "tt.load" or name.endswith("buffer_load"):
        assert isinstance(first, Address)
        return LoweredValue(arrays[first.argument], _format(operation.types[-1]))
    if isinstance(first, Address) and name in ADDRESSES:
        return first
    if name == "arith.constant":
        return _constant(operation)
    if name == "ttng.tmem_alloc":
        return Memory(first if isinstance(first, LoweredValue) else None)
    if name == "ttng.tmem_store":
        memory = next(x for x in inputs if isinstance(x, Memory))
        memory.value = _read(first)
        return None
    if not any(isinstance(x, LoweredValue | Memory) for x in inputs):
        return None
    if name in MOVES:
        return first
    if name == "ttng.tmem_load":
        return _read(first)
    if name in ARITHMETIC:
        left, right = _read(first), _read(inputs[1])
        if left.format == lanes.result:
            return LoweredValue(_arithmetic(ARITHMETIC[name], left.codes, right.codes, lanes), left.format)
    if name in CONVERSIONS:
        return _converted(_read(first), operation.types[-1], operation.text, lanes)
    if name == "tt.elementwise_inline_asm" and (asm := ASM.search(operation.text)) and asm[1] in ROUNDED:
        fmt, rounding = ROUNDED[asm[1]]
        word = format_of("fp32")
        return LoweredValue(lanes.store(lanes.values(_read(first).codes, word), format_of(fmt), rounding), word)
    if name == "arith.cmpf" and operation.text.startswith("uno"):
        return LoweredValue(_is_nan(_read(first)) | _is_nan(_read(inputs[1])), None)
    if name == "arith.select":
        chosen, other = _read(inputs[1]), _read(inputs[2])
        return LoweredValue(np.where(_read(first).codes, chosen.codes, other.codes), other.format)
    raise UnsupportedError(
        f"Triton lowers this tl.dot with the operation {name} ({operation.text[:80]}); hwsim does not know it"
    )


def _read(x: Any) -> LoweredValue:
    value = x.value if isinstance(x, Memory) else x
    if not isinstance(value, LoweredValue):
        raise UnsupportedError("Triton's lowered dot reads a value that hwsim does not follow")
    return value


def _format(kind: TensorType) -> Format:
    element = kind.element
    if element not in FORMATS:
        raise UnsupportedError(f"Triton's type {element} has no format in hwsim; known: {', '.join(FORMATS)}")
    return format_of(FORMATS[element])


def _constant(operation: Operation) -> Any:
    """A tensor of one value, or True and False."""
    if operation.text.strip() in ("true", "false"):
        return operation.text.strip() == "true"
    dense = DENSE.search(operation.text)
    kind = operation.types[0] if operation.types else None
    if dense is None or kind is None or kind.element not in FORMATS or not kind.element.startswith(("f", "bf")):
        return None
    fmt, text = _format(kind), dense[1]
    code = int(text, 16) if text.startswith("0x") else None
    if code is None:
        code = CPU.encode(np.array([float(text)]), fmt).item()
    return LoweredValue(np.full(kind.shape, code, code_dtype(fmt)), fmt)


def _arithmetic(step: str, x: Codes, y: Codes, lanes: Lanes) -> Codes:
    """One operation of the device's lanes on codes of their type."""
    steps: list[LaneStep] = [("load", 0), ("load", 1), (step,)]
    result: Codes = lanes.combine([np.ascontiguousarray(z).view(lanes.dtype) for z in (x, y)], steps)
    return result.view(x.dtype)


def _converted(x: LoweredValue, kind: TensorType, text: str, lanes: Lanes) -> LoweredValue:
    target = _format(kind)
    assert x.format is not None
    rounding = "RZ" if "rounding = rtz" in text else "RNE"
    return LoweredValue(lanes.store(lanes.values(x.codes, x.format), target, rounding), target)


def _is_nan(x: LoweredValue) -> NDArray[np.bool_]:
    assert x.format is not None
    return np.isnan(CPU.decode(x.codes, x.format))
