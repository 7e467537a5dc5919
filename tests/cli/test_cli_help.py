"""Help that teaches: verbs by task, an example of each that parses, what-if with a number."""

import json
import shlex

import pytest

from hwsim.cli.command import main, parser_for
from hwsim.cli.verbs import OWN, TASKS


def test_every_verb_is_of_one_task_and_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert {verb.task for verb in OWN.values()} == set(TASKS)
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"{task}:" in said for task in TASKS)
    assert all(verb.help[:40] in said for verb in OWN.values())


@pytest.mark.parametrize("verb", OWN)
def test_the_example_parses_and_stands_in_the_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(OWN[verb].example)
    assert words[0] == verb
    _, unknown = parser_for(verb).parse_known_args(words)
    assert unknown == []
    assert main([verb, "--help"]) == 0
    assert f"example: hwsim {OWN[verb].example}" in capsys.readouterr().out


RUN = ["run", "--device", "h200", "--format", "bf16", "--m", "4096", "--n", "64", "--k", "4096", "--no-exact", "-q"]


def test_what_if_with_a_factor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--what-if", "hbm.bytes_per_second=0.5x", "--what-if", "clock_mhz=1500"]) == 0
    said = capsys.readouterr().out
    assert "with other numbers of the device" in said and "1,500" in said and "what to speed up" not in said
    order = ("with other numbers of the device", "below: the device without this change", "verdict ")
    assert said.startswith(order[0]) and [said.index(part) for part in order] == sorted(map(said.index, order))
    assert main([*RUN, "--what-if", "clock_mhz=1500", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["changed"]["cycles"][0] == found["cycles"] and found["changed"]["numbers"]["clock_mhz"][1] == 1500
    assert "what_if" not in found


def test_bare_what_if_is_as_before_and_goes_with_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--what-if"]) == 0
    assert "what to speed up" in capsys.readouterr().out
    assert main([*RUN, "--what-if", "--what-if", "clock_mhz=0.5x", "--json"]) == 0
    assert {"changed", "what_if", "roofline"} <= set(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(("text", "said"), [("hbm", "PATH=2x"), ("=2x", "PATH=2x"), ("hbm.rate=2x", "has no number")])
def test_bad_what_ifs(text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--what-if", text]) == 2
    assert said in capsys.readouterr().err


def test_changes_after_a_comma_are_changes_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--what-if", "clock_mhz=1500,hbm.bytes_per_second=2x", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["changed"]["numbers"]) == {"clock_mhz", "hbm.bytes_per_second"}


def test_a_what_if_beside_a_librarys_time_says_that_it_is_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    run = ["run", "--device", "h200", "--m", "256", "--n", "256", "--k", "256", "--format", "bf16", "--no-exact", "-q"]
    wanted = ["--what-if", "--what-if", "hbm.bytes_per_second=2x"]
    assert main([*run, *wanted, "--library", "cublas"]) == 0
    text = capsys.readouterr().out
    assert "\n  time of the program " in text and "cycles of the program if" in text
    assert main([*run, *wanted]) == 0
    assert "of the program " not in capsys.readouterr().out
