"""Functions that show an object, by name: what shows it registers them, so that the object imports nobody.

The module knows names and functions alone. A function is loaded when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Renderer = Callable[[Any], Any]
_LOADERS: dict[str, Callable[[], Renderer]] = {}


def register(name: str, load: Callable[[], Renderer]) -> None:
    """Register the function that `load` returns; the last one registered by a name counts."""
    _LOADERS[name] = load


def rendered(name: str, shown: Any) -> Any:
    """What the function of this name makes of an object."""
    return _LOADERS[name]()(shown)
