"""Frozen dataclasses whose instances are made quickly.

A frozen dataclass sets each of its fields by a call of Python, which takes longer than anything else that is done with
a tile or an instruction of a small product. Here compiled code fills the slots.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, TypeVar

from hwsim._kernels.program import Maker

_Class = TypeVar("_Class", bound=type)


def quick(cls: _Class) -> _Class:
    """A decorator over `@dataclass(frozen=True, slots=True)`: the same class, with instances made by compiled code.

    For fields with default values, not default factories, and classes without `__post_init__` and bases.
    """
    of = fields(cls)
    assert cls.__bases__ == (object,) and not hasattr(cls, "__post_init__")
    assert all(field.init and not field.kw_only and field.default_factory is MISSING for field in of)

    def reduced(self: Any) -> tuple[Any, ...]:
        return cls, tuple([getattr(self, field.name) for field in of])

    members, names = tuple([getattr(cls, field.name) for field in of]), tuple([field.name for field in of])
    maker = Maker(members, names, tuple([field.default for field in of]), MISSING)
    for name, value in (("__new__", maker), ("__init__", object.__init__), ("__reduce__", reduced)):
        setattr(cls, name, value)
    return cls
