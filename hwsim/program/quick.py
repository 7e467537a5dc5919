"""Frozen dataclasses whose instances are made quickly.

A frozen dataclass sets each of its fields by a call, which takes longer than anything else that is done with a tile or
an instruction of a small product. Here an instance begins as one of a twin class that is not frozen, with the same
fields and slots, and is given the frozen class before anybody else has it.
"""

from __future__ import annotations

from dataclasses import MISSING, field, fields, make_dataclass
from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type)


def quick(cls: _Class) -> _Class:
    """A decorator over `@dataclass(frozen=True, slots=True)`: the same class, with instances made by way of a twin.

    For fields with default values, not default factories, and classes without `__post_init__` and bases.
    """
    of = fields(cls)
    assert cls.__bases__ == (object,) and not hasattr(cls, "__post_init__")
    assert all(one.init and not one.kw_only and one.default_factory is MISSING for one in of)
    twin: Any = make_dataclass(
        cls.__name__,
        [(one.name, Any, field(default=one.default)) for one in of],
        slots=True,
        init=False,
        eq=False,
        repr=False,
    )

    def reduced(self: Any) -> tuple[Any, ...]:
        return cls, tuple([getattr(self, one.name) for one in of])

    for name, value in (("__new__", _new_of(cls, twin)), ("__init__", object.__init__), ("__reduce__", reduced)):
        setattr(cls, name, value)
    return cls


def _new_of(cls: type, twin: type) -> Any:
    """The `__new__` of `cls`: written out with the names of the fields, as dataclasses write their `__init__`."""
    of = fields(cls)
    defaults = {f"_default_{one.name}": one.default for one in of if one.default is not MISSING}
    given = [f"{one.name}=_default_{one.name}" if one.default is not MISSING else one.name for one in of]
    lines = [
        f"def __new__(_made, /, {', '.join(given)}):",
        "    _self = _empty(_twin)",
        *(f"    _self.{one.name} = {one.name}" for one in of),
        "    _self.__class__ = _made",
        "    return _self",
    ]
    names: dict[str, Any] = {"_empty": object.__new__, "_twin": twin, **defaults}
    exec("\n".join(lines), names)
    return names["__new__"]
