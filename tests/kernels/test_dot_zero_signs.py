"""IEEE zeros of the exact unit where operands span too far for one binary64 sum: -0 stays -0 if every term is."""

from __future__ import annotations

import numpy as np
import pytest

from hwsim._kernels import gemm, variants
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import DotSpec, ExactUnit, Specials

SPEC = DotSpec(ExactUnit(16, specials=Specials(zero="ieee")), "fp16", "fp16", "fp32", "fp32")
MINUS_ZERO = 0x80000000


@pytest.mark.parametrize("variant", [*variants, "scalar"])
@pytest.mark.parametrize("start", [0, MINUS_ZERO, 0x80000001, 0x3F800000])
def test_minus_zero_terms_beside_wide_ones(variant, start):
    rng = np.random.default_rng(5)
    m, n, k = 13, 19, 48
    # Exponents over the whole of fp16 in every line; every fourth row of A is +0, so its products with negative
    # columns of B are -0 and with positive ones +0.
    a = (rng.integers(0, 31, (m, k)) << 10 | rng.integers(0, 1024, (m, k))).astype(np.uint16)
    a[::4] = 0
    b = (rng.integers(0, 31, (k, n)) << 10 | rng.integers(0, 1024, (k, n))).astype(np.uint16)
    b[:, ::2] |= 0x8000
    c = np.full((m, n), start, np.uint32)
    got = gemm(SPEC, a, b, c, _variant=variant)
    assert np.array_equal(got, reference.gemm(SPEC, DotOperands(a, b, c)))
    if start == MINUS_ZERO:
        assert (got[::4, ::2] == MINUS_ZERO).all()
        assert (got[::4, 1::2] == 0).all()
