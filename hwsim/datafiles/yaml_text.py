"""A strict subset of YAML, parsed into a tree in which every node knows its line and column.

It knows text and positions, nothing of devices. YAML 1.1 silently turns `no` into false, 010 into 8 and 12:30 into 750,
and takes the last of two equal keys; here such text stays text, and equal keys, tabs, anchors, aliases, tags and merge
keys are errors with their position.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)

INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,99})|0x[0-9a-fA-F]{1,99}")
FLOAT = re.compile(r"(?=.*[.eE])[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
DEPTH = 20  # of nesting; a device file needs 7
MOST_NODES = 50_000  # values of a file or mapping; a device file has 3,000
MOST_KEY = 200  # characters of a key
LARGEST = 10**100  # of a whole number; longer ones are text
WORDS = {"true": True, "false": False, "null": None}
#: libyaml's where PyYAML was built with it: eight times as fast.
LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Scalar = bool | int | float | str | None


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A position: `where` is the file as the user named it; line and column count from 1 (0: not from text)."""

    where: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.where}:{self.line}:{self.column}" if self.line else self.where


@dataclass(frozen=True, slots=True)
class FileProblem:
    """One problem of a file: position, dotted path ("": the whole file), and message."""

    mark: Mark
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.mark}: {self.path}: {self.text}" if self.path else f"{self.mark}: {self.text}"


@dataclass(slots=True)
class Node:
    """A scalar, a list of nodes, or a mapping (`keys` then holds the place of each key)."""

    mark: Mark
    value: Scalar | list[Node] | dict[str, Node]
    keys: dict[str, Mark] = field(default_factory=dict)


