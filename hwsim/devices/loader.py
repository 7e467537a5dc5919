"""Loads a device by name, file or mapping into a validated `Device`, or reports all problems at once.

Steps: parse the text (yaml_text), separate the sources (provenance), merge a variant into its base, validate against
the model, check names across the file (checks). Nothing here knows a particular chip.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwsim.datafiles import provenance
from hwsim.datafiles.provenance import AttributedTree, Attribution
from hwsim.datafiles.reading import leaves, provenance_of, refuse, sources_of, validated, version_problems
from hwsim.datafiles.yaml_text import FileProblem, Node, from_data, parse
from hwsim.devices import registry
from hwsim.devices.checks import board_problems, check
from hwsim.devices.device import Device
from hwsim.devices.model.chip import DeviceOrigin
from hwsim.devices.plausible import slip_of
from hwsim.errors import InputError, UnsupportedError
from hwsim.host.places import text_of

SCHEMA_VERSION = 1
MOST_VARIANTS = 8  # devices that extend one another
FILE_ONLY = ("sources", "extends", "inherited")  # keys of a file that are not part of the model
DEFAULT = Attribution("default of the schema, not given in the file", "assumption")


_known: dict[tuple[bool, str], _Known] = {}  # by whether it is surely a path, and its text


def load(device: str | Path | Mapping[str, Any] | Device) -> Device:
    """The device of that name, file (a path, or text that looks like one) or mapping.

    A number is written plain or as {value, source, evidence, fitted_to, span, note}; `source:`, `evidence:` and
    `fitted_to:` may stand in any block and apply to everything below. `extends: NAME` starts from another device, whose
    `source:` and `evidence:` for the whole file hold for a variant's numbers too, at best as assumptions;
    `inherited: {source, evidence}` beside it says how good the base's numbers are for this device. The same object is
    returned as long as the files do not change. Raises ConfigError with every problem, UnsupportedError for an unknown
    name, InputError for an unreadable file.
    """
    if isinstance(device, Device):
        return device
    if not isinstance(device, str | Path | Mapping):
        raise InputError(f"a device is a name, the path of a YAML file or a mapping; got {type(device).__name__}")
    if isinstance(device, Mapping):
        return _built(device, [])
    key = (isinstance(device, Path), str(device))
    state, loaded = registry.state(), _known.get(key)
    if loaded is not None and loaded.state == state and loaded.is_current():
        return loaded.device
    files: list[tuple[Path, registry.Content]] = []
    result = _built(device, files)
    _known[key] = _Known(state, files, result)
    return result


@dataclass(frozen=True, slots=True)
class _Known:
    """A cached device with the search path at that time and the files that it was read from, with their texts."""

    state: tuple[object, ...]
    files: list[tuple[Path, registry.Content]]
    device: Device

    def is_current(self) -> bool:
        """Whether the files are unchanged; a plug-in's device has no files and is made again."""
        try:
            return all(text_of(file, "device") == text for file, text in self.files)
        except InputError:
            return False


def _built(device: str | Path | Mapping[str, Any], files: list[tuple[Path, registry.Content]]) -> Device:
    """Read and validate a device; the files read on the way, with their texts, are added to `files`."""
    annotated, sources, problems = _read(device, (), files)
    problems += version_problems(annotated.tree, SCHEMA_VERSION)
    result = None
    if annotated.tree.value or not problems:  # else the text could not be read at all
        result, invalid = _validate(annotated)
        problems += invalid
    if problems or result is None:
        raise refuse(problems, "device")
    result._evidence.update(_evidence(result, annotated.attributions))
    result._citations.update(sources)
    if not isinstance(device, Mapping) and registry.is_path(device):
        result._origin = DeviceOrigin(str(device))
    result._sha256 = hashlib.sha256(result.canonical().encode()).hexdigest()
    return result


def expanded(device: Device) -> dict[str, Any]:
    """The device as one mapping without `extends`, every number with its source; `load` accepts it.

    What the file leaves to the schema's defaults is left out here too.
    """
    tree = device.model_dump(mode="json", by_alias=True, exclude_none=True)
    for path, value in leaves(tree):
        about = device.evidence.get(".".join(path))
        if about is None:
            continue
        block = tree
        for part in path[:-1]:
            block = block[part]
        if about.source == DEFAULT.source:
            del block[path[-1]]
        else:
            block[path[-1]] = {"value": value, **about.model_dump(mode="json", exclude_defaults=True)}
    if device.citations:
        tree["sources"] = dict(device.citations)
    return dict(tree)


