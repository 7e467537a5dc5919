"""The layer norm of PyTorch's CUDA kernel: an H200's bits, and a straight reading in plain loops."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.arithmetic import layer_norm as module
from hwsim.arithmetic.cuda_math import CudaMath
from hwsim.arithmetic.layer_norm import NormKernel, layer_norm
from hwsim.devices.special_functions import nvidia_tables

CAPTURE = Path(__file__).parents[1] / "golden" / "h200_library" / "layer_norms.npz"
KERNEL, MATH = NormKernel(128, 32, 4), CudaMath(nvidia_tables())
Single = np.float32


def test_an_h200_s_bits():
    """Nine rows of a GPT-2's layer norms in bf16, in which PyTorch on a CPU, fp64 or a rounding more differ (seen)."""
    with np.load(CAPTURE) as capture:
        x, out, weight, bias = (
            capture[name].view(ml_dtypes.bfloat16).astype(Single) for name in ("x", "out", "weight", "bias")
        )
        for row, norm in enumerate(capture["norm"]):
            got = layer_norm(x[row : row + 1], weight[norm], bias[norm], 1e-5, KERNEL, MATH)
            assert np.array_equal(got[0].astype(ml_dtypes.bfloat16).astype(Single), out[row])
    assert len(x) == 9


def fma(x, y, z):
    """x y + z, rounded once: the nearest of three neighbours by exact fractions."""
    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
    near = Single(float(exact))
    options = (near, np.nextafter(near, Single(-np.inf)), np.nextafter(near, Single(np.inf)))
    return min(options, key=lambda o: (abs(Fraction(float(o)) - exact), int(o.view(np.uint32)) & 1))


def by_threads(row):
    """Mean and variance of a row by 128 threads with vectors of 4."""

    def join(a, b):
        (mean_a, squares_a, count_a), (mean_b, squares_b, count_b) = a, b
        count = count_b + count_a
        if not count:
            return a
        part = Single(1) / count
        mean = fma(count_b * part, mean_b, count_a * part * mean_a)
        apart = mean_a - mean_b
        return mean, fma(apart * apart * count_b, count_a * part, squares_b + squares_a), count

    threads = []
    for thread in range(128):
        mean = squares = count = Single(0)
        for first in range(4 * thread, len(row), 512):
            for x in row[first : first + 4]:
                count += Single(1)
                apart = x - mean
                mean = fma(apart, Single(1) / count, mean)
                squares = fma(apart, x - mean, squares)
        threads.append((mean, squares, count))
    warps = [threads[first : first + 32] for first in range(0, 128, 32)]
    for many in (*warps, heads := [None] * 4):
        if many is heads:
            many[:] = [warp[0] for warp in warps]
        distance = len(many) // 2
        while distance:
            for lane in range(distance):
                many[lane] = join(many[lane], many[lane + distance])
            distance //= 2
    return heads[0][0], heads[0][1] / Single(len(row))


@pytest.mark.parametrize("width", [4, 132, 516])
def test_a_straight_reading(width, monkeypatch):
    draw = np.random.default_rng(width)
    x, (weight, bias) = draw.standard_normal((3, width), Single), draw.standard_normal((2, width), Single)
    x[1] += 100
    monkeypatch.setattr(module, "AT_ONCE", 2 * width)  # two rows at a time
    got = layer_norm(x, weight, bias, 1e-5, KERNEL, MATH)
    for row in range(3):
        mean, variance = by_threads(x[row])
        inverse = hwsim.mufu("rsqrtf", np.array([variance + Single(1e-5)]))[0]
        centred = [inverse * (y - mean) for y in x[row]]
        assert got[row].tolist() == [fma(*of) for of in zip(weight, centred, bias, strict=True)]
        plain = layer_norm(x[row : row + 1], None, None, 1e-5, KERNEL, MATH)[0]
        assert plain.tolist() == centred
    exact = (x - x.mean(1, keepdims=True, dtype=float)) / np.sqrt(x.var(1, keepdims=True, dtype=float) + 1e-5)
    assert np.abs(got - (exact * weight + bias)).max() < 2e-5


def test_without_a_weight_or_a_bias_and_without_numbers():
    x = np.arange(8, dtype=Single).reshape(1, 8)
    plain = layer_norm(x, None, None, 1e-5, KERNEL, MATH)
    two = np.full(8, 2, Single)
    assert np.array_equal(layer_norm(x, two, None, 1e-5, KERNEL, MATH), 2 * plain)
    assert np.array_equal(layer_norm(x, None, two, 1e-5, KERNEL, MATH), plain + 2)
    x[0, 3] = np.inf
    assert np.isnan(layer_norm(x, None, None, 1e-5, KERNEL, MATH)).all()
