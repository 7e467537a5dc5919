"""The words of a Markdown page: its sentences, table cells and numbers, and what breaks the rules for user pages.

It knows Markdown and the rules. It must not know which pages there are, or who reads them.

| rule | limit |
| --- | --- |
| words in a sentence | `WORDS`; on average over a page `AVERAGE` |
| numbers in a sentence | `NUMBERS` |
| words in a table's cell | `CELL` |
| phrases | none of `PHRASES` outside of code |
| dates | none on the page |

Prose is what stands outside of code blocks, directives, headings, tables and HTML. An item of a list is prose. A
sentence ends at `.`, `!` or `?` before a space, and at the end of its paragraph or item. A word is a part of the text
between spaces that has a letter or a digit. A code span is one word, and a link counts with the words that it shows.

A number is a figure that stands alone: `5`, `97.8 %`, `1,024`, `2.5e-7`. Not numbers are:

* figures within a name (`fp16`, `H100`, `910A`, `2:4`, `sm_90`), in a code span or in a link;
* the figure that names a thing: `section 7`, `Eq. 9`, `CUDA 13.1`, `Python 3.11`, `exit code 2` (words of `NAMES`);
* the second and further figures of one shape (`16 x 16 x 16`) or one range (`16 to 64`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

WORDS = 30
AVERAGE = 18
NUMBERS = 1
CELL = 30
PHRASES = ("that of", "those of")
#: Words after which a figure is part of a name.
NAMES = (
    *(
        "section",
        "sections",
        "Fig.",
        "Figs.",
        "Figure",
        "Eq.",
        "Eqs.",
        "Listing",
        "Table",
        "Algorithm",
        "arXiv",
        "version",
    ),
    *(
        "CUDA",
        "cuBLAS",
        "cuDNN",
        "CUTLASS",
        "PyTorch",
        "torch",
        "NumPy",
        "JAX",
        "Python",
        "ROCm",
        "CANN",
        "Ascend",
        "Ramulator",
    ),
    *("exit code", "exit codes", "mode", "step", "line"),
)

_FENCE = re.compile(r"^\s*(```+|~~~+)")
_DIRECTIVE = re.compile(r"^:::+\{(\w[\w-]*)\}")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
_RULE = re.compile(r"^\s*\|[\s:|-]+\|\s*$")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)\s]*\)")
_TAG = re.compile(r"</?\w[^>]*>|<https?://[^>]*>")
_ABBREVIATION = re.compile(r"(?:\be\.g|\bi\.e|\bvs|\bcf|\bFigs?|\bEqs?|\bal|\bNo|\.\.)\.$")
_END = re.compile(r"[.!?][\"')\]*_]*(?=\s+\S)")
_FIGURE = re.compile(r"(?<![\w.,:/^-])[-+−]?\d[\d,]*(?:\.\d+)*(?:e[-+]?\d+)?(?![\w:^]|[-/.,]\w)")
_SERIES = r"(?:\s*%)?(?:\s+(?:x|to)\s+[-+−]?\d[\d.,]*(?![\w.]))+"
_NAMED = re.compile(rf"(?i:{'|'.join(map(re.escape, NAMES))})\s+\d[\w.]*(?:(?:,| and| to| or)\s+\d[\w.]*)*\b")
_DATE = re.compile(
    r"\b20\d\d-[01]\d-[0-3]\d\b|\b(?:January|February|March|April|May|June|July|August|September|October|November|December)"
    r"\s+(?:\d{1,2},?\s+)?20\d\d\b"
)
#: What stands for a code span: a word without a figure.
_SPAN = "code"


@dataclass(frozen=True)
class Text:
    """A sentence or a table's cell as it is counted, and the line on which its block begins."""

    text: str
    line: int

    @property
    def words(self) -> int:
        return sum(any(c.isalnum() for c in part) for part in self.text.split())

    @property
    def numbers(self) -> list[str]:
        """The figures that stand alone; a shape or a range counts once."""
        text = _NAMED.sub("name", self.text)
        return [figure[0] for figure in re.finditer(f"{_FIGURE.pattern}(?:{_SERIES})?", text)]


