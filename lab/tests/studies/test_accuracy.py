"""The errors that the table shows: the reference, the inputs, and what the papers claim, on a small version."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import hwsim
from hwsim.analysis import exact_product, inputs, metrics
from hwsim.api import fma_chain, matmul
from hwsim.cli import main
from hwsim_lab.papers import accuracy

DOCS = Path(__file__).parents[2] / "docs" / "accuracy.md"  # of the laboratory
DEVICES = ("ascend910a", "a100", "b200", "mi300x", "tf64")
NAMES = (
    "native fp32",
    "native fp16",
    "native fp64",
    "sgemm-cube",
    "ape-fp32-f",
    "ape-fp32-b",
    "bf16x9",
    "markidis",
    "tf64x1",
    "tf64x3",
    "ozaki-fp16",
)


@pytest.fixture(scope="module")
def errors():
    """{(device, scheme, inputs): error in the table}, k = 192."""
    given = accuracy.all_inputs(16, 192, (1e1, 1e4))
    points = accuracy.table(matmul, fma_chain, DEVICES, given, NAMES)
    return {(p.device, p.scheme, p.inputs): p.errors[p.metric] for p in points}


def bits(error: float) -> float:
    return -math.log2(error)


ORDINARY = ("N(0, 1)", "[-1, 1]")
BADLY = ("cond 1e1", "cond 1e4")


def test_reference_is_exact_to_104_bits():
    rng = np.random.default_rng(0)
    a, b = np.ldexp(rng.standard_normal((3, 67)), rng.integers(-60, 60, (3, 67))), rng.standard_normal((67, 2))
    a[0, :2], b[0], b[1] = (2.0**80, -(2.0**80)), 1.0, 1.0  # cancels
    high, low = exact_product.product(a, b)
    for i in range(3):
        for j in range(2):
            terms = [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[i], b[:, j], strict=True)]
            error = Fraction(float(high[i, j])) + Fraction(float(low[i, j])) - sum(terms)
            assert abs(error) <= sum(map(abs, terms)) * Fraction(1, 2**98)
    one, two = exact_product.product(np.full((1, 1), 1 + 2.0**-52), np.full((1, 1), 1 + 2.0**-52))
    assert Fraction(float(one[0, 0])) + Fraction(float(two[0, 0])) == Fraction(1 + 2.0**-52) ** 2


def exactly(a, b):
    """Products as fractions."""
    sums = [[sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(r, c, strict=True)) for c in b.T] for r in a]
    return np.array(sums, object)


def relative(found, a, b):
    """The largest error of a pair of doubles, over the products of magnitudes."""
    exact, whole = exactly(a, b), exactly(np.abs(a), np.abs(b))
    pairs = zip(*(x.ravel() for x in (*found, exact, whole)), strict=True)
    return max(float(abs(Fraction(float(h)) + Fraction(float(w)) - e) / s) for h, w, e, s in pairs)


@pytest.mark.parametrize("span", [0, 30, 45, 300])
def test_the_reference_of_large_products_is_as_exact(span):
    """Slices up to 2^±45; what is wider goes another way."""
    rng = np.random.default_rng(span)
    shapes = (7, 40), (40, 5)
    a, b = (rng.standard_normal(s) * 2.0 ** rng.integers(-span, span + 1, s) for s in shapes)
    a[0, :2], b[0], b[1] = (3.0, -3.0), b[0], b[0]  # cancels
    high, low, rows = exact_product.reference(a, b)
    assert rows == slice(None, None, 1) and relative((high, low), a, b) < 2.0**-98
    sliced = exact_product._slices(a, 23) is not None
    assert sliced == (span < 300)


def test_the_reference_does_not_ask_in_which_order_a_library_adds():
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((6, 500)), rng.standard_normal((500, 4))
    order = rng.permutation(500)
    one, two = exact_product.reference(a, b), exact_product.reference(a[:, order], b[order])
    assert (one[0] == two[0]).all() and (one[1] == two[1]).all() and one[1].any()


def test_large_products_are_compared_in_some_rows(monkeypatch):
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((3, 40, 64)), rng.standard_normal((64, 8))
    arguments = {"device": "a100", "format": "fp64", "timing": False}
    whole = hwsim.run(a, b, **arguments).error
    monkeypatch.setattr(exact_product, "SLICED_PRODUCTS", 3 * 10 * 64 * 8 * 16)
    some = hwsim.run(a, b, **arguments).error
    assert "rows" not in whole and 4 <= some["rows"] < 40
    assert 0.5 < some["relative_frobenius"] / whole["relative_frobenius"] < 2


@pytest.mark.parametrize(
    ("device", "arguments"),
    [("a100", {"format": "fp64"}), ("a100", {"scheme": "ozaki-int8"}), ("tf64", {"scheme": "tf64x4"})],
)
def test_results_in_fp64_have_an_error_beside_the_exact_product(device, arguments):
    """Half a unit in the last place at least, on average; with every part of the epilogue."""
    rng = np.random.default_rng(3)
    a, b, c = rng.standard_normal((9, 70)), rng.standard_normal((70, 6)), rng.standard_normal((9, 6))
    bias = rng.standard_normal(6)
    for epilogue in ({}, {"alpha": 0.3, "beta": -0.7, "c": c, "bias": bias}):
        result = hwsim.run(a, b, device=device, timing=False, **arguments, **epilogue)
        exact = exactly(a, b)
        if epilogue:
            alpha, beta = Fraction(0.3), Fraction(-0.7)
            exact = alpha * exact + beta * exactly(c, np.eye(6)) + exactly(np.ones((9, 1)), bias[None])
        distance = (exactly(result.c, np.eye(6)) - exact).astype(np.float64)
        wanted = np.linalg.norm(distance) / np.linalg.norm(exact.astype(np.float64))
        assert result.error["relative_frobenius"] == pytest.approx(wanted, rel=1e-6, abs=0)
        assert 2.0**-56 < wanted < 2.0**-48
        largest = np.abs(distance / exact.astype(np.float64)).max()
        assert result.error["max_relative"] == pytest.approx(largest, rel=1e-6, abs=0)


def test_specials_have_no_error_in_fp64():
    a, b = np.ones((4, 8)), np.ones((8, 4))
    a[0, 0], a[1, 1] = np.nan, np.inf
    error = hwsim.run(a, b, device="a100", format="fp64", timing=False).error
    assert math.isnan(error["relative_frobenius"])
    assert hwsim.run(a, b, device="a100", format="fp64", timing=False, rows=[]).error is not None


def test_generator_gives_the_condition_numbers_that_it_is_asked_for():
    for wanted in (10.0, 1e4, 1e6):
        a, b = inputs.conditioned(64, 0, wanted)
        lengths = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=0)
        assert np.median(lengths / np.abs(a @ b)) == pytest.approx(wanted, rel=0.35)


def test_22_bits(errors):
    """SGEMM-cube and Ape's FP32-F, where the unit rounds to nearest; where it truncates, its sums cost more."""
    for scheme in ("sgemm-cube", "ape-fp32-f"):
        for name in ORDINARY:
            assert bits(errors["ascend910a", scheme, name]) > 22
            assert bits(errors["mi300x", scheme, name]) > 21.5
            assert 19 < bits(errors["a100", scheme, name]) < 22
    one = accuracy.all_inputs(16, 1, ())[:2]  # a product alone: nothing is summed
    for point in accuracy.table(matmul, fma_chain, ("a100",), one, ("sgemm-cube", "ape-fp32-f")):
        assert bits(point.errors["relative_frobenius"]) > 22


