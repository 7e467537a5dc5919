"""The text of Triton's GPU dialect as data: operations in order, with operands, attributes, types and layouts.

The module knows the syntax of MLIR as far as a kernel with one dot has it; it knows no operation's meaning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

LOCATION = re.compile(r"\s+loc\((?:#?\w+|\"[^\"]*\"(?:\(#\w+\))?(?::\d+:\d+)?|unknown)\)")
ALIAS = re.compile(r"^#(\w+) = #(.*)$", re.MULTILINE)
TYPES = re.compile(r" : (?=\(|!|tensor)")  # what follows are types; an attribute's is a number's
ARGUMENT = re.compile(r"%(\w+): ")
RESULT = re.compile(r"%([\w#]+)(?::(\d+))? = (.*)$")
OPERAND = re.compile(r"%([\w#]+)")
ELEMENT = re.compile(
    r"(?:tensor|memdesc)<((?:\d+x)*)(?:!tt\.ptr<)?([a-zA-Z]\w*)>?(?:, (#\w+(?:\.\w+)?(?:<\{[^}]*\}>)?))?"
)


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape, element type as MLIR spells it ("bf16"), and layout: an alias ("mma") or its text; "" for none."""

    shape: tuple[int, ...]
    element: str
    layout: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: its results and operands by name, its text between them, the types that it names in order."""

    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    text: str
    types: tuple[TensorType, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """The arguments of a kernel, its operations in order, and the layouts that they name: {alias: text}."""

    arguments: tuple[str, ...]
    operations: tuple[Operation, ...]
    layouts: Mapping[str, str]

    def layout_of(self, kind: TensorType) -> str:
        """The text of a type's layout, its alias resolved."""
        return self.layouts.get(kind.layout.removeprefix("#"), kind.layout.removeprefix("#"))


def parsed(text: str) -> Function:
    """The kernel of a module with one function and no control flow."""
    plain = LOCATION.sub("", text)
    layouts = {name: body for name, body in ALIAS.findall(plain) if not name.startswith("loc")}
    operations = []
    head, *body = plain[plain.index("tt.func") :].splitlines()
    arguments = tuple(ARGUMENT.findall(head))
    for line in body:
        line = line.strip()
        if not line or line.startswith(("}", "#")):
            continue
        matched = RESULT.match(line)
        names: tuple[str, ...] = ()
        if matched:
            name, count, line = matched.groups()
            names = (name,) if count is None else tuple(f"{name}#{i}" for i in range(int(count)))
        name, _, rest = line.partition(" ")
        head, *tail = TYPES.split(rest, maxsplit=1)
        operations.append(Operation(name, names, tuple(OPERAND.findall(head)), head, _types("".join(tail))))
    return Function(arguments, tuple(operations), layouts)


def number(text: str, name: str) -> int | None:
    """The integer that `name = 128` gives in a text, or None."""
    matched = re.search(rf"\b{name} = (-?\d+)", text)
    return int(matched[1]) if matched else None


def numbers(text: str, name: str) -> tuple[int, ...]:
    """The integers that `name = [16, 64, 16]` gives in a text; empty where it has none."""
    matched = re.search(rf"\b{name} = \[([\d, ]*)\]", text)
    return tuple(map(int, matched[1].split(","))) if matched and matched[1].strip() else ()


def _types(text: str) -> tuple[TensorType, ...]:
    return tuple(
        TensorType(tuple(int(size) for size in shape.split("x") if size), element, layout)
        for shape, element, layout in ELEMENT.findall(text)
    )
