"""The qualified names of the modules that run: hooks of PyTorch that hold within a context, eager and compiled.

The module knows PyTorch's modules, hooks and how torch.compile traces them; it knows no product and no setting.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import torch
from torch._guards import CompileContext

F = TypeVar("F", bound=Callable[..., Any])
COMPILED = "_orig_mod"  # where torch.compile has its module


def eager_name(name: str) -> str:
    """A module's qualified name as the model has it that was compiled, whole or in parts."""
    return ".".join(part for part in name.split(".") if part != COMPILED) if COMPILED in name else name


class Names:
    """The qualified name of the module that runs in the thread of its maker: the outermost one that is called is the
    root. Names are kept while its hooks are there.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.stack: list[str] = []
        self.known: dict[int, str] = {}
        self.graphs: set[int] = set()  # that were traced, or ran, while its hooks were there
        self.roots: list[torch.nn.Module] = []  # kept, so that no other module gets the id of one of theirs
        module_hooks = torch.nn.modules.module
        self.handles = (
            module_hooks.register_module_forward_pre_hook(self.enter),
            module_hooks.register_module_forward_hook(self.leave, always_call=True),
        )

    @property
    def current(self) -> str:
        """The name of the innermost module that runs; "" outside of modules."""
        outer = self.stack[-1] if self.stack else ""
        return _innermost(outer) if torch.compiler.is_compiling() else outer

    def enter(self, module: torch.nn.Module, _: Any) -> None:
        """A module begins."""
        if torch.compiler.is_compiling():
            name = self.known.get(id(module))
            if name is None and not _is_known(id(module)):
                _learned([(id(part), name) for name, part in module.named_modules()])
            name = _entered(id(module), name)
            if _is_outermost():
                self.stack.append(name)
        elif threading.get_ident() == self.thread:  # hooks are called in every thread
            if id(module) not in self.known:
                self.roots.append(module)
                self.known |= {id(part): eager_name(name) for name, part in module.named_modules()}
            self.stack.append(self.known[id(module)])

    def leave(self, *_: Any) -> None:
        """A module ends, also by an exception."""
        if torch.compiler.is_compiling():
            _left()
            if _is_outermost() and self.stack:
                self.stack.pop()
        elif threading.get_ident() == self.thread and self.stack:
            self.stack.pop()

    def hook(self) -> None:
        """Give the hooks back that `unhook` took, in the places that they had: torch.compile looks at these."""
        self.graphs = set()  # another one for each context, which may be asked after its end
        module_hooks = torch.nn.modules.module
        before, after = (handle.id for handle in self.handles)
        module_hooks._global_forward_pre_hooks[before] = self.enter
        module_hooks._global_forward_hooks[after] = self.leave
        module_hooks._global_forward_hooks_always_called[after] = True

    def unhook(self) -> None:
        """Take the hooks away, and forget all names."""
        for handle in self.handles:
            handle.remove()
        self.stack.clear()
        self.known.clear()
        self.roots.clear()


# --- while torch.compile traces --------------------------------------------------------------------------------------
# Bodies of checkpoints and control flow must not change what is outside of them. So these functions are run by the
# compiler, for it as if they gave constants.


def run_by_the_compiler(function: F) -> F:
    """What torch.compiler.assume_constant_result does, which would import the compiler for everyone."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@dataclass(frozen=True, slots=True)
class TracedLayers:
    """Names of the modules that graphs call, which the graphs themselves do not say. with_effect: of modules with
    functions of their own that may have a chip's bits.
    """

    layers: set[str] = field(default_factory=set)
    with_effect: set[str] = field(default_factory=set)


class _Traced(threading.local):
    """What one attempt at one frame traces: the names of the modules, and the number of the graph in this process."""

    def __init__(self) -> None:
        self.attempt: tuple[Any, Any] = None, None
        self.number = 0
        self.stack: list[str] = []
        self.known: dict[int, str] = {}

    def of_attempt(self) -> _Traced:
        """Itself, emptied where another attempt has begun."""
        context = CompileContext.try_get()
        attempt = None if context is None else context.attempt
        if self.attempt[0] is not context or self.attempt[1] != attempt:
            self.attempt, self.number = (context, attempt), next(_NUMBERS)
            self.stack.clear()
            self.known.clear()
        if _OF_THREAD.depth:
            _OF_THREAD.names[_OF_THREAD.depth - 1].graphs.add(self.number)
        return self


_NUMBERS = count(1)
_TRACED = _Traced()
#: By the number of a graph, in this process.
_LAYERS: dict[int, TracedLayers] = {}


def _layers_being_traced() -> TracedLayers:
    """The layers of the graph that is traced, kept from the first call on."""
    return _LAYERS.setdefault(_TRACED.of_attempt().number, TracedLayers())


def graph_number() -> int:
    """The number of the graph that torch.compile traces, in this process."""
    return _TRACED.of_attempt().number


def layers_of(graphs: Iterable[int]) -> TracedLayers:
    """The modules that graphs of these numbers call."""
    known = [_LAYERS[number] for number in graphs if number in _LAYERS]
    layers: set[str] = set().union(*(each.layers for each in known))
    return TracedLayers(layers, set().union(*(each.with_effect for each in known)))


@run_by_the_compiler
def _is_known(module: int) -> bool:
    return module in _TRACED.of_attempt().known


@run_by_the_compiler
def _learned(names: list[tuple[int, str]]) -> None:
    learned = {module: eager_name(name) for module, name in names}
    _TRACED.of_attempt().known |= learned
    _layers_being_traced().layers.update(learned.values())


@run_by_the_compiler
def note_effect(layer: str) -> None:
    """Note a module, while torch.compile traces, one of whose functions may have a chip's bits."""
    _layers_being_traced().with_effect.add(layer)


@run_by_the_compiler
def _entered(module: int, name: str | None) -> str:
    traced = _TRACED.of_attempt()
    traced.stack.append(traced.known[module] if name is None else name)
    return traced.stack[-1]


@run_by_the_compiler
def _is_outermost() -> bool:
    """Whether what is traced is no body of a checkpoint or of control flow."""
    translator = torch._dynamo.symbolic_convert.InstructionTranslator.current_tx()
    return bool(translator.output.is_root_tracer())


@run_by_the_compiler
def _left() -> None:
    names = _TRACED.of_attempt().stack
    if names:
        names.pop()


@run_by_the_compiler
def _innermost(outer: str) -> str:
    names = _TRACED.of_attempt().stack
    return names[-1] if names else outer


# --- contexts --------------------------------------------------------------------------------------------------------


class _OfThread(threading.local):
    """The names of a thread's contexts, by how deep they are nested. Contexts after each other use the same ones, so
    that torch.compile finds what it compiled for.
    """

    def __init__(self) -> None:
        self.names: list[Names] = []
        self.depth = 0


_OF_THREAD = _OfThread()


def outer_layer() -> str:
    """The name of the innermost module that runs in this thread, as eager code sees it; "": none."""
    stack = _OF_THREAD.names[_OF_THREAD.depth - 1].stack if _OF_THREAD.depth else []
    return stack[-1] if stack else ""


@contextlib.contextmanager
def naming() -> Iterator[Names]:
    """Inside, modules that this thread calls have names."""
    depth = _OF_THREAD.depth
    if depth == len(_OF_THREAD.names):
        _OF_THREAD.names.append(Names())
    names = _OF_THREAD.names[depth]
    names.hook()
    _OF_THREAD.depth = depth + 1
    try:
        yield names
    finally:
        _OF_THREAD.depth = depth
        names.unhook()