def plain(node: Node) -> Any:
    """The node as ordinary Python data."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(child) for child in node.value]
    return node.value


def common_yaml(text: str) -> Any:
    """YAML 1.1 as PyYAML's safe loader reads it, for files that come with hwsim and that a model checks afterwards.
    Raises yaml.YAMLError.
    """
    return yaml.load(text, Loader=LOADER)


def parse(text: str, where: str) -> tuple[Node, list[FileProblem]]:
    """The tree of `text`, and its problems. After a syntax error the tree is an empty mapping."""
    tabs = [
        FileProblem(Mark(where, number, line.index("\t") + 1), "", "a tab in the indentation; use spaces")
        for number, line in enumerate(text.splitlines(), 1)
        if "\t" in line[: len(line) - len(line.lstrip())]
    ]
    empty = Node(Mark(where, 1, 1), {})
    if tabs:
        return empty, tabs
    composer = _Composer(where)
    try:
        return composer.document(iter(yaml.parse(text, Loader=LOADER))), composer.problems
    except yaml.MarkedYAMLError as error:
        place = error.problem_mark or error.context_mark
        mark = Mark(where, place.line + 1, place.column + 1) if place else Mark(where, 1, 1)
        context = f" {error.context}" if error.context else ""
        return empty, [*composer.problems, FileProblem(mark, "", f"not readable as YAML: {error.problem}{context}")]
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        return empty, [FileProblem(Mark(where, line, column), "", f"not readable as YAML: {error.reason}")]


def from_data(data: object, where: str) -> tuple[Node, list[FileProblem]]:
    """The tree of ordinary Python data (a mapping given in place of a file), and its problems."""
    converter = _Converter(Mark(where))
    try:
        return converter.node(data, "", 0), converter.problems
    except _TooLargeError as error:
        return Node(converter.mark, {}), [error.problem]


class _Converter:
    """Builds the tree from Python data. A class, as closures that call each other would be a cycle of references, which
    keeps the problems until the garbage collector comes.
    """

    def __init__(self, mark: Mark) -> None:
        self.mark = mark
        self.problems: list[FileProblem] = []
        self.count = 0

    def node(self, value: object, path: str, depth: int) -> Node:
        self.count += 1
        if self.count > MOST_NODES:
            raise self._too_large(f"has more than {MOST_NODES} values")
        if _is_scalar(value):  # the most, and a look for abstract types takes as long as the rest
            return Node(self.mark, value)  # type: ignore[arg-type]
        if isinstance(value, Mapping | Sequence) and not isinstance(value, str | bytes):
            if depth > DEPTH:
                raise self._too_large(f"nested more than {DEPTH} deep")
            if isinstance(value, Mapping):
                children = {
                    (name := self._key(key)): self.node(child, _join(path, name), depth + 1)
                    for key, child in value.items()
                }
                return Node(self.mark, children, dict.fromkeys(children, self.mark))
            items = [self.node(child, _join(path, str(i)), depth + 1) for i, child in enumerate(value)]
            return Node(self.mark, items)
        problem = f"got {_shown(value)}; allowed: text, finite numbers, true, false, null"
        self.problems.append(FileProblem(self.mark, path, problem))
        return Node(self.mark, None)

    def _key(self, key: object) -> str:
        if isinstance(key, str) and len(key) <= MOST_KEY:
            return key
        if isinstance(key, bool | int | float) or key is None:
            return _shown(key)
        raise self._too_large(f"the key {_shown(key)}; a key is text of at most {MOST_KEY} characters")

    def _too_large(self, text: str) -> _TooLargeError:
        return _TooLargeError(FileProblem(self.mark, "", text))


class _TooLargeError(Exception):
    """What is given is too large to be read on."""

    def __init__(self, problem: FileProblem) -> None:
        self.problem = problem
        super().__init__(str(problem))


def _is_scalar(value: object) -> bool:
    if isinstance(value, int):
        return abs(value) < LARGEST
    return value is None or isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))


def _shown(value: object) -> str:
    """The value for a message, shortened."""
    if isinstance(value, int) and abs(value) >= LARGEST:
        return "a number of more than 100 digits"
    try:
        text = repr(value)
    except Exception:  # a caller's class may fail here
        text = f"an object of {type(value).__name__}"
    return text if len(text) <= MOST_KEY else f"{text[:MOST_KEY]}..."


class _Composer:
    """Builds the tree from the events of PyYAML's parser."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.problems: list[FileProblem] = []
        self.depth = 0
        self.count = 0

    def document(self, events: Iterator[Event]) -> Node:
        root = Node(Mark(self.where, 1, 1), {})
        documents = 0
        for event in events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self.problems.append(
                        FileProblem(self._mark(event), "", "a second document; a file holds one device")
                    )
                node = self._node(next(events), events, "")
                root = node if documents == 1 else root
            elif isinstance(event, StreamEndEvent):
                break
        if not documents:
            self.problems.append(FileProblem(root.mark, "", "the file is empty"))
        return root

    def _mark(self, event: Any) -> Mark:
        return Mark(self.where, event.start_mark.line + 1, event.start_mark.column + 1)

    def _node(self, event: Any, events: Iterator[Event], path: str) -> Node:
        mark = self._mark(event)
        self.count += 1
        if self.count > MOST_NODES:
            raise yaml.MarkedYAMLError(None, None, f"more than {MOST_NODES} values", event.start_mark)
        if self.depth > DEPTH:
            raise yaml.MarkedYAMLError(None, None, f"nested more than {DEPTH} deep", event.start_mark)
        if isinstance(event, AliasEvent):
            self._refuse(mark, path, f"an alias (*{event.anchor}); write the value out, or use extends")
            return Node(mark, None)
        if getattr(event, "anchor", None):
            self._refuse(mark, path, "an anchor (&); write the value out, or use extends")
        if getattr(event, "tag", None) not in (None, "!"):
            self._refuse(mark, path, "a tag (!); values are text, numbers, true, false or null")
        if isinstance(event, ScalarEvent):
            return Node(mark, self._scalar(event, mark, path) if event.implicit[0] else event.value)
        self.depth += 1
        if isinstance(event, MappingStartEvent):
            node = Node(mark, {})
            while not isinstance(event := next(events), MappingEndEvent):
                self._entry(node, event, events, path)
            self.depth -= 1
            return node
        items: list[Node] = []
        while not isinstance(event := next(events), SequenceEndEvent):
            items.append(self._node(event, events, _join(path, str(len(items)))))
        self.depth -= 1
        return Node(mark, items)

    def _entry(self, node: Node, event: Event, events: Iterator[Event], path: str) -> None:
        mark = self._mark(event)
        if not isinstance(event, ScalarEvent):
            self._refuse(mark, path, "a key must be plain text")
            self._node(event, events, path)
            self._node(next(events), events, path)
            return
        key, start = event.value, cast(Any, event.start_mark)
        if len(key) > MOST_KEY:
            raise yaml.MarkedYAMLError(None, None, f"a key of {len(key)} characters; at most {MOST_KEY}", start)
        child = self._node(next(events), events, _join(path, key))
        assert isinstance(node.value, dict)
        if key == "<<":
            self._refuse(mark, path, "a merge key (<<); write the values out, or use extends")
        elif key in node.value:
            first = node.keys[key]
            self._refuse(mark, _join(path, key), f"the key '{key}' occurs twice, first at {first.line}:{first.column}")
        else:
            node.value[key] = child
            node.keys[key] = mark

    def _refuse(self, mark: Mark, path: str, text: str) -> None:
        self.problems.append(FileProblem(mark, path, text))

    def _scalar(self, event: Any, mark: Mark, path: str) -> Scalar:
        text: str = event.value
        if text == "":
            self._refuse(mark, path, "no value; write null if that is meant")
            return None
        if text in WORDS:
            return WORDS[text]
        if INTEGER.fullmatch(text):
            return int(text, 0)
        if FLOAT.fullmatch(text) and math.isfinite(float(text)):
            return float(text)
        return text


def _join(path: str, part: str) -> str:
    return f"{path}.{part}" if path else part
