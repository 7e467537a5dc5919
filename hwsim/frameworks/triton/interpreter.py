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
from types import FrameType, FunctionType
from typing import Any, Protocol

import numpy as np
import triton.language as tl
import triton.runtime.interpreter as interpreter
from numpy.typing import NDArray

from hwsim.arithmetic.rounded_once import multiply_add
from hwsim.backend.cpu import CPU
from hwsim.errors import HwsimError, UnsupportedError
from hwsim.formats import format_of
from hwsim.frameworks.triton.joined_operations import Blocks, JoinedOperations, PendingDot
from hwsim.frameworks.triton.ptx import NAN

Codes = NDArray[Any]
DEFAULT_WARPS = 4
MOVES = ("create_broadcast", "create_expand_dims")


class TritonArithmetic(Protocol):
    """What computes in the interpreter's place."""

    def options(self, num_warps: int) -> Any:
        """The target's options."""

    def modules(self) -> Any:
        """The target's modules in the place of Triton's own, by name."""

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


@contextlib.contextmanager
def hooked(arithmetic: TritonArithmetic, functions: tuple[str, ...], processes: int) -> Iterator[None]:
    """Inside, dots, `functions` and fused operations are `arithmetic`'s. processes: how many run a grid."""
    builder = interpreter.interpreter_builder
    kind, executor = type(builder), interpreter.GridExecutor
    launch, blocks, library = Launch(), Blocks(), _library(arithmetic.modules())
    joined = JoinedOperations(blocks, lambda: bool(getattr(builder.options, "enable_fp_fusion", False)))
    before = {"options": builder.options, "codegen_fns": dict(builder.codegen_fns)}
    plain_call = executor.__call__

    def call(self: Any, *arguments: Any, **keywords: Any) -> None:
        launch.num_warps = int(keywords.get("num_warps", DEFAULT_WARPS))
        builder.options = arithmetic.options(launch.num_warps)
        builder.codegen_fns = {**builder.codegen_fns, "min_dot_size": arithmetic.least_size(launch.num_warps)}
        arithmetic.begin(self.fn, arguments, {"num_warps": DEFAULT_WARPS, **keywords})
        with _language_restored(), _loops(self.fn, blocks, library):
            _run(self, plain_call, arguments, keywords, processes)

    hooks = {
        **_dot_hooks(kind, arithmetic, joined, blocks, launch),
        **_joining_hooks(kind, joined, _one_nan),
        **_brain_float_hooks(kind),
        "create_extern_elementwise": _extern_hook(kind.create_extern_elementwise, arithmetic),
        **{
            f"create_{name}": _function_hook(getattr(kind, f"create_{name}"), name, arithmetic)
            for name in functions
            if hasattr(kind, f"create_{name}")
        },
    }
    arguments = {"_implicit_cvt": _with_floats(interpreter._implicit_cvt)}
    assigned = {"to_tensor": _or_none(interpreter.interpreter_semantic.to_tensor)}
    with (
        _replaced(kind, hooks),
        _replaced(executor, {"__call__": call}),
        _replaced(interpreter, arguments),
        _replaced(interpreter.interpreter_semantic, assigned),
        _replaced(interpreter.ReduceOps, {"apply_impl": _reduction_hook("reduce", interpreter.ReduceOps, arithmetic)}),
        _replaced(interpreter.ScanOps, {"apply_impl": _reduction_hook("scan", interpreter.ScanOps, arithmetic)}),
    ):
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
    plain_scaled = getattr(kind, "create_dot_scaled", None)  # Triton 3.6 has none

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

    if plain_scaled is None:
        return {"create_dot": create_dot}

    def create_dot_scaled(self: Any, *arguments: Any, **keywords: Any) -> Any:
        arithmetic.left_out("tl.dot_scaled")
        return plain_scaled(self, *arguments, **keywords)

    return {"create_dot": create_dot, "create_dot_scaled": create_dot_scaled}


def _joining_hooks(kind: Any, joined: JoinedOperations, one_nan: Callable[[Any], Any]) -> dict[str, Any]:
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


def _one_nan(result: Any) -> Any:
    """fp32 results with NVIDIA's NaN; PTX ISA: any operation gives 0x7fffffff."""
    values = result.data
    if values.dtype == np.float32 and (is_nan := np.isnan(values)).any():
        result.data = np.where(is_nan, NAN, values.view(np.uint32)).view(np.float32)
    return result


def _function_hook(plain: Callable[..., Any], name: str, arithmetic: TritonArithmetic) -> Callable[..., Any]:
    def create(self: Any, *values: Any) -> Any:
        if all(x.dtype.scalar == tl.float32 for x in values):
            result = arithmetic.function(name, [x.data for x in values])
            if result is not None:
                return interpreter.TensorHandle(result, tl.float32)
        arithmetic.left_out(f"{name} of {values[0].dtype.scalar.name}")
        return plain(self, *values)

    return create


