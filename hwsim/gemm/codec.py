"""Serialisation of frozen dataclasses to plain JSON data and back; the resolved record is written and hashed with it.

A dataclass becomes a mapping with its class name under "is" and the fields that differ from their defaults; tuples
become lists. `decode` accepts only the classes that it is given. A class may have a shorter form: another dataclass,
`SHORT_FORM`, written under its name where `short_form` gives one; its `full_form` is the value again.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from hwsim.errors import InputError, nearest

KIND = "is"
#: Of a long chain of one class, each the first field of the next: the other fields of all but the innermost, in turn.
THEN = "and then"
SHORT = "SHORT_FORM"  # the attribute of a class that names its shorter form
LONG = 100  # JSON and Python nest no deeper than some hundreds
SHOWN = 40  # characters of a value in a message
_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def encode(value: Any) -> Any:
    """The plain data of a frozen dataclass, a tuple or a scalar. Raises TypeError for anything else."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {KIND: "float", "value": str(value)}
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    kind = type(value)
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"{kind.__name__} is no part of a record")
    short = value.short_form if hasattr(kind, SHORT) else None
    if short is not None:
        short_kind: type = getattr(kind, SHORT)
        return {KIND: kind.__name__, **_given(short, fields_of(short_kind))}
    of_kind: tuple[dataclasses.Field[Any], ...] = fields_of(kind)
    first = of_kind[0].name if of_kind else ""
    outer: list[Any] = []
    while type(inner := getattr(value, first, None)) is kind:
        outer.append(value)
        value = inner
    written: dict[str, Any] = {KIND: kind.__name__, **_given(value, of_kind)}
    rest = [_given(link, of_kind[1:]) for link in outer[::-1]]
    if len(rest) > LONG:
        return written | {THEN: rest}
    for link in rest:
        written = {KIND: kind.__name__, first: written} | link
    return written


def _given(value: Any, entries: Iterable[dataclasses.Field[Any]]) -> dict[str, Any]:
    """By name, what these fields have other than their defaults."""
    written = {}
    for entry in entries:
        item = getattr(value, entry.name)
        if not _is_default(entry, item):
            written[entry.name] = item if type(item) is int else encode(item)
    return written


@functools.cache
def fields_of(kind: type) -> tuple[dataclasses.Field[Any], ...]:
    """The fields of a dataclass, asked for once: `dataclasses.fields` makes a tuple of unknown length each time, whose
    memory CPython does not use again for the next one until 2,000 of its length are free.
    """
    return dataclasses.fields(kind)


def decode(
    data: Any, classes: Iterable[type], where: str = "record", former: Mapping[str, Mapping[str, object]] | None = None
) -> Any:
    """The value that `encode` was given. classes: the dataclasses that are allowed. former: by class, fields that it
    once had, with the plain data that they may still have; they are left out.

    Raises InputError, which names the place, for an unknown class, field or kind of data, and for values that the
    class itself refuses.
    """
    return _decode(
        _without(data, former or {}, where), {record_class.__name__: record_class for record_class in classes}, where
    )


def _without(data: Any, former: Mapping[str, Mapping[str, object]], where: str) -> Any:
    """The plain data without former fields. Raises InputError for one with another value than it may have."""
    if isinstance(data, list):
        return [_without(item, former, f"{where}[{index}]") for index, item in enumerate(data)]
    if not isinstance(data, dict):
        return data
    kind = data.get(KIND)
    gone = former.get(kind, {}) if isinstance(kind, str) else {}
    for name, only in gone.items():
        if data.get(name, only) != only:
            raise InputError(
                f"{where}: {kind} has {name} = {shortened(data[name])}, which nothing computes; allowed: {only}"
            )
    return {name: _without(item, former, f"{where}.{name}") for name, item in data.items() if name not in gone}


