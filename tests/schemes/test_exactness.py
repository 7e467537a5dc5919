"""What the schemes promise exactly: Ozaki's sums, the split of bf16x9, the integers of ape-int16."""

from __future__ import annotations

import functools

import exhaustive_split
import gmpy2
import numpy as np
import pytest

import hwsim
from hwsim.errors import InputError
from hwsim.gemm.expressions import sequential_form
from hwsim.gemm.problem import Problem
from hwsim.schemes import scheme_of
from hwsim.schemes.ozaki import slice_bits

EDGE, DEPTH = 50, 64
CASES = 4  # times EDGE^2: 10^4 dot products
EXACT_DIGITS = 700  # of MPFR: more than any sum below has


def ill_conditioned(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A and B whose products cancel but for the last digits: [P, P'] [X; -X'] with P' near P and X' near X.

    The columns of X differ in how near, down to not at all (an exact zero) and to results below the normal range; the
    order of K is shuffled.
    """
    rng = np.random.default_rng(seed)
    half = DEPTH // 2

    def wide(shape: tuple[int, int]) -> np.ndarray:
        return np.ldexp(rng.uniform(-1, 1, shape), rng.integers(-seed - 1, seed + 2, shape))

    p, x = wide((EDGE, half)), wide((half, EDGE))
    near = np.ldexp(1.0, -rng.integers(20, 54, EDGE))
    others = [p, x * (1 + near * rng.uniform(-1, 1, x.shape))]
    others[0] = np.where(rng.random(p.shape) < 0.02 * seed, np.nextafter(p, np.inf), p)
    others[1][:, 0], others[1][:, 1] = x[:, 0], np.nextafter(x[:, 1], 0)
    order = rng.permutation(DEPTH)
    a, b = np.hstack([p, others[0]])[:, order], np.vstack([x, -others[1]])[order]
    b[:, 2] *= 2.0**-510
    a[3] *= 2.0**-510
    return np.ascontiguousarray(a), np.ascontiguousarray(b)


@functools.cache
def case(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B and the exact product as MPFR numbers."""
    a, b = ill_conditioned(seed)
    with gmpy2.context(precision=EXACT_DIGITS):
        left, right = (np.vectorize(gmpy2.mpfr, otypes=[object])(x) for x in (a, b))
        return a, b, left @ right


@functools.cache
def positive() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same where nothing cancels."""
    rng = np.random.default_rng(1)
    a, b = rng.uniform(0.5, 1, (EDGE, DEPTH)), rng.uniform(0.5, 1, (DEPTH, EDGE))
    with gmpy2.context(precision=EXACT_DIGITS):
        left, right = (np.vectorize(gmpy2.mpfr, otypes=[object])(x) for x in (a, b))
        return a, b, left @ right


def test_the_dots_are_ill_conditioned() -> None:
    for seed in range(CASES):
        a, b, exact = case(seed)
        whole = np.abs(a) @ np.abs(b)
        value = np.abs(exact.astype(np.float64))
        condition = whole[value > 0] / value[value > 0]
        assert np.median(condition) > 1e9 and condition.max() > 1e15
    assert any((case(seed)[2] == 0).any() for seed in range(CASES))
    assert (np.abs(case(1)[2].astype(np.float64)[3, 2]) < 2.0**-1022).all()


@pytest.mark.parametrize(
    ("scheme", "device"), [("ozaki-fp16", "h200"), ("ozaki-fp16", "mi210"), ("ozaki-int8", "a100")]
)
def test_all_slices_added_exactly_are_correctly_rounded(scheme: str, device: str) -> None:
    for seed in range(CASES):
        a, b, exact = case(seed)
        got = hwsim.matmul(a, b, device=device, scheme=scheme, slices=0, truncate=False, sum="exact")
        assert np.array_equal(got, exact.astype(np.float64))


def bound(a: np.ndarray, b: np.ndarray, bits: int, slices: int, truncate: bool) -> np.ndarray:
    """Of docs/schemes.md: k 2^(e_i + e_j) (2^-52 + t 2^(-bits slices)) + 2^-1074, t = 2 slices, or 2 without cut."""
    rows = np.frexp(np.abs(a).max(1))[1]
    columns = np.frexp(np.abs(b).max(0))[1]
    cut = (2 * slices if truncate else 2) * 2.0 ** (-bits * slices)
    return np.ldexp(a.shape[1] * (2.0**-52 + cut), rows[:, None] + columns) + 2.0**-1074


@pytest.mark.parametrize(("scheme", "device"), [("ozaki-fp16", "v100"), ("ozaki-int8", "t4")])
@pytest.mark.parametrize("options", [{}, {"slices": 3}, {"slices": 4, "truncate": False}, {"slices": 14}], ids=str)
def test_sums_in_fp64_keep_the_bound(scheme: str, device: str, options: dict) -> None:
    largest = 0.0
    for a, b, exact in (positive(), *map(case, range(CASES))):
        bits = slice_bits(scheme.removeprefix("ozaki-"), DEPTH)
        slices = options.get("slices") or -(-53 // bits)
        got = hwsim.matmul(a, b, device=device, scheme=scheme, **options)
        with gmpy2.context(precision=EXACT_DIGITS):
            error = np.abs(got.astype(object) - exact).astype(np.float64)
        share = error / bound(a, b, bits, slices, options.get("truncate", True))
        assert (share <= 1).all()
        largest = max(largest, float(share.max()))
    assert largest > 1e-3  # a bound that says something


def test_stacks_take_the_slices_that_the_data_need() -> None:
    a, b = (np.stack([case(seed)[i] for seed in (0, 3)]) for i in (0, 1))
    options = {"device": "a100", "scheme": "ozaki-int8", "slices": 0, "truncate": False, "sum": "exact"}
    got = hwsim.matmul(a, b, **options)
    for part, seed in zip(got, (0, 3), strict=True):
        assert np.array_equal(part, case(seed)[2].astype(np.float64))


def test_slices_beyond_the_last_digit_of_a_double_are_refused() -> None:
    a, b = np.array([[2.0**1023, 2.0**-1074]]), np.array([[2.0**-1074], [2.0**1023]])
    most = {"device": "a100", "scheme": "ozaki-int8", "truncate": False, "sum": "exact", "slices": 0}
    assert hwsim.matmul(a[:, :1], b[:1], **most) == 2.0**-51
    plan = scheme_of("ozaki-int8").plan
    options = {"slices": 300, "truncate": True, "sum": "exact"}  # 7 bits: 2100 digits of 2098
    assert len(plan(options, Problem.of("fp64", 1, 1, 2)).a_pieces) == 300
    with pytest.raises(InputError, match="slices = 301; allowed: at most 300"):
        plan(options | {"slices": 301}, Problem.of("fp64", 1, 1, 2))
    survey = scheme_of("ozaki-int8").survey
    assert survey is not None and survey(a, b, {"slices": 0})["slices"] == 300  # no data have more


@pytest.mark.parametrize("sum", ["exact", "fp64"])
def test_sums_deeper_than_python_calls(sum: str) -> None:
    """1296 products: the expression that joins them is one nested sum."""
    a, b = np.array([[1.0, 2.0**-150]]), np.array([[2.0**-60], [-(2.0**90)]])
    options = {"slices": 36, "truncate": False, "sum": sum}
    got = hwsim.matmul(a, b, device="a100", scheme="ozaki-int8", **options)
    assert got == 0
    assert sequential_form(scheme_of("ozaki-int8").plan(options, Problem.of("fp64", 1, 1, 2)).combine) is not None


# bf16x9. All 2^32 codes: python tests/schemes/exhaustive_split.py.


def test_sample_of_the_split_of_bf16x9() -> None:
    """The ends of the range, of the subnormals and of exponents, with either sign, and chunks drawn at random."""
    size = exhaustive_split.CHUNK
    starts = [0, 0x00800000 - size // 2, 0x00800000, 0x3F800000 - size // 2, 0x7F800000 - size]
    starts += np.random.default_rng(9).integers(0, 0x7F800000 - size, 6).tolist()
    for start in starts:
        assert exhaustive_split.chunk(start) == 0
        assert exhaustive_split.chunk(start | 1 << 31) == 0


# ape-int16.


@pytest.mark.parametrize("k", [1, 67, 1000, 32768, 32769, 70000])
@pytest.mark.parametrize(
    ("device", "low_byte"), [("a100", "unsigned"), ("a100", "biased"), ("ascend910a", None), ("mi210", None)]
)
def test_int16_against_int64(device: str, low_byte: str | None, k: int) -> None:
    """Extremes: sums that int32 does not hold come out in int64, and wrap in int32."""
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-(1 << 15), 1 << 15, shape).astype(np.int16) for shape in ((5, k), (k, 4)))
    a[0], b[:, 0], a[1], b[:, 1] = -(1 << 15), -(1 << 15), (1 << 15) - 1, 255
    exact = a.astype(np.int64) @ b.astype(np.int64)
    for accumulate in ("int64", "int32"):
        got = hwsim.matmul(a, b, device=device, scheme="ape-int16", low_byte=low_byte, accumulate=accumulate)
        assert got.dtype == accumulate and np.array_equal(got, exact.astype(accumulate))
    assert k == 1 or (exact != exact.astype(np.int32)).any()