@dataclass(frozen=True)
class Page:
    """What counts on a page."""

    sentences: list[Text] = field(default_factory=list)
    cells: list[Text] = field(default_factory=list)
    headings: list[Text] = field(default_factory=list)

    @property
    def average(self) -> Fraction:
        """Words in a sentence, on average; zero without a sentence."""
        return Fraction(sum(s.words for s in self.sentences), max(len(self.sentences), 1))


def read(markdown: str) -> Page:
    """The sentences, cells and headings of a page."""
    page = Page()
    block: list[str] = []
    start = 0

    def close() -> None:
        if block:
            page.sentences.extend(Text(one, start) for one in sentences(plain(" ".join(block))))
            block.clear()

    for number, line in prose_lines(_blank_comments(markdown)):
        text = line.removeprefix("> ").strip()
        if not text or line.startswith("#") or text.startswith("|") or _ITEM.match(line):
            close()
        if line.startswith("#"):
            page.headings.append(Text(plain(text.lstrip("# ")), number))
        elif text.startswith("|"):
            if not _RULE.match(text):
                page.cells.extend(Text(cell, number) for cell in cells(text))
        elif text:
            if not block:
                start = number
            block.append(_ITEM.sub("", line) if _ITEM.match(line) else text)
    close()
    return page


def prose_lines(markdown: str) -> Iterator[tuple[int, str]]:
    """(number, line) of the lines outside of code blocks and of directives that hold no prose."""
    fence = ""
    hidden = False
    for number, line in enumerate(markdown.splitlines(), 1):
        mark = _FENCE.match(line)
        directive = _DIRECTIVE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and line.strip() == mark[1]:
                fence = ""
                yield number, ""
        elif mark:
            fence = mark[1]
        elif directive or line.startswith(":::"):
            hidden = directive is not None and directive[1] == "toctree"
            yield number, ""
        elif not hidden:
            yield number, line


def plain(text: str) -> str:
    """Text as it is counted: a code span as one word, a link as what it shows, neither with a figure of its own."""
    text = _IMAGE.sub("", _CODE.sub(_SPAN, text))
    text = _LINK.sub(lambda link: _FIGURE.sub("figure", link[1]), text)
    return _TAG.sub("", text).replace("**", "").strip()


def sentences(text: str) -> list[str]:
    """The sentences of a paragraph or an item, as `plain` gives it."""
    found, begin = [], 0
    for end in _END.finditer(text):
        sentence = text[begin : end.end()]
        if not _ABBREVIATION.search(text[begin : end.start() + 1]):
            found.append(sentence.strip())
            begin = end.end()
    return [sentence for sentence in [*found, text[begin:].strip()] if any(c.isalnum() for c in sentence)]


def cells(row: str) -> list[str]:
    """The cells of a row of a table."""
    bare = plain(row.replace("\\|", "/")).strip().strip("|")
    return [cell.strip() for cell in bare.split("|")]


def long_sentences(page: Page) -> list[str]:
    """The sentences of too many words, with their lines."""
    return [f"{s.line}: {s.words} words: {s.text}" for s in page.sentences if s.words > WORDS]


def phrases(page: Page) -> list[str]:
    """The places of `PHRASES`, with their lines."""
    parts = [*page.sentences, *page.cells, *page.headings]
    return [
        f"{part.line}: {phrase!r}: {part.text}"
        for part in parts
        for phrase in PHRASES
        if re.search(rf"\b{phrase}\b", part.text, re.IGNORECASE)
    ]


def faults(markdown: str) -> list[str]:
    """Each place that breaks a rule, with its line, in the order of the rules."""
    page = read(markdown)
    bare = _blank_comments(markdown)
    many = [f"{s.line}: {len(s.numbers)} numbers: {s.text}" for s in page.sentences if len(s.numbers) > NUMBERS]
    wide = [f"{c.line}: {c.words} words in a cell: {c.text}" for c in page.cells if c.words > CELL]
    dates = [
        f"{number}: a date: {line.strip()}" for number, line in enumerate(bare.splitlines(), 1) if _DATE.search(line)
    ]
    average = [f"{float(page.average):.1f} words a sentence on average"] if page.average > AVERAGE else []
    return [*long_sentences(page), *many, *wide, *phrases(page), *dates, *average]


def _blank_comments(markdown: str) -> str:
    """The page with HTML comments as empty lines, so that the numbers of lines stay."""
    return _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), markdown)
