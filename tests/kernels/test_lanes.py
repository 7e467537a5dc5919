"""Elementwise programs, specials and patches against the same steps in NumPy, one by one."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from hwsim._kernels import lanes
from hwsim.errors import InputError
from hwsim.formats import FORMATS, Exact, round_to

VARIANTS = lanes.variants()
LOADS = [("load", 0), ("load", 1)]
EDGES = {
    np.float32: [
        0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800001, 0x34000000,
        0x33800001, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001, 0x4B000001,
    ],
    np.float64: [
        0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x800FFFFFFFFFFFFF, 0x0010000000000000,
        0x3FF0000000000000, 0xBFF0000000000001, 0x3CB0000000000001, 0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF,
        0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000, 0xFFF8000000000003, 0x7FF0000000000001,
    ],
}  # fmt: skip
WORD = {np.float32: np.uint32, np.float64: np.uint64}
NAN_CODES = {np.float32: (0x7FFFFFFF, 0x7FC00000), np.float64: (0x7FFFFFFFFFFFFFFF, 0x7FF8000000000000)}
PROGRAMS = {
    "add": [*LOADS, ("add",)],
    "subtract": [*LOADS, ("subtract",)],
    "times": [*LOADS, ("times",)],
    "scale": [("load", 1), ("scale", 2.0**-12)],
    "scale by a number that is not exact": [("load", 0), ("scale", 0.1)],
    "constant": [("constant", 0.1), ("load", 0), ("add",)],
    "sgemm-cube": [*LOADS, ("load", 2), ("add",), ("scale", 2.0**-12), ("add",)],
    "overflow and back": [*LOADS, ("add",), ("load", 2), ("subtract",), ("scale", 2.0**-40)],
}


def edges(dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(n, n) each: every pair of edges, and random bit fields as a third operand."""
    words = np.array(EDGES[dtype], WORD[dtype]).view(dtype)
    x, y = np.meshgrid(words, words)
    rng = np.random.default_rng(5)
    z = rng.integers(0, np.iinfo(WORD[dtype]).max, x.shape, WORD[dtype], endpoint=True).view(dtype)
    return np.ascontiguousarray(x), np.ascontiguousarray(y), z


def settled(x: np.ndarray, saturate: bool) -> np.ndarray:
    if not saturate:
        return x
    top = np.finfo(x.dtype).max
    return np.where(np.isnan(x), x.dtype.type(0), np.where(np.isinf(x), np.copysign(top, x), x))


def reference(operands, steps, dtype, saturate: bool, nan_code: int) -> np.ndarray:
    stack: list[np.ndarray] = []
    with np.errstate(all="ignore"):
        for name, *rest in steps:
            if name == "load":
                value = operands[rest[0]].astype(dtype)
            elif name == "constant":
                value = np.full(np.broadcast_shapes(*(x.shape for x in operands)), rest[0], dtype)
            elif name == "scale":
                value = dtype(rest[0]) * stack.pop()
            else:
                right, left = stack.pop(), stack.pop()
                value = {"add": np.add, "subtract": np.subtract, "times": np.multiply}[name](left, right)
            stack.append(settled(value, saturate))
    codes = stack.pop().view(WORD[dtype]).copy()
    codes[np.isnan(codes.view(dtype))] = nan_code
    return codes


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_its_steps_one_by_one(name, dtype, saturate):
    operands, steps = edges(dtype), PROGRAMS[name]
    for nan_code in NAN_CODES[dtype]:
        want = reference(operands, steps, dtype, saturate, nan_code)
        for variant in VARIANTS:
            got = lanes.combine(operands, steps, dtype, saturate=saturate, nan_code=nan_code, variant=variant)
            assert got.dtype == dtype
            assert np.array_equal(got.view(WORD[dtype]), want)


def fraction_of(x: float) -> Exact:
    value = Fraction(x)
    exponent = -(value.denominator.bit_length() - 1)
    sign = int(value < 0 or (value == 0 and math.copysign(1, x) < 0))
    return Exact("finite", sign, abs(value.numerator), exponent)


@pytest.mark.parametrize(("dtype", "name"), [(np.float32, "fp32"), (np.float64, "fp64")])
def test_fused_rounds_once(dtype, name):
    rng = np.random.default_rng(1)
    x = rng.standard_normal(67).astype(dtype)
    factor = dtype(1 + 2.0**-20 + 2.0 ** (-22 if dtype is np.float32 else -50))
    y = (-x * factor).astype(dtype)  # what is left is the rounding error of the product
    y[::3] = rng.standard_normal(len(y[::3])).astype(dtype)
    want = []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        total = Fraction(a) * Fraction(float(factor)) + Fraction(b)
        assert total
        shift = -(total.denominator.bit_length() - 1)
        want.append(round_to(FORMATS[name], Exact("finite", int(total < 0), abs(total.numerator), shift), "RNE"))
    for variant in VARIANTS:
        got = lanes.combine((x, y), [*LOADS, ("fused", float(factor))], dtype, variant=variant)
        assert got.view(WORD[dtype]).tolist() == want
        factors, three = np.full(67, factor), [("load", 2), *LOADS, ("fma",)]
        got = lanes.combine((x, y, factors), three, dtype, variant=variant)
        assert got.view(WORD[dtype]).tolist() == want
    plain = (x * factor + y).view(WORD[dtype]).tolist()
    assert plain != want  # a product rounded apart gives other bits here


