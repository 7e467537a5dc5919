"""What `emulate` cannot follow in compiled graphs: noted while torch.compile traces, and said where a graph runs.

The module knows torch.compile and names of functions; it knows no product.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  its usual name

from hwsim.frameworks.torch.element_functions import ELEMENTWISE
from hwsim.frameworks.torch.multiplication import active
from hwsim.frameworks.torch.names import outer_layer, run_by_the_compiler
from hwsim.host.warned import warn_once
from hwsim.libraries.gemm_call import PYTORCH

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
SHOWN_LAYERS = 3


class _Notes:
    """What was noted of graphs under one key.

    functions: {(the chip whose bits count, the chip of the layers' settings): {function: layers}}.
    """

    def __init__(self) -> None:
        self.is_of_inductor = False
        self.functions: dict[tuple[str, str], dict[str, list[str]]] = {}

    @property
    def sentences(self) -> list[str]:
        """What is not as in eager code, and what to do."""
        if self.is_of_inductor:  # whose code has the bits of no chip
            return [BY_INDUCTOR]
        said = []
        for (taken, wanted), functions in self.functions.items():
            names = "; ".join(f"{name} of {_layers(layers)}" for name, layers in functions.items())
            said.append(
                f"in compiled code functions without products do not follow modules=: {names} had the bits of {taken}, "
                f"not of {wanted}; run these layers in eager code"
            )
        return said


#: By the key of settings, in this process.
_NOTES: dict[str, _Notes] = {}


def name_of_chips(func: Any) -> str | None:
    """The name of a function that has the bits of PyTorch's kernel on a chip."""
    return _OF_CHIPS.get(func)


@run_by_the_compiler
def note_backend(key: str) -> None:
    """Note a backend that is not followed in a graph with products under the settings of `key`."""
    backend = torch._dynamo.symbolic_convert.InstructionTranslator.current_tx().output.compiler_fn
    if getattr(backend, "compiler_name", getattr(backend, "__name__", "")) == INDUCTOR:
        _NOTES.setdefault(key, _Notes()).is_of_inductor = True
        warn_once(BY_INDUCTOR)


@run_by_the_compiler
def note_function(key: str, layer: str, name: str) -> None:
    """Note a function of a layer for which other settings hold than where its graph runs: there it has no layer."""
    settings, _ = active(key)
    chips = []
    for where in (outer_layer(), layer):
        arguments = settings.of(where, "forward").arguments
        follows = arguments is not None and arguments.get("library") == PYTORCH
        chips.append(arguments["device"].name if follows and arguments is not None else "this CPU")
    if chips[0] == chips[1]:
        return
    notes = _NOTES.setdefault(key, _Notes())
    functions = notes.functions.setdefault((chips[0], chips[1]), {})
    is_new = not functions
    layers = functions.setdefault(name, [])
    if layer not in layers:
        layers.append(layer)
    if is_new:  # the report names further ones
        warn_once(notes.sentences[-1])


def notes_of(key: str) -> list[str]:
    """What was noted of graphs under the settings of `key`, in sentences."""
    notes = _NOTES.get(key)
    return [] if notes is None else notes.sentences


def _layers(names: list[str]) -> str:
    return ", ".join(names[:SHOWN_LAYERS]) + (", ..." if len(names) > SHOWN_LAYERS else "")


__all__ = ["name_of_chips", "note_backend", "note_function", "notes_of"]
