"""Against what the error of a product is that quantises its operands, and the same product by hand."""

import re

import numpy as np
import pytest
from command_line import cli  # noqa: F401

import hwsim
from hwsim.analysis.metrics import errors
from hwsim.errors import InputError
from hwsim.report.text.run_text import formats_text, run_text


@pytest.mark.parametrize("scheme", ["mxfp8", "nvfp4"])
@pytest.mark.parametrize("part", [{}, {"rows": [3, 60], "cols": [0, 1, 63]}, {"functional": True}])
def test_the_error_is_against_the_operands_as_given(scheme, part):
    a, b = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float32)
    quantises = hwsim.run(a, b, device="b200", scheme=scheme, **part)
    rows, cols = (part.get(name, slice(None)) for name in ("rows", "cols"))
    taken = hwsim.dequantize(hwsim.quantize(a, scheme)), hwsim.dequantize(hwsim.quantize(b, scheme, axis=-2))
    exact, of_taken = (x.astype(np.float64)[rows] @ y.astype(np.float64)[:, cols] for x, y in ((a, b), taken))
    error = quantises.error
    assert error.relative_frobenius == pytest.approx(errors(exact, quantises.c).relative_frobenius)
    assert error.input_rounding.relative_frobenius == pytest.approx(
        errors(exact, of_taken).relative_frobenius, rel=1e-5
    )
    assert error.input_rounding.relative_frobenius > 1e-3
    assert error.arithmetic.relative_frobenius < 1e-5 < error.baseline.relative_frobenius * 1e3
    text = run_text(quantises)
    assert "error against fp64\n" in text and "  quantisation to" in text
    assert "quantisation" not in run_text(hwsim.run(a, b, device="b200", format="bf16"))


def test_without_operands_they_are_in_the_elements_format_and_no_other_one_is_allowed():
    sizes = {"m": 64, "n": 64, "k": 128, "device": "b200", "scheme": "mxfp8", "exact": False}
    for options, wanted in (
        ({}, "e4m3"),
        ({"element_format": "e5m2"}, "e5m2"),
        ({"input_format": "e5m2"}, "e5m2"),
    ):
        result = hwsim.run(**sizes, **options)
        assert result.gemm.problem.a.format == result.gemm.single.input_format == wanted
        words = f"A and B in {wanted}, A's scales 1 x 32 of ue8m0, B's scales 1 x 32 of ue8m0, C in fp32"
        assert words in formats_text(result.gemm)
        assert "without launches, host and quantisation of A and B" in run_text(result)
    with pytest.raises(InputError, match=r"no kernel that quantises.*allowed: e4m3, e5m2; leave it out"):
        hwsim.run(**sizes, input_format="fp32")


@pytest.mark.parametrize(("device", "scheme"), [("b200", "nvfp4"), ("h200", "fp8-row"), ("ascend910a", "ape-int16")])
def test_both_lines_on_formats_agree(cli, device, scheme):  # noqa: F811
    done = cli("run", "--device", device, "--scheme", scheme, "--m", "64", "--n", "64", "--k", "64", "--no-exact")
    assumed = re.search(r"no operands,\s+(\S+)\s+in memory assumed", done.out).group(1)
    assert f"A and B in {assumed}, {'C' if scheme == 'ape-int16' else 'A'}" in done.out


def test_elements_and_factors_by_hand_are_the_scheme_s_product():
    a, b = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float32)
    left, right = hwsim.quantize(a, "nvfp4"), hwsim.quantize(b, "nvfp4", axis=-2)
    scales = {"scale_a": left.scales, "scale_b": right.scales, "tensor_scales": (left.factor, right.factor)}
    product = hwsim.matmul(left.elements, right.elements, device="b200", **scales)
    assert np.array_equal(product, hwsim.matmul(a, b, device="b200", scheme="nvfp4"))
