"""A whole kernel as Triton compiles it, although the interpreter is on: its text in Triton's GPU dialect.

The module knows how the interpreter replaces compiled functions, and puts them back while it compiles; it knows no
device of hwsim's and no operation.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction, create_function_from_signature

from hwsim.errors import UnsupportedError
from hwsim.frameworks.triton.compiler import kernel_ttgir
from hwsim.frameworks.triton.targets import TritonTarget

LANGUAGE = "triton.language"


def calls_of(function: Any) -> set[str]:
    """The names that a kernel and the functions that it calls use."""
    names: set[str] = set()
    seen: set[int] = set()

    def visit(code: CodeType, scope: dict[str, Any]) -> None:
        for name in code.co_names:
            names.add(name)
            called = scope.get(name)
            if isinstance(called, InterpretedFunction) and id(called) not in seen:
                seen.add(id(called))
                visit(called.fn.__code__, called.fn.__globals__)

    visit(function.__code__, function.__globals__)
    return names


def ttgir_of(
    function: Any,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    target: TritonTarget,
    known: dict[Any, str],
) -> str:
    """The kernel compiled for these arguments and options. known: what was compiled before.

    Raises UnsupportedError where the compiler refuses it.
    """
    with _compiled_names(function):
        kernel = JITFunction(function)
        backend = make_backend(GPUTarget(*target))
        try:
            bind = create_function_from_signature(kernel.signature, kernel.params, backend)
            bound, specialization, _ = bind(*arguments, **keywords)
            options, signature, constants, attributes = kernel._pack_args(backend, keywords, bound, specialization, {})
        except (TypeError, KeyError, ValueError) as error:
            raise UnsupportedError(
                f"Triton does not compile {function.__name__} for these arguments: {error}"
            ) from None
        key = function, str((signature, constants, attributes, options, target))
        if key not in known:
            source = ASTSource(kernel, signature, constants, attributes)

            def module(context: Any, compiler: Any) -> Any:
                functions = compiler.get_codegen_implementation(options)
                return source.make_ir(GPUTarget(*target), options, functions, compiler.get_module_map(), context)

            chosen = {name: value for name, value in keywords.items() if name in options.__dict__}
            known[key] = kernel_ttgir(module, chosen, target)
        return known[key]


@contextlib.contextmanager
def _compiled_names(function: Any) -> Iterator[None]:
    """Inside, the names of kernels mean compiled functions: of Triton's language and of the modules of the kernel."""
    compiled: dict[int, JITFunction[Any]] = {}
    changed: list[tuple[dict[str, Any], str, Any]] = []
    seen: set[int] = set()

    def visit(names: dict[str, Any]) -> None:
        if id(names) in seen:
            return
        seen.add(id(names))
        for name, value in list(names.items()):
            if isinstance(value, InterpretedFunction):
                if id(value) not in compiled:
                    compiled[id(value)] = JITFunction(value.fn)
                changed.append((names, name, value))
                names[name] = compiled[id(value)]
                visit(value.fn.__globals__)

    for name, module in list(sys.modules.items()):
        if name.startswith(LANGUAGE):
            visit(vars(module))
    visit(function.__globals__)
    try:
        yield
    finally:
        for names, name, value in changed:
            names[name] = value
