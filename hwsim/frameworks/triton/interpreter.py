"""Puts a chip's arithmetic in the place of the interpreter's, inside a context.

The module knows Triton's interpreter; it knows no lowering and no device.
"""

from __future__ import annotations

import builtins
import contextlib
import inspect
import operator
import os
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, Protocol

import numpy as np
import triton.language as tl
import triton.runtime.interpreter as interpreter
from numpy.typing import NDArray

from hwsim.errors import HwsimError, UnsupportedError
from hwsim.frameworks.triton.joined_operations import Blocks, JoinedOperations, PendingDot

Codes = NDArray[Any]
DEFAULT_WARPS = 4
MOVES = ("create_broadcast", "create_expand_dims")


class TritonArithmetic(Protocol):
    """What computes in the interpreter's place."""

    def options(self, num_warps: int) -> Any:
        """The target's options."""

    def least_size(self, num_warps: int) -> Any:
        """The target's least M, N, K of a dot."""

    def dot(
        self,
        a: Codes,
        b: Codes,
        c: Codes,
        types: tuple[str, str, str],
        precision: str,
        imprecise: int,
        num_warps: int,
        is_added: bool,
    ) -> Codes:
        """A dot on codes; is_added: the kernel adds c to a dot from zero."""

    def function(self, name: str, inputs: list[NDArray[Any]]) -> NDArray[Any] | None:
        """A function of fp32 numbers by its builder call (`exp`); None: the interpreter's bits."""

    def left_out(self, name: str) -> None:
        """Told of each call that stays the interpreter's."""


class Launch:
    """The program that runs: `num_warps` as its launch gave it."""

    num_warps = DEFAULT_WARPS


@contextlib.contextmanager
def hooked(arithmetic: TritonArithmetic, functions: tuple[str, ...], processes: int) -> Iterator[None]:
    """Inside, dots, `functions` and fused operations are `arithmetic`'s. processes: how many run a grid."""
    builder = interpreter.interpreter_builder
    kind, executor = type(builder), interpreter.GridExecutor
    launch, blocks = Launch(), Blocks()
    joined = JoinedOperations(blocks, lambda: bool(getattr(builder.options, "enable_fp_fusion", False)))
    before = {"options": builder.options, "codegen_fns": dict(builder.codegen_fns)}
    plain_call = executor.__call__

    def call(self: Any, *arguments: Any, **keywords: Any) -> None:
        launch.num_warps = int(keywords.get("num_warps", DEFAULT_WARPS))
        builder.options = arithmetic.options(launch.num_warps)
        builder.codegen_fns = {**builder.codegen_fns, "min_dot_size": arithmetic.least_size(launch.num_warps)}
        with _loops(self.fn, blocks):
            _run(self, plain_call, arguments, keywords, processes)

    hooks = {
        **_dot_hooks(kind, arithmetic, joined, blocks, launch),
        **_joining_hooks(kind, joined),
        **{
            f"create_{name}": _function_hook(getattr(kind, f"create_{name}"), name, arithmetic)
            for name in functions
            if hasattr(kind, f"create_{name}")
        },
    }
    arguments = {"_implicit_cvt": _with_floats(interpreter._implicit_cvt)}
    with _replaced(kind, hooks), _replaced(executor, {"__call__": call}), _replaced(interpreter, arguments):
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(builder, name, value)


@contextlib.contextmanager
def _replaced(owner: Any, values: dict[str, Any]) -> Iterator[None]:
    before = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def _dot_hooks(
    kind: Any, arithmetic: TritonArithmetic, joined: JoinedOperations, blocks: Blocks, launch: Launch
) -> dict[str, Any]:
    plain_scaled = kind.create_dot_scaled

    def create_dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        names = (a.dtype.scalar.name, b.dtype.scalar.name, d.dtype.scalar.name)
        precision = input_precision.name.lower() if hasattr(input_precision, "name") else str(input_precision).lower()
        x, y, imprecise, warps = _codes(a.data), _codes(b.data), int(max_num_imprecise_acc or 0), launch.num_warps

        def compute(c: Any, is_added: bool) -> Any:
            array = c.data
            codes = arithmetic.dot(x, y, _codes(array), names, precision, imprecise, warps, is_added)
            return codes.view(array.dtype)

        if joined.is_zero(d):
            return PendingDot(compute, d, blocks.now)
        return interpreter.TensorHandle(compute(d, False), d.dtype.scalar)

    def create_dot_scaled(self: Any, *arguments: Any, **keywords: Any) -> Any:
        arithmetic.left_out("tl.dot_scaled")
        return plain_scaled(self, *arguments, **keywords)

    return {"create_dot": create_dot, "create_dot_scaled": create_dot_scaled}


def _joining_hooks(kind: Any, joined: JoinedOperations) -> dict[str, Any]:
    plain = {
        name: getattr(kind, name) for name in ("create_fmul", "create_fadd", "create_fsub", "create_splat", *MOVES)
    }
    constants = {name: getattr(kind, name) for name in ("get_fp16", "get_fp32", "get_null_value")}

    def create_fmul(self: Any, left: Any, right: Any) -> Any:
        return joined.multiplied(left, right, plain["create_fmul"](self, left, right))

    def create_fadd(self: Any, left: Any, right: Any) -> Any:
        total = joined.added(left, right, self.create_fma)
        return plain["create_fadd"](self, left, right) if total is None else total

    def create_fsub(self: Any, left: Any, right: Any) -> Any:
        rest = joined.subtracted(left, right, self.create_fma)
        return plain["create_fsub"](self, left, right) if rest is None else rest

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
        "create_fmul": create_fmul,
        "create_fadd": create_fadd,
        "create_fsub": create_fsub,
        "create_splat": create_splat,
        **{name: moving(name) for name in MOVES},
        **{name: constant(name) for name in constants},
    }


