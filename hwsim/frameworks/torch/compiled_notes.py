"""What `emulate` cannot follow in compiled graphs: noted while torch.compile traces, and said where a graph runs.

The module knows torch.compile and names of functions; it knows no product.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  its usual name

from hwsim.frameworks.torch.element_functions import ELEMENTWISE
from hwsim.frameworks.torch.multiplication import IN_GRAPH, active
from hwsim.frameworks.torch.names import graph_number, outer_layer, run_by_the_compiler
from hwsim.frameworks.torch.own_kernels import chip_of
from hwsim.host.warned import warn_once

INDUCTOR = "inductor"
BY_INDUCTOR = (
    "torch.compile's default backend, inductor, computes softmax, norms and functions of elements by its own code for "
    'this CPU: not simulated, and other bits than in eager code; compile with torch.compile(model, backend="aot_eager")'
)
#: {PyTorch's function: its name}, of those that have the bits of PyTorch's kernel on a chip.
_OF_CHIPS: Mapping[Any, str] = {
    getattr(space, form): name
    for name in ("layer_norm", "softmax", "sum", "mean", "pow", *ELEMENTWISE)
    for space in (torch, torch.Tensor, F)
    for form in (name, f"__{name}__")
    if hasattr(space, form)
}
CPU = "this CPU"
#: {a function with several kernels: one of them, on the chips that have any}
KERNELS_OF = {"pow": "pow_3"}
SHOWN_LAYERS = 3
APART = (
    "inside hwsim.torch.emulate a function whose layer's settings (modules=) have other bits than the settings around "
    "its graph runs eagerly"
)
Differing = dict[tuple[str, str], dict[str, list[str]]]


class _Notes:
    """What was noted of one graph.

    functions: {(the chip whose bits count, the chip of the layers' settings): {function: layers}}.
    """

    def __init__(self) -> None:
        self.is_of_inductor = False
        self.functions: Differing = {}


#: By the key of a graph, in this process.
_NOTES: dict[str, _Notes] = {}


def name_of_chips(func: Any) -> str | None:
    """The name of a function that has the bits of PyTorch's kernel on a chip."""
    return _OF_CHIPS.get(func)


@run_by_the_compiler
def key_in_graph(key: str) -> str:
    """The key of settings as the operators of the graph that is traced name it, so that its notes are found."""
    return f"{key.partition(IN_GRAPH)[0]}{IN_GRAPH}{graph_number()}"


def number_of(key: str) -> int:
    """The number of the graph whose operators have this key."""
    return int(key.partition(IN_GRAPH)[2])


@run_by_the_compiler
def note_backend(key: str) -> None:
    """Note a backend that is not followed in the graph that is traced, with products under the settings of `key`."""
    backend = torch._dynamo.symbolic_convert.InstructionTranslator.current_tx().output.compiler_fn
    if getattr(backend, "compiler_name", getattr(backend, "__name__", "")) == INDUCTOR:
        _NOTES.setdefault(key_in_graph(key), _Notes()).is_of_inductor = True
        warn_once(BY_INDUCTOR)


@run_by_the_compiler
def other_chips(key: str, layer: str, name: str) -> tuple[str, ...]:
    """The chip whose bits a function has where its graph runs, without a layer, and the one by its layer's settings;
    (): they have the same bits.
    """
    settings, _ = active(key)
    chips = [chip_of(settings, where, KERNELS_OF.get(name, name)) for where in (outer_layer(), layer)]
    if (chips[0] is None) == (chips[1] is None):  # PyTorch has one kernel for all chips that have it
        return ()
    return tuple(CPU if chip is None else chip.name for chip in chips)


@run_by_the_compiler
def may_break() -> bool:
    """Whether the graph that is traced may end at a function: it need not be the full one."""
    return not torch._dynamo.symbolic_convert.InstructionTranslator.current_tx().one_graph


@run_by_the_compiler
def note_function(key: str, layer: str, name: str, chips: tuple[str, ...]) -> None:
    """Note a function of the graph that is traced, whose layer's settings have the bits of another chip. chips: as of
    `other_chips`.
    """
    taken, wanted = chips
    notes = _NOTES.setdefault(key_in_graph(key), _Notes())
    layers = notes.functions.setdefault((taken, wanted), {}).setdefault(name, [])
    if layer not in layers:
        layers.append(layer)
    warn_once(f"{_sentence(taken, wanted, {name: [layer]})} (further ones: see the report)")


def notes_of(graphs: Iterable[str]) -> list[str]:
    """What was noted of the graphs of these keys, in sentences: what is not as in eager code, and what to do."""
    notes = [_NOTES[key] for key in graphs if key in _NOTES]
    if any(note.is_of_inductor for note in notes):  # whose code has the bits of no chip
        return [BY_INDUCTOR]
    joined: Differing = {}
    for note in notes:
        for chips, functions in note.functions.items():
            for name, layers in functions.items():
                known = joined.setdefault(chips, {}).setdefault(name, [])
                known += [layer for layer in layers if layer not in known]
    return [_sentence(*chips, functions) for chips, functions in joined.items()]


def _sentence(taken: str, wanted: str, functions: Mapping[str, list[str]]) -> str:
    names = "; ".join(f"{name} of {_layers(layers)}" for name, layers in functions.items())
    return (
        f"in compiled code functions without products do not follow modules=: {names} had the bits of {taken}, "
        f"not of {wanted}; leave fullgraph=True out, or run these layers in eager code"
    )


def _layers(names: list[str]) -> str:
    return ", ".join(names[:SHOWN_LAYERS]) + (", ..." if len(names) > SHOWN_LAYERS else "")


__all__ = [
    "APART",
    "key_in_graph",
    "may_break",
    "name_of_chips",
    "note_backend",
    "note_function",
    "notes_of",
    "number_of",
    "other_chips",
]
