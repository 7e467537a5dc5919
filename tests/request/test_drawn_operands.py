"""Random operands of a call: one seed, shape and input format give the same ones for every scheme."""

from __future__ import annotations

import numpy as np
import pytest

import hwsim
from hwsim.analysis.inputs import DISTRIBUTIONS, drawn
from hwsim.cli.command import main
from hwsim.compute.call import sort_by_owner
from hwsim.errors import InputError
from hwsim.format_arrays import decode
from hwsim.formats import format_of
from hwsim.operands.code_draws import DISTRIBUTIONS as CODE_DRAWS
from hwsim.operands.code_draws import draw
from hwsim.operands.matrix_product import MatrixProduct
from hwsim.operands.operand import operand
from hwsim.request.operands import operands_of
from hwsim.schemes import scheme_of

SCHEMES = ("native", "ozaki-int8", "fixedpoint-fp64", "ape-int16")


def drawn_bits(scheme: str, input_format: str) -> tuple[bytes, bytes]:
    named = scheme_of(scheme)
    values = {"m": 8, "n": 8, "k": 16, "seed": 3, "input_format": input_format}
    pair = operands_of(None, None, sort_by_owner(values, named), named).pair
    assert pair is not None
    return pair[0].values().tobytes(), pair[1].values().tobytes()


@pytest.mark.parametrize("input_format", ["fp64", "fp32", "fp16"])
def test_every_scheme_draws_the_same_operands(input_format: str) -> None:
    assert len({drawn_bits(scheme, input_format) for scheme in SCHEMES}) == 1


def test_operands_have_the_distribution_that_was_asked_for() -> None:
    for distribution, least, most in (("uniform", -1.0, 1.0), ("positive", 0.0, 1.0)):
        for form in ("fp32", "fp64"):
            a, b = drawn(64, 64, 64, 5, form, distribution)
            values = np.concatenate([a, b]).astype(np.float64)
            assert least <= values.min() < least + 0.01 and most - 0.01 < values.max() <= most
            assert (values != values.astype(np.float32)).any() == (form == "fp64")  # with all its bits


def test_a_distribution_beside_arrays_is_refused() -> None:
    x = np.ones((4, 4), np.float32)
    with pytest.raises(InputError, match=r"operand_distribution = 'positive' is of random operands.*leave it out"):
        hwsim.run(x, x, device="h200", operand_distribution="positive")


def test_a_result_says_of_which_distribution_its_operands_were() -> None:
    sizes = {"device": "h200", "m": 8, "n": 8, "k": 8}
    assert hwsim.run(**sizes, operand_distribution="positive").options["operand_distribution"] == "positive"
    assert "operand_distribution" not in hwsim.run(**sizes).options


def test_int16_has_one_distribution_and_reports_say_it(capsys: pytest.CaptureFixture[str]) -> None:
    call = {"m": 8, "n": 8, "k": 16, "device": "ascend910a", "scheme": "ape-int16"}
    assert main(["run", *(f"--{name}={value}" for name, value in call.items())]) == 0
    assert "uniform over all values of int16" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(InputError, match="random operands of int16 are uniform over all values; leave it out"):
        hwsim.run(**call, operand_distribution="positive")


def test_log_uniform_magnitudes_fill_the_range_with_both_signs() -> None:
    for form, low, high in (("fp32", -40, 40), ("fp64", -900, 700)):
        a, b = (x.astype(np.float64) for x in drawn(64, 64, 64, 5, form, f"log-uniform:{low}:{high}"))
        exponents = np.log2(np.abs(np.concatenate([a, b])))
        assert low <= exponents.min() < low + 1 and high - 1 < exponents.max() <= high
        assert abs(exponents.mean() - (low + high) / 2) < (high - low) / 50
        assert 0.45 < (a > 0).mean() < 0.55


def test_rows_of_a_and_columns_of_b_are_scaled_each() -> None:
    for lead in ((), (2,)):
        a, b = drawn(200, 150, 300, 5, "fp32", "scaled-rows:30", lead)
        for side, axis in ((a, -1), (b, -2)):
            exponents = np.log2(np.sqrt(np.mean(np.square(side.astype(np.float64)), axis=axis)))
            assert -31 < exponents.min() < -27 and 27 < exponents.max() < 31
            assert np.abs(exponents - np.round(exponents)).max() < 0.3  # N(0, 1) times a power of two each


