"""The laboratory's pages do what they say: blocks run, links resolve, generated parts are current."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "tests" / "docs"))
from pages import broken_links, generator, missing_paths, run_blocks  # noqa: E402

FOLDER = ROOT / "lab" / "docs"
PAGES = sorted(FOLDER.rglob("*.md"))


def name_of(page: Path) -> str:
    return page.relative_to(FOLDER).as_posix()


def test_every_page_is_listed() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    names = {name_of(page) for page in PAGES} - {"README.md"}
    assert len(names) > 10 and [name for name in sorted(names) if f"]({name})" not in index] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks(page, tmp_path, capsys, same_output=False)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_resolve(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_of_the_repository_are_there(page: Path) -> None:
    assert missing_paths(page, ROOT) == []


def test_generated_parts_are_current() -> None:
    """Every table that lab/docs/generate.py writes is made again, some of them by runs, and compared with its page."""
    generate, found = generator(FOLDER / "generate.py"), set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found |= {name for _, name, _ in generate.BLOCK.findall(text)}
        assert generate.current(text) == text, f"{page.name} is behind: run python lab/docs/generate.py"
    assert found == set(generate.BLOCKS)
