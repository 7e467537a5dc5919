"""Against what the error of a product is that quantises its operands, and the same product by hand."""

import numpy as np
import pytest

import hwsim
from hwsim.report.text.run_text import run_text


@pytest.mark.parametrize("scheme", ["mxfp8", "nvfp4"])
def test_the_error_names_the_quantised_operands(scheme):
    a, b = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float32)
    quantises = hwsim.run(a, b, device="b200", scheme=scheme)
    assert "error against fp64 of the quantised operands" in run_text(quantises)
    assert "of the quantised operands" not in run_text(hwsim.run(a, b, device="b200", format="bf16"))


def test_elements_and_factors_by_hand_are_the_scheme_s_product():
    a, b = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float32)
    left, right = hwsim.quantize(a, "nvfp4"), hwsim.quantize(b, "nvfp4", axis=-2)
    scales = {"scale_a": left.scales, "scale_b": right.scales, "tensor_scales": (left.factor, right.factor)}
    product = hwsim.matmul(left.elements, right.elements, device="b200", **scales)
    assert np.array_equal(product, hwsim.matmul(a, b, device="b200", scheme="nvfp4"))
