"""A page made of sections, written as one HTML file that loads nothing from anywhere.

The module knows HTML; it does not know what a section is about. Plots are plotly figures as plain data, drawn by
plotly's own JavaScript, which the page carries (extra `report`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from hwsim._version import __version__
from hwsim.errors import InputError, UnsupportedError
from hwsim.host.files import write_text
from hwsim.report.page.explorer import Explorer
from hwsim.report.page.explorer_script import EXPLORER_SCRIPT
from hwsim.report.page.script import SCRIPT
from hwsim.report.page.style import CSS

SUFFIXES = (".html", ".htm")
PAGE = "page"  # the key of a page's title, the first in its data
#: A table of more columns, or with a longer text in a cell, is a list of cards on a narrow screen.
MOST_NARROW, PROSE = 5, 28
MOST_WHOLE = 12  # rows of a table that is shown whole; a longer one is scrolled in its box


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph."""

    text: str

    def html(self, draw: Callable[[Mapping[str, Any], int], str]) -> str:
        """The part as HTML."""
        return f"<p>{escape(self.text)}</p>"


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with values, as a list."""

    pairs: Sequence[tuple[str, str]]

    def html(self, draw: Callable[[Mapping[str, Any], int], str]) -> str:
        """The part as HTML."""
        rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in self.pairs)
        return f"<dl>{rows}</dl>"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts under a head. right: columns of numbers, set to the right. filter: with a field that leaves the
    rows which have a word. paths: the first column holds long names, which may be broken anywhere.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[int] = ()
    filter: bool = False
    paths: bool = False

    def html(self, draw: Callable[[Mapping[str, Any], int], str]) -> str:
        """The part as HTML."""
        kinds = ["number" if column in self.right else "text" for column in range(len(self.head))]
        titles = [escape(title) for title in self.head]
        head = "".join(f'<th class="{kind}">{title}</th>' for kind, title in zip(kinds, titles, strict=True))
        body = "".join(
            "<tr>"
            + "".join(
                f'<td class="{kind}" data-head="{title}">{escape(cell)}</td>'
                for kind, title, cell in zip(kinds, titles, row, strict=True)
            )
            + "</tr>"
            for row in self.rows
        )
        field = '<input class="filter" type="search" placeholder="rows with this word" aria-label="filter">'
        longest = max((len(cell) for row in (self.head, *self.rows) for cell in row), default=0)
        cards = len(self.head) > MOST_NARROW or (len(self.head) > 2 and longest > PROSE)
        long = len(self.rows) > MOST_WHOLE
        named = {"wide": True, "long": long, "paths": self.paths, "cards": cards}
        kind = " ".join(name for name, has in named.items() if has)
        table = f'<div class="{kind}"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        return (field if self.filter else "") + table


@dataclass(frozen=True, slots=True)
class Code:
    """Text to copy as it stands. name: offered as a file of that name to save. columns: its columns are aligned, so
    that long lines are scrolled and not broken.
    """

    text: str
    name: str = ""
    columns: bool = False

    def html(self, draw: Callable[[Mapping[str, Any], int], str]) -> str:
        """The part as HTML."""
        name = escape(self.name)
        save = f'<button data-name="{name}">save as {name}</button>' if self.name else ""
        kind = ' class="columns"' if self.columns else ""
        tools = f'<div class="tools">{save}<button>copy</button></div>'
        return f'<div class="code">{tools}<pre{kind}>{escape(self.text)}</pre></div>'


@dataclass(frozen=True, slots=True)
class Drawing:
    """An SVG drawing, as its text."""

    svg: str

    def html(self, draw: Callable[[Mapping[str, Any], int], str]) -> str:
        """The part as HTML."""
        return f'<div class="wide drawing">{self.svg}</div>'


@dataclass(frozen=True, slots=True)
class Plot:
    """A plotly figure: {"data": [...], "layout": {...}} as plain data. height: in pixels. label: what it shows, for
    readers that do not see it.
    """

    figure: Mapping[str, Any]
    height: int
    label: str

    def html(self, draw: Callable[[Mapping[str, Any], int], str]) -> str:
        """The part as HTML."""
        name = draw(self.figure, self.height)
        return (
            f'<div class="plot" id="{name}" role="img" aria-label="{escape(self.label)}" '
            f'data-height="{self.height}" style="height:{self.height}px"></div>'
        )


Part = Text | Facts | Table | Code | Drawing | Plot | Explorer


@dataclass(frozen=True, slots=True)
class PageSection:
    """A headline, one sentence on how to read what follows, and its parts. Without parts it is left out."""

    title: str
    about: str
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class Page:
    """A report: its title, and sections in order.

    data: what the page shows, as plain data, which is written beside it as JSON and can be saved from it. lead: the
    sentences that say the most important things; they stand under the title.
    """

    title: str
    sections: Sequence[PageSection]
    data: Mapping[str, Any] | None = None
    lead: Sequence[str] = ()

    def html(self) -> str:
        """The page as text. Raises UnsupportedError without plotly."""
        figures: dict[str, Mapping[str, Any]] = {}

        def draw(figure: Mapping[str, Any], height: int) -> str:
            name = f"plot-{len(figures) + 1}"
            figures[name] = figure
            return name

        shown = [section for section in self.sections if section.parts]
        items = "".join(
            f'<li><a href="#{_anchor(section.title)}">{escape(section.title)}</a></li>' for section in shown
        )
        body = "".join(
            f'<section id="{_anchor(section.title)}"><h2>{escape(section.title)}</h2>'
            f'<p class="about">{escape(section.about)}</p>'
            + "".join(part.html(draw) for part in section.parts)
            + "</section>"
            for section in shown
        )
        lead = "".join(f'<p class="lead">{_marked(line)}</p>' for line in self.lead)
        button = (
            "" if self.data is None else '<div class="tools"><button class="data">save the data as JSON</button></div>'
        )
        data = "" if self.data is None else _json_block("data", self.data_text())
        library = f"<script>{plot_library()}</script>" if figures or 'class="explorer"' in body else ""
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<meta name="color-scheme" content="light dark"><title>{escape(self.title)}</title>'
            f"<style>{CSS}</style></head>\n<body><header><h1>{escape(self.title)}</h1>{lead}{button}</header>"
            f"<nav><ul>{items}</ul></nav>\n<main>{body}</main>\n<footer>hwsim {__version__}</footer>\n"
            f"{data}{library}{_json_block('figures', json.dumps(figures, allow_nan=False))}\n"
            f"<script>{SCRIPT}{EXPLORER_SCRIPT}draw();</script></body></html>\n"
        )

    def data_text(self) -> str:
        """The data as JSON; it begins with the page's title."""
        return json.dumps({PAGE: self.title, **(self.data or {})}, allow_nan=False)

    def write(self, path: str | Path) -> None:
        """Write the page, and its data beside it (`data_file`), each whole or not at all. Raises InputError as
        `check_page`, and for a file that cannot be written; UnsupportedError without plotly.
        """
        path = check_page(path)
        write_text(path, self.html())
        if self.data is not None:
            write_text(data_file(path), f"{self.data_text()}\n")


