"""What the names of a kernel mean, as in a compiled kernel: arguments, loops, functions of a library.

The module knows the interpreter's patches of Triton's language, and takes them back; it knows no arithmetic.
"""

from __future__ import annotations

import builtins
import contextlib
import inspect
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
import triton.runtime.interpreter as interpreter
from triton.language.extra import libdevice

from hwsim.frameworks.triton.joined_operations import Blocks


@contextlib.contextmanager
def replaced(owner: Any, values: dict[str, Any]) -> Iterator[None]:
    before = {name: getattr(owner, name) for name in values if hasattr(owner, name)}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name in values:
            if name in before:
                setattr(owner, name, before[name])
            else:
                delattr(owner, name)


@contextlib.contextmanager
def language_restored() -> Iterator[None]:
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
def kernel_names(function: Callable[..., Any], blocks: Blocks, library: dict[Any, Any]) -> Iterator[None]:
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
        with replaced(interpreter, hooks), replaced(interpreter.InterpretedFunction, {"__call__": device_call}):
            yield
    finally:
        for names, name, value in reversed(changed):
            if value is None:
                del names[name]
            else:
                names[name] = value


def library_functions(modules: Any) -> dict[Any, Any]:
    """The functions that a kernel names of libdevice, and the target's functions that they mean."""
    name = libdevice.__name__
    named = (x for x in vars(libdevice).values() if inspect.isfunction(x) and x.__module__ == name)
    means = modules.get(name)
    return {x: _with_semantic(getattr(means, x.__name__)) for x in named if hasattr(means, x.__name__)}


def _key(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return None
    return value


def _with_semantic(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values, **_: function(*values, _semantic=interpreter.interpreter_semantic)


def with_floats(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Arguments as the interpreter takes them, and numbers with a point in fp32, as a compiled kernel takes them."""

    def convert(argument: Any) -> Any:
        if isinstance(argument, float):
            return tl.tensor(interpreter.TensorHandle(np.array([argument], np.float32), tl.float32), tl.float32)
        return plain(argument)

    return convert


def _whole_number(bound: Any) -> int:
    """A bound of a loop; Triton 3.6 cannot convert its scalars where NumPy is 2.4."""
    return int(bound.handle.data.item()) if isinstance(bound, tl.tensor) else operator.index(bound)


def or_none(plain: Callable[..., Any]) -> Callable[..., Any]:
    """What a kernel assigns, as a tensor; a compiled kernel may assign None too."""
    return lambda x, *arguments: None if x is None else plain(x, *arguments)


class FormatName(str):
    """The name of a format as Triton 3.6 takes it too: a constant with a value."""

    @property
    def value(self) -> str:
        """The name."""
        return str(self)


def with_format_names(plain: Callable[..., Any]) -> Callable[..., Any]:
    """`dot_scaled` of the interpreter's semantic. Kernels give formats as plain text; Triton 3.6 reads their value."""

    def dot_scaled(
        self: Any, a: Any, a_scale: Any, a_format: Any, b: Any, b_scale: Any, b_format: Any, *more: Any
    ) -> Any:
        names = (FormatName(getattr(x, "value", x)) for x in (a_format, b_format))
        return plain(self, a, a_scale, next(names), b, b_scale, next(names), *more)

    return dot_scaled
