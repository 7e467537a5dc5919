"""What Triton's own compiler makes of one `tl.dot`: its GPU dialect and its assembly, for any target, without a GPU.

The module knows Triton's compiler and the text of its input; it knows no device of hwsim's and no array.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget, Language
from triton.compiler.compiler import make_backend

from hwsim.errors import UnsupportedError
from hwsim.frameworks.triton.targets import TritonTarget
from hwsim.host.files import write_text

MOST_DOTS = 4096  # lowered dots that are saved
#: Triton's element types as MLIR spells them.
MLIR_TYPES = {
    "fp64": "f64",
    "fp32": "f32",
    "fp16": "f16",
    "bf16": "bf16",
    "fp8e4nv": "f8E4M3FN",
    "fp8e5": "f8E5M2",
    "fp8e4b8": "f8E4M3FNUZ",
    "fp8e5b16": "f8E5M2FNUZ",
    "int32": "i32",
    "int8": "i8",
}
WARPS_OF_A_FUNCTION = 4
ASSEMBLY = ("ptx", "amdgcn")
ERROR = re.compile(r"(?:LLVM ERROR|error): (.*)")


@dataclass(frozen=True)
class DotQuestion:
    """One `tl.dot`: shapes (..., M, K), (..., K, N); Triton's element types of a, b and of accumulator and result;
    input_precision as Triton spells it; max_num_imprecise_acc; warps of the program; whether the kernel multiplies from
    the constant zero and adds the accumulator.
    """

    a_shape: tuple[int, ...]
    b_shape: tuple[int, ...]
    a_type: str
    b_type: str
    d_type: str
    input_precision: str
    max_num_imprecise_acc: int
    num_warps: int
    is_added: bool = False


class Lowering(NamedTuple):
    """TTGIR and assembly (PTX, AMD GCN) of a kernel with one dot."""

    ttgir: str
    assembly: str


@lru_cache(MOST_DOTS)
def lowered(question: DotQuestion, target: TritonTarget) -> Lowering:
    """The dot as Triton's compiler lowers it. Raises UnsupportedError with the compiler's words where it cannot."""
    for name in (question.a_type, question.b_type):
        taken = target_options(target, question.num_warps).supported_fp8_dtypes
        if name.startswith("fp8") and name not in taken:
            raise UnsupportedError(
                f"Triton has no {name} on {target.backend}:{target.arch}; "
                f"8-bit floats there: {', '.join(taken) or 'none'}"
            )
    return _compiled(ttir(question), question.num_warps, target, question.is_added)


def target_options(target: TritonTarget, num_warps: int) -> Any:
    """The options of Triton's backend for this target: its default precision, the formats that it takes."""
    return _backend(target).parse_options({"num_warps": num_warps})


def module_map(target: TritonTarget) -> Any:
    """The modules that the target's compiler takes in the place of Triton's own, by name: its library of functions."""
    return _backend(target).get_module_map()


def least_dot_size(target: TritonTarget, num_warps: int) -> Any:
    """The function by which the frontend asks for the least M, N, K of a dot."""
    backend = _backend(target)
    return backend.get_codegen_implementation(target_options(target, num_warps))["min_dot_size"]


def _backend(target: TritonTarget) -> Any:
    return make_backend(GPUTarget(*target))


def _compiled(text: str, num_warps: int, target: TritonTarget, joins: bool = False) -> Lowering:
    """The text lowered. joins: by the stage too that joins operations of the frontend."""
    first = "ttir" if joins else "ttgir"  # the first one optimises what this module writes
    texts = _lowered_from(first, lambda context, _: _module(text, context), {"num_warps": num_warps}, target)
    assembly = next((texts[name] for name in ASSEMBLY if name in texts), None)
    if assembly is None:
        raise UnsupportedError(f"Triton's backend {target.backend} has no stage of {' or '.join(ASSEMBLY)}")
    return Lowering(texts["ttgir"], assembly)


