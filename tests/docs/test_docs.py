"""The documentation does what it says: blocks run, links resolve, examples run, generated parts are current."""

from __future__ import annotations

import importlib
import json
import re
import runpy
from pathlib import Path

import pytest
from pages import FENCE, blocks, broken_links, commands, generator, missing_paths, run_blocks

import hwsim
import hwsim.schemes
from hwsim.cli import main
from hwsim.cli.command import parser_for
from hwsim.cli.verbs import OWN
from hwsim.request.declarations import declared

ROOT = Path(__file__).parents[2]
#: Pages for users, without what a build of the site has left.
DOCS = sorted(page for page in (ROOT / "docs").rglob("*.md") if "generated" not in page.relative_to(ROOT).parts)
PAGES = [*DOCS, *(page for page in [ROOT / "README.md"] if page.exists())]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
#: What the pages must not lack; a folder that is empty must not pass.
EXPECTED = {
    "README.md",
    "accuracy.md",
    "adding.md",
    "architecture.md",
    "ascend910a.md",
    "blas.md",
    "choosing.md",
    "cli.md",
    "devices.md",
    "emulation.md",
    "energy.md",
    "glossary.md",
    "golden.md",
    "howto/compare.md",
    "howto/index.md",
    "howto/scales.md",
    "howto/verify.md",
    "index.md",
    "jax.md",
    "library.md",
    "packaging.md",
    "peers.md",
    "numerics.md",
    "report.md",
    "plots.md",
    "reference/api.md",
    "reference/index.md",
    "schemes.md",
    "stability.md",
    "sweeps.md",
    "timing.md",
    "torch.md",
    "triton.md",
    "tutorial/bf16x9_step_by_step.md",
    "tutorial/first_run.md",
    "tutorial/index.md",
    "tutorial/is_my_gemm_batch_invariant.md",
    "tutorial/reading_a_report.md",
    "tutorial/why_this_bit.md",
    "tutorial/why_two_gpus_differ.md",
    "tutorial/your_accelerator.md",
    "tutorial/your_pytorch_model.md",
    "tutorial/your_scheme.md",
    "walk.md",
}
#: Pages whose blocks need an extra, and a package of each extra.
NEEDS = {
    "torch.md": "torch",
    "your_pytorch_model.md": "models",
    "is_my_gemm_batch_invariant.md": "torch",
    "your_scheme.md": "plot",
    "your_accelerator.md": "report",
    "jax.md": "jax",
    "triton.md": "triton",
    "plots.md": "plot",
    "report.md": "report",
    "reading_a_report.md": "report",
    "sweeps.md": "report",
}
PACKAGES = {
    "torch": "torch",
    "models": "transformers",
    "jax": "jax",
    "triton": "triton",
    "plot": "matplotlib",
    "report": "plotly",
}
#: Entry point groups, which are named like modules.
PLUGIN_GROUPS = {"hwsim.schemes", "hwsim.devices", "hwsim.dataflows", "hwsim.libraries", "hwsim.verbs"}
SOURCES = {".py", ".pyx", ".pxi", ".c", ".h", ".json"}
SECTIONS = 10  # of the numerics page: docstrings and device files cite them by number
CITATION = re.compile(r"numerics reference, sections? ([0-9. ,and]+)")


