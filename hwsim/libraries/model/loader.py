"""Loads a library by name, file or mapping into a validated `Library`, or reports all problems at once."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hwsim.datafiles.reading import record_of
from hwsim.datafiles.yaml_text import FileProblem, Node, from_data, parse
from hwsim.errors import UnsupportedError, nearest
from hwsim.formats import FORMATS
from hwsim.host import places
from hwsim.libraries.model.kernels import Library

SCHEMA_VERSION = 1
SUFFIX = ".yaml"
#: Ends of the names of files in the same folder that say other things (hwsim.libraries.model.facts).
FURTHER = (f".version{SUFFIX}", f".sums{SUFFIX}", f".kernels{SUFFIX}", f".attention{SUFFIX}")


def names() -> list[str]:
    """The names of the shipped libraries, sorted."""
    files = [file.name for file in places.package_folder("libraries").iterdir()]
    return sorted(name.removesuffix(SUFFIX) for name in files if name.endswith(SUFFIX) and not name.endswith(FURTHER))


def load(library: str | Path | Mapping[str, Any] | Library) -> Library:
    """The library of that name, of that file (a Path) or of that mapping.

    `source:` and `evidence:` have the same form as in device files. A shipped file is read once per process. Raises
    ConfigError with every problem, UnsupportedError for an unknown name, InputError for an unreadable file.
    """
    if isinstance(library, str):
        return _shipped(library)
    if isinstance(library, Path):
        return _built(*parse(places.text_of(library, "library"), str(library)))
    if isinstance(library, Mapping):
        return _built(*from_data(library, "<mapping>"))
    return library


@functools.cache
def _shipped(name: str) -> Library:
    shipped = names()
    if name not in shipped:
        raise UnsupportedError(f"no library '{name}'; known: {', '.join(shipped) or 'none'}{nearest(name, shipped)}")
    file = places.package_folder("libraries") / f"{name}{SUFFIX}"
    return _built(*parse(places.text_of(file, "library"), str(file)))


def _built(tree: Node, problems: list[FileProblem]) -> Library:
    file = record_of(tree, problems, Library, SCHEMA_VERSION, "library", _format_problems)
    result = file.record
    result._evidence.update(file.evidence)
    result._citations.update(file.citations)
    result._sha256 = hashlib.sha256(canonical(result).encode()).hexdigest()
    return result


def canonical(library: Library) -> str:
    """The canonical JSON of the model, from which its hash is computed."""
    return json.dumps(library.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))


def _format_problems(tree: Node) -> Iterator[FileProblem]:
    """Problems: names of formats that hwsim does not know."""

    def known(node: Node, path: str) -> Iterator[FileProblem]:
        if isinstance(node.value, str) and node.value not in FORMATS:
            text = f"'{node.value}' is not a known format; allowed: {', '.join(sorted(FORMATS))}"
            yield FileProblem(node.mark, path, text + nearest(node.value, list(FORMATS)))

    for chip, seen in _block(tree, "observations").items():
        at = f"observations.{chip}"
        for key in ("in_order", "split_k_instructions"):
            if (table := _entries(seen).get(key)) is not None:
                for name in _entries(table):
                    yield from known(Node(table.keys[name], name), f"{at}.{key}.{name}")
        for name, entry in _block(seen, "in_order").items():
            for key in ("outputs", "with_c"):
                listed = _entries(entry).get(key)
                for i, item in enumerate(listed.value if listed and isinstance(listed.value, list) else ()):
                    yield from known(item, f"{at}.in_order.{name}.{key}.{i}")


def _entries(node: Node) -> dict[str, Node]:
    return node.value if isinstance(node.value, dict) else {}


def _block(node: Node, key: str) -> dict[str, Node]:
    entry = _entries(node).get(key)
    return {} if entry is None else _entries(entry)
