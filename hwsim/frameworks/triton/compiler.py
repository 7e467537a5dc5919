"""What Triton's own compiler makes of one `tl.dot`: its GPU dialect and its assembly, for any target, without a GPU.

The module knows Triton's compiler; it knows no device of hwsim's and no array.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget, Language
from triton.compiler.compiler import make_backend

from hwsim.errors import UnsupportedError
from hwsim.frameworks.triton.dot_question import DotQuestion
from hwsim.frameworks.triton.dot_text import WARPS_OF_A_FUNCTION, function_text, ttir
from hwsim.frameworks.triton.targets import TritonTarget
from hwsim.host.files import write_text

MOST_DOTS = 4096  # lowered dots that are saved
ASSEMBLY = ("ptx", "amdgcn")
ON_LANES = re.compile(r"tt\.dot .*#ttg\.dot_op<\{opIdx = 0, parent = #blocked")
ERROR = re.compile(r"(?:LLVM ERROR|error): (.*)")


class Lowering(NamedTuple):
    """TTGIR and assembly (PTX, AMD GCN) of a kernel with one dot."""

    ttgir: str
    assembly: str


@lru_cache(MOST_DOTS)
def lowered(question: DotQuestion, target: TritonTarget) -> Lowering:
    """The dot as Triton's compiler lowers it. Raises UnsupportedError with the compiler's words where it cannot."""
    for name in (question.a_type, question.b_type) if question.scaling is None else ():
        taken = target_options(target, question.num_warps).supported_fp8_dtypes
        if name.startswith("fp8") and name not in taken:
            raise UnsupportedError(
                f"Triton has no {name} on {target.backend}:{target.arch}; "
                f"8-bit floats there: {', '.join(taken) or 'none'}"
            )
    return _compiled(question, target)


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


def _compiled(question: DotQuestion, target: TritonTarget) -> Lowering:
    """The dot lowered. On CUDA cores the assembly is a small dot's: a large one unrolls every multiplication."""
    whole, least = _dialect(question, target), question.least
    if not _on_lanes(whole) or least == question:
        return Lowering(whole, gpu_assembly(whole, question.num_warps, target))
    small = _dialect(least, target)
    if not _on_lanes(small):
        raise UnsupportedError("Triton lowers this dot to multiplications of CUDA cores, but not a smaller one")
    return Lowering(whole, gpu_assembly(small, question.num_warps, target))


def _dialect(question: DotQuestion, target: TritonTarget) -> str:
    """The dot in Triton's GPU dialect; by the stage too that joins operations where the frontend adds its result."""
    first, text = "ttir" if question.is_added else "ttgir", ttir(question)
    options = {"num_warps": question.num_warps}
    return _lowered_from(first, lambda context, _: _module(text, context), options, target, "ttgir")["ttgir"]


def _on_lanes(ttgir: str) -> bool:
    """Whether the dots of a module run on CUDA cores, by their operands' layout."""
    return bool(ON_LANES.search(ttgir))


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


def function_ptx(operation: str, inputs: int, target: TritonTarget, attributes: str = "") -> str:
    """The assembly of a kernel that applies an operation with attributes to fp32 numbers, one for each thread.

    Raises UnsupportedError with the compiler's words where it cannot lower it.
    """
    text = function_text(operation, inputs, target.warp_size, attributes)
    texts = _lowered_from(
        "ttgir", lambda context, _: _module(text, context), {"num_warps": WARPS_OF_A_FUNCTION}, target
    )
    return _assembly_of(texts, target)


def gpu_assembly(ttgir: str, num_warps: int, target: TritonTarget) -> str:
    """The assembly of a module of Triton's GPU dialect."""
    texts = _lowered_from("llir", lambda context, _: _module(ttgir, context), {"num_warps": num_warps}, target)
    return _assembly_of(texts, target)


def _assembly_of(texts: dict[str, str], target: TritonTarget) -> str:
    assembly = next((texts[name] for name in ASSEMBLY if name in texts), None)
    if assembly is None:
        raise UnsupportedError(f"Triton's backend {target.backend} has no stage of {' or '.join(ASSEMBLY)}")
    return assembly


def kernel_ttgir(source: Callable[[Any, Any], Any], options: dict[str, Any], target: TritonTarget) -> str:
    """A whole kernel in Triton's GPU dialect. source: gives its module, from a context and a backend."""
    return _lowered_from("ttir", source, options, target, "ttgir")["ttgir"]
