"""What takes the place of methods of the interpreter's builder: dots, functions, joined operations, bf16, sums.

The module knows the interpreter's builder and handles; it knows no lowering and no device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import FrameType
from typing import Any, Protocol

import numpy as np
import triton.language as tl
import triton.runtime.interpreter as interpreter
from numpy.typing import NDArray

from hwsim.arithmetic.rounded_once import multiply_add
from hwsim.backend.cpu import CPU
from hwsim.errors import UnsupportedError
from hwsim.formats import format_of
from hwsim.frameworks.triton.dot_question import DotQuestion, DotScaling
from hwsim.frameworks.triton.joined_operations import Blocks, JoinedOperations, PendingDot
from hwsim.frameworks.triton.ptx import NAN

Codes = NDArray[Any]
DEFAULT_WARPS = 4
MOVES = ("create_broadcast", "create_expand_dims")


class TritonArithmetic(Protocol):
    """What computes in the interpreter's place. has_ptx: whether the target follows PTX's rules: one code of NaN, and
    products that LLVM fuses with sums.
    """

    has_ptx: bool

    def options(self, num_warps: int) -> Any:
        """The target's options."""

    def modules(self) -> Any:
        """The target's modules in the place of Triton's own, by name."""

    def least_size(self, num_warps: int) -> Any:
        """The target's least M, N, K of a dot."""

    def dot(self, question: DotQuestion, arrays: Mapping[str, Codes]) -> Codes:
        """A dot on codes: a, b, c, and a_scale, b_scale of a scaled dot."""

    def function(self, name: str, inputs: list[NDArray[Any]]) -> NDArray[Any] | None:
        """A function of fp32 numbers by its builder call (`exp`); None: the interpreter's bits."""

    def begin(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Told of each kernel before it runs."""

    def reduced(
        self, kind: str, x: NDArray[Any], axis: int | None, reverse: bool, places: list[tuple[str, int]]
    ) -> NDArray[Any] | None:
        """A sum ("reduce") or "scan" of fp32 numbers, in C order; None: the interpreter's bits. places: files and lines
        of the calls.
        """

    def left_out(self, name: str) -> None:
        """Told of each call that stays the interpreter's."""


class Launch:
    """The program that runs: `num_warps` as its launch gave it."""

    num_warps = DEFAULT_WARPS


def dot_hooks(arithmetic: TritonArithmetic, joined: JoinedOperations, blocks: Blocks, launch: Launch) -> dict[str, Any]:
    def asked(
        a: Any, b: Any, d: Any, input_precision: str, max_num_imprecise_acc: int, scaling: DotScaling | None = None
    ) -> DotQuestion:
        return DotQuestion(
            a_shape=a.data.shape,
            b_shape=b.data.shape,
            a_type=_type(a),
            b_type=_type(b),
            d_type=_type(d),
            input_precision=input_precision,
            max_num_imprecise_acc=max_num_imprecise_acc,
            num_warps=launch.num_warps,
            scaling=scaling,
        )

    def create_dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        question = asked(a, b, d, _name(input_precision), int(max_num_imprecise_acc or 0))
        x, y = _codes(a.data), _codes(b.data)

        def compute(c: Any, is_added: bool) -> Any:
            array = c.data
            arrays = {"a": x, "b": y, "c": _codes(array)}
            return arithmetic.dot(replace(question, is_added=is_added), arrays).view(array.dtype)

        if joined.is_zero(d):
            return PendingDot(compute, d, blocks.now)
        return interpreter.TensorHandle(compute(d, False), d.dtype.scalar)

    def create_dot_scaled(
        self: Any, a: Any, a_scale: Any, a_format: Any, b: Any, b_scale: Any, b_format: Any,
        is_fast: bool, a_along_k: bool, b_along_k: bool, d: Any,
    ) -> Any:  # fmt: skip
        scales = {name: x for name, x in (("a_scale", a_scale), ("b_scale", b_scale)) if x is not None}
        shapes = {name: (x.data.shape, _type(x)) for name, x in scales.items()}
        scaling = DotScaling(
            a_format=_name(a_format),
            b_format=_name(b_format),
            a_scale=shapes.get("a_scale"),
            b_scale=shapes.get("b_scale"),
            is_fast=bool(is_fast),
            a_along_k=bool(a_along_k),
            b_along_k=bool(b_along_k),
        )
        question = asked(a, b, d, "ieee", 0, scaling)
        arrays = {name: _codes(x.data) for name, x in {"a": a, "b": b, "c": d, **scales}.items()}
        return interpreter.TensorHandle(arithmetic.dot(question, arrays).view(d.data.dtype), d.dtype.scalar)

    return {"create_dot": create_dot, "create_dot_scaled": create_dot_scaled}


def _type(handle: Any) -> str:
    """Triton's name of the element type."""
    return str(handle.dtype.scalar.name)


def _name(choice: Any) -> str:
    """The name of one of the builder's choices, in small letters."""
    return str(getattr(choice, "name", choice)).lower()


def joining_hooks(kind: Any, joined: JoinedOperations, one_nan: Callable[[Any], Any]) -> dict[str, Any]:
    """Operations of numbers that are joined to others. one_nan: gives every NaN of a result the target's code."""
    plain = {
        name: getattr(kind, name) for name in ("create_fmul", "create_fadd", "create_fsub", "create_splat", *MOVES)
    }
    constants = {name: getattr(kind, name) for name in ("get_fp16", "get_fp32", "get_null_value")}

    plain_fma = kind.create_fma

    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        if z.dtype.scalar != tl.float32:
            return plain_fma(self, x, y, z)
        values = multiply_add(*np.broadcast_arrays(x.data, y.data, z.data))
        return one_nan(interpreter.TensorHandle(values, tl.float32))

    def create_fmul(self: Any, left: Any, right: Any) -> Any:
        return joined.multiplied(left, right, one_nan(plain["create_fmul"](self, left, right)))

    def create_fadd(self: Any, left: Any, right: Any) -> Any:
        total = joined.added(left, right, self.create_fma)
        return one_nan(plain["create_fadd"](self, left, right)) if total is None else total

    def create_fsub(self: Any, left: Any, right: Any) -> Any:
        rest = joined.subtracted(left, right, self.create_fma)
        return one_nan(plain["create_fsub"](self, left, right)) if rest is None else rest

    def create_splat(self: Any, kind: Any, source: Any) -> Any:
        result = plain["create_splat"](self, kind, source)
        return joined.moved(source, result, lambda x: plain["create_splat"](self, kind, x))

    def moving(name: str) -> Any:
        def create(self: Any, source: Any, how: Any) -> Any:
            return joined.moved(source, plain[name](self, source, how), lambda x: plain[name](self, x, how))

        return create

    def constant(name: str) -> Any:
        return lambda self, value: joined.zero(constants[name](self, value))

    return {
        "create_fma": create_fma,
        "create_fmul": create_fmul,
        "create_fadd": create_fadd,
        "create_fsub": create_fsub,
        "create_splat": create_splat,
        **{name: moving(name) for name in MOVES},
        **{name: constant(name) for name in constants},
    }


def with_one_nan(result: Any) -> Any:
    """fp32 results with NVIDIA's NaN; PTX ISA: any operation gives 0x7fffffff."""
    values = result.data
    if values.dtype == np.float32 and (is_nan := np.isnan(values)).any():
        result.data = np.where(is_nan, NAN, values.view(np.uint32)).view(np.float32)
    return result


def function_hook(plain: Callable[..., Any], name: str, arithmetic: TritonArithmetic) -> Callable[..., Any]:
    def create(self: Any, *values: Any) -> Any:
        if all(x.dtype.scalar == tl.float32 for x in values):
            result = arithmetic.function(name, [x.data for x in values])
            if result is not None:
                return interpreter.TensorHandle(result, tl.float32)
        arithmetic.left_out(f"{name} of {values[0].dtype.scalar.name}")
        return plain(self, *values)

    return create


def brain_float_hooks(kind: Any) -> dict[str, Any]:
    """bf16, which the interpreter has as codes: operations of its numbers, rounded once; casts from fp32 to the
    nearest, as compiled kernels round. The interpreter computes with the codes, and its casts cut.
    """
    brain = format_of("bf16")
    plain = {name: getattr(kind, name) for name in ("cast_impl", "binary_op", "unary_op")}

    def encoded(values: Any) -> Any:
        return interpreter.TensorHandle(CPU.encode(np.ascontiguousarray(values), brain), tl.bfloat16)

    def cast(self: Any, source: Any, target: Any) -> Any:
        if source.dtype.scalar == tl.float32 and target.scalar == tl.bfloat16:
            return encoded(source.data)
        return plain["cast_impl"](self, source, target)

    def operation(name: str) -> Callable[..., Any]:
        def create(self: Any, *operands: Any) -> Any:
            *values, function = operands
            if any(x.dtype.scalar != tl.bfloat16 for x in values):
                return plain[name](self, *operands)
            with np.errstate(all="ignore"):
                result = function(*(CPU.decode(np.ascontiguousarray(x.data), brain, np.float64) for x in values))
            return interpreter.TensorHandle(result, tl.bfloat16) if result.dtype == bool else encoded(result)

        return create

    return {"cast_impl": cast, "binary_op": operation("binary_op"), "unary_op": operation("unary_op")}


def reduction_hook(kind: str, owner: Any, arithmetic: TritonArithmetic) -> Callable[..., Any]:
    plain, extremes = owner.apply_impl, (tl.standard._elementwise_max, tl.standard._elementwise_min)

    def apply(self: Any, values: Any) -> Any:
        source = values[0]
        if self.combine_fn in extremes or not source.dtype.is_floating():
            return plain(self, values)
        x, reverse = source.handle.data, getattr(self, "reverse", False)
        if len(values) == 1 and source.dtype == tl.float32:
            numbers = arithmetic.reduced(kind, x, self.axis, reverse, _calls())
            if numbers is not None:
                shaped = numbers.reshape(x.shape if kind == "scan" else _reduced_shape(self, x.shape))
                result = self.to_tensor(shaped if shaped.shape else shaped.item(), source.dtype)
                return [result] if kind == "scan" else result
        arithmetic.left_out(f"tl.{kind} of {source.dtype.name}")
        return plain(self, values)

    return apply


def _reduced_shape(operation: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a sum, as NumPy gives it."""
    ones = (1,) if operation.keep_dims else ()
    if operation.axis is None:
        return ones * len(shape)
    axis = operation.axis % len(shape)
    return (*shape[:axis], *ones, *shape[axis + 1 :])


def _calls() -> list[tuple[str, int]]:
    """Files and lines of the calls that run, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    places = []
    while frame is not None:
        places.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return places


def extern_hook(arithmetic: TritonArithmetic) -> Callable[..., Any]:
    """Functions of the target's library."""

    def create(self: Any, library: Any, path: Any, symbol: str, values: Any, kind: Any, is_pure: Any) -> Any:
        if all(x.dtype.scalar == tl.float32 for x in values) and kind.scalar == tl.float32:
            result = arithmetic.function(symbol, [x.data for x in values])
            if result is not None:
                return interpreter.TensorHandle(result, tl.float32)
        types = ", ".join(x.dtype.scalar.name for x in values)
        raise UnsupportedError(
            f"{symbol} of {types}: hwsim computes functions of Triton's library by their PTX, for fp32 numbers and "
            "without loops, tables and roundings other than to nearest; write the function in the kernel"
        )

    return create


def _codes(x: NDArray[Any]) -> Codes:
    """The bits of an array of the interpreter, which has a NumPy type or the codes themselves."""
    return np.ascontiguousarray(x).view(np.dtype(f"u{x.dtype.itemsize}"))
