"""Results in int8 and uint8 of integer products: alpha, C and the bias in fp32, nearest even, saturating."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import hwsim

DEVICES = ("h100", "a100", "b200", "mi300x", "t4", "ascend910a", "ascend910b3")
RNG = np.random.default_rng(43)
A = RNG.integers(-128, 128, (19, 64)).astype(np.int8)
B = RNG.integers(-128, 128, (64, 13)).astype(np.int8)
WHOLE = A.astype(np.int64) @ B.astype(np.int64)


def nearest(x: Fraction, low: int, high: int) -> int:
    """The whole number nearest to x, of two the even one, within the ends of a format."""
    return min(max(round(x), low), high)


def fp32(x: float) -> Fraction:
    return Fraction(float(np.float32(x)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("functional", [False, True])
def test_sums_saturate(device: str, functional: bool) -> None:
    asked = {"device": device, "functional": functional}
    plain = hwsim.matmul(A, B, output="int8", **asked)
    assert plain.dtype == np.int8 and np.array_equal(plain, np.clip(WHOLE, -128, 127))
    assert (plain == 127).any() and (plain == -128).any() and (np.abs(WHOLE) < 2**24).all()


@pytest.mark.parametrize("device", DEVICES)
def test_alpha_c_and_bias_are_fp32(device: str) -> None:
    """alpha * sum rounded, + bias rounded; with C one fused multiply-add, as of other products."""
    alpha, bias = 0.00123, RNG.standard_normal(13).astype(np.float32)
    c = RNG.integers(-128, 128, WHOLE.shape).astype(np.int8)
    asked = {"device": device, "output": "int8", "alpha": alpha}
    with_bias = hwsim.run(A, B, bias=bias, **asked)
    with_c = hwsim.run(A, B, c, beta=0.5, **asked)
    factor = fp32(alpha)
    for i, j in np.ndindex(*WHOLE.shape):
        scaled = fp32(float(factor * int(WHOLE[i, j])))  # a product of 24 and 21 digits: fp64 holds it
        assert with_bias.c[i, j] == nearest(fp32(float(scaled + fp32(bias[j]))), -128, 127)
        total = factor * int(WHOLE[i, j]) + Fraction(1, 2) * int(c[i, j])
        assert with_c.c[i, j] == nearest(fp32(float(total)), -128, 127)
    for given, result in (({"bias": bias}, with_bias), ({"c": c, "beta": 0.5}, with_c)):
        program = hwsim.run(A, B, functional=True, **asked, **given)
        assert program.result_sha256 == result.result_sha256


def test_wider_integers_wrap_and_unsigned_ones_have_no_sign() -> None:
    assert np.array_equal(hwsim.matmul(A, B, device="a100", output="uint8"), np.clip(WHOLE, 0, 255))
    wrapped = hwsim.matmul(A, B, device="a100", output="int32", alpha=2.0**20)
    assert np.array_equal(wrapped, (WHOLE << 20).astype(np.int32))
