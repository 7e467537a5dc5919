"""Public conversions of arrays, against an exact reference with fractions, and ml_dtypes."""

from fractions import Fraction

import numpy as np
import pytest

from hwsim import format_arrays as fa
from hwsim.errors import InputError
from hwsim.formats import FORMATS, ROUNDINGS, Exact, array_dtype, code_dtype, round_to
from hwsim.formats import decode as exact_of

NARROW = [name for name, fmt in FORMATS.items() if fmt.bits <= 8]
RNG = np.random.default_rng(3)


def exact(value):
    if value != value:
        return Exact("nan", 0)
    sign = int(np.signbit(value))
    if np.isinf(value):
        return Exact("infinity", sign)
    top, bottom = abs(float(value)).as_integer_ratio()
    return Exact("finite", sign, top, 1 - bottom.bit_length())


def samples(name):
    """Values, midpoints, quarter points of an 8-bit format; zeros; far beyond; infinities."""
    values = fa.decode(np.arange(1 << FORMATS[name].bits, dtype=np.uint8), name, dtype=np.float64)
    grid = np.unique(values[np.isfinite(values)])
    parts = [grid] + [grid[:-1] + np.diff(grid) * share for share in (0.25, 0.5, 0.75)]
    return np.concatenate([*parts, [0.0, -0.0, 1e-300, -1e-300, 1e30, -1e30, np.inf, -np.inf]])


@pytest.mark.parametrize("overflow", ["ieee", "infinity", "saturate"])
@pytest.mark.parametrize("name", NARROW)
def test_kernel_modes_are_the_exact_reference(name, overflow):
    x = samples(name)
    for rounding in ROUNDINGS:
        want = [round_to(FORMATS[name], exact(v), rounding, overflow=overflow) for v in x]
        assert fa.encode(x, name, rounding=rounding, overflow=overflow).tolist() == want


@pytest.mark.parametrize("name", [n for n in FORMATS if n not in ("fp64", "int64")])
def test_away_and_odd_by_fractions(name):
    fmt = FORMATS[name]
    x = RNG.standard_normal(200) * 2.0 ** RNG.integers(-4, 2, 200)
    x = np.abs(x) if not fmt.signed else x
    down, up = (fa.round(np.abs(x), name, rounding=r, overflow="saturate", dtype=np.float64) for r in ("RZ", "RU"))
    away = fa.round(x, name, rounding="RA", overflow="saturate", dtype=np.float64)
    assert np.array_equal(np.abs(away), up)
    odd = np.abs(fa.round(x, name, rounding="RO", overflow="saturate", dtype=np.float64))
    for value, low, high, got in zip(np.abs(x), down, up, odd, strict=True):
        if low == high or fmt.name == "ue8m0":
            continue
        assert got in (low, high) and low < value
        place = Fraction(1)
        if not fmt.is_integer:
            exponent = max(np.frexp(value)[1] - 1, fmt.min_exponent)
            place = Fraction(2) ** int(exponent - fmt.fraction_bits)
        if value < 1.5:
            assert Fraction(got) / place % 2 == 1


@pytest.mark.parametrize("name", ["bf16", "e4m3", "e2m1", "int8", "ue4m3"])
def test_stochastic_is_seeded_and_unbiased(name):
    x = np.full(40000, 1.3)
    once, again, other = (fa.round(x, name, rounding="SR", seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(once, again) and not np.array_equal(once, other)
    low, high = (float(fa.round(x[:1], name, rounding=r)[0]) for r in ("RZ", "RU"))
    assert set(np.unique(once).tolist()) == {low, high}
    assert abs(once.mean(dtype=np.float64) - 1.3) < 5 * (high - low) / 2 / 200


@pytest.mark.parametrize("name", ["fp16", "bf16", "e5m2", "e4m3", "e5m2fnuz", "e4m3fnuz", "e3m2", "e2m3", "e2m1"])
def test_ml_dtypes_agrees(name):
    dtype = array_dtype(FORMATS[name])
    x = np.clip(RNG.standard_normal((5, 40)).astype(np.float32), -1.9, 1.9)
    assert np.array_equal(fa.round(x, name), x.astype(dtype).astype(np.float32))
    assert np.array_equal(fa.decode(x.astype(dtype), name), x.astype(dtype).astype(np.float32))
    assert np.array_equal(fa.round(x.astype(dtype), name, rounding="RO"), x.astype(dtype).astype(np.float32))


@pytest.mark.parametrize("rounding", fa.ALL_ROUNDINGS)
def test_shapes_strides_out_and_specials(rounding):
    seed = {"seed": 0} if rounding == "SR" else {}
    x = RNG.standard_normal((6, 8))[::2, ::-3]
    out = np.zeros((6, 3), np.uint8)[::2]
    assert fa.encode(x, "e4m3", rounding=rounding, out=out, **seed) is out
    assert np.array_equal(out, fa.encode(x.copy(), "e4m3", rounding=rounding, **seed))
    assert fa.encode(np.zeros((0, 3)), "e4m3", rounding=rounding, **seed).shape == (0, 3)
    assert fa.encode(np.float16(1), "e4m3", rounding=rounding, **seed).shape == ()
    special = fa.round(np.array([np.nan, -np.inf, -0.0]), "fp16", rounding=rounding, **seed)
    assert np.isnan(special[0]) and special[1] == -np.inf and np.signbit(special[2])


def test_describe_every_format():
    for name, fmt in FORMATS.items():
        text = fa.describe(name)
        assert Fraction(text["largest"]) == exact_of(fmt, fmt.largest_code()).fraction
        assert text["code_dtype"] == str(code_dtype(fmt))


@pytest.mark.parametrize(
    "options",
    [{"rounding": "RNX"}, {"rounding": "SR"}, {"seed": 1}, {"overflow": "x"}, {"nan": "x"}, {"out": np.zeros(2)}],
)
def test_bad_arguments(options):
    with pytest.raises(InputError):
        fa.encode(np.ones(3), "e4m3", **options)