def _function_hook(plain: Callable[..., Any], name: str, arithmetic: TritonArithmetic) -> Callable[..., Any]:
    def create(self: Any, *values: Any) -> Any:
        if all(x.dtype.scalar == tl.float32 for x in values):
            result = arithmetic.function(name, [x.data for x in values])
            if result is not None:
                return interpreter.TensorHandle(result, tl.float32)
        arithmetic.left_out(f"{name} of {values[0].dtype.scalar.name}")
        return plain(self, *values)

    return create


def _with_floats(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Arguments as the interpreter takes them, and numbers with a point in fp32, as a compiled kernel takes them."""

    def convert(argument: Any) -> Any:
        if isinstance(argument, float):
            return tl.tensor(interpreter.TensorHandle(np.array([argument], np.float32), tl.float32), tl.float32)
        return plain(argument)

    return convert


@contextlib.contextmanager
def _loops(function: Callable[..., Any], blocks: Blocks) -> Iterator[None]:
    """Inside, loops of kernels count over tensors, as in a compiled kernel, and each iteration begins a block."""
    changed: dict[int, tuple[dict[str, Any], Any]] = {}

    def kernel_range(*bounds: Any, **_: Any) -> Iterator[Any]:
        for number in builtins.range(*map(operator.index, bounds)):
            blocks.begin()
            yield interpreter._implicit_cvt(number)
        blocks.begin()

    def enter(names: dict[str, Any]) -> None:
        if id(names) not in changed:
            changed[id(names)] = (names, names.get("range", builtins.range))
            names["range"] = kernel_range

    plain_device_call, plain_core = interpreter.InterpretedFunction.__call__, interpreter._patch_lang_core
    plain_tensor = interpreter._patch_lang_tensor

    def device_call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        enter(self.fn.__globals__)
        return plain_device_call(self, *arguments, **keywords)

    def patch_core(lang: Any, scope: Any) -> None:
        plain_core(lang, scope)
        scope.set_attr(lang, "range", kernel_range)

    def patch_tensor(tensor: Any, scope: Any) -> None:
        plain_tensor(tensor, scope)
        plain_bool = tensor.__bool__

        def condition(self: Any) -> bool:
            blocks.begin()
            return bool(plain_bool(self))

        scope.set_attr(tensor, "__bool__", condition)

    enter(function.__globals__)
    hooks = {"_patch_lang_core": patch_core, "_patch_lang_tensor": patch_tensor}
    try:
        with _replaced(interpreter, hooks), _replaced(interpreter.InterpretedFunction, {"__call__": device_call}):
            yield
    finally:
        for names, value in changed.values():
            if value is builtins.range:
                del names["range"]
            else:
                names["range"] = value


def _codes(x: NDArray[Any]) -> Codes:
    """The bits of an array of the interpreter, which has a NumPy type or the codes themselves."""
    return np.ascontiguousarray(x).view(np.dtype(f"u{x.dtype.itemsize}"))


def _run(
    executor: Any, call: Callable[..., None], arguments: tuple[Any, ...], keywords: dict[str, Any], processes: int
) -> None:
    try:
        if processes == 1:
            call(executor, *arguments, **keywords)
        else:
            _divided(executor, call, arguments, keywords, processes)
    except interpreter.InterpreterError as error:
        if isinstance(error.__cause__, HwsimError):
            raise error.__cause__ from None
        raise


def _divided(
    executor: Any, call: Callable[..., None], arguments: tuple[Any, ...], keywords: dict[str, Any], processes: int
) -> None:
    """The grid in processes: each runs every so many-th program, on tensors in shared memory."""
    for x in (*arguments, *keywords.values()):
        tensor = getattr(x, "base", x)  # of a tensor descriptor
        if hasattr(tensor, "untyped_storage") and tensor.device.type == "cpu":
            tensor.untyped_storage().share_memory_()
    children = []
    for rank in range(processes):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                executor.fn = _every(executor.fn, rank, processes)
                call(executor, *arguments, **keywords)
                code = 0
            except BaseException as error:
                print(f"program of a Triton grid: {error}", file=sys.stderr, flush=True)
            finally:
                os._exit(code)
        children.append(child)
    failed = [child for child in children if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
    if failed:
        raise UnsupportedError(
            f"{len(failed)} of {processes} processes of a Triton grid failed; run it with processes=1"
        )


def _every(function: FunctionType, rank: int, processes: int) -> Callable[..., Any]:
    """The program, run for every `processes`-th place of the grid."""
    place = iter(range(sys.maxsize))

    def program(*arguments: Any, **keywords: Any) -> Any:
        return function(*arguments, **keywords) if next(place) % processes == rank else None

    # the interpreter looks for triton.language among the globals of what it runs
    seen = FunctionType(program.__code__, function.__globals__, program.__name__, None, program.__closure__)
    seen.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return seen
