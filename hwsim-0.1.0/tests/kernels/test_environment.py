"""Bits do not depend on the floating-point environment that another library has set on the thread."""

import functools

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim import format_arrays
from hwsim._kernels import gemm, variants
from hwsim._kernels.convert import DEFAULT_ENVIRONMENT, FLUSHING_ENVIRONMENT, environment, set_environment
from hwsim.devices import dot_spec, load

pytestmark = pytest.mark.skipif(FLUSHING_ENVIRONMENT == DEFAULT_ENVIRONMENT, reason="no flushing on this processor")

RUNS = [
    ("b200", "native", {"format": "fp16"}, np.float32, 12),
    ("h200", "native", {"format": "tf32"}, np.float32, 70),
    ("h200", "native", {"format": "bf16", "output": "bf16"}, ml_dtypes.bfloat16, 70),
    ("h200", "native", {"format": "fp64"}, np.float64, 500),
    ("mi300x", "native", {"format": "fp16"}, np.float32, 12),
    ("b200", "bf16x9", {}, np.float32, 70),
    ("h200", "tf32x3", {}, np.float32, 70),
    ("ascend910a", "sgemm-cube", {}, np.float32, 30),
    ("h200", "ozaki-int8", {}, np.float64, 300),
]


@pytest.fixture
def flushing():
    """Runs a function with subnormals flushed to zero, as XLA's callbacks are."""
    assert float(np.float32(1e-30) * np.float32(1e-10)) > 0

    def flushed(function):
        before = environment()
        set_environment(FLUSHING_ENVIRONMENT)
        try:
            result = function()
            is_flushing = float(np.multiply(np.array([1e-30], np.float32), np.array([1e-10], np.float32))[0]) == 0
            control = environment() & ~0x3F  # without what exceptions leave there
        finally:
            set_environment(before)
        assert is_flushing and control == FLUSHING_ENVIRONMENT & ~0x3F  # the caller's is as it was
        return result

    return flushed


def drawn(seed, shape, dtype, spread):
    """Many magnitudes: products and sums are subnormal here and there."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-2 * spread, spread, shape)).astype(dtype)


@pytest.mark.parametrize(("device", "scheme", "options", "dtype", "spread"), RUNS)
def test_runs(flushing, device, scheme, options, dtype, spread):
    a, b = drawn(1, (9, 67), dtype, spread), drawn(2, (67, 8), dtype, spread)
    c = hwsim.matmul(a, b, device=device, scheme=scheme, **options) * np.float32(2).astype(dtype)

    def run():
        return hwsim.run(a, b, c.astype(dtype), device=device, scheme=scheme, timing=False, **options).c

    plain, found = run(), flushing(run)
    assert plain.tobytes() == found.tobytes()


@pytest.mark.parametrize("variant", variants)
def test_kernels_alone(flushing, variant):
    rng = np.random.default_rng(3)
    for device, name in (("b200", "fp16"), ("h200", "e5m2"), ("mi300x", "bf16"), ("v100", "fp16")):
        chip = load(device)
        spec = dot_spec(chip, chip.native[name])
        width = np.uint8 if name == "e5m2" else np.uint16
        a, b = (rng.integers(0, np.iinfo(width).max + 1, shape).astype(width) for shape in ((33, 64), (64, 33)))
        call = functools.partial(gemm, spec, a, b, _variant=variant)
        assert np.array_equal(call(), flushing(call)), (device, name)


@pytest.mark.parametrize("name", ["fp16", "bf16", "e4m3", "e5m2", "tf32"])
def test_conversions_alone(flushing, name):
    values = drawn(4, 4096, np.float32, 60)
    plain = format_arrays.encode(values, name)
    assert np.array_equal(plain, flushing(lambda: format_arrays.encode(values, name)))
    back = format_arrays.decode(plain, name)
    assert back.tobytes() == flushing(lambda: format_arrays.decode(plain, name)).tobytes()
