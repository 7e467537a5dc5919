"""Evaluates PTX on arrays: one thread's instructions for every element at once, branches forward by masks.

The module knows PTX's instructions on registers; it knows no Triton and no kernel. Source: PTX ISA 8.7; `div.full` by
the machine code of ptxas 12.8 for sm_90.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.cuda_math import LARGE, LIFT, NORMAL, CudaMath
from hwsim.arithmetic.rounded_once import multiply_add
from hwsim.errors import UnsupportedError
from hwsim.numerics import special_functions

Register = NDArray[Any]
LINE = re.compile(r"^(?:@(!?)(%\w+)\s+)?([a-z][\w.:]*)\s+(.*);$")
LABEL = re.compile(r"^(\$\w+):$")
OPERANDS = re.compile(r"\{[^}]*\}|\[[^]]*\]|[^\s,{}\[\]]+")
SKIPPED = ("ret", "bar.sync", "bar.warp.sync")
NEAREST = frozenset(("rn", "ftz", "f32"))  # what FLOATS compute; other roundings, .sat, .NaN and .approx are unknown
NAN = np.uint32(0x7FFFFFFF)
SIGN, MAGNITUDE = np.uint32(1 << 31), np.uint32((1 << 31) - 1)
INTEGERS = {"b": "u", "u": "u", "s": "i"}
COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PtxStep:
    """One instruction: its guard (register, whether it is negated), opcode and operands as spelt."""

    guard: tuple[str, bool] | None
    opcode: str
    operands: tuple[str, ...]


def steps_of(text: str) -> list[PtxStep]:
    """The instructions of the one entry of a module; a label is an instruction of that name without operands."""
    body = text[text.index(".entry") :]
    steps = []
    for line in body.splitlines():
        line = line.split("//")[0].strip()
        if label := LABEL.match(line):
            steps.append(PtxStep(None, label[1], ()))
        matched = LINE.match(line)
        if matched is None or matched[3].split(".")[0] in SKIPPED:
            continue
        guard = (matched[2], bool(matched[1])) if matched[2] else None
        steps.append(PtxStep(guard, matched[3], tuple(OPERANDS.findall(matched[4]))))
    return steps


class PtxFunction:
    """Runs instructions. math: the chip's special functions."""

    def __init__(self, steps: list[PtxStep], math: CudaMath) -> None:
        self._steps, self._math = steps, math

    def __call__(self, inputs: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        """What the kernel stores, where its parameters are the inputs' addresses and then the result's.

        Raises UnsupportedError for an instruction that hwsim does not know.
        """
        registers: dict[str, Any] = {}
        arrays = [np.ascontiguousarray(x).view(np.uint32).reshape(-1) for x in inputs]
        waiting: dict[str, Any] = {}  # elements that jumped, by label
        active: Any = np.bool_(True)
        seen = set()
        with np.errstate(all="ignore"):
            for step in self._steps:
                if step.opcode.startswith("$"):
                    seen.add(step.opcode)
                    active = active | waiting.pop(step.opcode, np.bool_(False))
                elif not np.any(active):
                    continue
                elif step.opcode.split(".")[0] == "bra":
                    label = step.operands[0]
                    if label in seen:
                        raise unknown(f"a loop ({label})")
                    jumps = active & self._guard(step, registers)
                    waiting[label] = waiting.get(label, np.bool_(False)) | jumps
                    active = active & ~jumps
                elif step.opcode.startswith("ld.param"):
                    number = int(step.operands[1].strip("[]").rsplit("_", 1)[1])
                    registers[step.operands[0]] = _Address(number)
                elif step.opcode.startswith("st.global"):
                    stored = np.broadcast_to(
                        self._value(registers, operand_names(step.operands[1])[0]), arrays[0].shape
                    )
                    return np.ascontiguousarray(stored).view(np.float32)
                else:
                    self._run(step, registers, arrays, active)
        raise UnsupportedError("Triton's PTX of this function stores nothing")

    def _guard(self, step: PtxStep, registers: Mapping[str, Any]) -> Any:
        """The elements for which the instruction runs."""
        if step.guard is None:
            return np.bool_(True)
        is_on = registers.get(step.guard[0])
        return np.bool_(True) if is_on is None else is_on ^ step.guard[1]

    def _run(self, step: PtxStep, registers: dict[str, Any], arrays: list[Register], active: Any) -> None:
        values = [self._value(registers, x) for text in step.operands[1:] for x in operand_names(text)]
        (target, *others) = operand_names(step.operands[0])
        addresses = [x for x in values if isinstance(x, _Address)]
        if addresses:
            is_load = step.opcode.startswith("ld.global")
            registers[target] = arrays[addresses[0].number] if is_load else addresses[0]
        elif any(x is None for x in values) or others:  # indices: threads, blocks
            registers[target] = None
        else:
            runs, result = active & self._guard(step, registers), self._result(step.opcode, values)
            before = registers.get(target)
            registers[target] = result if before is None or np.all(runs) else np.where(runs, result, before)

    def _value(self, registers: Mapping[str, Any], text: str) -> Any:
        if text.startswith("%"):
            return registers.get(text)  # %tid and %ctaid are indices
        if text.startswith("0f"):
            return np.uint32(int(text[2:], 16))
        if text.startswith("__local"):
            return None
        if text in ("true", "false"):
            return np.bool_(text == "true")
        try:
            return np.uint32(int(text, 0) % 2**32)
        except ValueError:
            raise unknown(f"an operand {text}") from None

    def _result(self, opcode: str, values: list[Any]) -> Any:
        name, *parts = opcode.split(".")
        kind = parts[-1] if parts else ""
        if name == "mov" and len(values) == 1:
            return values[0]
        is_logic = all(isinstance(x, np.ndarray | np.bool_) and x.dtype == bool for x in values)
        if (kind == "pred" or is_logic) and name in LOGIC:
            return LOGIC[name](*values)
        if name == "selp":
            return np.where(values[2], values[0], values[1])
        if name == "cvt":
            return _converted(parts, values[0])
        if name == "setp":
            return _compared(parts, values)
        if kind == "f32":
            return self._float(name, parts, [np.asarray(x).view(np.float32) for x in values])
        if kind in ("b32", "u32", "s32") and name in _WHOLE:
            dtype = np.int32 if kind == "s32" else np.uint32
            with np.errstate(over="ignore"):
                result = _WHOLE[name](*(np.asarray(x).astype(np.uint32).view(dtype) for x in values))
            return np.asarray(result).astype(dtype).view(np.uint32)
        raise unknown(opcode)

    def _float(self, name: str, parts: list[str], values: list[Any]) -> Register:
        is_flushed = "ftz" in parts
        if is_flushed:
            values = [_flushed(x) for x in values]
        if name in ("abs", "neg"):
            codes = values[0].view(np.uint32)
            return codes & MAGNITUDE if name == "abs" else codes ^ SIGN
        if "approx" in parts and name in special_functions.FUNCTIONS:
            return self._special(name, is_flushed, np.atleast_1d(values[0]))
        if name == "div" and parts[0] == "full":
            result = _full_quotient(self._math, *values)
        elif name in FLOATS and NEAREST.issuperset(parts):
            result = FLOATS[name](*values)
        else:
            raise unknown(".".join([name, *parts]))
        result = np.asarray(result, np.float32)
        if is_flushed:
            result = _flushed(result)
        return np.where(np.isnan(result), NAN, result.view(np.uint32))

    def _special(self, name: str, is_flushed: bool, x: NDArray[np.float32]) -> Register:
        if is_flushed or name not in _SCALED:
            return special_functions.FUNCTIONS[name](x.view(np.uint32), self._math.tables)
        result: NDArray[np.float32] = _SCALED[name](self._math, x)
        return result.view(np.uint32)


def unknown(what: str) -> UnsupportedError:
    """The refusal of PTX that has something unknown."""
    return UnsupportedError(f"Triton's PTX of this function has {what}; hwsim does not know it")


@dataclass(frozen=True, slots=True)
class _Address:
    number: int


def operand_names(text: str) -> list[str]:
    """The registers and numbers of an operand: of `{ %r1, %r2 }`, of `[ %rd1 + 16 ]`."""
    return [x.strip() for x in text.strip("{}[]").replace("+", ",").split(",") if x.strip()]


def _flushed(x: Any) -> Any:
    codes = np.asarray(x).view(np.uint32)
    return np.where((codes & MAGNITUDE) < np.uint32(1 << 23), codes & SIGN, codes).view(np.float32)


def _full_quotient(math: CudaMath, x: Any, y: Any) -> Any:
    size = np.abs(y)
    scale = np.where(size > LARGE, np.float32(0.25), np.where(size < NORMAL, LIFT, np.float32(1)))
    return math.reciprocal(np.atleast_1d(y * scale)) * (x * scale)


def _compared(parts: list[str], values: list[Any]) -> Any:
    comparison, kind = parts[0], parts[-1]
    if len(values) != 2:  # joined with a predicate
        raise unknown(".".join(["setp", *parts]))
    if kind == "f32":
        x, y = (np.asarray(v).view(np.float32) for v in values)
        if "ftz" in parts:
            x, y = _flushed(x), _flushed(y)
        either = np.isnan(x) | np.isnan(y)
        if comparison in ("num", "nan"):
            return either == (comparison == "nan")
        is_unordered = comparison.endswith("u")
        result = COMPARISONS[comparison.removesuffix("u") if is_unordered else comparison](x, y)
        return result | either if is_unordered else result & ~either
    dtype = np.dtype(f"{INTEGERS[kind[0]]}{int(kind[1:]) // 8}")
    x, y = (np.asarray(v).view(dtype) for v in values)
    return COMPARISONS[{"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(comparison, comparison)](x, y)


def _converted(parts: list[str], x: Any) -> Any:
    target, source = parts[-2:]
    if (target, source) in (("f32", "s32"), ("f32", "u32")):
        return np.asarray(x).view(np.int32 if source == "s32" else np.uint32).astype(np.float32).view(np.uint32)
    rounding = next((part for part in parts if part in _ROUND), None)
    if source == "f32" and target in ("f32", "s32", "u32") and rounding:
        value = np.asarray(x).view(np.float32)
        rounded = _ROUND[rounding](_flushed(value) if "ftz" in parts else value)
        if target == "f32":
            return np.where(np.isnan(rounded), NAN, rounded.view(np.uint32))
        info = np.iinfo(np.int32 if target == "s32" else np.uint32)
        bounded = np.clip(np.nan_to_num(rounded.astype(np.float64), nan=0.0), info.min, info.max)
        return bounded.astype(np.int64).astype(info.dtype).view(np.uint32)
    raise unknown(".".join(["cvt", *parts]))


def _fused(x: Any, y: Any, z: Any) -> Any:
    return multiply_add(*np.broadcast_arrays(x, y, z))


_SCALED: dict[str, Callable[[CudaMath, Any], Any]] = {
    "ex2": CudaMath.exp2f, "rcp": CudaMath.rcp, "rsqrt": CudaMath.rsqrtf, "sqrt": CudaMath.sqrt, "lg2": CudaMath.lg2,
}  # fmt: skip
LOGIC: dict[str, Callable[..., Any]] = {
    "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "not": np.logical_not, "mov": lambda x: x,
    "selp": lambda x, y, p: np.where(p, x, y),
}  # fmt: skip
_WHOLE: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "not": np.invert, "neg": np.negative, "shl": lambda x, n: np.where(n < 32, x << (n & 31), 0),
    "shr": lambda x, n: x >> np.minimum(n, 31) if x.dtype == np.int32 else np.where(n < 32, x >> (n & 31), 0),
    "min": np.minimum, "max": np.maximum,
}  # fmt: skip
FLOATS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "fma": _fused, "div": np.divide, "sqrt": np.sqrt,
    "min": np.fmin, "max": np.fmax,
}  # fmt: skip
_ROUND: dict[str, Callable[..., Any]] = {"rni": np.rint, "rmi": np.floor, "rpi": np.ceil, "rzi": np.trunc}
