"""Puts a chip's arithmetic in the place of the interpreter's, inside a context, and runs grids.

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

import triton.runtime.interpreter as interpreter

from hwsim.errors import HwsimError, UnsupportedError
from hwsim.frameworks.triton.builder_hooks import (
    DEFAULT_WARPS,
    Launch,
    TritonArithmetic,
    brain_float_hooks,
    dot_hooks,
    extern_hook,
    function_hook,
    joining_hooks,
    reduction_hook,
    with_one_nan,
)
from hwsim.frameworks.triton.joined_operations import Blocks, JoinedOperations
from hwsim.frameworks.triton.kernel_language import (
    kernel_names,
    language_restored,
    library_functions,
    or_none,
    replaced,
    with_floats,
    with_format_names,
)


@contextlib.contextmanager
def hooked(arithmetic: TritonArithmetic, functions: tuple[str, ...], processes: int) -> Iterator[None]:
    """Inside, dots, `functions` and fused operations are `arithmetic`'s. processes: how many run a grid."""
    builder = interpreter.interpreter_builder
    kind, executor = type(builder), interpreter.GridExecutor
    launch, blocks, library = Launch(), Blocks(), library_functions(arithmetic.modules())
    has_ptx = arithmetic.has_ptx
    joined = JoinedOperations(blocks, lambda: has_ptx and bool(getattr(builder.options, "enable_fp_fusion", False)))
    before = {"options": builder.options, "codegen_fns": dict(builder.codegen_fns)}
    plain_call = executor.__call__

    def call(self: Any, *arguments: Any, **keywords: Any) -> None:
        launch.num_warps = int(keywords.get("num_warps", DEFAULT_WARPS))
        builder.options = arithmetic.options(launch.num_warps)
        builder.codegen_fns = {**builder.codegen_fns, "min_dot_size": arithmetic.least_size(launch.num_warps)}
        arithmetic.begin(self.fn, arguments, {"num_warps": DEFAULT_WARPS, **keywords})
        with language_restored(), kernel_names(self.fn, blocks, library):
            _run(self, plain_call, arguments, keywords, processes)

    hooks = {
        **dot_hooks(arithmetic, joined, blocks, launch),
        **joining_hooks(kind, joined, with_one_nan if has_ptx else lambda result: result),
        **brain_float_hooks(kind),
        "create_extern_elementwise": extern_hook(arithmetic),
        **{
            f"create_{name}": function_hook(getattr(kind, f"create_{name}"), name, arithmetic)
            for name in functions
            if hasattr(kind, f"create_{name}")
        },
    }
    arguments = {"_implicit_cvt": with_floats(interpreter._implicit_cvt)}
    semantic = interpreter.interpreter_semantic
    assigned, meaning = {"to_tensor": or_none(semantic.to_tensor)}, type(semantic)
    with (
        replaced(kind, hooks),
        replaced(executor, {"__call__": call}),
        replaced(interpreter, arguments),
        replaced(semantic, assigned),
        replaced(meaning, {"dot_scaled": with_format_names(meaning.dot_scaled)}),
        replaced(interpreter.ReduceOps, {"apply_impl": reduction_hook("reduce", interpreter.ReduceOps, arithmetic)}),
        replaced(interpreter.ScanOps, {"apply_impl": reduction_hook("scan", interpreter.ScanOps, arithmetic)}),
    ):
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(builder, name, value)


def _run(
    executor: Any, call: Callable[..., None], arguments: tuple[Any, ...], keywords: dict[str, Any], processes: int
) -> None:
    try:
        if processes == 1:
            call(executor, *arguments, **keywords)
        else:
            _divided(executor, call, arguments, keywords, processes)
    except interpreter.InterpreterError as error:
        cause: BaseException | None = error
        while isinstance(cause, interpreter.InterpreterError):
            cause = cause.__cause__
        if isinstance(cause, HwsimError):
            raise cause from None
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
