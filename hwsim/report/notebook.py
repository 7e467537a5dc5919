"""HTML of objects as notebooks show them (`_repr_html_`): a heading, pairs, a table; no script. Knows text alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

MOST_ROWS = 40


def card(
    title: str, pairs: Iterable[tuple[str, object]], head: Sequence[str] = (), rows: Sequence[Sequence[object]] = ()
) -> str:
    """A heading, names with values, and a table of at most MOST_ROWS rows. Everything is escaped."""
    facts = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in pairs)
    html = f"<div><strong>{escape(title)}</strong><table>{facts}</table>"
    if rows:
        names = "".join(f"<th>{escape(name)}</th>" for name in head)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_shown(cell))}</td>" for cell in row) + "</tr>" for row in rows[:MOST_ROWS]
        )
        html += f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"
        if len(rows) > MOST_ROWS:
            html += f"<em>{len(rows) - MOST_ROWS:,} more rows</em>"
    return html + "</div>"


def _shown(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)
