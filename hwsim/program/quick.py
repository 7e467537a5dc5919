"""Frozen dataclasses whose instances are made quickly.

A frozen dataclass sets each of its fields by a call, which takes longer than anything else that is done with a tile or
an instruction of a small product. Here a twin class that is not frozen, with the same fields and slots, makes the
instance, which is then given the frozen class before anybody else has it.
"""

from __future__ import annotations

from dataclasses import MISSING, field, fields, make_dataclass
from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type)


def quick(cls: _Class) -> _Class:
    """A decorator over `@dataclass(frozen=True, slots=True)`: the same class, with instances made by a twin.

    For fields with default values, not default factories, and classes without `__post_init__` and bases.
    """
    assert cls.__bases__ == (object,) and not hasattr(cls, "__post_init__")
    twin: Any = make_dataclass(
        cls.__name__,
        [(one.name, Any, field(default=one.default, kw_only=one.kw_only)) for one in fields(cls)],
        slots=True,
        eq=False,
        repr=False,
    )
    assert all(one.default_factory is MISSING for one in fields(cls))

    def new(made: type, /, *args: Any, **named: Any) -> Any:
        self = twin(*args, **named)
        self.__class__ = made
        return self

    def reduced(self: Any) -> tuple[Any, ...]:
        return cls, tuple([getattr(self, one.name) for one in fields(cls)])

    for name, value in (("__new__", new), ("__init__", object.__init__), ("__reduce__", reduced)):
        setattr(cls, name, value)
    return cls