def test_shapes_strides_threads_and_places():
    rng = np.random.default_rng(2)
    a = rng.standard_normal((130, 1067)).astype(np.float32)
    b = np.asfortranarray(rng.standard_normal((130, 1067)).astype(np.float32))
    row, column = rng.standard_normal(1067).astype(np.float32), rng.standard_normal((130, 1)).astype(np.float32)
    steps = [*LOADS, ("add",), ("load", 2), ("add",), ("load", 3), ("add",)]
    want = ((a + b) + row) + column
    for threads in (1, 2, 5):
        assert np.array_equal(lanes.combine((a, b, row, column), steps, threads=threads), want)
    wide = np.zeros((130, 1100), np.float32)
    out = wide[:, 3:1070]
    assert lanes.combine((a, b, row, column), steps, out=out) is out
    assert np.array_equal(out, want) and not wide[:, :3].any() and not wide[:, 1070:].any()
    total = a.copy()
    lanes.combine((total, b), [*LOADS, ("add",)], out=total)
    assert np.array_equal(total, a + b)
    assert np.array_equal(lanes.combine((a[::2, ::3],), [("load", 0)]), a[::2, ::3])
    assert lanes.combine((np.full((), 2.0),), [("load", 0)], np.float64) == 2
    assert lanes.combine((a[:0],), [("load", 0)]).shape == (0, 1067)
    cube = rng.standard_normal((2, 3, 5))
    assert np.array_equal(lanes.combine((cube, cube[0]), [*LOADS, ("subtract",)], np.float64), cube - cube[0])


def test_wide_programs_take_narrow_operands_exactly():
    whole = np.array([[0, -1, 2**31 - 1, -(2**31)]], np.int32)
    narrow = np.array([[1e-45, -0.0, np.inf, 3.4028235e38]], np.float32)
    got = lanes.combine((whole, narrow), [*LOADS, ("add",)], np.float64)
    assert np.array_equal(got, whole.astype(np.float64) + narrow.astype(np.float64))
    clipped = lanes.combine((narrow,), [("load", 0)], np.float64, saturate=True)
    assert clipped[0, 2] == np.finfo(np.float64).max


def test_special_rows_and_columns():
    for dtype in (np.float32, np.float64):
        x = np.ones((70, 131), dtype)
        assert not lanes.specials(x)[0].any() and not lanes.specials(x)[1].any()
        x[3, 130], x[69, 0], x[3, 7], x[5, 5] = np.nan, -np.inf, np.inf, np.finfo(dtype).max
        for given in (x, np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2]):
            for threads, variant in [(1, name) for name in VARIANTS] + [(3, None)]:
                rows, cols = lanes.specials(given, threads=threads, variant=variant)
                assert np.nonzero(rows)[0].tolist() == [3, 69]
                assert np.nonzero(cols)[0].tolist() == [0, 7, 130]
    assert [len(flags) for flags in lanes.specials(np.empty((0, 4), np.float32))] == [0, 4]


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
def test_patch(dtype):
    rng = np.random.default_rng(3)
    target, source = (rng.integers(1, 100, (33, 61)).astype(dtype) for _ in range(2))
    rows, cols = rng.random(33) < 0.2, rng.random(61) < 0.2
    assert rows.any() and cols.any()
    want = np.where(rows[:, None] | cols[None, :], source, target)
    for threads in (1, 2):
        got = target.copy()
        assert lanes.patch(got, source, rows, cols, threads=threads) is got
        assert np.array_equal(got, want)
    untouched = target.copy()
    lanes.patch(untouched, source, np.zeros(33, bool), np.zeros(61, bool))
    assert np.array_equal(untouched, target)


X = np.ones((4, 4), np.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lanes.combine((), [("load", 0)]), "0 operands"),
        (lambda: lanes.combine((X,), []), "0 steps"),
        (lambda: lanes.combine((X,), [("ad",)]), "step 0: 'ad' is not known.*add"),
        (lambda: lanes.combine((X,), [("load", 1)]), "operand 1; there are 1"),
        (lambda: lanes.combine((X,), [("load", 0), ("add",)]), "'add' takes 2 values and 1"),
        (lambda: lanes.combine((X,), [("load", 0), ("load", 0)]), "leave 2 values"),
        (lambda: lanes.combine((X,), [("load",)]), "takes index"),
        (lambda: lanes.combine((X,), [("load", 0)] * 17), "more than 16"),
        (lambda: lanes.combine((X.astype(np.float64),), [("load", 0)]), "operand 0.*float32; got float64"),
        (lambda: lanes.combine((X,), [("load", 0)], np.float16), "float32 or float64; got float16"),
        (lambda: lanes.combine((X,), [("load", 0)], out=X[:3]), "out must be an array of float32 and shape"),
        (lambda: lanes.combine((X,), [("load", 0)], out=X.T), "columns of out"),
        (lambda: lanes.combine((X[:3],), [("load", 0)], out=X[1:]), "out overlaps operand 0"),
        (lambda: lanes.combine((X,), [("load", 0)], threads=0), "threads=0"),
        (lambda: lanes.combine((X,), [("load", 0)], variant="mmx"), "variant 'mmx'.*baseline"),
        (lambda: lanes.specials(X[0]), "matrix of float32 or float64"),
        (lambda: lanes.patch(X.copy(), X[:, :3], np.ones(4, bool), np.ones(4, bool)), "they must be alike"),
        (lambda: lanes.patch(X.copy(), X, np.ones(3, bool), np.ones(4, bool)), "rows must be 4 booleans"),
        (lambda: lanes.patch(X.copy().T, X, np.ones(4, bool), np.ones(4, bool)), "columns of target"),
    ],
)
def test_errors_say_what_is_wrong(call, message):
    with pytest.raises(InputError, match=message):
        call()
