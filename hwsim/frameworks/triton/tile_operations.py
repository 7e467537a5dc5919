"""Triton's operations around a lowered dot, on codes: moves, conversions, scales of operands, fp32 arithmetic.

The module knows what the operations mean; it knows no dot, no compiler and no interpreter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.lanes import Lanes
from hwsim.backend.cpu import CPU
from hwsim.backend.operations import LaneStep
from hwsim.errors import UnsupportedError
from hwsim.formats import Format, code_dtype, format_of
from hwsim.frameworks.triton.dot_steps import FORMATS
from hwsim.frameworks.triton.ttgir import Operation, TensorType, number

Codes = NDArray[Any]
ADDRESSES = ("tt.splat", "tt.addptr", "tt.broadcast", "ttg.convert_layout")
ROUNDED = {"cvt.rna.tf32.f32 $0, $1;": ("tf32", "RNA"), "cvt.rn.tf32.f32 $0, $1;": ("tf32", "RNE")}
DENSE = re.compile(r"dense<([-+.\w]+)>")
ORDER = re.compile(r"order = array<i32: ([\d, ]+)>")
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


def result_of(operation: Operation, inputs: list[Any], arrays: dict[str, Codes], lanes: Lanes) -> Any:
    """What an operation that is no dot gives: a value, memory, an address, a constant; None for an index or barrier.

    Raises UnsupportedError for an operation on values that hwsim does not know.
    """
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
        memory.value = read(first)
        return None
    if name == "ttng.tmem_load":
        return read(first)
    if any(x is None for x in inputs) or not any(isinstance(x, LoweredValue | Memory) for x in inputs):
        return None
    compute = OPERATIONS.get(name)
    result = None if compute is None else compute(operation, [read(x) for x in inputs], lanes)
    if result is None:
        raise UnsupportedError(
            f"Triton lowers this dot with the operation {name} ({operation.text[:80]}); hwsim does not know it"
        )
    return result


def read(x: Any) -> LoweredValue:
    """The value of an operand. Raises UnsupportedError where it has none."""
    value = x.value if isinstance(x, Memory) else x
    if not isinstance(value, LoweredValue):
        raise UnsupportedError("Triton's lowered dot reads a value that hwsim does not follow")
    return value


def lane_step(step: str, x: Codes, y: Codes, lanes: Lanes) -> Codes:
    """One operation of the device's lanes on codes of their type."""
    steps: list[LaneStep] = [("load", 0), ("load", 1), (step,)]
    result: Codes = lanes.combine([np.ascontiguousarray(z).view(lanes.dtype) for z in (x, y)], steps)
    return result.view(x.dtype)


def unpacked(codes: Codes, axis: int) -> Codes:
    """Codes of 4 bits from bytes, twice as many along an axis; the low half is the first."""
    axis %= codes.ndim
    pairs = np.stack([codes & 15, codes >> 4], axis + 1)
    return pairs.reshape(*codes.shape[:axis], -1, *codes.shape[axis + 1 :])


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
    if dense is None or kind is None or kind.element not in FORMATS:
        return None
    fmt, text = _format(kind), dense[1]
    if kind.element.startswith("i"):
        code = int(text) % 2**fmt.bits
    else:
        code = int(text, 16) if text.startswith("0x") else CPU.encode(np.array([float(text)]), fmt).item()
    return LoweredValue(np.full(kind.shape, code, code_dtype(fmt)), fmt)


def _moved(operation: Operation, inputs: list[LoweredValue], _: Lanes) -> LoweredValue:
    return inputs[0]


def _shaped(operation: Operation, inputs: list[LoweredValue], _: Lanes) -> LoweredValue:
    """tt.expand_dims, tt.reshape, tt.broadcast: the shape of the result says all."""
    codes, shape = inputs[0].codes, operation.types[-1].shape
    shaped = np.broadcast_to(codes, shape) if operation.name == "tt.broadcast" else codes.reshape(shape)
    return LoweredValue(shaped, inputs[0].format)


def _transposed(operation: Operation, inputs: list[LoweredValue], _: Lanes) -> LoweredValue | None:
    order = ORDER.search(operation.text)
    if order is None:
        return None
    return LoweredValue(inputs[0].codes.transpose([int(x) for x in order[1].split(",")]), inputs[0].format)


def _reinterpreted(operation: Operation, inputs: list[LoweredValue], _: Lanes) -> LoweredValue:
    return LoweredValue(inputs[0].codes, _format(operation.types[-1]))


def _integers(operation: Operation, inputs: list[LoweredValue], _: Lanes) -> LoweredValue:
    """Unsigned integers: arith.extui, shli, maxui, and cmpi eq, a condition."""
    x, target = inputs[0].codes, inputs[0].format
    if operation.name == "arith.extui":
        target = _format(operation.types[-1])
        return LoweredValue(x.astype(code_dtype(target)), target)
    if operation.name == "arith.cmpi":
        if not operation.text.startswith("eq"):
            raise UnsupportedError(f"Triton compares integers with {operation.text[:20]}; hwsim knows eq")
        return LoweredValue(x == inputs[1].codes, None)
    y = inputs[1].codes
    return LoweredValue(np.left_shift(x, y) if operation.name == "arith.shli" else np.maximum(x, y), target)