def _decode(data: Any, classes: dict[str, type], where: str) -> Any:
    if isinstance(data, list):
        return tuple(_decode(item, classes, f"{where}[{index}]") for index, item in enumerate(data))
    if not isinstance(data, dict):
        return data
    kind = data.get(KIND)
    if kind == "float" and isinstance(data.get("value"), str) and data["value"] in _SPECIAL:
        return _SPECIAL[data["value"]]
    if KIND not in data:
        raise InputError(f'{where} has no "{KIND}"; allowed: {", ".join(sorted(classes))}')
    if not isinstance(kind, str) or kind not in classes:
        raise InputError(f"{where}: {KIND} = {shortened(kind)}; allowed: {', '.join(sorted(classes))}")
    if THEN in data:
        return _chained(data, classes, where)
    record = _form_of(classes[kind], data)
    fields = {entry.name: entry for entry in dataclasses.fields(record)}
    values = {}
    for name, value in data.items():
        if name == KIND:
            continue
        if name not in fields:
            raise InputError(
                f"{where}: {kind} has no {name!r}; it has {', '.join(fields)}{nearest(name, list(fields))}"
            )
        values[name] = _decode(value, classes, f"{where}.{name}")
    missing = [
        name
        for name, entry in fields.items()
        if name not in values and entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise InputError(f"{where}: {kind} lacks {', '.join(missing)}")
    hints = get_type_hints(record)
    for name, value in values.items():
        if not _fits(value, hints[name]):
            shown = getattr(hints[name], "__name__", str(hints[name])) if isinstance(hints[name], type) else hints[name]
            raise InputError(f"{where}.{name}: {type(value).__name__} {shortened(value)}; allowed: {shown}")
    written = record(**values)
    return written if record is classes[kind] else written.full_form


def _form_of(record: type, data: Mapping[str, Any]) -> type:
    """The form of a class that plain data has: the shorter one unless it names a field that only the class has."""
    short: type | None = getattr(record, SHORT, None)
    if short is None:
        return record
    full_only = {entry.name for entry in fields_of(record)} - {entry.name for entry in fields_of(short)}
    return record if full_only & set(data) else short


def _chained(data: dict[str, Any], classes: dict[str, type], where: str) -> Any:
    """The outermost value of a long chain."""
    rest = data[THEN]
    if not isinstance(rest, list) or not all(isinstance(link, dict) for link in rest):
        raise InputError(f"{where}.{THEN}: allowed: a list of fields")
    record = classes[data[KIND]]
    first = fields_of(record)[0].name
    value = _decode({name: field_value for name, field_value in data.items() if name != THEN}, classes, where)
    for index, link in enumerate(rest):
        place = f"{where}.{THEN}[{index}]"
        for name in link:
            if name not in {entry.name for entry in fields_of(record)[1:]}:
                raise InputError(f"{place}: {data[KIND]} has no {name!r} here")
        more = {name: _decode(item, classes, f"{place}.{name}") for name, item in link.items()}
        hints = get_type_hints(record)
        if {entry.name for entry in fields_of(record)[1:]} - set(more) or not all(
            _fits(item, hints[name]) for name, item in more.items()
        ):
            raise InputError(f"{place}: allowed: {', '.join(entry.name for entry in fields_of(record)[1:])}")
        value = record(**{first: value, **more})
    return value


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value has an annotated type: scalars, literals, unions, tuples and classes."""
    origin, of = get_origin(hint), get_args(hint)
    if origin is Literal:
        return any(type(value) is type(allowed) and value == allowed for allowed in of)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in of)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if len(of) == 2 and of[1] is Ellipsis:
            return all(_fits(item, of[0]) for item in value)
        return len(value) == len(of) and all(map(_fits, value, of))
    if origin is Annotated:
        return _fits(value, of[0])
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, type(None) if hint is None else hint)


def shortened(value: Any) -> str:
    """A value for a message: its repr, or how that begins."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON of `encode(value)`: equal values have equal digests on every machine."""
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