@pytest.mark.parametrize("form", ["bf16", "fp16", "e4m3", "e2m1", "tf32", "fp32", "fp64", "int8", "int16"])
@pytest.mark.parametrize("name", [name for name, each in DISTRIBUTIONS.items() if each.of_values is None])
def test_bit_fields_are_numbers_of_the_format_and_the_ones_that_golden_record_draws(name: str, form: str) -> None:
    a, b = drawn(7, 9, 67, 5, form, name)
    total = {"fp64": "fp64", "int8": "int32", "int16": "int32"}.get(form, "fp32")
    product = MatrixProduct("any", 7, 9, 67, form, form, total, total)
    codes = draw(name, np.random.default_rng(5), product, 1)
    for side, of_golden in ((a, codes[0][0]), (b, codes[1][0].T)):
        assert np.array_equal(side.astype(np.float64), decode(of_golden, form).astype(np.float64), equal_nan=True)
        kept = operand("A", side).converted(form).values().astype(np.float64)
        assert np.array_equal(kept, side.astype(np.float64), equal_nan=True)
    if form in ("bf16", "fp16", "fp32", "fp64"):
        assert np.isfinite(a).all() == (name != "anybits")


def test_every_distribution_of_golden_record_is_one_of_a_run() -> None:
    assert set(CODE_DRAWS) <= set(DISTRIBUTIONS)


@pytest.mark.parametrize("distribution", ["finite", "cancel", "anybits", "spread", "normal"])
def test_one_seed_gives_one_pair_of_matrices_for_all_formats_of_the_unit(distribution: str) -> None:
    sizes = {"device": "h100", "m": 8, "n": 8, "k": 67, "operand_distribution": distribution, "seed": 5}
    ways = [
        {"scheme": "bf16x9"},
        *({"format": form} | named for form in ("tf32", "bf16", "fp64") for named in ({}, {"input_format": "fp32"})),
    ]
    results = [hwsim.run(**sizes, **way, timing=False) for way in ways]
    assert {result.gemm.problem.input_format for result in results} == {"fp32"}
    assert len({str(result.operands_sha256) for result in results}) == 1
    for unnamed, named in zip(results[1::2], results[2::2], strict=True):
        assert unnamed.result_sha256 == named.result_sha256
    if distribution != "anybits":
        assert "input_rounding" in results[1].error  # the unit's format is narrower than the operands'


def test_bit_fields_are_of_the_format_of_each_operand() -> None:
    sizes = {"device": "h100", "m": 8, "n": 8, "k": 67, "operand_distribution": "finite", "seed": 5}
    for options, forms in (
        ({"input_format": "e5m2"}, ("e5m2", "e5m2")),
        ({"input_format": "e5m2,e4m3"}, ("e5m2", "e4m3")),
    ):
        named = scheme_of("native")
        values = {name: x for name, x in (sizes | options).items() if name != "device"}
        pair = operands_of(None, None, sort_by_owner(values, named), named).pair
        assert pair is not None
        for side, form in zip(pair, forms, strict=True):
            numbers = side.values().astype(np.float32)
            assert np.array_equal(numbers, operand("A", numbers).converted(form).values().astype(np.float32))
            assert np.abs(numbers).max() > 2.0 ** (format_of(form).max_exponent - 1)  # the whole range
        assert hwsim.run(**sizes, **options).options["operand_distribution"] == "finite"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("loguniform", r"operand_distribution = 'loguniform'; allowed: normal, .*did you mean 'log-uniform'\?"),
        ("badly-scaled-rows", r"did you mean 'scaled-rows'\?"),
        ("gaussian", r"did you mean 'normal'\?"),
        ("all-bits", r"did you mean 'anybits' or 'finite'\?"),
        ("log-uniform:5", "allowed: log-uniform:LOW:HIGH, integers from -1022 to 1022, LOW below HIGH"),
        ("log-uniform:5:5", "LOW below HIGH"),
        ("log-uniform:5:2000", "to 1022"),
        ("scaled-rows:0", "allowed: scaled-rows:E, from 1 to 1022"),
        ("scaled-rows:x", "allowed: scaled-rows:E, from 1 to 1022"),
        ("normal:3", "allowed: normal, without parameters"),
        ("log-uniform:-200:200", "operands are drawn in fp32; allowed: exponents of at most 126, or 1022 with"),
    ],
)
def test_a_wrong_distribution_is_refused_with_what_is_meant(given: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        hwsim.run(m=8, n=8, k=8, device="h200", operand_distribution=given)