def _lowered_from(
    first: str, source: Callable[[Any, Any], Any], options: dict[str, Any], target: TritonTarget, last: str = ""
) -> dict[str, str]:
    """The texts of the stages from `first` on, to the assembly or to `last`. source: gives the module, from a context
    and a backend.

    Raises UnsupportedError with the compiler's words where it cannot lower it.
    """
    backend, context = _backend(target), ir.context()
    parsed_options = backend.parse_options(options)
    ir.load_dialects(context)
    backend.load_dialects(context)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, parsed_options, Language.TRITON)
    metadata = {"target": GPUTarget(*target), **parsed_options.__dict__}
    texts: dict[str, str] = {}
    with _standard_error() as written:
        try:
            module = source(context, backend)
            for name in list(stages)[list(stages).index(first) :]:
                module = stages[name](module, metadata)
                texts[name] = str(module)
                if name in (*ASSEMBLY, last):
                    break
        except Exception as error:  # MLIR's errors have no class of their own
            said = ERROR.findall(written())
            raise UnsupportedError(
                f"Triton's compiler cannot lower this kernel for {target.backend}:{target.arch}: "
                f"{said[0] if said else error}"
            ) from error
    return texts


def _module(text: str, context: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "dot.ttir"
        write_text(file, text)
        module = ir.parse_mlir_module(str(file), context)
    module.context = context
    return module


@contextlib.contextmanager
def _standard_error() -> Iterator[Callable[[], str]]:
    """Inside, what compiled code writes to standard error goes to a file; yields a function that reads it."""
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile("w+") as file:
        os.dup2(file.fileno(), 2)

        def written() -> str:
            file.seek(0)
            return file.read()

        try:
            yield written
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def ttir(question: DotQuestion) -> str:
    """A kernel that loads a, b and c, multiplies once and stores d, as text of Triton's dialect."""
    a, b, d = (MLIR_TYPES[name] for name in (question.a_type, question.b_type, question.d_type))
    d_shape = (*question.a_shape[:-1], question.b_shape[-1])
    lines = [
        *_loaded("a", a, question.a_shape),
        *_loaded("b", b, question.b_shape),
        *_loaded("c", d, d_shape),
        *_pointers("d", d, d_shape),
    ]
    precision = f", inputPrecision = {question.input_precision}"
    imprecise = question.max_num_imprecise_acc
    attributes = f" {{maxNumImpreciseAcc = {imprecise} : i32}}" if imprecise else ""
    a_tensor, b_tensor, d_tensor = _tensor(question.a_shape, a), _tensor(question.b_shape, b), _tensor(d_shape, d)
    if question.is_added:
        lines.append(f"%zero = arith.constant dense<{'0' if d.startswith('i') else '0.0'}> : {d_tensor}")
    begin = "%zero" if question.is_added else "%c_value"
    lines.append(
        f"%{'dot' if question.is_added else 'product'} = tt.dot %a_value, %b_value, {begin}{precision}{attributes}"
        f" : {a_tensor} * {b_tensor} -> {d_tensor}"
    )
    if question.is_added:
        lines.append(f"%product = arith.add{'i' if d.startswith('i') else 'f'} %dot, %c_value : {d_tensor}")
    lines += [
        f"tt.store %d_pointers, %product : {_tensor(d_shape, f'!tt.ptr<{d}>')}",
        "tt.return",
    ]
    return _function(list(zip("abcd", (a, b, d, d), strict=True)), lines)


def _loaded(name: str, kind: str, shape: tuple[int, ...]) -> list[str]:
    return [
        *_pointers(name, kind, shape),
        f"%{name}_value = tt.load %{name}_pointers : {_tensor(shape, f'!tt.ptr<{kind}>')}",
    ]


def _pointers(name: str, kind: str, shape: tuple[int, ...]) -> list[str]:
    """Addresses of an array in C order, as a frontend writes them: a range for each dimension, times its stride."""
    pointer = f"!tt.ptr<{kind}>"
    lines, total = [], ""
    for axis, size in enumerate(shape):
        stride = 1
        for further in shape[axis + 1 :]:
            stride *= further
        value, text = f"%{name}_{axis}", f"tensor<{size}xi32>"
        lines.append(f"{value} = tt.make_range {{end = {size} : i32, start = 0 : i32}} : {text}")
        extents = [size]
        for other in range(len(shape)):
            if other == axis:
                continue
            place = other if other < axis else len(extents)
            extents.insert(place, 1)
            wider = _tensor(tuple(extents), "i32")
            lines.append(f"{value}_{other} = tt.expand_dims {value} {{axis = {place} : i32}} : {text} -> {wider}")
            value, text = f"{value}_{other}", wider
        if stride != 1:
            lines.append(f"{value}_stride = arith.constant dense<{stride}> : {text}")
            lines.append(f"{value}_offset = arith.muli {value}, {value}_stride : {text}")
            value = f"{value}_offset"
        whole = _tensor(shape, "i32")
        if text != whole:
            lines.append(f"{value}_all = tt.broadcast {value} : {text} -> {whole}")
            value = f"{value}_all"
        if total:
            lines.append(f"{total}_{axis} = arith.addi {total}, {value} : {whole}")
            value = f"{total}_{axis}"
        total = value
    splat = _tensor(shape, pointer)
    lines.append(f"%{name}_base = tt.splat %{name} : {pointer} -> {splat}")
    lines.append(f"%{name}_pointers = tt.addptr %{name}_base, {total} : {splat}, {_tensor(shape, 'i32')}")
    return lines


def function_ptx(operation: str, inputs: int, target: TritonTarget, attributes: str = "") -> str:
    """The assembly of a kernel that applies an operation with attributes to fp32 numbers, one for each thread.

    Raises UnsupportedError with the compiler's words where it cannot lower it.
    """
    shape, names = (WARPS_OF_A_FUNCTION * target.warp_size,), "abc"[:inputs]
    kind = _tensor(shape, "f32")
    values = ", ".join(f"%{name}_value" for name in names)
    types = f"{kind} -> {kind}" if inputs == 1 else f"{', '.join([kind] * inputs)} -> {kind}"
    lines = [line for name in names for line in _loaded(name, "f32", shape)]
    lines += [
        *_pointers("d", "f32", shape),
        f'%result = "{operation}"({values}) {attributes} : ({types.replace(" -> ", ") -> ")}',
    ]
    lines += [f"tt.store %d_pointers, %result : {_tensor(shape, '!tt.ptr<f32>')}", "tt.return"]
    return _compiled(_function([(name, "f32") for name in (*names, "d")], lines), WARPS_OF_A_FUNCTION, target).assembly


def gpu_assembly(ttgir: str, num_warps: int, target: TritonTarget) -> str:
    """The assembly of a module of Triton's GPU dialect."""
    texts = _lowered_from("llir", lambda context, _: _module(ttgir, context), {"num_warps": num_warps}, target)
    return next(texts[name] for name in ASSEMBLY if name in texts)


def kernel_ttgir(source: Callable[[Any, Any], Any], options: dict[str, Any], target: TritonTarget) -> str:
    """A whole kernel in Triton's GPU dialect. source: gives its module, from a context and a backend."""
    return _lowered_from("ttir", source, options, target, "ttgir")["ttgir"]


def _function(arguments: list[tuple[str, str]], lines: list[str]) -> str:
    """A kernel of pointers."""
    head = ", ".join(f"%{name}: !tt.ptr<{kind}> {{tt.divisibility = 16 : i32}}" for name, kind in arguments)
    body = "\n".join(f"    {line}" for line in lines)
    return f"module {{\n  tt.func public @kernel({head}) attributes {{noinline = false}} {{\n{body}\n  }}\n}}\n"


def _tensor(shape: tuple[int, ...], kind: str) -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{kind}>"
