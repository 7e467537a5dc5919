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
    assert all(one.init and not one.kw_only and one.default_factory is MISSING for one in of)

    def reduced(self: Any) -> tuple[Any, ...]:
        return cls, tuple([getattr(self, one.name) for one in of])

    members, names = tuple([getattr(cls, one.name) for one in of]), tuple([one.name for one in of])
    maker = Maker(members, names, tuple([one.default for one in of]), MISSING)
    for name, value in (("__new__", maker), ("__init__", object.__init__), ("__reduce__", reduced)):
        setattr(cls, name, value)
    return cls
