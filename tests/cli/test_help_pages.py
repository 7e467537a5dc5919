"""The pages of help: a short one, one of a scheme, one of the mapping, and one of all options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hwsim
from hwsim.cli import main
from hwsim.cli.command import parser_for
from hwsim.cli.verb_parser import VerbParser
from hwsim.dataflows.registry import dataflows
from hwsim.request.declarations import OWN
from hwsim.schemes import schemes

VERBS = ("run", "tune", "program", "diff", "sensitivity")
MOST_LINES, MOST_COLUMNS = 40, 110
SCHEME_FILE = Path(__file__).parents[2] / "examples" / "own_scheme.py"


def page(capsys: Any, *words: str) -> str:
    assert main([*words]) == 0
    return str(capsys.readouterr().out)


def flags(text: str) -> set[str]:
    return {word.rstrip(",") for line in text.splitlines() for word in line.split() if word.startswith("-")}


@pytest.mark.parametrize("verb", VERBS)
def test_the_short_page_is_short_and_names_the_others(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = page(capsys, verb, "--help").splitlines()
    assert len(lines) <= MOST_LINES and max(map(len, lines)) <= MOST_COLUMNS
    assert "--help-scheme" in lines[-2] and "--help-all" in lines[-2]
    assert ("--help-mapping" in lines[-2]) == (verb in ("run", "program", "sensitivity", "tune"))


def test_the_short_page_of_run_has_problem_machine_and_output(capsys: pytest.CaptureFixture[str]) -> None:
    shown = flags(page(capsys, "run", "--help"))
    apart = {"exact": "--no-exact", "timing": "--no-timing"}
    for kind in ("problem", "machine"):
        assert {apart.get(option.name, option.flag) for option in OWN[kind]} <= shown
    assert {"--device", "--scheme", "--format", "--out", "--trace", "--report", "--json", "--what-if"} <= shown
    assert not {"--accumulation", "--tile", "--schedule", "--bias"} & shown


@pytest.mark.parametrize("verb", VERBS)
def test_the_page_of_all_has_every_flag(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = flags(page(capsys, verb, "--help-all"))
    verbs = next(action for action in parser_for(verb)._actions if action.dest == "verb")
    of_verb = verbs.choices[verb]  # type: ignore[index, call-overload]
    assert isinstance(of_verb, VerbParser) and of_verb.long_groups
    assert {action.option_strings[-1] for action in of_verb._actions if action.option_strings} <= shown


@pytest.mark.parametrize("name", schemes())
def test_the_page_of_a_scheme_has_its_options_alone(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    scheme = schemes()[name]
    text = page(capsys, "tune", "--help-scheme", name)
    parts = {lines.split()[0]: " ".join(lines.split()) for lines in text.split("\n  --")[1:]}
    assert ["--" + flag for flag in parts] == [option.flag for option in scheme.options]
    for option in scheme.options:
        words = parts[option.flag[2:]]
        default = option.default_text or ("" if option.default in (None, False) else str(option.default))
        assert option.metavar in words and ", ".join(option.choices) in words
        assert (f"default: {default})" in words) == bool(default)


def test_the_page_of_the_mapping_has_the_options_of_a_devices_family(capsys: pytest.CaptureFixture[str]) -> None:
    families = dataflows().options()
    every = flags(page(capsys, "run", "--help-mapping"))
    assert {option.flag for options in families.values() for option in options} <= every
    for device in ("h200", "ascend910a"):
        shown = {flag for flag in flags(page(capsys, "run", "--help-mapping", device)) if flag.startswith("--")}
        assert shown == {option.flag for option in families[hwsim.device(device).family]}
        assert shown - {"--tile"} == flags(page(capsys, "tune", "--help-mapping", device)) & shown


def test_wrong_names_of_pages_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help-scheme", "sgemm"]) == 2
    assert "no scheme 'sgemm'" in capsys.readouterr().err
    assert main(["run", "--help-mapping", "h201"]) == 2
    assert "h200" in capsys.readouterr().err


def test_an_error_of_usage_is_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--clock-mhz", "0"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "usage: hwsim run [OPTIONS]; hwsim run --help lists them" and len(lines) == 2


def test_options_of_a_schemes_file_are_flags(capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{SCHEME_FILE}:SCHEME"
    assert "--products N" in page(capsys, "run", "--help-scheme", name)
    assert "--products N" in page(capsys, "run", "--scheme", name, "--help-all")
    assert "--products" not in page(capsys, "run", "--help-all")
