"""Products with powers of two and largest magnitudes of arrays, against hwsim.formats' integers and against NumPy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hwsim import formats
from hwsim._kernels import convert
from hwsim.errors import InputError
from hwsim.formats import FORMATS, Exact

SOURCES = {32: (np.float32, np.uint32, FORMATS["fp32"]), 64: (np.float64, np.uint64, FORMATS["fp64"])}
LIMITS = {32: (-149, 127), 64: (-1074, 1023)}
VARIANTS = convert.variants()


def words(bits):
    """Signs x exponents (all ends, the middle) x fractions (ends, one-hot, runs): subnormals, infinities, NaNs."""
    _, dtype, fmt = SOURCES[bits]
    top, ones = (1 << fmt.exponent_bits) - 1, (1 << fmt.fraction_bits) - 1
    exponents = (0, 1, 2, 3, 30, fmt.bias - 1, fmt.bias, fmt.bias + 1, top - 30, top - 2, top - 1, top)
    fractions = (0, 1, 2, 3, ones, ones - 1, ones >> 1, (ones >> 1) + 1, 0x155555, 1 << 20)
    found = [fmt.word(s, e << fmt.fraction_bits | f) for s, e, f in itertools.product((0, 1), exponents, fractions)]
    return np.array(found, dtype)


@pytest.mark.parametrize("bits", SOURCES)
def test_scale_rounds_once(bits):
    dtype, codes, fmt = SOURCES[bits]
    given = words(bits)
    least, most = LIMITS[bits]
    for exponent in (least, least + 1, -130, -24, -1, 0, 1, 9, 120, most):
        want = []
        for word in given.tolist():
            value = formats.decode(fmt, word)
            if value.kind == "finite":
                value = Exact("finite", value.sign, value.significand, value.exponent + exponent)
                want.append(formats.round_to(fmt, value, "RNE", overflow="ieee"))
            else:
                want.append(None if value.kind == "nan" else word)
        with np.errstate(all="ignore"):
            plain = np.ldexp(given.view(dtype), exponent).view(codes)
        for variant in VARIANTS:
            got = convert.scale(given.view(dtype), exponent, variant=variant)
            assert np.array_equal(np.isnan(got), np.isnan(given.view(dtype)))
            pairs = zip(got.view(codes).tolist(), want, plain.tolist(), strict=True)
            assert all(one == other == third for one, other, third in pairs if other is not None), (exponent, variant)
            own = given.view(dtype).copy()
            assert convert.scale(own, exponent, out=own, variant=variant) is own
            assert np.array_equal(own.view(codes), got.view(codes))


@pytest.mark.parametrize("bits", SOURCES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_largest_is_that_of_numpy(bits, variant):
    dtype, codes, fmt = SOURCES[bits]
    rng = np.random.default_rng(bits)
    pool = words(bits)
    finite = pool[np.isfinite(pool.view(dtype))].view(dtype)
    for size in (0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 64, 65, 1000):
        x = rng.choice(finite, size)
        want = max((abs(v) for v in x.tolist()), default=0.0)
        assert convert.largest(x, variant=variant) == want == float(np.abs(x).max(initial=0.0))
        for place in range(min(size, 3)):  # wherever it stands
            other = x.copy()
            other[-1 - place] = -np.inf
            assert convert.largest(other, variant=variant) == math.inf
            other[(size - 1) // 2] = np.array(fmt.nan_code | 5, codes).view(dtype)
            other[-1 - place] = other[(size - 1) // 2]
            assert math.isnan(convert.largest(other, variant=variant))
    for value in (-0.0, 0.0, float(np.array(1, codes).view(dtype))):
        got = convert.largest(np.full(19, -value, dtype), variant=variant)
        assert got == abs(value) and math.copysign(1, got) == 1


@pytest.mark.parametrize("threads", [1, 3])
def test_any_strides_and_threads(threads):
    rng = np.random.default_rng(1)
    whole = rng.integers(0, 2**32, (301, 407), dtype=np.uint32).view(np.float32)
    whole[~np.isfinite(whole)] = 1.5
    for x in (whole, whole.T, whole[::2, 1::3], whole[::-1, ::-1], whole[:1].repeat(5, 0), whole[3], whole[:, 5]):
        stacks = (
            [x] if x.ndim == 1 else [x, x[:, :6].reshape(-1, 2, 3), np.broadcast_to(x[:5, :9], (3, *x[:5, :9].shape))]
        )
        for view in stacks:
            assert convert.largest(view, threads=threads) == float(np.abs(view).max())
            with np.errstate(over="ignore"):
                want = view * np.float32(2.0**7)
            got = convert.scale(view, 7, threads=threads)
            assert got.flags.c_contiguous and np.array_equal(got.view(np.uint32), want.view(np.uint32))


def test_what_does_not_fit_is_refused():
    x = np.ones((4, 6), np.float32)
    for call, text in (
        (lambda: convert.scale(x, 128), "-149..127"),
        (lambda: convert.scale(x, -150), "-149..127"),
        (lambda: convert.scale(x.astype(np.float16), 1), "float32 or float64"),
        (lambda: convert.largest(x.astype(np.int32)), "float32 or float64"),
        (lambda: convert.scale(x, 1, out=np.empty((6, 4), np.float32)), "shape"),
        (lambda: convert.scale(x[:2], 1, out=x[:2][:, :]), "shares memory"),
        (lambda: convert.scale(x.T, 1, out=x.T), "C order"),
    ):
        with pytest.raises(InputError, match=text):
            call()
