"""Verbs of installed packages: listed, run, suggested, completed, or left out where broken; and the laboratory's."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from hwsim.cli import verbs
from hwsim.cli.verbs import LAB, Verb

GREET = Verb("greet a device", "greet h200", "greeting", "politeness")


@pytest.fixture
def installed(monkeypatch):
    """Let these entry points be the installed ones: name -> what the entry point gives, or an error."""

    def install(**found):
        module = ModuleType("greeting_points")
        points = []
        for number, (name, value) in enumerate(found.items()):
            if value is not None:
                setattr(module, f"point{number}", value)
            points.append(EntryPoint(name.replace("_", "."), f"greeting_points:point{number}", verbs.GROUP))
        monkeypatch.setitem(sys.modules, "greeting_points", module)
        monkeypatch.setattr(verbs, "entry_points", lambda group: tuple(points))
        verbs._loaded.cache_clear()

    yield install
    verbs._loaded.cache_clear()


@pytest.fixture
def greeting(monkeypatch):
    """A verb's module."""
    module = ModuleType("greeting")
    module.configure = lambda parser: parser.add_argument("device", help="whom to greet")
    module.execute = lambda arguments: print(f"good morning, {arguments.device}") or 1
    monkeypatch.setitem(sys.modules, "greeting", module)


def test_a_verb_runs_with_its_exit_code(cli, installed, greeting):
    installed(greet=GREET)
    done = cli("greet", "h200")
    assert (done.code, done.out, done.err) == (1, "good morning, h200\n", "")


def test_a_verb_is_listed_suggested_and_completed(cli, refused, installed, greeting):
    installed(greet=GREET)
    said = cli("--help").out
    assert "politeness:\n  greet        greet a device" in said
    assert "example: hwsim greet h200" in cli("greet", "--help").out
    assert "did you mean 'greet'?" in refused("gret")
    assert "-a greet -d 'greet a device'" in cli("completion", "fish").out


def test_an_action_is_one_of_its_verb(cli, refused, installed, greeting):
    installed(golden_greet=GREET)
    assert "greet a device" in cli("golden", "--help").out
    assert "greet a device" not in cli("--help").out
    assert cli("golden", "greet", "h200").out == "good morning, h200\n"
    refused("greet", "h200")


def test_no_module_of_a_verb_is_imported_for_the_help(cli, installed):
    installed(greet=GREET)  # there is no module `greeting`
    assert "greet a device" in cli("--help").out


def test_an_own_verb_is_not_replaced(cli, installed, greeting):
    installed(info=GREET)
    assert "good morning" not in cli("info").out


@pytest.mark.parametrize("value", [None, "not a verb"])
def test_a_broken_one_is_left_out_with_a_warning(cli, installed, value):
    installed(greet=value)
    done = cli("--help")
    assert done.code == 0 and "greet" not in done.out
    assert done.err.startswith("hwsim: warning: verb greet (greeting_points:point0) is left out: ")


@pytest.mark.parametrize("name", LAB)
def test_without_the_laboratory_its_verbs_say_how_to_install_it(refused, installed, name):
    installed()
    said = refused(*name.split("."))
    assert said == (
        f"hwsim: error: hwsim {name.replace('.', ' ')} comes with the laboratory; "
        "install it from a checkout: pip install ./lab\n"
    )


def test_without_the_laboratory_a_misspelt_verb_of_it_is_suggested(refused, installed):
    installed()
    assert "did you mean 'reproduce'?" in refused("reprduce")