def test_bf16x9_is_no_worse_than_fp32(errors):
    for name in (*ORDINARY, *BADLY, "2^±10", "2^±40"):
        assert errors["b200", "bf16x9", name] <= errors["any", accuracy.CHAIN, name]


def test_fp32_b_is_no_worse_than_fp32_where_the_unit_does_not_truncate(errors):
    for name in (*ORDINARY, *BADLY):
        assert errors["mi300x", "ape-fp32-b", name] <= 1.3 * errors["any", accuracy.CHAIN, name]
        assert errors["a100", "ape-fp32-b", name] > 3 * errors["any", accuracy.CHAIN, name]  # six products truncated


def test_markidis_is_two_bits_worse(errors):
    """Than a scheme with two scaled, rounded pieces; seen where the representation decides, not the summation."""
    for name in BADLY:
        assert 1.5 < bits(errors["ascend910a", "ape-fp32-f", name]) - bits(errors["ascend910a", "markidis", name]) < 3


def test_tf64(errors):
    for name in ORDINARY:
        double = errors["tf64", "native fp64", name]
        assert errors["tf64", "tf64x3", name] < 4 * double
        assert errors["tf64", "tf64x1", name] > 1e6 * double
        assert errors["tf64", "ozaki-fp16", name] < double


def test_native_formats_and_overflow(errors):
    for name in ORDINARY:
        assert 1e-4 < errors["a100", "native fp16", name] < 1e-3
    assert not math.isfinite(errors["a100", "sgemm-cube", "2^±40"])  # beyond 65504
    assert errors["ascend910a", "sgemm-cube", "2^±40"] > 0.5  # saturates
    assert ("a100", "tf64x3", "N(0, 1)") not in errors and ("ascend910a", "bf16x9", "N(0, 1)") not in errors


