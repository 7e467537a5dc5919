"""Points of a table whose axes, colours, marks and facets the reader picks.

The module knows rows with named columns; it does not know what a row is of. The page's script draws them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from html import escape
from typing import Any

from hwsim.report.page.style import PALETTE

NO_COLUMN = "none"  # the picker's word
MOST_FACETS = 12


@dataclass(frozen=True, slots=True)
class Explorer:
    """A scatter plot with pickers. Points at one place are rings around each other, equal lines are dashed over each
    other, and a sentence names them.

    columns: {name: what an axis says}, in the order of the pickers. rows: {name: value}; a row without a value of a
    picked axis is left out. parameters: columns that were chosen before the run; points that differ in x alone are
    joined by a line where x is one of them. repeats: parameters that repeat a point, as a seed does: where none of them
    is picked, a point is the mean of its rows, with a bar from the least to the largest. x, y, colour, marks, facet:
    columns at first ("": none). log_x, log_y: at first. A sentence counts what a logarithmic axis does not show.
    """

    columns: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]
    parameters: Sequence[str]
    _: KW_ONLY
    x: str
    y: str
    colour: str = ""
    marks: str = ""
    facet: str = ""
    log_x: bool = True
    log_y: bool = True
    repeats: Sequence[str] = ()
    sizes: Sequence[str] = ()

    def html(self, draw: Callable[[Mapping[str, Any], int], str]) -> str:
        """The part as HTML."""
        several = [name for name in self.columns if len(self._values(name)) > 1]
        numbers = [name for name in self.columns if self._is_numeric(name)]
        grouping = [name for name in several if name in self.parameters]
        facets = [name for name in grouping if len(self._values(name)) <= MOST_FACETS]
        pickers = [
            self._picker("x", "x axis", [name for name in self.columns if name in several or name == self.x], self.x),
            self._picker("y", "y axis", numbers, self.y),
            self._picker("colour", "colour", ["", *grouping], self.colour),
            self._picker("marks", "marks", ["", *grouping], self.marks),
            self._picker("facet", "one plot for each", ["", *facets], self.facet),
            _switch("logx", "x logarithmic", self.log_x),
            _switch("logy", "y logarithmic", self.log_y),
        ]
        rows = [{name: _plain(row.get(name)) for name in self.columns} for row in self.rows]
        content = {
            "columns": dict(self.columns),
            "rows": rows,
            "parameters": list(self.parameters),
            "repeats": list(self.repeats),
            "sizes": list(self.sizes),
            "palette": list(PALETTE),
        }
        data = json.dumps(content, allow_nan=False).replace("</", "<\\/")
        return (
            f'<div class="explorer"><div class="pickers">{"".join(pickers)}</div>'
            f'<div class="plot" role="img" aria-label="points, as picked"></div><p class="about equal"></p>'
            f'<script type="application/json">{data}</script></div>'
        )

    def _values(self, name: str) -> set[Any]:
        return {value for row in self.rows if (value := _plain(row.get(name))) is not None}

    def _is_numeric(self, name: str) -> bool:
        values = self._values(name)
        return bool(values) and all(isinstance(value, int | float) for value in values)

    def _picker(self, name: str, label: str, choices: Sequence[str], chosen: str) -> str:
        options = "".join(
            f'<option value="{escape(choice)}"{" selected" if choice == chosen else ""}>'
            f"{escape(self.columns[choice] if choice else NO_COLUMN)}</option>"
            for choice in choices
        )
        return f'<label>{label} <select name="{name}">{options}</select></label>'


def _switch(name: str, label: str, checked: bool) -> str:
    return f'<label><input type="checkbox" name="{name}"{" checked" if checked else ""}> {label}</label>'


def _plain(value: Any) -> Any:
    """A value of a row as a point has it: no number that is none, and no mapping."""
    if isinstance(value, bool) or value is None:
        return None if value is None else str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, int | float | str) else json.dumps(value)
