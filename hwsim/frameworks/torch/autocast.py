"""What `torch.autocast` does to the operands of a function with products: PyTorch does it below the functions that
`emulate` replaces.

The module knows autocast's rule and no product.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]


def is_on(*values: Any) -> str | None:
    """The type of the device of the first tensor, where autocast is on for it."""
    first = next((value for value in values if isinstance(value, torch.Tensor)), None)
    if first is None or first.is_meta or not torch.is_autocast_enabled(first.device.type):
        return None
    return first.device.type


def cast(args: tuple[Any, ...], keywords: Mapping[str, Any], device: str) -> Arguments:
    """Arguments with the floating-point tensors, but fp64 ones, in autocast's dtype."""
    dtype = torch.get_autocast_dtype(device)
    return tuple(_cast(argument, dtype) for argument in args), {
        name: _cast(argument, dtype) for name, argument in keywords.items()
    }


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, (list, tuple)):
        return [_cast(item, dtype) for item in value]
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.dtype == torch.float64:
        return value
    return value.to(dtype)
