"""A power of two per operand, for schemes of FP16 pieces: `scale="power-of-two"`."""

from __future__ import annotations

import numpy as np
import pytest

import hwsim
from hwsim.operands.operand import operand
from hwsim.resolve.choice.predicted_error import predicted_error, sample_of

SCHEMES = {
    "sgemm-cube": {},
    "ape-fp32-f": {"accumulation": "termwise"},
    "le-gemm": {},
    "ootomo-fp16": {},
    "markidis": {},
    "egemm-tc": {"k_group": 32},
}


def _operands(size, k=70):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((24, k), np.float32), rng.standard_normal((k, 20), np.float32)
    return (a * np.float32(size)).astype(np.float32), (b / np.float32(size) ** np.float32(0.5)).astype(np.float32)


def _error(a, b, c):
    exact = a.astype(np.float64) @ b.astype(np.float64)
    return float(np.linalg.norm(c - exact) / np.linalg.norm(exact))


@pytest.mark.covering("device", "name", "size")
@pytest.mark.parametrize("device", ["h200", "ascend910b3", "ascend910a"])
@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("size", [1e-3, 1e20])
def test_operands_of_any_size_are_as_accurate_as_those_near_one(name, device, size):
    options = SCHEMES[name]
    a, b = _operands(size)
    scaled = hwsim.run(a, b, device=device, scheme=name, scale="power-of-two", **options)
    near_one = hwsim.run(*_operands(1.0), device=device, scheme=name, scale="power-of-two", **options)
    assert _error(a, b, scaled.c) < 2 * _error(*_operands(1.0), near_one.c) < 4e-6
    assert not [w for w in scaled.warnings if "piece" in w["code"]]
    program = hwsim.run(a, b, device=device, scheme=name, scale="power-of-two", functional=True, **options)
    again = hwsim.run(a, b, gemm=scaled.gemm)
    assert scaled.result_sha256 == program.result_sha256 == again.result_sha256


def test_the_scale_is_that_of_operands_multiplied_by_hand():
    a, b = _operands(1e-3)
    by_hand = [np.ldexp(x, 15 - np.frexp(np.abs(x).max())[1]) for x in (a, b)]
    back = [int(15 - np.frexp(np.abs(x).max())[1]) for x in (a, b)]
    plain = hwsim.matmul(*by_hand, device="h200", scheme="markidis")
    scaled = hwsim.matmul(a, b, device="h200", scheme="markidis", scale="power-of-two")
    assert scaled.tobytes() == np.ldexp(plain, -sum(back)).tobytes()


def test_an_error_is_predicted_for_the_scaled_pieces():
    a, b = _operands(1e-3, 256)
    for scale in (None, "power-of-two"):
        result = hwsim.run(a, b, device="h200", scheme="markidis", scale=scale)
        sample = sample_of(operand("A", a), operand("B", b))
        predicted = predicted_error(result.gemm.plan, hwsim.device("h200"), sample)
        assert _error(a, b, result.c) / 4 < predicted < 4 * _error(a, b, result.c)


def test_zeros_infinities_and_no_operands():
    a, b = _operands(1.0)
    zeros = hwsim.matmul(np.zeros_like(a), b, device="h200", scheme="markidis", scale="power-of-two")
    a[0, 0] = np.inf
    special = hwsim.matmul(a, b, device="h200", scheme="markidis", scale="power-of-two")
    assert not zeros.any() and not np.isfinite(special[0]).any() and np.isfinite(special[1:]).all()
    assert hwsim.run(m=64, n=64, k=64, device="h200", scheme="markidis", scale="power-of-two").cycles
