"""Accumulators divided by a power of two before a product: the compiled way against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from hwsim.arithmetic.scaled import scaled_gemm, scaled_reference
from hwsim.backend.cpu import CPU
from hwsim.devices import dot_spec, load
from hwsim.numerics.dot_operands import DotOperands

SPEC = dot_spec(load("b200"), "tcgen05.mma.m128n256k16.f16.f32.bf16.bf16")


@pytest.mark.parametrize("exponent", [1, 2, 6, 7, 8, 15])
@pytest.mark.parametrize("kind", ["subnormal", "low", "any"])
def test_scaled_below_the_normal_range(exponent, kind):
    """Products around the accumulators' size and far below, so that the cut of either is seen."""
    rng = np.random.default_rng([exponent, len(kind)])
    shape = (6, 7)
    fraction = rng.integers(0, 1 << 23, shape)
    biased = {
        "subnormal": np.zeros(shape, int),
        "low": rng.integers(0, 18, shape),
        "any": rng.integers(0, 256, shape),
    }[kind]
    c = (rng.integers(0, 2, shape) << 31 | biased << 23 | fraction).astype(np.uint32)
    c[0, :3] = 0, 0x80000000, 1
    for low, high in ((40, 70), (60, 68), (0, 255)):
        a, b = (
            (rng.integers(0, 2, s) << 15 | rng.integers(low, high, s) << 7 | rng.integers(0, 128, s)).astype(np.uint16)
            for s in ((6, 16), (16, 7))
        )
        a[1], b[:, 1] = 0, 0
        expected = scaled_reference(SPEC, DotOperands(a, b, c, scale_d=exponent), "exact")
        assert np.array_equal(
            scaled_gemm(SPEC, DotOperands(a, b, c, scale_d=exponent), "exact", backend=CPU), expected
        ), (low, high)
