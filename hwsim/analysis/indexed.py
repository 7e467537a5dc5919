"""Frozen records that are read by key, too: `phase.cycles` and `phase["cycles"]`. It knows no record."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NoReturn


class Indexed(dict[str, Any]):
    """What a frozen dataclass inherits to be the mapping of its fields: equal to a dict, and data for JSON.

    A field that may be left out is None then, and no key. A record is written with
    `@dataclass(frozen=True, eq=False, repr=False)`.
    """

    def __post_init__(self) -> None:
        dict.update(self, {name: value for name, value in vars(self).items() if value is not None})

    def __reduce__(self) -> tuple[type[Indexed], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is a record: it cannot be changed; dict(...) is a copy that can")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse
