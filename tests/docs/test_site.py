"""The site is built with warnings as errors, and every link inside it arrives."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

import hwsim
from hwsim.libraries.model import names as library_names
from hwsim.request.declarations import declared

for package in ("sphinx", "myst_parser", "furo"):
    pytest.importorskip(package, reason=f"the extra docs is missing: {package}")

ROOT = Path(__file__).parents[2]
#: Its build takes half a minute: `.ci/docs` makes it, and `pytest -m slow tests/docs`.
of_the_site = pytest.mark.slow
ELSEWHERE = ("http:", "https:", "mailto:", "data:")


class Links(HTMLParser):
    """The links and the anchors of one built page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.anchors.add(value or "")
            elif (
                name in ("href", "src") and value and "://" not in value and not value.startswith(("mailto:", "data:"))
            ):
                self.targets.add(unquote(value))


def broken(folder: Path) -> list[str]:
    """Links between a folder's pages whose file or anchor is missing."""
    pages = {page.resolve(): Links(page.read_text(encoding="utf-8")) for page in folder.rglob("*.html")}
    missing = []
    for page, links in pages.items():
        for target in links.targets:
            name, _, anchor = target.partition("#")
            file = (page.parent / name.partition("?")[0]).resolve() if name else page
            if not file.is_file() or (file in pages and anchor not in pages[file].anchors):
                missing.append(f"{page.name}: {target}")
    return sorted(missing)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built once for the tests of this file; the only place where Sphinx reads every docstring.

    Without typographic quotes, which take a tenth of the time.
    """
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-D", "smartquotes=0"]
    command += ["-d", str(folder / "cache")]
    done = subprocess.run(
        [*command, str(ROOT / "docs"), str(folder / "html")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(hwsim.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


@of_the_site
def test_every_page_is_in_the_site(site: Path) -> None:
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md") if page.name != "README.md"]
    assert [str(page) for page in pages if not (site / page.with_suffix(".html")).exists()] == []


@of_the_site
def test_devices_and_libraries_have_pages(site: Path) -> None:
    devices = [file.stem for file in (ROOT / "configs" / "devices").glob("*.yaml")]
    schemas = ["device", "library", "library_kernels", "library_sums", "framework"]
    for kind, names in (("devices", devices), ("libraries", library_names()), ("schema", schemas)):
        folder = site / "generated" / kind
        assert names and [name for name in names if not (folder / f"{name}.html").exists()] == []
    assert "bytes per core clock cycle" in (site / "generated" / "schema" / "device.html").read_text(encoding="utf-8")


@of_the_site
def test_a_device_page_has_a_row_for_every_number_with_unit_evidence_and_source(site: Path) -> None:
    device = hwsim.device("ascend910a")
    text = (site / "generated" / "devices" / "ascend910a.html").read_text(encoding="utf-8")
    tables = re.findall(r'<div class="numbers.*?</table>', text, re.DOTALL)
    heads = {tuple(re.findall(r"<th[^>]*><p>(.*?)</p></th>", table)) for table in tables}
    assert heads == {("number", "value", "unit", "evidence", "source")}
    assert sum(table.count("<tr") - 1 for table in tables) == len(device.evidence)


@of_the_site
def test_the_page_of_options_has_a_row_for_every_option(site: Path) -> None:
    text = (site / "generated" / "options.html").read_text(encoding="utf-8")
    rows = re.findall(r'<tr class="row-\w+"><td><p><code.*?<span class="pre">(\w+)</span>', text)
    assert sorted(set(rows)) == sorted({entry.option.name for entry in declared()})


@of_the_site
def test_the_side_bar_has_at_most_25_entries_and_the_first_page_a_picture(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    entries = text.count('<li class="toctree-l')
    assert 10 <= entries <= 25
    assert re.search(r'<img [^>]*src="_images/', text)


@of_the_site
def test_pages_of_the_laboratory_are_in_the_site(site: Path) -> None:
    pages = [page for page in (ROOT / "lab" / "docs").rglob("*.md") if page.name != "README.md"]
    folder = site / "generated" / "laboratory"
    names = [page.relative_to(ROOT / "lab" / "docs").with_suffix(".html") for page in pages]
    assert pages and [str(name) for name in names if not (folder / name).exists()] == []


@of_the_site
def test_the_api_page_has_every_public_name(site: Path) -> None:
    anchors = Links((site / "reference" / "api.html").read_text(encoding="utf-8")).anchors
    assert [name for name in hwsim.__all__ if name != "__version__" and f"hwsim.{name}" not in anchors] == []


@of_the_site
def test_links_of_the_site_arrive(site: Path) -> None:
    assert broken(site) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<p id="x"><a href="#y"></a><a href="b.html"></a><a href="#x"></a>')
    assert broken(tmp_path) == ["a.html: #y", "a.html: b.html"]


def configuration() -> ModuleType:
    """docs/conf.py, without a build."""
    spec = importlib.util.spec_from_file_location("docs_conf", ROOT / "docs" / "conf.py")
    assert spec is not None and spec.loader is not None
    conf = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    spec.loader.exec_module(conf)
    sys.path[:] = path
    return conf


def test_signatures_and_docstrings_are_readable() -> None:
    conf = configuration()
    array = "~numpy.ndarray[tuple[~typing.Any, ...], ~numpy.dtype[~typing.Any]]"
    nothing = (None, "", "", None, None)
    assert conf.short_types(*nothing, f"(a: {array} | None = None)", array) == (
        "(a: ~numpy.ndarray | None = None)",
        "~numpy.ndarray",
    )
    assert conf.short_types(*nothing, None, None) == (None, None)
    lines = ["the largest |left - right|, a pattern with *: `a|b` and `*` and **name**"]
    conf.plain_marks(*nothing, lines)
    assert lines == [r"the largest \|left - right\|, a pattern with \*: `a|b` and `*` and **name**"]


def test_links_out_of_the_site_become_text() -> None:
    conf = configuration()
    page = ROOT / "docs" / "tutorial" / "page.md"
    assert conf.inside_only("[a](../../hwsim/api.py), [b](../cli.md#run), [c](https://x.org)", page) == (
        "a, [b](../cli.md#run), [c](https://x.org)"
    )
    assert conf.inside_only("[a](../../lab/docs/papers/ape.md), [b](../README.md)", page) == (
        "[a](../generated/laboratory/papers/ape.md), [b](../index.md)"
    )
    copy = ROOT / "docs" / "generated" / "laboratory" / "page.md"
    assert conf.inside_only("![a](../../docs/images/a.png) ![b](plots/b.png)", copy) == (
        "![a](../../images/a.png) ![b](plots/b.png)"
    )
