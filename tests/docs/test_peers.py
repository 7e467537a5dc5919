"""The table of tools has a cell for every tool and column, and sources for every tool."""

from __future__ import annotations

import re
from pathlib import Path

import hwsim

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "peers.md").read_text(encoding="utf-8")
PAGE = PAGE[PAGE.index("## What it computes") :]
SOURCES = (ROOT / "lab" / "docs" / "peers_sources.md").read_text(encoding="utf-8")
COLUMNS = [
    ["install without a compiler", "first result", "formats", "chips", "own chip", "bits", "time"],
    ["trace viewer", "report", "sweep and cluster", "notebooks", "frameworks", "docs site", "recorder"],
]


def tables() -> list[list[list[str]]]:
    """The cells of each table, header first."""
    found = re.findall(r"(?:^\|.*\|\n)+", PAGE, re.MULTILINE)
    rows = [[line for line in table.splitlines() if not line.startswith("| ---")] for table in found]
    return [[[cell.strip() for cell in line.strip("|").split("|")] for line in table] for table in rows]


def test_every_tool_has_every_cell() -> None:
    assert [table[0] for table in tables()] == [["tool", *columns] for columns in COLUMNS]
    first, second = ([row[0] for row in table[1:]] for table in tables())
    assert first == second and len(first) == len(set(first)) == 8
    for table in tables():
        assert all(len(row) == len(table[0]) and all(row) for row in table)


def test_hwsim_has_something_everywhere() -> None:
    for table in tables():
        (row,) = [row for row in table if row[0].startswith("hwsim ")]
        assert row[0] == f"hwsim {hwsim.__version__}"
        assert [cell for cell in row if re.match(r"no\b", cell)] == []


def test_every_tool_has_sources_of_its_version() -> None:
    sections = dict(
        re.findall(r"^### (.*)\n\n(.*(?:\n(?!#).*)*)", SOURCES[SOURCES.index("## Sources") :], re.MULTILINE)
    )
    tools = dict(row[0].rsplit(" ", 1) for row in tables()[0][1:])
    assert list(sections) == list(tools)
    for tool, version in tools.items():
        assert version in sections[tool], tool
        assert tool == "hwsim" or re.search(r"20\d\d-\d\d-\d\d", sections[tool]), tool