def _brain_float_hooks(kind: Any) -> dict[str, Any]:
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


def _reduction_hook(kind: str, owner: Any, arithmetic: TritonArithmetic) -> Callable[..., Any]:
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


def _extern_hook(plain: Callable[..., Any], arithmetic: TritonArithmetic) -> Callable[..., Any]:
    """Functions of the target's library."""

    def create(self: Any, library: Any, path: Any, symbol: str, values: Any, kind: Any, is_pure: Any) -> Any:
        if all(x.dtype.scalar == tl.float32 for x in values) and kind.scalar == tl.float32:
            result = arithmetic.function(symbol, [x.data for x in values])
            if result is not None:
                return interpreter.TensorHandle(result, tl.float32)
        return plain(self, library, path, symbol, values, kind, is_pure)

    return create


def _with_floats(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Arguments as the interpreter takes them, and numbers with a point in fp32, as a compiled kernel takes them."""

    def convert(argument: Any) -> Any:
        if isinstance(argument, float):
            return tl.tensor(interpreter.TensorHandle(np.array([argument], np.float32), tl.float32), tl.float32)
        return plain(argument)

    return convert


def _whole_number(bound: Any) -> int:
    """A bound of a loop; Triton 3.6 cannot convert its scalars where NumPy is 2.4."""
    return int(bound.handle.data.item()) if isinstance(bound, tl.tensor) else operator.index(bound)


def _or_none(plain: Callable[..., Any]) -> Callable[..., Any]:
    """What a kernel assigns, as a tensor; a compiled kernel may assign None too."""
    return lambda x, *arguments: None if x is None else plain(x, *arguments)


def _key(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return None
    return value


def _library(modules: Any) -> dict[Any, Any]:
    """The functions that a kernel names of Triton's modules, and the target's functions that they mean."""
    meant: dict[Any, Any] = {}
    for name, module in modules.items():
        for function in vars(sys.modules[name]).values() if name in sys.modules else ():
            if inspect.isfunction(function) and function.__module__ == name and hasattr(module, function.__name__):
                meant[function] = _with_semantic(getattr(module, function.__name__))
    return meant


def _with_semantic(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values, **_: function(*values, _semantic=interpreter.interpreter_semantic)


@contextlib.contextmanager
def _language_restored() -> Iterator[None]:
    """Afterwards Triton's language is as before: the interpreter leaves patches of device functions behind."""
    owners = (tl, tl.core, tl.math, tl.core.tensor, tl.core.dtype, tl.core.condition, tl.core.tensor_descriptor_base)
    before = [(owner, dict(vars(owner))) for owner in owners]
    try:
        yield
    finally:
        for owner, names in before:
            for name, value in dict(vars(owner)).items():
                if name not in names:
                    delattr(owner, name)
                elif value is not names[name]:
                    setattr(owner, name, names[name])


@contextlib.contextmanager
def _loops(function: Callable[..., Any], blocks: Blocks, library: dict[Any, Any]) -> Iterator[None]:
    """Inside, loops of kernels count over tensors, as in a compiled kernel, and each iteration begins a block;
    functions of Triton's library are the target's. library: {what a kernel names: what it means}.
    """
    changed: list[tuple[dict[str, Any], str, Any]] = []
    entered: set[int] = set()
    patched: set[Any] = set()

    def kernel_range(*bounds: Any, **_: Any) -> Iterator[Any]:
        for number in builtins.range(*map(_whole_number, bounds)):
            blocks.begin()
            yield interpreter._implicit_cvt(number)
        blocks.begin()

    def enter(names: dict[str, Any]) -> None:
        if id(names) in entered:
            return
        entered.add(id(names))
        replaced = {name: library[value] for name, value in names.items() if callable(value) and _key(value) in library}
        for name, value in {**replaced, "range": kernel_range}.items():
            changed.append((names, name, names.get(name)))
            names[name] = value

    plain_device_call, plain_core = interpreter.InterpretedFunction.__call__, interpreter._patch_lang_core
    plain_tensor = interpreter._patch_lang_tensor

    def device_call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        enter(self.fn.__globals__)
        if self.fn not in patched:  # the interpreter patches Triton's language at every call; once is enough
            patched.add(self.fn)
            return plain_device_call(self, *arguments, **keywords)
        try:
            return self.rewrite()(*arguments, **keywords)
        except Exception as error:
            raise interpreter.InterpreterError(repr(error)) from error

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
    for module in {sys.modules[of.__module__] for of in library}:
        enter(vars(module))
    hooks = {"_patch_lang_core": patch_core, "_patch_lang_tensor": patch_tensor}
    try:
        with _replaced(interpreter, hooks), _replaced(interpreter.InterpretedFunction, {"__call__": device_call}):
            yield
    finally:
        for names, name, value in reversed(changed):
            if value is None:
                del names[name]
            else:
                names[name] = value


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
