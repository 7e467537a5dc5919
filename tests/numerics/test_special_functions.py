"""NVIDIA's special functions: the arrays' form beside one in Python's integers, PTX's error bounds, special values."""

from __future__ import annotations

import numpy as np
import pytest

import hwsim
from hwsim.arithmetic.cuda_math import CudaMath
from hwsim.devices.special_functions import has_special_functions, special_functions
from hwsim.numerics.special_functions import FUNCTIONS, NAN

TABLES = special_functions(hwsim.device("h100"))
EXACT = {
    "ex2": np.exp2,
    "rcp": np.reciprocal,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
    "lg2": np.log2,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
}
#: Largest error (PTX ISA 8.7), relative, in 2^-23; of lg2, sin and cos an absolute one, of sin and cos from -pi to pi.
BOUNDS = {"ex2": 2.0, "rcp": 1.0, "rsqrt": 2**0.1, "sqrt": 1.0, "lg2": 2.0, "tanh": 2**12, "sin": 2**2.5, "cos": 2**2.5}
#: Codes of which every 31st is taken.
RANGES = {"rsqrt": (0x3F800000, 0x40800000), "sqrt": (0x3F800000, 0x40800000), "tanh": (0x3F000000, 0x40400000)}


def straight(name: str, fraction: int) -> int:
    """The interpolated value for 23 bits of a fraction (rsqrt: 24), in Python's integers, bit by bit."""
    table = TABLES[name]
    rest = fraction % 2**table.rest_bits
    value, slope, bend = (int(x) for x in table.lines[fraction // 2**table.rest_bits])
    factor = rest * 2 if name == "rcp" else rest
    square = sum(factor // 2 ** (18 - bit) for bit in range(17) if factor // 2**bit % 2) // 2
    first, second, third = table.shifts
    return (value * 2**first + slope * rest * 2**second + bend * square * 2**third + table.added) // 2**table.dropped


@pytest.mark.parametrize("name", TABLES)
def test_interpolation_is_that_of_integers(name: str) -> None:
    count = len(TABLES[name].lines)
    draw = np.random.default_rng(5)
    edges = np.array([n * 2 ** TABLES[name].rest_bits + d for n in range(count) for d in (0, 1, 2**15, 2**16 - 1)])
    fractions = np.concatenate([edges, draw.integers(0, count * 2 ** TABLES[name].rest_bits, 3000)])
    got = TABLES[name].at(fractions, doubled=int(name == "rcp"))
    assert got.tolist() == [straight(name, int(x)) for x in fractions]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_are_within_ptx_s_bounds(name: str) -> None:
    """Every 31st significand of a binade or more."""
    codes = np.arange(*RANGES.get(name, (0x3F800000, 0x40000000)), 31, dtype=np.uint32)
    x = codes.view(np.float32).astype(np.float64)
    if name == "ex2":
        x = x - 1
        codes = x.astype(np.float32).view(np.uint32)
    got, exact = FUNCTIONS[name](codes, TABLES).view(np.float32).astype(np.float64), EXACT[name](x)
    error = np.abs(got - exact) / (1 if name in ("lg2", "sin", "cos") else exact)
    assert 0 < error.max() * 2.0**23 <= BOUNDS[name]


INF, NEGATIVE_ZERO = np.inf, -0.0
CASES = [
    *(("ex2", x, y) for x, y in ((0.0, 1.0), (NEGATIVE_ZERO, 1.0), (1e-40, 1.0), (3.0, 8.0), (-126.0, 2.0**-126))),
    *(("ex2", x, y) for x, y in ((-127.0, 0.0), (128.0, INF), (-INF, 0.0), (INF, INF))),
    *(("rcp", x, y) for x, y in ((1.0, 1.0), (-2.0, -0.5), (0.0, INF), (NEGATIVE_ZERO, -INF), (1e-40, INF))),
    *(("rcp", x, y) for x, y in ((INF, 0.0), (-INF, NEGATIVE_ZERO), (2.0**127, 0.0))),
    *(("rsqrt", x, y) for x, y in ((4.0, 0.5), (0.25, 2.0), (0.0, INF), (NEGATIVE_ZERO, -INF), (-1.0, np.nan))),
    *(("rsqrt", x, y) for x, y in ((INF, 0.0), (-INF, np.nan))),
    *(("lg2", x, y) for x, y in ((1.0, 0.0), (8.0, 3.0), (0.125, -2.9999998), (0.0, -INF), (NEGATIVE_ZERO, -INF))),
    *(("lg2", x, y) for x, y in ((-1.0, np.nan), (INF, INF))),
    *(("sqrt", x, y) for x, y in ((4.0, 2.0), (0.0, 0.0), (NEGATIVE_ZERO, NEGATIVE_ZERO), (-1e-40, NEGATIVE_ZERO))),
    *(("sqrt", x, y) for x, y in ((-1.0, np.nan), (INF, INF), (-INF, np.nan))),
    *(("tanh", x, y) for x, y in ((NEGATIVE_ZERO, NEGATIVE_ZERO), (-1e-40, -1e-40), (8.0, 1.0), (-INF, -1.0))),
    *(("sin", x, y) for x, y in ((NEGATIVE_ZERO, NEGATIVE_ZERO), (1e-40, 0.0), (INF, np.nan), (-INF, np.nan))),
    *(("cos", x, y) for x, y in ((NEGATIVE_ZERO, 1.0), (1e-40, 1.0), (INF, np.nan))),
]


@pytest.mark.parametrize(("name", "x", "result"), CASES)
def test_special_values(name: str, x: float, result: float) -> None:
    code = FUNCTIONS[name](np.array([x], np.float32).view(np.uint32), TABLES)
    assert code[0] == (NAN if np.isnan(result) else np.array([result], np.float32).view(np.uint32)[0])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_nan_gives_nvidia_s(name: str) -> None:
    codes = np.array([0x7F800001, 0xFFC00000, 0x7FC00000], np.uint32)
    assert FUNCTIONS[name](codes, TABLES).tolist() == [NAN] * 3


def test_cuda_s_functions_are_near_the_exact_ones() -> None:
    math = CudaMath(TABLES)
    x = np.random.default_rng(2).uniform(-80, 0, 100_000).astype(np.float32)
    wide, lower = x.astype(np.float64), x - np.float32(60)
    for got, exact in (
        (math.expf(x), np.exp(wide)),
        (math.exp2f(x), np.exp2(wide)),
        (math.logf(-x), np.log(-wide)),
        (math.exp2f(lower), np.exp2(lower.astype(np.float64))),
    ):
        assert np.max(np.abs(got - exact) / np.maximum(np.abs(exact), 2.0**-126)) < 2.0**-21.5
    assert math.expf(np.array([-np.inf, -1e4], np.float32)).tolist() == [0, 0]


def test_other_chips_are_refused() -> None:
    assert not has_special_functions(hwsim.device("mi300x"))
    with pytest.raises(hwsim.UnsupportedError, match="not known to the bit"):
        special_functions(hwsim.device("mi300x"))
