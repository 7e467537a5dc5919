"""Stacks of products: the bits of each matrix alone, whatever is done for all of them in one call."""

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.evaluate import product

CASES = {
    "bf16 in and out": ("h200", "native", {"format": "bf16", "output": "bf16"}, ml_dtypes.bfloat16),
    "promotion": ("h200", "native", {"format": "e4m3", "accumulate": "promoted"}, ml_dtypes.float8_e4m3fn),
    "two-level unit": ("mi300x", "native", {"format": "fp16"}, np.float16),
    "fp64": ("h200", "native", {"format": "fp64"}, np.float64),
    "patched specials": ("h200", "tf32x3", {}, np.float32),
    "stages, scale-input-d": ("b200", "bf16x9", {}, np.float32),
    "saturating lanes": ("ascend910a", "sgemm-cube", {}, np.float32),
    "slices with exponents": ("h200", "ozaki-int8", {}, np.float64),
    "split-K": ("h200", "native", {"format": "bf16", "split_k": 2}, ml_dtypes.bfloat16),
}
SHAPES = ((7, 5, 67, 9), (3, 16, 192, 32), (5, 33, 260, 8))


def drawn(rng, shape, dtype, is_special):
    """Every bit of a code drawn; NaNs and infinities kept in some of the matrices, or replaced by 1."""
    width = np.dtype(dtype).itemsize
    x = rng.integers(0, 256, (*shape, width), np.uint8).view(f"u{width}")[..., 0].view(dtype)
    with np.errstate(all="ignore"):
        is_bad = ~np.isfinite(x.astype(np.float64))
    if is_special:
        is_bad[1::2] = False
    return np.where(is_bad, np.ones((), dtype), x)


@pytest.mark.parametrize("case", CASES)
def test_a_stack_has_the_bits_of_its_matrices(case, monkeypatch):
    device, scheme, options, dtype = CASES[case]
    rng = np.random.default_rng(len(case))
    calls = []
    plain = product.Evaluator.stack
    monkeypatch.setattr(product.Evaluator, "stack", lambda *x, **y: calls.append(1) or plain(*x, **y))
    for count, m, k, n in SHAPES:
        for is_special in (False, True):
            a, b = drawn(rng, (count, m, k), dtype, is_special), drawn(rng, (count, k, n), dtype, False)
            bias = rng.standard_normal(n).astype(np.float32)
            arguments = {"device": device, "scheme": scheme, "bias": bias, **options}
            if case == "split-K" and k < 128:
                continue
            got = hwsim.matmul(a, b, **arguments)
            alone = np.stack([hwsim.matmul(x, y, **arguments) for x, y in zip(a, b, strict=True)])
            codes = f"u{got.dtype.itemsize}"
            assert np.array_equal(got.view(codes), alone.view(codes)), (count, m, k, n, is_special)
    assert calls


def test_leading_dimensions_broadcast_and_stacks_are_cut_to_calls(monkeypatch):
    monkeypatch.setattr(product, "ELEMENTS_AT_ONCE", 1)  # two matrices a call
    rng = np.random.default_rng(3)
    a, b = drawn(rng, (2, 1, 5, 40), np.float16, True), drawn(rng, (3, 40, 6), np.float16, False)
    shares = []
    got = hwsim.run(a, b, device="h200", format="fp16", timing=False, progress=shares.append).c
    alone = [[hwsim.matmul(x, y, device="h200", format="fp16") for y in b] for x in a[:, 0]]
    assert np.array_equal(got.view(np.uint32), np.array(alone).view(np.uint32))
    assert shares[-1] == 1 and shares == sorted(shares)


def test_c_is_each_matrix_s_own():
    rng = np.random.default_rng(4)
    a, b = (drawn(rng, shape, np.float16, False) for shape in ((4, 9, 33), (4, 33, 7)))
    c = rng.standard_normal((4, 9, 7)).astype(np.float32)
    for scheme, format in (("native", "fp16"), ("tf32x3", None)):
        arguments = {"device": "h200", "scheme": scheme, "beta": 0.5} | ({"format": format} if format else {})
        got = hwsim.matmul(a, b, c, **arguments)
        alone = np.stack([hwsim.matmul(x, y, z, **arguments) for x, y, z in zip(a, b, c, strict=True)])
        assert np.array_equal(got.view(np.uint32), alone.view(np.uint32))
