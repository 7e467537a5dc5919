"""Puts hwsim's dot in the place of the interpreter's, inside a context.

The module knows Triton's interpreter; it knows no lowering and no device.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np
import triton.runtime.interpreter as interpreter
from numpy.typing import NDArray

from hwsim.errors import HwsimError, UnsupportedError

Codes = NDArray[Any]
DEFAULT_WARPS = 4


class Launch:
    """The program that runs: `num_warps` as its launch gave it."""

    num_warps = DEFAULT_WARPS


@contextlib.contextmanager
def hooked(
    dot: Callable[..., Codes],
    options: Callable[[int], Any],
    least_size: Callable[[int], Any],
    left_out: Callable[[str], None],
    processes: int,
) -> Iterator[None]:
    """Inside, `tl.dot` is `dot(a, b, c, types, input_precision, max_num_imprecise_acc, num_warps)` on codes.

    options, least_size: of the target, by warps. left_out: told of each call that stays the interpreter's.
    processes: how many run a grid.
    """
    builder = interpreter.interpreter_builder
    kind, executor = type(builder), interpreter.GridExecutor
    launch = Launch()
    before = {"options": builder.options, "codegen_fns": dict(builder.codegen_fns)}
    plain_dot, plain_scaled, plain_call = kind.create_dot, kind.create_dot_scaled, executor.__call__

    def create_dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        names = tuple(x.dtype.scalar.name for x in (a, b, d))
        precision = input_precision.name.lower() if hasattr(input_precision, "name") else str(input_precision).lower()
        codes = [_codes(x.data) for x in (a, b, d)]
        result = dot(*codes, names, precision, int(max_num_imprecise_acc or 0), launch.num_warps)
        return interpreter.TensorHandle(result.view(d.data.dtype), d.dtype.scalar)

    def create_dot_scaled(self: Any, *arguments: Any, **keywords: Any) -> Any:
        left_out("tl.dot_scaled")
        return plain_scaled(self, *arguments, **keywords)

    def call(self: Any, *arguments: Any, **keywords: Any) -> None:
        launch.num_warps = int(keywords.get("num_warps", DEFAULT_WARPS))
        builder.options = options(launch.num_warps)
        builder.codegen_fns = {**builder.codegen_fns, "min_dot_size": least_size(launch.num_warps)}
        _run(self, plain_call, arguments, keywords, processes)

    kind.create_dot, kind.create_dot_scaled, executor.__call__ = create_dot, create_dot_scaled, call
    try:
        yield
    finally:
        kind.create_dot, kind.create_dot_scaled, executor.__call__ = plain_dot, plain_scaled, plain_call
        for name, value in before.items():
            setattr(builder, name, value)


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
