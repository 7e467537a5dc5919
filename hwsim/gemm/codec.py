"""Frozen dataclasses to plain JSON data and back: what the resolved record is written and hashed by.

A dataclass becomes a mapping with its class name under "is" and the fields that differ from their defaults; tuples
become lists. It knows no class beforehand: `decode` is told which ones there may be.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable
from typing import Any

from hwsim.errors import InputError, nearest

KIND = "is"
_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def encode(value: Any) -> Any:
    """Plain data of a frozen dataclass, a tuple or a scalar. Raises TypeError for anything else."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {KIND: "float", "value": str(value)}
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found: dict[str, Any] = {KIND: type(value).__name__}
        for entry in dataclasses.fields(value):
            item = getattr(value, entry.name)
            if not _is_default(entry, item):
                found[entry.name] = encode(item)
        return found
    raise TypeError(f"{type(value).__name__} is no part of a record")


def decode(data: Any, classes: Iterable[type], where: str = "record") -> Any:
    """What `encode` was given. classes: the dataclasses there may be.

    Raises InputError, which names the place, for an unknown class, field or kind of data, and for values that the
    class itself refuses.
    """
    return _decode(data, {one.__name__: one for one in classes}, where)


def _decode(data: Any, known: dict[str, type], where: str) -> Any:
    if isinstance(data, list):
        return tuple(_decode(item, known, f"{where}[{index}]") for index, item in enumerate(data))
    if not isinstance(data, dict):
        return data
    kind = data.get(KIND)
    if kind == "float" and data.get("value") in _SPECIAL:
        return _SPECIAL[data["value"]]
    if kind not in known:
        raise InputError(f"{where}: {KIND} = {kind!r}; allowed: {', '.join(sorted(known))}")
    record = known[kind]
    fields = {entry.name: entry for entry in dataclasses.fields(record)}
    given = {}
    for name, value in data.items():
        if name == KIND:
            continue
        if name not in fields:
            raise InputError(
                f"{where}: {kind} has no {name!r}; it has {', '.join(fields)}{nearest(name, list(fields))}"
            )
        given[name] = _decode(value, known, f"{where}.{name}")
    missing = [
        name
        for name, entry in fields.items()
        if name not in given and entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise InputError(f"{where}: {kind} lacks {', '.join(missing)}")
    return record(**given)


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON of `encode(value)`: the same for equal values, on every machine."""
    text = json.dumps(encode(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _is_default(entry: dataclasses.Field[Any], item: Any) -> bool:
    if entry.default is not dataclasses.MISSING:
        default = entry.default
    elif entry.default_factory is not dataclasses.MISSING:
        default = entry.default_factory()
    else:
        return False
    return type(default) is type(item) and bool(default == item)
