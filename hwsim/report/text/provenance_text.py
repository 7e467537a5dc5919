"""Provenance of the numbers of a device or library file, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hwsim.datafiles.provenance import LEVELS
from hwsim.report.text.words import count, facts, plural, table

ABSENT = object()

if TYPE_CHECKING:
    from hwsim.datafiles.base import Provenance


def evidence_text(evidence: Mapping[str, Provenance]) -> str:
    """The number of numbers at each evidence level, best first."""
    counts = Counter(str(about.evidence) for about in evidence.values())
    shown = ", ".join(f"{counts[level]} {level}" for level in LEVELS if counts[level])
    return f"{shown} (of {plural(len(evidence), 'number')})"


def provenance_table(tree: Any, evidence: Mapping[str, Provenance], citations: Mapping[str, str]) -> str:
    """Every number of a data file: path, value, evidence, source, the range that sources give; then the citations.

    tree: the file's record as plain data; evidence: by dotted path.
    """
    lines = table(
        provenance_rows(tree, evidence), ("number", "value [range in sources]", "evidence", "source"), indent=""
    )
    if citations:
        lines += ["", "sources", *facts(citations.items(), indent="  ")]
    return "\n".join(lines)


def provenance_rows(tree: Any, evidence: Mapping[str, Provenance]) -> list[tuple[str, str, str, str]]:
    """(path, value with the range that sources give, evidence, source) of every number of a data file.

    Numbers that the tree does not have (sustained clocks, of a device whose clock was set) are left out.
    """
    rows = []
    for path, about in evidence.items():
        value = _at(tree, path)
        if value is ABSENT:
            continue
        span = f" [{about.span[0]:g} to {about.span[1]:g}]" if about.span else ""
        note = f"; fitted to {about.fitted_to}" if about.fitted_to else ""
        note += f"; {about.note}" if about.note else ""
        rows.append((path, f"{plain_value(value)}{span}", str(about.evidence), f"{about.source}{note}"))
    return rows


def _at(node: Any, path: str) -> Any:
    """The value at a dotted path of nested mappings, or ABSENT; keys may contain dots."""
    rest = path
    while rest:
        keys = [key for key in node or () if rest == key or rest.startswith(f"{key}.")]
        if not keys:
            return ABSENT
        key = max(keys, key=len)
        node, rest = node[key], rest[len(key) + 1 :]
    return node


def plain_value(item: Any) -> str:
    """A value of a data file as text."""
    if isinstance(item, bool) or item is None:
        return {True: "yes", False: "no", None: "none"}[item]
    if isinstance(item, int):
        return count(item)
    if isinstance(item, float):
        return f"{item:,g}" if abs(item) < 1e9 else f"{item:g}"
    return str(item)
