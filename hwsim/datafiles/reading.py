"""Steps common to reading device and library files: table of sources, version, validation, evidence."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from hwsim._version import __version__
from hwsim.datafiles import messages
from hwsim.datafiles.base import Provenance
from hwsim.datafiles.provenance import UNSOURCED, AttributedTree, Attribution, Level, is_fact, split
from hwsim.datafiles.yaml_text import FileProblem, Node, plain
from hwsim.errors import ConfigError

MOST_PROBLEMS = 100  # that one message lists
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class FileRecord(Generic[Model]):
    """A file's validated record, the provenance of its facts by dotted path, and its `sources:` table."""

    record: Model
    evidence: dict[str, Provenance]
    citations: dict[str, str]


def record_of(
    tree: Node,
    problems: list[FileProblem],
    model: type[Model],
    version: int,
    kind: str,
    further: Callable[[Node], Iterable[FileProblem]] | None = None,
) -> FileRecord[Model]:
    """The record of a parsed file. problems: of its text. version: of the schema. kind: as of `refuse`. further: finds
    what else is wrong with the tree of plain values.

    Raises ConfigError with all problems.
    """
    if not isinstance(tree.value, dict):
        problems.append(FileProblem(tree.mark, "", f"a {kind} file is a mapping of keys to values"))
        tree = Node(tree.mark, {})
    if not tree.value and problems:  # the text could not be read at all
        raise refuse(problems, kind)
    sources = sources_of(tree, problems)
    annotated, missing = split(tree, sources)
    result, invalid = validated(annotated, model, version, UNSOURCED[1:])
    more = () if further is None else further(annotated.tree)
    problems += [*version_problems(tree, version), *missing, *invalid, *more]
    if problems or result is None:
        raise refuse(problems, kind)
    evidence = {}
    for path, value in leaves(plain(annotated.tree)):
        attribution = annotated.attributions.get(path)
        if attribution is not None and (is_fact(value, path) or attribution.is_leaf):
            evidence[".".join(path)] = provenance_of(attribution)
    return FileRecord(result, evidence, sources)


def sources_of(tree: Node, problems: list[FileProblem]) -> dict[str, str]:
    """The file's `sources:` table, short key -> citation; its problems are appended to `problems`."""
    assert isinstance(tree.value, dict)
    table = tree.value.get("sources")
    if table is None:
        return {}
    if not isinstance(table.value, dict):
        problems.append(FileProblem(table.mark, "sources", "needs a mapping of short keys to citations"))
        return {}
    for key, node in table.value.items():
        if not isinstance(node.value, str):
            problems.append(FileProblem(node.mark, f"sources.{key}", "needs text, the full citation"))
        if "," in key or ";" in key:
            problems.append(FileProblem(table.keys[key], f"sources.{key}", "a short key has no comma or semicolon"))
    return {key: str(node.value) for key, node in table.value.items()}


def version_problems(tree: Node, version: int) -> list[FileProblem]:
    """The problem of a schema_version other than `version`, or an empty list."""
    assert isinstance(tree.value, dict)
    node = tree.value.get("schema_version")
    if node is None or (type(node.value) is int and node.value == version):
        return []
    return [
        FileProblem(node.mark, "schema_version", f"got {node.value!r}; hwsim {__version__} reads version {version}")
    ]


def validated(
    annotated: AttributedTree,
    model: type[Model],
    version: int,
    file_only: Collection[str],
    slip: messages.Slip = messages.no_slip,
) -> tuple[Model | None, list[FileProblem]]:
    """The validated record of a file's tree, or None and the problems. file_only: keys that are not part of the
    model. slip: what is meant by a number out of range.
    """
    data = {key: value for key, value in plain(annotated.tree).items() if key not in file_only}
    right = {"schema_version": version} if "schema_version" in data else {}  # a wrong one is told apart
    try:
        # JSON, so that lists serve for tuples while everything else stays strict.
        return model.model_validate_json(json.dumps({**data, **right})), []
    except ValidationError as error:
        return None, messages.explain(error, model, annotated.tree, slip)


def refuse(problems: Iterable[FileProblem], kind: str) -> ConfigError:
    """A ConfigError that lists each problem of a file once (the first hundred), in the order of the file.

    kind: of the file, as "device" or "library".
    """
    lines = [str(p) for p in sorted(set(problems), key=lambda p: (p.mark, p.path, p.text))]
    if len(lines) > MOST_PROBLEMS:
        lines[MOST_PROBLEMS:] = [f"and {len(lines) - MOST_PROBLEMS} more problems"]
    return ConfigError(lines, kind)


def provenance_of(about: Attribution) -> Provenance:
    """An attribution as the pydantic record that the models carry."""
    return Provenance(
        source=about.source or "",
        evidence=Level(about.evidence or "unknown"),
        fitted_to=about.fitted_to or "",
        span=about.span,
        note=about.note,
    )


def leaves(data: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (path, value) for everything in nested mappings that is not a mapping."""
    if isinstance(data, dict):
        for key, value in list(data.items()):
            yield from leaves(value, (*path, key))
    else:
        yield path, data
