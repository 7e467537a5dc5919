"""What the command line says to a name that is nearly right, and lists that begin with a negative number."""

from __future__ import annotations

import sys

import pytest

from hwsim.cli.command import main
from hwsim.errors import nearest
from hwsim.formats import FORMATS


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("float16", "'fp16'"),
        ("half", "'fp16'"),
        ("bfloat16", "'bf16'"),
        ("double", "'fp64'"),
        ("fp8", "'e4m3' or 'e5m2'"),
        ("fp61", "'fp16'"),
    ],
)
def test_common_names_of_formats_are_suggested(name: str, meant: str) -> None:
    assert nearest(name, list(FORMATS)) == f"; did you mean {meant}?"


def test_a_common_name_suggests_only_what_is_allowed() -> None:
    assert nearest("fp8", ["e5m2", "fp16"]) == "; did you mean 'e5m2'?"
    assert nearest("double", ["int8"]) == ""


def test_an_unknown_option_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--sceme", "native"]) == 2
    assert "unrecognized arguments: --sceme native; did you mean '--scheme'?" in capsys.readouterr().err


def test_dashes_make_no_option_near(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--kernels", "1"]) == 2
    assert "did you mean" not in capsys.readouterr().err


def test_the_first_part_of_several_names_suggests_all_of_them() -> None:
    schemes = ["ootomo-fp16", "ootomo-tf32", "tf32x1", "ozaki-int8"]
    assert nearest("ootomo", schemes) == "; did you mean 'ootomo-fp16' or 'ootomo-tf32'?"
    assert nearest("ozaki", schemes) == "; did you mean 'ozaki-int8'?"


def test_words_without_an_option_are_answered_with_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "a100", "h100"]) == 2
    assert "unrecognized arguments: a100 h100; say --device a100" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["run", "tune", "sweep", "devices"])
def test_an_unknown_option_is_refused_by_the_verb(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    assert main([verb, "--nothing-like-it"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"usage: hwsim {verb} ")
    assert lines[-1].startswith(f"hwsim {verb}: error: ")


def test_tune_says_where_a_tile_is_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--device", "h100", "--tile", "m=128,n=128"]) == 2
    said = "unrecognized arguments: --tile m=128,n=128; tune searches tiles; hwsim run --tile times a single one"
    assert said in capsys.readouterr().err


def test_a_list_may_begin_with_a_negative_number(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["mma", "v100", "mma.m8n8k4.f32.f16.f16.f32", "--b", "1,1", "--json"]
    joined = main([*words, "--a=-1,2"]), capsys.readouterr()
    apart = main([*words, "--a", "-1,2"]), capsys.readouterr()
    assert joined == apart and joined[0] == 0
    assert "expected one argument" not in apart[1].err


@pytest.mark.parametrize("value", ["-1e-3", "-2E+1", "-inf"])
def test_a_number_with_an_exponent_may_be_negative(capsys: pytest.CaptureFixture[str], value: str) -> None:
    """argparse alone takes -1e-3 and -inf for options."""
    words = ["run", "--device", "h200", "--m", "2", "--n", "2", "--k", "2", "--no-timing", "--json"]
    joined = main([*words, f"--alpha={value}"]), capsys.readouterr().err
    apart = main([*words, "--alpha", value]), capsys.readouterr().err
    assert joined == apart
    assert "expected one argument" not in apart[1]


def test_a_range_may_begin_at_a_negative_index(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--device", "h200", "--m", "4", "--n", "2", "--k", "2", "--no-timing", "--json"]
    code, counted_from_the_end = main([*words, "--rows", "-3:-1"]), capsys.readouterr().out
    assert code == 0
    assert main([*words, "--rows=-3:-1"]) == 0
    assert counted_from_the_end == capsys.readouterr().out


@pytest.mark.parametrize("before", [["--"], []])
def test_words_of_another_program_stay_as_they_are(capfd: pytest.CaptureFixture[str], before: list[str]) -> None:
    given = ["--a", "-1,2", "--b", "-3e-1", "--device", "-1,2"]
    said = [sys.executable, "-c", "import sys; print(sys.argv[1:])", *given]
    assert main(["blas", "--quiet", *before, *said]) == 0
    assert capfd.readouterr().out == f"{given}\n"


def test_an_option_that_a_verb_has_elsewhere_is_not_a_spelling_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--device", "h100", "--moduli", "14"]) == 2
    said = capsys.readouterr().err
    assert "did you mean" not in said and "In the study stand exact: true" in said
    assert main(["devices", "check", "h200", "--paths"]) == 2
    assert "did you mean" not in capsys.readouterr().err


def test_lists_and_paths_are_actions_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "show", "h200", "--paths"]) == 0
    assert capsys.readouterr().out.strip().endswith("h200.yaml")
    assert main(["schemes", "list"]) == 0
    assert capsys.readouterr().out.startswith("native ")
