"""`hwsim.torch.swap`: a model's linear and convolution modules compute on a simulated device from now on.

No context is needed, and compiled or exported graphs hold hwsim's operators with each layer's name. The module knows
modules of PyTorch; settings and products are others'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from hwsim.frameworks.settings import Given, settings_of
from hwsim.frameworks.torch.caller import MATRIX, Caller
from hwsim.frameworks.torch.emulation import Emulation, check_patterns
from hwsim.frameworks.torch.functions import conv_transpose, convolution, linear
from hwsim.frameworks.torch.layer_record import EVERY, Record
from hwsim.frameworks.torch.multiplication import activate
from hwsim.frameworks.torch.names import eager_name
from hwsim.frameworks.torch.switches import current, refuse_switches


def _linear(module: Any, caller: Caller, input: torch.Tensor) -> torch.Tensor | None:
    return linear(caller, input, module.weight, module.bias)


def _convolution(count: int) -> Callable[..., torch.Tensor | None]:
    function = convolution(count)

    def call(module: Any, caller: Caller, input: torch.Tensor) -> torch.Tensor | None:
        padding = module.padding
        if module.padding_mode != "zeros":
            input = nn.functional.pad(input, module._reversed_padding_repeated_twice, mode=module.padding_mode)
            padding = 0
        more = (module.stride, padding, module.dilation, module.groups)
        return function(caller, input, module.weight, module.bias, *more)

    return call


def _transposed(count: int) -> Callable[..., torch.Tensor | None]:
    function = conv_transpose(count)

    def call(
        module: Any, caller: Caller, input: torch.Tensor, output_size: Sequence[int] | None = None
    ) -> torch.Tensor | None:
        window = (module.stride, module.padding, module.kernel_size, count, module.dilation)
        added = module._output_padding(input, output_size, *window)
        more = (added, module.groups, module.dilation)
        return function(caller, input, module.weight, module.bias, module.stride, module.padding, *more)

    return call


#: {class of modules: what stands in for its forward}
MODULES: dict[type[nn.Module], Callable[..., torch.Tensor | None]] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution(1),
    nn.Conv2d: _convolution(2),
    nn.Conv3d: _convolution(3),
    nn.ConvTranspose1d: _transposed(1),
    nn.ConvTranspose2d: _transposed(2),
    nn.ConvTranspose3d: _transposed(3),
}


def swap(
    model: nn.Module,
    *,
    modules: Mapping[str, Given] | None = None,
    measure_every: int = EVERY,
    timing: bool = False,
    **arguments: Any,
) -> Emulation:
    """Let the linear and convolution modules of `model` compute on a simulated device; returns the record's owner.

    Parameters, names and classes stay as they are: only `forward` of these modules is replaced, until `unswap`. Other
    products (attention, functions of the model's own) are left to PyTorch, or to an `emulate` around them. The report
    names modules of other classes that have matrices ("not swapped").

    Args:
        model: its linear and convolution modules are swapped.
        modules: as of `emulate`; a pattern that matches no swapped module, or containers alone, is an InputError.
        measure_every: as of `emulate`.
        timing: as of `emulate`.
        arguments: as of `emulate`.
    """
    refuse_switches({**arguments, "modules": modules or {}})
    settings, record = settings_of(arguments, modules, current()), Record(measure_every, timing)
    swapped = [name for name, module in model.named_modules() if type(module) in MODULES]
    check_patterns(settings, [name for name, _ in model.named_modules() if _holds(name, swapped)], swapped)
    activate(settings, record)
    for full_name, module in model.named_modules():
        name = eager_name(full_name)
        if type(module) in MODULES:
            module.forward = partial(_computed, type(module), Caller(settings.key, name), module)
        elif _multiplies(module):
            kind = f"{type(module).__module__.partition('.')[0]}'s {type(module).__name__}"
            record.not_swapped.setdefault(kind, []).append(name)
    return Emulation(settings, record)


def unswap(model: nn.Module) -> None:
    """Give the modules their own `forward` again."""
    for module in model.modules():
        if type(module) in MODULES:
            module.__dict__.pop("forward", None)


def _holds(name: str, swapped: Sequence[str]) -> bool:
    """Whether a module is swapped, or has a swapped one below it."""
    return not name or any(f"{other}.".startswith(f"{name}.") for other in swapped)


def _multiplies(module: nn.Module) -> bool:
    """Whether a module that is not swapped may multiply: it has a matrix of its own, and looks no rows of it up."""
    has_matrix = any(parameter.dim() >= MATRIX for parameter in module.parameters(recurse=False))
    return has_matrix and not isinstance(module, nn.Embedding | nn.EmbeddingBag)


def _computed(kind: type[nn.Module], caller: Caller, module: nn.Module, *args: Any, **keywords: Any) -> torch.Tensor:
    """The forward of a swapped module of class `kind`: of this module's copies and pickles too."""
    result = MODULES[kind](module, caller, *args, **keywords)
    if result is not None:
        return result
    plain: torch.Tensor = kind.forward(module, *args, **keywords)
    return plain


__all__ = ["swap", "unswap"]