def test_all_pages_are_there() -> None:
    assert {page.relative_to(ROOT / "docs").as_posix() for page in DOCS} == EXPECTED
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {name for name in EXPECTED - {"README.md"} if not name.endswith("index.md")}
    assert [name for name in sorted(pages) if f"]({name})" not in index] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_blocks_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In order, in one folder and one namespace: python is executed, titled files are written, hwsim is run."""
    if page.name in NEEDS:
        pytest.importorskip(PACKAGES[NEEDS[page.name]], reason=f"needs hwsim[{NEEDS[page.name]}]")
    monkeypatch.chdir(tmp_path)
    run_blocks(page, tmp_path, capsys, same_output=True)


def test_there_is_something_to_run() -> None:
    languages = [block.language for page in DOCS for block in blocks(page)]
    assert languages.count("python") >= 5 and languages.count("console") >= 5
    assert sum(len(list(commands(block))) for page in DOCS for block in blocks(page)) >= 8
    assert set(languages) <= {"python", "console", "text", "yaml", "toml"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_resolve(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_paths_of_the_repository_are_there(page: Path) -> None:
    assert missing_paths(page, ROOT) == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(example), run_name="__main__")
    assert re.search(r"[0-9]", capsys.readouterr().out)


def test_examples_are_there() -> None:
    assert {"own_scheme.py", "pipeline_program.py", "sgemm_cube.py"} <= {path.name for path in EXAMPLES}


def test_generated_parts_are_current() -> None:
    """Every table that docs/generate.py writes is made again, some of them by runs, and compared with its page."""
    generate, found = generator(ROOT / "docs" / "generate.py"), set()
    for page in DOCS:
        text = page.read_text(encoding="utf-8")
        found |= {name for _, name, _ in generate.BLOCK.findall(text)}
        assert generate.current(text) == text, f"{page.name} is behind: run python docs/generate.py"
    assert found == set(generate.BLOCKS)


@pytest.mark.parametrize("verb", OWN)
def test_cli_page_names_every_option(verb: str) -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert f"`hwsim {verb}" in page
    subparsers = next(action for action in parser_for(verb)._actions if action.dest == "verb")
    assert subparsers.choices is not None
    parser = subparsers.choices[verb]  # type: ignore[call-overload]
    options = {option for action in parser._actions for option in action.option_strings if option.startswith("--")}
    of_a_gemm = {
        word for entry in declared() for word in (entry.option.flag, entry.option.flag.replace("--", "--no-", 1))
    }
    assert [option for option in sorted(options - of_a_gemm - {"--help"}) if option not in page] == []


def test_cli_page_names_every_key_of_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    keys = page[page.index("## JSON of hwsim run") : page.index("## Exit codes")]
    assert main(["run", "--m", "32", "--n", "32", "--k", "32", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [key for key in printed if f"`{key}`" not in keys] == []
    assert [key for key in printed["error"] if f"`{key}`" not in keys] == []
    rows = [row.split("|")[1] for row in keys.splitlines() if row.startswith("| `")]
    assert [key for row in rows for key in re.findall(r"`(\w+)`", row) if key not in printed] == []


def test_schemes_page_names_every_scheme_and_warning() -> None:
    page = (ROOT / "docs" / "schemes.md").read_text(encoding="utf-8")
    for scheme in hwsim.schemes.OWN:
        assert re.search(rf"^## (.*, )?{scheme.name}(,|$)", page, re.MULTILINE), scheme.name
    folder = ROOT / "hwsim" / "schemes"
    source = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    options = {option.name for scheme in hwsim.schemes.OWN for option in scheme.options}
    codes = set(re.findall(r'\(\s*"([a-z0-9]+_[a-z_]+)",\s', source)) - options
    assert len(codes) >= 9
    assert [code for code in sorted(codes) if not re.search(rf"^\| .*`{code}`.* \|", page, re.MULTILINE)] == []


def resolves(name: str) -> bool:
    """Whether a dotted name is a module of hwsim, or something in one."""
    parts = name.split(".")
    found: object = importlib.import_module(parts[0])
    for end in range(2, len(parts) + 1):
        if not hasattr(found, parts[end - 1]):
            try:
                importlib.import_module(".".join(parts[:end]))
            except ImportError:
                return False
        found = getattr(found, parts[end - 1])
    return True


def test_names_that_are_not_there_are_found() -> None:
    assert resolves("hwsim.api.run") and resolves("hwsim.dataflows.tiled.dataflow.TiledDataflow.map")
    assert not any(map(resolves, ("hwsim.api.walk", "hwsim.no_room", "hwsim.gemm.plan.Plan.none")))


@pytest.mark.parametrize("page", ["walk.md", "adding.md", "architecture.md"])
def test_names_of_the_code_are_there(page: str) -> None:
    text = FENCE.sub("", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    names = set(re.findall(r"`(hwsim(?:\.\w+)+)[`(]", text)) - {*PLUGIN_GROUPS}
    assert names and [name for name in sorted(names) if not resolves(name)] == []


def test_maintainers_page_names_every_file_of_a_dot_unit() -> None:
    """The files that name the last unit that was added are those that the page lists, no more and no fewer."""
    text = (ROOT / "lab" / "docs" / "extending.md").read_text(encoding="utf-8")
    section = text[text.index("## A dot unit") :].partition("\n## ")[0]
    listed = {path.replace("MODEL", "block_scaled") for path in re.findall(r"^\| (`.*?`.*?) \|", section, re.MULTILINE)}
    named = {path for cell in listed for path in re.findall(r"`([\w./]+)`", cell)}
    folders = ("hwsim", "kernels_ext", "configs/schema", "lab/tools/fuzz")
    files = [path for name in folders for path in (ROOT / name).rglob("*") if path.suffix in SOURCES]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}
    touched = {name for name, source in texts.items() if re.search(r"BlockScaledUnit|block_scaled", source)}
    assert named == touched
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    new = sum("block_scaled" in name for name in touched)
    assert f"| a dot unit | {new} files | {len(touched) - new} files, which" in page


def test_glossary_names_what_a_file_defines() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    named = re.findall(r"`(?:\w+\.)?(\w+)` in `(hwsim/[\w/]+\.py)`", page)
    assert len(named) > 5
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for _, path in named}
    defined = r"(?:class |def |^    ){name}\b"
    missing = [x for x in named if not re.search(defined.format(name=x[0]), texts[x[1]], re.MULTILINE)]
    assert missing == []


def test_numerics_page_keeps_the_numbers_that_are_cited() -> None:
    page = (ROOT / "docs" / "numerics.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\d+)\. ", page, re.MULTILINE) == [str(i + 1) for i in range(SECTIONS)]
    sources = [*(ROOT / "hwsim").rglob("*.py"), *(ROOT / "configs" / "devices").glob("*.yaml")]
    cited = [part for path in sources for part in CITATION.findall(path.read_text(encoding="utf-8"))]
    assert cited
    numbers = {int(number) for part in cited for number in re.findall(r"(?<![.\d])\d+", part)}
    assert numbers <= set(range(1, SECTIONS + 1))


def test_pages_name_every_environment_variable() -> None:
    """What hwsim reads stands on the page of the command line; what builds and tests read, on the lab's page."""
    pages = [ROOT / "docs" / "cli.md", ROOT / "lab" / "docs" / "building.md"]
    page = "".join(path.read_text(encoding="utf-8") for path in pages)
    sources = [ROOT / "setup.py", *(ROOT / "hwsim").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    read = {name for path in sources for name in re.findall(r'environ[.\w]*[\[(]"(HWSIM_\w+)"', path.read_text())}
    listed = set(re.findall(r"^\| `(HWSIM_\w+)` \|", page, re.MULTILINE))
    assert len(read) >= 5 and read == listed
