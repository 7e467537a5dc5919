"""Tables of data files: one row a number, with its value, unit, evidence and source.

The long ones are HTML: Sphinx takes half of the site's time to read them as Markdown.

The module knows a file's plain data and its provenance; it knows no page and no device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any

from hwsim.report.text.provenance_text import plain_value

if TYPE_CHECKING:
    from hwsim.datafiles.base import Provenance

#: What the end of a key's name says of its unit.
UNITS = {
    "bytes_per_cycle": "bytes per core clock cycle",
    "macs_per_cycle": "multiply-accumulates per core clock cycle",
    "bytes_per_second": "bytes per second",
    "_cycles": "core clock cycles",
    "_bytes": "bytes",
    "_mhz": "MHz",
    "_bits": "bits",
    "_watts": "W",
    "_us": "microseconds",
    "_ns": "nanoseconds",
    "_seconds": "s",
}
HEADINGS = {
    "": "The chip",
    "l2": "L2 cache",
    "hbm": "Device memory",
    "dot_units": "Dot units",
    "sustained_clock_mhz": "Clock under load",
    "vector": "Vector unit",
}
MISSING = object()


def unit(keys: Sequence[str]) -> str:
    """The unit of a number, from the end of its key's name or of the name of the block around it; empty where neither
    says one.
    """
    for key in reversed(keys):
        for end, name in UNITS.items():
            if key.endswith(end):
                return name
    return ""


def keys_of(tree: Any, path: str) -> tuple[tuple[str, ...], Any]:
    """The keys of a dotted path of nested mappings, which may contain dots themselves, and the value there.

    The value is MISSING where the tree has none.
    """
    keys: list[str] = []
    rest, value = path, tree
    while rest:
        names = [key for key in value or () if rest == key or rest.startswith(f"{key}.")]
        if not names:
            return tuple(keys), MISSING
        key = max(names, key=len)
        keys.append(key)
        value, rest = value[key], rest[len(key) + 1 :]
    return tuple(keys), value


def cell(text: str) -> str:
    """Text as a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ").strip()


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], style: str) -> str:
    """A Markdown table in a block of a CSS class, under which `_static/site.css` gives its columns their widths."""
    lines = [f":::{{container}} {style}", "", f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    lines += [f"| {' | '.join(map(cell, row))} |" for row in rows]
    return "\n".join([*lines, "", ":::", ""])


def html(head: Sequence[str], rows: Iterable[Sequence[str]], style: str) -> str:
    """The same table as HTML, with the classes that Sphinx gives. Cells are text, in which backquotes mark code."""
    first = "".join(f'<th class="head"><p>{_marked(name)}</p></th>' for name in head)
    others = ["".join(f"<td><p>{_marked(text)}</p></td>" for text in row) for row in rows]
    body = "".join(f"<tr>{cells}</tr>\n" for cells in others)
    table = f"<thead><tr>{first}</tr></thead>\n<tbody>\n{body}</tbody>"
    around = f'<div class="{style} docutils container"><div class="table-wrapper docutils container">'
    return f'```{{raw}} html\n{around}\n<table class="docutils align-default">\n{table}</table></div></div>\n```\n'


def _marked(text: str) -> str:
    code = r'<code class="docutils literal notranslate"><span class="pre">\1</span></code>'
    return re.sub("`([^`]+)`", code, escape(" ".join(text.split()), quote=False))


def number_tables(tree: Any, evidence: Mapping[str, Provenance]) -> Iterator[str]:
    """One section for each block of a data file: its numbers with value, unit, evidence and source.

    tree: the file's record as plain data. evidence: provenance by dotted path.
    """
    numbers = [(*keys_of(tree, path), about) for path, about in evidence.items()]
    present = [(keys, value, about) for keys, value, about in numbers if value is not MISSING]
    blocks = sorted(present, key=lambda row: _block(row[0]))
    order = list(dict.fromkeys(_block(keys) for keys, _, _ in present))
    by_block = {name: list(rows) for name, rows in groupby(blocks, key=lambda row: _block(row[0]))}
    for name in order:
        heading = HEADINGS.get(name, name.replace("_", " ").capitalize())
        rows = [
            (
                f"`{'.'.join(keys[1:] if name else keys)}`",
                _value(value, about),
                unit(keys),
                f"{about.evidence}",
                _source(about),
            )
            for keys, value, about in by_block[name]
        ]
        yield f"### {heading}\n\n" + html(("number", "value", "unit", "evidence", "source"), rows, "numbers")


def _block(keys: Sequence[str]) -> str:
    return keys[0] if len(keys) > 1 else ""


def _value(value: Any, about: Provenance) -> str:
    span = f" ({about.span[0]:g} to {about.span[1]:g} in sources)" if about.span else ""
    return f"{plain_value(value)}{span}"


def _source(about: Provenance) -> str:
    parts = [str(about.source), f"fitted to {about.fitted_to}" if about.fitted_to else "", str(about.note or "")]
    return "; ".join(part for part in parts if part)


def citation_table(citations: Mapping[str, str]) -> str:
    """The keys that sources use, with what they stand for."""
    return html(("key", "source"), [(f"`{key}`", text) for key, text in citations.items()], "citations")