def data_file(page: Path) -> Path:
    """The file of a page's data: FILE.json beside FILE.html."""
    return page.with_suffix(".json")


def check_page(path: str | Path) -> Path:
    """The path of a page to write. Raises InputError where its name does not say HTML, and where its data would replace
    a file that is no page's data; UnsupportedError without plotly: called before the work.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"report {path}: allowed: a name that has the suffix .html")
    beside = data_file(path)
    if beside.exists() and not _is_data(beside):
        raise InputError(
            f"report {path}: its data goes into {beside}, which is there and is no data of a page; give the page "
            "another name"
        )
    plot_library()
    return path


def _is_data(path: Path) -> bool:
    """Whether a file is the data of a page."""
    begin = f'{{"{PAGE}": '.encode()
    try:
        with path.open("rb") as file:
            return file.read(len(begin)) == begin
    except OSError:
        return False


def plot_library() -> str:
    """plotly's JavaScript. Raises UnsupportedError without plotly."""
    try:
        from plotly.offline import get_plotlyjs  # optional
    except ImportError as error:
        raise UnsupportedError("a report needs plotly: pip install 'hwsim[report]'") from error
    text: str = get_plotlyjs()
    return text.replace("</script", "<\\/script")


def _marked(line: str) -> str:
    """A line as HTML: what stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(line))


def _anchor(title: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in title.lower())


def _json_block(name: str, text: str) -> str:
    """JSON in a page, which a script or a program reads by its name."""
    text = text.replace("</", "<\\/")
    return f'<script type="application/json" id="{name}">{text}</script>'
