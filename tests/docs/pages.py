"""Pages as the tests of the documentation read them: blocks, commands, links, anchors. It knows no page by name."""

from __future__ import annotations

import importlib.util
import re
import runpy
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from hwsim.cli import main

FENCE = re.compile(r"^```(\w*)(?: title=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block: language, file name (`title=`), text, line of its first line."""

    language: str
    title: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], found[2] or "", found[3], text.count("\n", 0, found.start(3)) + 1)
        for found in FENCE.finditer(text)
    ]


def commands(block: Block, program: str = "hwsim") -> Iterator[tuple[list[str], list[str]]]:
    """(arguments of the program, lines of output shown) for each line that calls it, as `$ hwsim`."""
    found: list[tuple[list[str], list[str]]] = []
    shown: list[str] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            shown = []
            words = shlex.split(line[2:])
            if words[:1] == [program]:
                found.append((words[1:], shown))
        elif line.strip() not in ("", "..."):
            shown.append(line)
    return iter(found)


def anchors(page: Path) -> set[str]:
    """The anchors that headings have where Markdown is shown on the web."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """The targets of a page's links that are not there: files, and headings of pages."""
    broken = []
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    return broken


def missing_paths(page: Path, root: Path) -> list[str]:
    """The files and folders of the repository that a page names in code spans and that are not there.

    Capitals stand for any name: `tests/golden/DEVICE`.
    """
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    named = re.findall(r"`((?:hwsim|lab|tests|examples|configs|kernels_ext|tools)/[\w./-]+)`", text)
    return [path for path in named if not re.search(r"[A-Z]{3}", path) and not (root / path).exists()]


def run_blocks(page: Path, folder: Path, capsys: pytest.CaptureFixture[str], *, same_output: bool) -> None:
    """In order, in one namespace: python is executed, titled files are written into a folder, `$ hwsim` and `$ python
    FILE` are run.

    same_output: the lines that a page shows are among those that are printed.
    """
    names: dict[str, object] = {"__name__": "__docs__"}
    for block in blocks(page):
        if block.title:
            (folder / block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
            exec(code, names)
        elif block.language == "console":
            for (script, *_), shown in commands(block, "python"):
                capsys.readouterr()
                runpy.run_path(str(folder / script))
                if same_output:
                    check_shown(shown, capsys.readouterr().out, f"{page.name}:{block.line}: python {script}")
            for arguments, shown in commands(block):
                capsys.readouterr()
                code = main(arguments)
                output = capsys.readouterr()
                assert code == 0, f"{page.name}:{block.line}: hwsim {shlex.join(arguments)}: {output.err}"
                if same_output:
                    check_shown(shown, output.out, f"{page.name}:{block.line}: hwsim {shlex.join(arguments)}")


def check_shown(shown: list[str], printed: str, command: str) -> None:
    """Every line that a page shows below a command is one that the command prints."""
    missing = [line for line in shown if line not in printed.splitlines()]
    assert missing == [], f"{command} does not print what the page shows"


def generator(path: Path) -> ModuleType:
    """The module of a script that writes generated parts of pages."""
    spec = importlib.util.spec_from_file_location(f"{path.parents[1].name}_generate", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