def test_devices_of_the_same_arithmetic_stand_in_one_row():
    assert accuracy.arithmetic("h100") == accuracy.arithmetic("h200") != accuracy.arithmetic("b200")
    given = accuracy.all_inputs(4, 8, ())[:1]
    points = list(accuracy.table(matmul, fma_chain, ("h100", "h200"), given, ("sgemm-cube",)))
    assert "| sgemm-cube | h100, h200 |" in accuracy.markdown(points)


def test_command(capsys):
    command = ["reproduce", "accuracy", "--device", "tf64", "--scheme", "tf64x3", "--size", "32"]
    assert main(command) == 0
    assert "| tf64x3 | tf64 |" in capsys.readouterr().out
    assert main([*command[:3], "h200", "--scheme", "le-gemm", "--size", "16", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["schema"] == "hwsim.reproduce/1" and record["figure"] == "table"
    wide = [p for p in record["points"] if p["inputs"] == "2^±10" and p["scheme"] == "le-gemm"]
    assert [sorted(p["errors"]) for p in wide] == [
        ["l1", "l2", "linf", "max_relative", "mean_relative", "relative_frobenius"]
    ]


ROWS = [("ascend910a", "sgemm-cube"), ("h200", "tf32x3"), ("b200", "native fp16")]


@pytest.mark.parametrize(("device", "scheme"), ROWS)
def test_the_page_shows_what_is_computed(device, scheme):
    """Some rows of the table of docs/accuracy.md, computed again."""
    page = DOCS.read_text(encoding="utf-8")
    table = accuracy.markdown(accuracy.table(matmul, fma_chain, (device,), accuracy.all_inputs(), (scheme,)))
    cells = table.splitlines()[-1].split(" | ")[2:]
    rows = [row for row in page.splitlines() if row.startswith(f"| {scheme} | ") and re.search(rf"\b{device}\b", row)]
    assert [row.split(" | ")[2:] for row in rows] == [cells]


def test_papers_metrics():
    exact, got = np.array([[1.0, -2.0], [0.0, 4.0]]), np.array([[1.5, -2.0], [0.0, 2.0]])
    assert metrics.mean_relative(exact, got) == pytest.approx((0.5 + 0 + 0.5) / 3)  # of the elements that are not 0
    assert metrics.max_error(exact, got) == pytest.approx(2 / 6)
    assert metrics.snr_db(exact, exact + 0.01 * np.linalg.norm(exact) / 2) == pytest.approx(40)
