"""Readable validation errors: position in the file, the value given, what is allowed, and the likely intended key.

The module knows pydantic's error reports and how to find a position in the tree; it knows no rule of the model.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from hwsim.datafiles.provenance import SAID
from hwsim.datafiles.yaml_text import FileProblem, Mark, Node
from hwsim.errors import nearest

BOUNDS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
KINDS = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "dataclass_type": "a mapping",
    "tuple_type": "a list",
    "model_attributes_type": "a mapping",
}
UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")  # of a model, of a dataclass
UNION_CASES = ("constrained-str", "tuple[")
MOST_HINTS = 50  # likely meant keys that are looked for
YAML_WORDS = {"True": "true", "False": "false"}
#: A number with a unit: the number, a prefix of thousands, the unit.
WITH_UNIT = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?) *([kKMGTP]?)(B/s|B|Hz|hz|s|ns|us|ms|W|J)")
PREFIXES = {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
BYTES = ("B", "B/s")
LIKE_NUMBER = re.compile(r"[-+]?[0-9][0-9_.:xXeE+-]*")
#: What is likely meant by a number out of range, in words after the range: of its key, the number, and whether it is
#: too large; "" where nothing is known.
Slip = Callable[[str, float, bool], str]


def no_slip(key: str, number: float, is_too_large: bool) -> str:
    """Of numbers about which nothing is known."""
    return ""


def explain(error: ValidationError, model: type[BaseModel], tree: Node, slip: Slip = no_slip) -> list[FileProblem]:
    """One problem per error of a validation. A missing key is not reported where a misspelt one was meant for it."""
    errors = error.errors(include_url=False)
    for item in errors:  # a union's cases stand in the location too
        item["loc"] = tuple(part for part in item["loc"] if not str(part).startswith(UNION_CASES))
    meant: set[tuple[Any, ...]] = set()
    problems: list[FileProblem] = []
    for item in errors:
        if item["type"] in UNKNOWN_KEY:
            wrong, allowed = str(item["loc"][-1]), keys_at(model, item["loc"][:-1])
            hint = nearest(wrong, allowed) if len(problems) < MOST_HINTS else ""
            if others := models_with(model, item["loc"]):
                hint = f"; model: {' or '.join(others)} has it"
            meant |= {(*item["loc"][:-1], key) for key in allowed if hint and hint == nearest(wrong, [key])}
            path, _, key = locate(tree, item["loc"])
            text = f"unknown key '{wrong}'; allowed: {', '.join(sorted(allowed))}, {', '.join(SAID)}{hint}"
            problems.append(FileProblem(key, path, text))
    for item in errors:
        if item["type"] in UNKNOWN_KEY or (item["type"] == "missing" and item["loc"] in meant):
            continue
        tag = ("model",) if item["type"].startswith("union_tag") else ()
        path, value, key = locate(tree, (*item["loc"], *tag))
        problems.append(
            FileProblem(key if item["loc"][-1:] == ("[key]",) else value.mark, path, _text(item, value, slip))
        )
    return problems


def locate(tree: Node, loc: Iterable[int | str]) -> tuple[str, Node, Mark]:
    """The dotted path, the node and the key's position for a validator's location.

    Parts that the tree lacks (a union's tag, a missing key) are skipped; a missing last key stays in the path.
    """
    node, key = tree, tree.mark
    path: list[str] = []
    parts = [str(part) for part in loc if part != "[key]"]
    for i, part in enumerate(parts):
        if isinstance(node.value, dict) and part in node.value:
            key, node = node.keys[part], node.value[part]
            path.append(part)
        elif isinstance(node.value, list) and part.isdigit() and int(part) < len(node.value):
            node = node.value[int(part)]
            key = node.mark
            path.append(part)
        elif i == len(parts) - 1 and isinstance(node.value, dict):
            if path:
                return ".".join([*path, part]), Node(key, node.value, node.keys), key
            return part, node, key
    return ".".join(path), node, key


def keys_at(model: type[BaseModel], loc: Iterable[int | str]) -> list[str]:
    """The keys allowed in the record at a validator's location."""
    at: Any = model
    for part in loc:
        at = _step(at, str(part))
    return list(fields_of(at))


def models_with(model: type[BaseModel], loc: Iterable[int | str]) -> list[str]:
    """The other values of `model` whose records have the key at a validator's location; empty outside such a union."""
    *before, key = (str(part) for part in loc)
    at: Any = model
    for part in before[:-1]:
        at = _step(at, part)
    cases = _cases(at)
    return [name for name, case in cases.items() if key in fields_of(case)] if before and before[-1] in cases else []


def number_text(kind: str, context: Mapping[str, Any]) -> str:
    """What is allowed for a number, in words, by the kind and context of a validator's error; "" for other kinds."""
    if kind in BOUNDS:
        name, words = BOUNDS[kind]
        return f"{words} {context[name]:,.10g}"
    return KINDS.get(kind, "")


def _text(item: Any, node: Node, slip: Slip) -> str:
    kind, context = item["type"], item.get("ctx", {})
    got = _shown(node)
    if kind == "too_short":
        return "too few entries"
    if kind in ("missing", "union_tag_not_found"):
        return "too few entries" if isinstance(node.value, list) else "missing key"
    if kind in BOUNDS:
        name, words = BOUNDS[kind]
        meant = slip(str(item["loc"][-1]), item["input"], kind.startswith("less"))
        return f"got {got}; must be {words} {context[name]:g}{meant}"
    if kind in ("literal_error", "union_tag_invalid"):
        value = str(context.get("tag", item["input"]))
        allowed = [
            YAML_WORDS.get(part.strip("' "), part.strip("' "))
            for part in str(context.get("expected_tags") or context.get("expected")).replace(" or ", ", ").split(",")
        ]
        shown = repr(value) if isinstance(item["input"], str) or "tag" in context else got
        return f"got {shown}; allowed: {', '.join(allowed)}{nearest(value, allowed)}"
    if kind in KINDS:
        number = kind in ("int_type", "float_type") and LIKE_NUMBER.fullmatch(str(node.value))
        hint = "; numbers have no quotes, underscores, colons or leading zeros" if number else _without_unit(node.value)
        return f"got {got}; needs {KINDS[kind]}{hint}"
    if kind in ("one_of", "rule"):
        return str(item["msg"])
    if kind == "string_pattern_mismatch" and str(context.get("pattern")).startswith("^[^"):
        return f"got {item['input'][:80]!r}; allowed: one line of text without control characters"
    if kind == "string_pattern_mismatch":
        return f"got {item['input']!r}; allowed: letters, digits and _ . -"
    return f"got {got}; {item['msg']}"


def _without_unit(value: Any) -> str:
    """What to write for a number with a unit; of bytes, the number itself."""
    parts = WITH_UNIT.fullmatch(value) if isinstance(value, str) else None
    if parts is None:
        return ""
    number, prefix, unit = parts.groups()
    alone = f": {float(number) * PREFIXES[prefix]:g}" if unit in BYTES else ""
    return f"; write the number without its unit, in the one that the key names{alone}"


def _shown(node: Node) -> str:
    if isinstance(node.value, dict):
        return "a mapping"
    if isinstance(node.value, list):
        return "a list"
    if isinstance(node.value, bool) or node.value is None:
        return {True: "true", False: "false", None: "null"}[node.value]
    return f"the text {node.value!r}" if isinstance(node.value, str) else repr(node.value)


def fields_of(at: Any) -> dict[str, Any]:
    """The types of a record's fields by their keys in a file; empty for what is no record (a model, a dataclass)."""
    if isinstance(at, type) and issubclass(at, BaseModel):
        return {info.alias or name: info.annotation for name, info in at.model_fields.items()}
    if isinstance(at, type) and dataclasses.is_dataclass(at):
        types_of = typing.get_type_hints(at)
        return {field.name: types_of[field.name] for field in dataclasses.fields(at)}
    return {}


def _step(at: Any, part: str) -> Any:
    """The type one part of a location further down: a field, an entry of a mapping or list, or a case of a union."""
    if fields := fields_of(at):
        return _bare(fields.get(part))
    origin = typing.get_origin(at)
    if origin is dict:
        return _bare(typing.get_args(at)[1])
    if origin is tuple:
        return _bare(typing.get_args(at)[0])
    if origin in (types.UnionType, typing.Union):
        return _cases(at).get(part)
    return None


def _cases(at: Any) -> dict[str, Any]:
    """The cases of a union that `model` tells apart, by its values; empty for other types."""
    if typing.get_origin(at) not in (types.UnionType, typing.Union):
        return {}
    return {tag: case for case in typing.get_args(at) for tag in typing.get_args(fields_of(case).get("model"))}


def _bare(at: Any) -> Any:
    """A type without its Annotated wrapper, and without None in a union of two."""
    while typing.get_origin(at) is typing.Annotated:
        at = typing.get_args(at)[0]
    if typing.get_origin(at) in (types.UnionType, typing.Union):
        cases = [case for case in typing.get_args(at) if case is not type(None)]
        if len(cases) == 1:
            return _bare(cases[0])
    return at
