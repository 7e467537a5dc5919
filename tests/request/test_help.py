"""Every declaration of an option is shown with its owners: in the command line's help, in Python and in the table."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import hwsim
from hwsim.cli import main
from hwsim.cli.option_flags import APART
from hwsim.dataflows.registry import dataflows
from hwsim.gemm.option_types import Option
from hwsim.request.declarations import declared, declared_by_name
from hwsim.schemes import schemes

ROOT = Path(__file__).parents[2]
DIFFERENT = ("accumulation", "accumulate", "rounding", "format", "k_group")  # some that schemes declare differently


def shown_facts(option: Option) -> str:
    """How help shows allowed texts and a default, written down here anew."""
    default = option.default_text or ("" if option.default in (None, False) else f"{option.default}")
    bounds = [f"{word} {x:.0f}" for word, x in (("at least", option.least), ("at most", option.most)) if x is not None]
    facts = [", ".join(option.choices) or " and ".join(bounds), f"default: {default}" if default else ""]
    return f" ({'; '.join(filter(None, facts))})" if any(facts) else ""


def line_of(owner: str, option: Option) -> re.Pattern[str]:
    """What help must hold: this owner's words, choices and default, and the owner among those in the brackets after."""
    words = re.escape(f"{option.help}{shown_facts(option)}")
    return re.compile(rf"{words} \[(?:[^\]]*, )?{re.escape(owner)}(?:, [^\]]*)?\]")


def owners() -> list[tuple[str, Option]]:
    """Every scheme and dataflow with each of its options."""
    of_schemes = [(scheme.name, option) for scheme in schemes().values() for option in scheme.options]
    return of_schemes + [(name, option) for name, options in dataflows().options().items() for option in options]


@pytest.fixture
def help_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "100000")  # a line an option
    assert main(["run", "--help-all"]) == 0
    return capsys.readouterr().out


def test_the_command_lines_help_has_every_owners_words(help_text: str) -> None:
    parts = re.split(r"\n  (?=--)", help_text)[1:]
    of_flags = {part.split()[0]: " ".join(part.split()) for part in parts}
    for owner, option in owners():
        text = of_flags[option.flag]
        assert line_of(owner, option).search(text), (owner, option.name, text)


def test_a_line_has_the_choices_of_its_own_schemes_alone(help_text: str) -> None:
    accumulation = next(part for part in re.split(r"\n  (?=--)", help_text) if part.startswith("--accumulation "))
    lines = {line.rpartition("[")[2].rstrip("]"): line for line in accumulation.splitlines()}
    assert "(termwise, elementwise; default: termwise)" in lines["sgemm-cube"]
    assert "elementwise" not in lines["bf16x9, bf16x6, bf16x3"] and "elementwise" not in accumulation.split()[1]
    assert "default: chained" in lines["ape-fp32-f, ape-fp32-b, markidis, egemm-tc"]


def test_the_docstring_has_every_owners_words() -> None:
    assert hwsim.run.__doc__ is not None
    lines = hwsim.run.__doc__.splitlines()
    for owner, option in owners():
        own = [line for line in lines if line.startswith(f"    {option.name}: ")]
        assert any(line_of(owner, option).search(line) for line in own), (owner, option.name, own)


def test_the_site_s_table_has_every_owners_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    rows = [row for row in importlib.import_module("site_options").option_page().splitlines() if row.startswith("| `")]
    for owner, option in owners():
        words = option.help.replace("|", "\\|")
        own = [row for row in rows if row.startswith(f"| `{option.name}` ") and words in row]
        assert any(owner in re.split(r"[ ,:|]+", row) for row in own), (owner, option.name, own)


@pytest.mark.parametrize("name", DIFFERENT)
def test_options_that_owners_declare_differently_have_a_line_each(name: str) -> None:
    entries = declared_by_name()[name]
    assert len(entries) == len({entry.option for entry in entries}) > 1
    of_owners: dict[str, Any] = {owner: entry.option for entry in entries for owner in entry.owners}
    for scheme in schemes().values():
        for option in scheme.options:
            if option.name == name:
                assert of_owners[scheme.name] == option


def test_entries_of_one_name_stand_together() -> None:
    names = [entry.option.name for entry in declared()]
    assert sum(len(entries) for entries in declared_by_name().values()) == len(names)
    assert len(set(APART) & set(names)) == len(APART)


def test_values_of_an_option_of_several_schemes_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--m", "16", "--n", "16", "--k", "16", "--device", "h200", "-q"]
    for words in (
        ["--scheme", "sgemm-cube", "--accumulation", "elementwise"],
        ["--scheme", "markidis", "--rounding", "RNE"],
    ):
        assert main(["run", *sizes, *words]) == 0
        assert f"{words[2][2:]} {words[3]}" in " ".join(capsys.readouterr().out.split())
