"""The worst element of a result, and errors where some elements are not finite, against exact fractions."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

import hwsim
from hwsim.cli.command import main
from hwsim.report.text.run_text import error_notes


def exact_dots(a: np.ndarray, b: np.ndarray) -> dict[tuple[int, int], tuple[Fraction, Fraction]]:
    """The exact sum and the sum of magnitudes of every element."""
    dots = {}
    for row in range(a.shape[0]):
        for column in range(b.shape[1]):
            products = [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[row], b[:, column], strict=True)]
            dots[row, column] = sum(products, Fraction(0)), sum(map(abs, products), Fraction(0))
    return dots


@pytest.mark.parametrize(("form", "dtype"), [("fp32", np.float32), ("fp64", np.float64)])
def test_the_worst_element_is_the_one_that_fractions_say(form: str, dtype: type) -> None:
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((9, 67)).astype(dtype), rng.standard_normal((67, 11)).astype(dtype)
    a[4, 1::2], b[1::2, 6] = -a[4, :-1:2], b[:-1:2, 6]  # cancels but for the last product
    result = hwsim.run(a, b, device="h100", scheme="bf16x9" if form == "fp32" else "native", timing=False)
    dots = exact_dots(a, b)
    off = {place: abs(Fraction(float(result.c[place])) - dot[0]) / abs(dot[0]) for place, dot in dots.items()}
    place = max(off, key=lambda place: off[place])
    worst = result.error.worst
    assert worst.element == list(place)
    total, magnitudes = dots[place]
    assert worst.relative == pytest.approx(float(off[place]), rel=1e-6)
    assert worst.condition == pytest.approx(float(magnitudes / abs(total)), rel=1e-6)
    assert worst.exact == pytest.approx(float(total), rel=1e-12) and worst.computed == float(result.c[place])
    last = Fraction(2) ** (int(np.floor(np.log2(float(abs(total))))) - {"fp32": 23, "fp64": 52}[form])
    assert worst.ulps == pytest.approx(float(off[place] * abs(total) / last), rel=1e-6)


def test_the_report_names_the_worst_element_and_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    call = ["run", "--device=h100", "--format=bf16", "--m=16", "--n=24", "--k=67", "--no-timing"]
    assert main(call) == 0
    text = capsys.readouterr().out
    assert main([*call, "--json"]) == 0
    row, column = json.loads(capsys.readouterr().out)["error"]["worst"]["element"]
    assert f"largest error: C[{row},{column}] = " in text and f"--values {row},{column}" in text
    assert main([*call, "--values", f"{row},{column}"]) == 0
    assert "the same command with --values" not in capsys.readouterr().out


def test_a_stack_and_an_exact_product() -> None:
    ones = np.ones((2, 3, 5), np.float32)
    assert hwsim.run(ones, ones.swapaxes(1, 2), device="h100", format="fp16", timing=False).error.worst is None
    stack = hwsim.run(device="h100", format="fp16", m=8, n=8, k=67, batch=3, timing=False)
    assert len(stack.error.worst.element) == 3


def test_overflowed_elements_are_counted_and_the_others_have_an_error() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((8, 67)).astype(np.float32), rng.standard_normal((67, 8)).astype(np.float32)
    whole = hwsim.run(a, b, device="h100", format="fp16", timing=False)
    assert whole.error.finite is None and "finite" not in whole.error
    large = a.copy()
    large[3] *= np.float32(2.0**20)  # beyond fp16
    result = hwsim.run(large, b, device="h100", format="fp16", timing=False)
    finite = result.error.finite
    assert (finite.undefined, finite.overflowed, finite.elements) == (8, 8, 56)
    others = [row for row in range(8) if row != 3]
    kept = a[others].astype(np.float64) @ b
    expected = np.linalg.norm(result.c[others] - kept) / np.linalg.norm(kept)
    assert finite.relative_frobenius == pytest.approx(expected) and not np.isfinite(result.error.relative_frobenius)
    assert result.error.worst.element[0] != 3
    assert not [x for x in result.warnings if x["code"] == "nothing_finite"]
    nothing = hwsim.run(np.ldexp(a, 20), b, device="h100", format="fp16", timing=False)
    assert [x["count"] for x in nothing.warnings if x["code"] == "nothing_finite"] == [64]


def test_a_baseline_without_a_number_has_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    wide = np.full((4, 4), 2.0**200)
    cases = {
        "A or B has values beyond fp32": (wide, np.eye(4)),
        "A or B is not finite": (np.full((4, 4), np.inf), np.ones((4, 4))),
        "its sums leave fp32": (np.full((4, 4), 2.0**100), np.full((4, 4), 2.0**100)),
    }
    for reason, (a, b) in cases.items():
        assert hwsim.run(a, b, device="h100", format="fp64", timing=False).error.baseline_note == reason
    assert "baseline_note" not in hwsim.run(np.eye(4), np.eye(4), device="h100", format="fp64", timing=False).error


def test_an_element_that_is_exactly_zero_and_not_in_c_has_no_error() -> None:
    a = np.array([[2.0**60, 1.0, -(2.0**60), -1.0], [1.0, 2.0, 3.0, 4.0], [1.0, -1.0, 0.0, 0.0]], np.float32)
    b = np.ones((4, 2), np.float32)  # the first row's ones are lost, the second -1 is not
    dots = exact_dots(a, b)
    result = hwsim.run(a, b, device="h100", format="fp64", timing=False)
    zeros = [place for place, dot in dots.items() if dot[0] == 0 and result.c[place] != 0]
    assert zeros == [(0, 0), (0, 1)]
    finite = result.error.finite
    assert (finite.undefined, finite.overflowed, finite.zero, finite.elements) == (2, 0, 2, 4)
    assert finite.max_relative == 0.0 and result.error.max_relative == np.inf
    assert "norm_note" not in result.error and "2 elements without a relative error: exactly 0" in " ".join(
        error_notes(result)
    )
    nothing = hwsim.run(a[:1], b, device="h100", format="fp64", timing=False)
    assert nothing.error.norm_note == "the exact product is 0" and nothing.error.finite.elements == 0
    assert "relative errors in the norm undefined: the exact product is 0" in error_notes(nothing)
    whole = hwsim.run(a[1:], b, device="h100", format="fp64", timing=False).error
    assert whole.finite is None and whole.max_relative == 0.0  # 0 that is 0 in C counts


def test_the_condition_is_of_exact_sums() -> None:
    a, b = np.array([[2.0**60, 1.0, -(2.0**60)], [2.0**52, 0.3, -(2.0**52)]]), np.ones((3, 1))
    worst = [hwsim.run(row[None], b, device="h100", format="fp64", timing=False).error.worst for row in a]
    ratios = [(2.0**61 + 1, 1.0), (2.0**53 + 0.3, 0.3)]
    for element, (most, total) in zip(worst, ratios, strict=True):
        assert element is None or element.condition == pytest.approx(most / total)
    assert any(element is not None for element in worst)
