"""One forward pass of a model under `emulate`, as the studies of models run it: without gradients and measured errors.

The module knows how a model is called; it knows no product.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from hwsim.frameworks.torch.emulation import Emulation, emulate


@contextlib.contextmanager
def forward_pass(model: Callable[..., Any], **arguments: Any) -> Iterator[Emulation]:
    """Context manager: inside it the model is called. Yields what `emulate` yields; arguments: as of `emulate`.

    Raises InputError where a pattern of `modules` holds for no module of the model, before it is called, or for
    containers alone, after that; and as `emulate`.
    """
    with emulate(measure_every=0, **arguments) as run, torch.no_grad():
        run.check_patterns(model)
        yield run
        run.check_patterns(model)


def called(model: Callable[..., Any], x: Any) -> Any:
    """What a model gives for a tensor, a tuple of arguments or a mapping of keyword arguments."""
    if isinstance(x, Mapping):
        return model(**x)
    return model(*x) if isinstance(x, tuple) else model(x)


__all__ = ["called", "forward_pass"]
