"""A scheme in a user's file, FILE.py:NAME, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hwsim
from hwsim.errors import InputError
from hwsim.schemes import scheme_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_scheme.py"
SIZES = {"m": 16, "n": 16, "k": 32, "device": "a100"}


def test_a_scheme_of_a_file_is_the_same_scheme_for_every_use() -> None:
    name = f"{EXAMPLE}:SCHEME"
    assert scheme_of(name) is scheme_of(name) and scheme_of(name).name == "bf16-pair"
    by_name, by_object = (hwsim.run(scheme=scheme, products=4, **SIZES) for scheme in (name, scheme_of(name)))
    assert by_name.gemm == by_object.gemm and by_name.result_sha256 == by_object.result_sha256
    again = hwsim.run(gemm=by_name.gemm, scheme=name)
    assert again.result_sha256 == by_name.result_sha256


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path, text = tmp_path / "mine.py", EXAMPLE.read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    before = scheme_of(f"{path}:SCHEME")
    path.write_text(text.replace('"bf16-pair",\n    "FP32', '"other-pair",\n    "FP32'), encoding="utf-8")
    assert (before.name, scheme_of(f"{path}:SCHEME").name) == ("bf16-pair", "other-pair")


def test_a_plan_that_names_a_piece_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    path, text = tmp_path / "mine.py", EXAMPLE.read_text(encoding="utf-8")
    wrong = text.replace("chain((0, 0)", "chain((7, 0)")
    assert wrong != text
    path.write_text(wrong, encoding="utf-8")
    with pytest.raises(InputError, match=r"term 0 of its plan multiplies piece 7 of A; allowed: 0 to"):
        hwsim.run(scheme=f"{path}:SCHEME", **SIZES)


def test_a_file_imports_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "pair_beside.py").write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "front.py").write_text("from pair_beside import SCHEME\n", encoding="utf-8")
    assert scheme_of(f"{tmp_path / 'front.py'}:SCHEME").name == "bf16-pair"


@pytest.mark.parametrize(
    ("text", "asked", "said"),
    [
        ("", "SCHEME", "it has none; a scheme is a hwsim.schemes.Scheme"),
        ("import os\nraise ValueError('no')", "SCHEME", r"mine.py: ValueError: no, line 2"),
        ("import sys\nsys.exit(1)", "SCHEME", "SystemExit"),
        ("x = (", "SCHEME", "SyntaxError: .*, line 1"),
        (EXAMPLE.read_text(encoding="utf-8"), "SCHEMA", "it has SCHEME; did you mean 'SCHEME'"),
    ],
)
def test_a_file_without_the_scheme_is_refused(tmp_path: Path, text: str, asked: str, said: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        scheme_of(f"{path}:{asked}")


@pytest.mark.parametrize("name", ["mine.py", "mine.py:", "absent.py:SCHEME"])
def test_a_name_without_a_file_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"allowed: FILE\.py:NAME"):
        scheme_of(name)


def test_a_scheme_needs_no_inspection() -> None:
    given = scheme_of(f"{EXAMPLE}:SCHEME")
    bare = hwsim.schemes.Scheme(given.name, given.title, given.source, given.options, given.plan)
    a, b = np.full((16, 32), np.inf, np.float32), np.ones((32, 16), np.float32)
    result = hwsim.run(a, b, scheme=bare, device="a100")
    assert [warning["code"] for warning in result.warnings] == ["infinite_input", "nothing_finite"]