def _arithmetic(operation: Operation, inputs: list[LoweredValue], lanes: Lanes) -> LoweredValue | None:
    """Sums and products: in the format of the lanes, and products of shorter formats, exact and rounded once."""
    left, right = inputs
    if left.format == lanes.result:
        step = {"arith.addf": "add", "arith.subf": "subtract", "arith.mulf": "times"}[operation.name]
        return LoweredValue(lane_step(step, left.codes, right.codes, lanes), left.format)
    if operation.name != "arith.mulf" or left.format is None or left.format.bits > 16:
        return None
    with np.errstate(all="ignore"):
        return _encoded(_doubles(left) * _doubles(right), left.format)


def _fused(operation: Operation, inputs: list[LoweredValue], _: Lanes) -> LoweredValue | None:
    """math.fma with a factor of zero, which makes infinities NaNs."""
    x, y, z = (_doubles(value) for value in inputs)
    if y.any() or inputs[2].format is None:
        return None
    with np.errstate(all="ignore"):
        return _encoded(x * y + z, inputs[2].format)


def _upcast(operation: Operation, inputs: list[LoweredValue], _: Lanes) -> LoweredValue:
    """ttg.fp4_to_fp: e2m1 along an axis, exact."""
    axis = number(operation.text, "axis")
    assert axis is not None
    return _encoded(
        CPU.decode(unpacked(inputs[0].codes, axis), format_of("e2m1"), np.float64), _format(operation.types[-1])
    )


def _scaled_upcast(operation: Operation, inputs: list[LoweredValue], _: Lanes) -> LoweredValue | None:
    """amdg.scaled_upcast where no instruction does it: products in fp32, cut to bf16 or rounded to fp16.

    Source: github triton-lang/triton, third_party/amd/lib/TritonAMDGPUToLLVM/UpcastMXFPToLLVM.cpp (fmul, then lshr by
    16 or fptrunc). Scales are bf16 there. Of chips whose instructions scale, they are integers: None, not known here.
    """
    x, scale = inputs
    axis = number(operation.text, "axis")
    if scale.format != format_of("bf16"):
        return None
    if operation.name.endswith("fp4"):
        assert axis is not None
        x = LoweredValue(unpacked(x.codes, axis), format_of("e2m1"))
    target = _format(operation.types[-1])
    with np.errstate(all="ignore"):
        product = (_doubles(x) * _doubles(scale)).astype(np.float32)
    if target.name != "bf16":
        return _encoded(product.astype(np.float64), target)
    return LoweredValue((product.view(np.uint32) >> 16).astype(np.uint16), target)


def _converted(operation: Operation, inputs: list[LoweredValue], lanes: Lanes) -> LoweredValue:
    target, source = _format(operation.types[-1]), inputs[0]
    assert source.format is not None
    rounding = "RZ" if "rounding = rtz" in operation.text else "RNE"
    return LoweredValue(lanes.store(lanes.values(source.codes, source.format), target, rounding), target)


def _inline_assembly(operation: Operation, inputs: list[LoweredValue], lanes: Lanes) -> LoweredValue | None:
    asm = ASM.search(operation.text)
    if asm is None or asm[1] not in ROUNDED:
        return None
    fmt, rounding = ROUNDED[asm[1]]
    word = format_of("fp32")
    return LoweredValue(lanes.store(lanes.values(inputs[0].codes, word), format_of(fmt), rounding), word)


def _unordered(operation: Operation, inputs: list[LoweredValue], _: Lanes) -> LoweredValue | None:
    if not operation.text.startswith("uno"):
        return None
    return LoweredValue(np.isnan(_doubles(inputs[0])) | np.isnan(_doubles(inputs[1])), None)


def _selected(operation: Operation, inputs: list[LoweredValue], _: Lanes) -> LoweredValue:
    condition, chosen, other = inputs
    return LoweredValue(np.where(condition.codes, chosen.codes, other.codes), other.format)


def _doubles(x: LoweredValue) -> NDArray[np.float64]:
    assert x.format is not None
    values: NDArray[np.float64] = CPU.decode(np.ascontiguousarray(x.codes), x.format, np.float64)
    return values


def _encoded(values: NDArray[np.float64], fmt: Format) -> LoweredValue:
    """Rounded once, to nearest even."""
    return LoweredValue(CPU.encode(np.ascontiguousarray(values), fmt), fmt)


OPERATIONS: dict[str, Callable[[Operation, list[LoweredValue], Lanes], LoweredValue | None]] = {
    **dict.fromkeys(
        (
            "ttg.convert_layout",
            "ttg.local_alloc",
            "ttg.local_load",
            "amdg.in_thread_transpose",
            "amdgpu.in_thread_transpose",
            "ttng.warp_group_dot_wait",
        ),
        _moved,
    ),
    **dict.fromkeys(("tt.expand_dims", "tt.reshape", "tt.broadcast"), _shaped),
    **dict.fromkeys(("tt.trans", "ttg.memdesc_trans"), _transposed),
    "tt.bitcast": _reinterpreted,
    **dict.fromkeys(("arith.extui", "arith.shli", "arith.maxui", "arith.cmpi"), _integers),
    **dict.fromkeys(("arith.addf", "arith.subf", "arith.mulf"), _arithmetic),
    "math.fma": _fused,
    "ttg.fp4_to_fp": _upcast,
    **dict.fromkeys(("amdg.scaled_upcast_fp8", "amdg.scaled_upcast_fp4"), _scaled_upcast),
    **dict.fromkeys(("arith.extf", "arith.truncf", "tt.fp_to_fp"), _converted),
    "tt.elementwise_inline_asm": _inline_assembly,
    "arith.cmpf": _unordered,
    "arith.select": _selected,
}