def _read(
    device: str | Path | Mapping[str, Any], variants: tuple[str, ...], files: list[tuple[Path, registry.Content]]
) -> tuple[AttributedTree, dict[str, str], list[FileProblem]]:
    """Read one file or mapping and the base that it extends. variants: files that extend it, the outermost first."""
    tree, problems = _tree(device, files)
    assert isinstance(tree.value, dict)
    here = tree.mark.where
    base: AttributedTree | None = None
    sources: dict[str, str] = {}
    parent = tree.value.pop("extends", None)
    if parent is not None:
        problems += [
            FileProblem(parent.mark, key, "missing key; a variant says its own")
            for key in ("schema_version", "name")
            if key not in tree.value
        ]
        try:
            if here in variants:
                raise InputError(f"a circle: {' extends '.join((*variants[variants.index(here) :], here))}")
            if len(variants) == MOST_VARIANTS:
                raise InputError(f"more than {MOST_VARIANTS} devices that extend one another; merge some of them")
            base, sources, below = _read(_base_of(parent, device), (*variants, here), files)
            problems += below
        except (InputError, UnsupportedError) as error:
            problems.append(FileProblem(parent.mark, "extends", str(error)))
    sources = {**sources, **sources_of(tree, problems)}
    inherited = tree.value.pop("inherited", None)
    around = Attribution() if base is None else provenance.of_changes(base)
    annotated, missing = provenance.split(tree, sources, around)
    problems += missing
    if inherited is not None:
        attribution, wrong = provenance.attribution_of(inherited, "inherited", sources)
        problems += wrong
        if parent is None:
            problems.append(FileProblem(inherited.mark, "inherited", "only beside extends"))
        elif base is not None and not wrong:
            base = provenance.weakened(base, attribution)
    if base and base.tree.value:
        problems += board_problems(base.tree, annotated.tree)
        annotated = provenance.merge(base, annotated)
    elif parent is not None:  # without its base a variant is no device: say no more about it
        annotated.tree = Node(tree.mark, {})
    return annotated, sources, problems


def _tree(
    device: str | Path | Mapping[str, Any], files: list[tuple[Path, registry.Content]]
) -> tuple[Node, list[FileProblem]]:
    content: registry.Content
    if isinstance(device, Mapping):
        content, where = device, "<mapping>"
    else:
        content, where = registry.read(device)
        files.append((Path(where), content))
    tree, problems = from_data(content, where) if isinstance(content, Mapping) else parse(content, where)
    if not isinstance(tree.value, dict):
        problems.append(FileProblem(tree.mark, "", "a device file is a mapping of keys to values"))
        tree = Node(tree.mark, {})
    return tree, problems


def _base_of(parent: Node, device: str | Path | Mapping[str, Any]) -> str | Path:
    """The base that `extends` names; a path is relative to the file that contains it."""
    name = parent.value
    if not isinstance(name, str):
        raise InputError("needs the name or the path of one device")
    if registry.is_path(name) and not isinstance(device, Mapping) and registry.is_path(device):
        return Path(device).parent / name
    return name


def _validate(annotated: AttributedTree) -> tuple[Device | None, list[FileProblem]]:
    device, problems = validated(annotated, Device, SCHEMA_VERSION, FILE_ONLY, slip_of)
    return device, check(annotated.tree) + problems


def _evidence(device: Device, about: dict[provenance.Path, Attribution]) -> dict[str, Any]:
    """The provenance of every number and fact, including schema defaults, and of text with a source of its own.

    The attribution of a dot unit's block covers the whole unit; other defaults of the schema have their own.
    """
    result = {}
    for path, value in leaves(device.model_dump(mode="json", by_alias=True)):
        attribution = about.get(path)
        if not provenance.is_fact(value, path) and (value is None or attribution is None or not attribution.is_leaf):
            continue
        attribution_here = attribution or (
            _block_attribution(about, path[:-1]) if path[0] == provenance.FACTS else DEFAULT
        )
        result[".".join(path)] = provenance_of(attribution_here)
    return result


def _block_attribution(about: dict[provenance.Path, Attribution], path: provenance.Path) -> Attribution:
    """The attribution of the innermost enclosing block of `path`."""
    while path and path not in about:
        path = path[:-1]
    attribution = about.get(path, DEFAULT)
    return attribution if attribution.source is not None and attribution.evidence is not None else DEFAULT
