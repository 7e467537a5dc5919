"""A cache keyed by the identity of immutable objects, for values computed from them."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class IdentityCache(Generic[_Value]):
    """A cache of at most `most` values with a total weight of at most `weight`; the newest is kept whatever its
    weight.
    """

    def __init__(self, most: int, weight: int) -> None:
        self.most, self.limit, self.weight, self.lock = most, weight, 0, Lock()
        self.entries: OrderedDict[tuple[int, ...], tuple[tuple[object, ...], _Value, int]] = OrderedDict()

    def get(self, *of: object) -> _Value | None:
        """The value stored for these very objects, or None."""
        key = tuple([id(part) for part in of])
        with self.lock:
            entry = self.entries.get(key)
            if entry is None:
                return None
            self.entries.move_to_end(key)
        return entry[1]

    def put(self, value: _Value, weight: int, *of: object) -> None:
        """Store `value`; also keeps the objects alive, so that their identities are not reused."""
        key = tuple([id(part) for part in of])
        with self.lock:
            if key in self.entries:
                return
            self.entries[key] = of, value, weight
            self.weight += weight
            while len(self.entries) > 1 and (len(self.entries) > self.most or self.weight > self.limit):
                self.weight -= self.entries.popitem(last=False)[1][2]
