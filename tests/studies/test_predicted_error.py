"""Predicted errors against measured ones: every scheme on chips that run it, operands of several distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hwsim
from hwsim.gemm.plan import chain
from hwsim.gemm.problem import Problem
from hwsim.numerics.units import CompositeUnit, DotSpec, FmaChainUnit, FusedUnit, IntegerUnit, PairwiseUnit
from hwsim.operands.operand import operand
from hwsim.resolve.choice.predicted_error import (
    _large_products,
    normal_sample,
    predicted_error,
    roundoff_of,
    sample_of,
)
from hwsim.resolve.choice.split_residuals import residuals_of
from hwsim.resolve.planning import plan_for
from hwsim.schemes import scheme_of, schemes

ABOVE = 1.1  # measured / predicted, at most: where nearly everything is lost both are about 1
BELOW = 100.0  # predicted / measured, at most
SHAPES = ((20, 24, 96), (9, 10, 1000))
ROWS = [
    ("ascend910a", "native", "fp16"),
    ("ascend910a", "sgemm-cube", None),
    ("ascend910a", "ape-int16", None),
    ("ascend910b3", "native", "fp32"),
    ("mi210", "le-gemm", None),
    ("mi300x", "native", "fp16"),
    ("mi300x", "native", "e4m3fnuz"),
    *(("a100", "native", fmt) for fmt in ("fp16", "bf16", "tf32", "fp32", "fp64")),
    *(("a100", name, None) for name in ("le-gemm", "ape-fp32-f", "ape-fp32-b", "ape-fp32-t", "ape", "ape-int16")),
    *(("a100", name, None) for name in ("tf32x1", "tf32x3", "tf32x4", "ootomo-fp16", "ootomo-tf32", "bf16x9")),
    *(("a100", name, None) for name in ("ozaki-fp16", "ozaki-int8")),
    ("v100", "markidis", None),
    ("v100", "ape-fp32-f", None),
    ("t4", "egemm-tc", None),
    ("t4", "quantensor", None),
    ("b200", "bf16x9", None),
    ("b200", "bf16x6", None),
    ("b200", "bf16x3", None),
    *(("tf64", f"tf64x{count}", None) for count in (1, 3, 4)),
    ("h200", "fixedpoint-fp64", None),
    ("h200", "ozaki2-int8", None),
    ("b200", "ozaki2-fp8", None),
    *(("h200", name, None) for name in ("fp8-row", "fp8-block")),
    *(("b200", name, None) for name in ("mxfp8", "mxfp6", "mxfp4", "nvfp4")),
]
#: Rows with errors that may lie far below the prediction: it knows no scales of a quantisation, and it counts sums of
#: cancelling products that integers add without rounding. It is never too low.
FAR_BELOW = {
    **dict.fromkeys(("fp8-row", "fp8-block", "mxfp8", "mxfp6", "mxfp4", "nvfp4"), ("wide", "small", "tiny")),
    "fixedpoint-fp64": ("cancelling",),
}
KINDS = ("normal", "positive", "wide", "small", "tiny", "cancelling")


def draw(kind: str, shape: tuple[int, int, int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    m, n, k = shape
    rng = np.random.default_rng([seed, *shape])
    sizes = ((m, k), (k, n))
    if kind == "positive":
        return tuple(rng.random(size) for size in sizes)
    if kind == "wide":
        return tuple(rng.standard_normal(size) * np.exp2(rng.integers(-12, 13, size)) for size in sizes)
    if kind in ("small", "tiny"):
        return tuple(rng.uniform(-1, 1, size) * 2.0 ** (-12 if kind == "small" else -30) for size in sizes)
    a, b = (rng.standard_normal(size) for size in sizes)
    if kind == "cancelling":  # the second half takes back all but a thousandth of the first
        half = k // 2
        a[:, half : 2 * half] = -a[:, :half] * (1 + 1e-3 * rng.standard_normal((m, half)))
        b[half : 2 * half] = b[:half]
    return a, b


def typed(x: np.ndarray, scheme: str, fmt: str | None) -> np.ndarray:
    if scheme == "ape-int16":
        return np.rint(x / np.abs(x).max() * 30000).astype(np.int16)
    return x if scheme.startswith(("tf64", "ozaki", "fixedpoint")) or fmt == "fp64" else x.astype(np.float32)


@pytest.mark.parametrize(("device", "scheme", "fmt"), ROWS)
def test_no_error_is_far_above_or_below_its_prediction(device, scheme, fmt):
    chip, declared = hwsim.device(device), scheme_of(scheme)
    for seed, kind in enumerate(KINDS):
        for shape in SHAPES[seed % 2 :][:1] if scheme.startswith("ozaki") else SHAPES:
            a, b = (typed(x, scheme, fmt) for x in draw(kind, shape, seed))
            given = {"format": fmt} if fmt else {}
            with np.errstate(all="ignore"):
                exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
                c = hwsim.matmul(a, b, device=chip, scheme=scheme, threads=1, **given)
                difference = np.asarray(c).astype(np.longdouble) - exact
                measured = float(np.sqrt((difference**2).sum() / (exact**2).sum()))
            left, right = operand("A", a), operand("B", b)
            planned = plan_for(chip, declared, Problem.of(left.format, *shape), fmt, {}, (left, right))
            predicted = predicted_error(planned.plan, chip, sample_of(left, right))
            if predicted == math.inf and measured > 0.5:  # integers beyond the moduli, of which residues are left
                assert scheme.startswith("ozaki2") and kind in ("small", "tiny")
                continue
            if math.isnan(measured):  # something overflowed
                assert predicted == math.inf, (kind, shape)
                continue
            assert measured <= ABOVE * predicted, (kind, shape, measured, predicted)
            if kind in FAR_BELOW.get(scheme, ()):
                continue
            assert predicted <= BELOW * measured or measured == predicted == 0, (kind, shape, measured, predicted)


def test_every_scheme_of_our_own_is_among_the_rows():
    assert {name for _, name, _ in ROWS} == {name for name in schemes() if "." not in name}


def rest_bits(scheme: str, exponent: int, device: str = "v100", **options) -> float:
    """Bits that the split keeps of an element 1.5 * 2^exponent: log2 of element / rest."""
    chip = hwsim.device(device)
    planned = plan_for(chip, scheme_of(scheme), Problem.of("fp32", 1, 1, 1), None, options)
    x = np.array([[1.5 * 2.0**exponent]])
    rest = residuals_of(x, planned.plan, "a", "fp32", chip, float(x.max())).after
    return math.inf if rest[0, 0] == 0 else math.log2(x[0, 0]) - math.log2(rest[0, 0])


def test_bits_kept_by_exponent_are_those_of_the_papers():
    # SGEMM-cube, Eq. 6: 22 bits for exponents of at least -2 - sb, one fewer for each below it.
    for shift in (0, 6, 12):
        low = -2 - shift
        kept = [rest_bits("sgemm-cube", e, scaling_exponent=shift) for e in range(low + 1, 14)]
        assert min(kept) >= 22
        below = [rest_bits("sgemm-cube", low - x, scaling_exponent=shift) for x in range(2, 6)]
        assert np.allclose(np.diff(below), -1) and below[0] < 22
    assert rest_bits("sgemm-cube", 16) == -math.inf  # the high piece overflows
    # Ape, Table 2: fp32-b loses nothing down to 7.7e-34; unscaled pieces do below.
    assert rest_bits("ape-fp32-b", -100, "a100") == math.inf and rest_bits("ape-fp32-b", -125, "a100") < 24
    # bf16x9's scaled pieces lose nothing of any fp32, subnormals included.
    assert all(rest_bits("bf16x9", e, "b200") == math.inf for e in (-149, -126, 0, 127))


def test_subnormal_pieces_vanish_where_the_unit_flushes_them():
    assert rest_bits("le-gemm", -15, "mi210") < 1 < 19 < rest_bits("le-gemm", -15, "a100")


def test_roundoff_of_units():
    chain = DotSpec(FmaChainUnit(), "fp32", "fp32", "fp32", "fp32")
    assert roundoff_of(chain)[0].random == 2.0**-24 and roundoff_of(chain)[1] == 1
    cutting = DotSpec(FusedUnit(8, 24, -133), "fp16", "fp16", "fp32", "fp32")
    step, terms = roundoff_of(cutting)
    assert terms == 8 and step.biased == 0.375 * 2.0**-23 and step.aligned == 8 * 0.375 * 2.0**-24
    exact, _ = roundoff_of(DotSpec(IntegerUnit(), "int8", "int8", "int32", "int32"))
    assert (exact.random, exact.biased, exact.aligned) == (0, 0, 0)


def test_errors_grow_with_k_and_promotion_holds_them_down():
    chip = hwsim.device("h100")

    def native(k, group=None):
        options = {"format": "e4m3"} | ({"accumulate": "promoted"} if group else {})
        planned = plan_for(chip, scheme_of("native"), Problem.of("fp32", 64, 64, k), None, options)
        return predicted_error(planned.plan, chip, sample_of(*pair(k)))

    def pair(k):
        a, b = draw("positive", (12, 12, k), 5)
        return operand("A", a.astype(np.float32)), operand("B", b.astype(np.float32))

    assert native(512) < native(2048) < native(8192)
    assert native(8192, group=128) < native(8192) / 4


def test_samples():
    sample = normal_sample(1000, "fp32")
    assert sample.a.shape[1] == 1000 and 0.5 < sample.result / math.sqrt(1000) < 2 and sample.coherence < 0.2
    x = np.ones((3, 5), np.float32)
    x[0, 0], x[1, 1] = np.nan, np.inf
    known = sample_of(operand("A", x), operand("B", np.ones((5, 2), np.float32)))
    assert known.a_top == 1 and known.coherence == 1 and np.isfinite(known.a).all()
    zero = operand("A", np.zeros((2, 2), np.float32))
    chip = hwsim.device("a100")
    plan = plan_for(chip, scheme_of("sgemm-cube"), Problem.of("fp32", 2, 2, 2), None, {}).plan
    assert predicted_error(plan, chip, sample_of(zero, zero)) == 0


def residuals(scheme: str, x: np.ndarray, device: str = "a100", source: str = "fp32", **options):
    chip, shape = hwsim.device(device), (len(x), 1, x.shape[1])
    given = {"format": options.pop("format")} if "format" in options else {}
    plan = plan_for(chip, scheme_of(scheme), Problem.of(source, *shape), given.get("format"), options).plan
    return residuals_of(x, plan, "a", source, chip, float(np.abs(x).max()))


def test_what_a_split_leaves_of_each_element():
    """fp32 rounded to fp16 loses half a last place, once; only pieces that are cut have a mean residual, half of it."""
    x = np.array([[1.5, -3.0, 0.7]])
    rounded = residuals("native", x, format="fp16")
    assert rounded.after.tolist() == [[2.0**-11, 2.0**-10, 2.0**-12]] and rounded.mean is None
    assert residuals("sgemm-cube", x).mean is None
    # fp64 rounded to fp32 first: three scaled bf16 pieces lose nothing more.
    chip = hwsim.device("b200")
    plan = plan_for(chip, scheme_of("bf16x9"), Problem.of("fp32", 1, 1, 3), None, {}).plan
    assert residuals_of(x, plan, "a", "fp64", chip, 3.0).after.tolist() == [[2.0**-24, 2.0**-23, 2.0**-25]]
    for scheme, device in (("markidis", "v100"), ("ozaki-fp16", "a100")):
        cut = residuals(scheme, x, device, "fp64" if scheme.startswith("ozaki") else "fp32")
        assert cut.mean is not None and np.array_equal(cut.mean, np.copysign(cut.after / 2, x))


def test_roundoff_of_composed_units_and_trees():
    inner = FusedUnit(4, 25, -133)
    for selections, terms in ((((0,), (1,)), 2), (((0,), (1,), (2,), (3,)), 1)):
        unit = CompositeUnit(8, inner, "fp16", 4, selections)
        assert roundoff_of(DotSpec(unit, "e4m3", "e4m3", "fp32", "fp32"))[1] == terms
    tree, _ = roundoff_of(DotSpec(PairwiseUnit(4), "fp16", "fp16", "fp32", "fp32"))
    assert tree.random == 3 * 2.0**-24


def test_the_peak_of_sums_over_sixteenths_of_k():
    """Fifteen ones, then what takes them back: the largest sum is that over 15/16."""
    a = np.ones((2, 16), np.float32)
    a[:, 15] = -15
    assert sample_of(operand("A", a), operand("B", np.ones((16, 3), np.float32))).peak == 15


def test_products_after_the_largest_count():
    assert _large_products(chain((0, 1), (0, 0), (1, 0), interleave="k")) == 2
    assert _large_products(chain((0, 0), (0, 1), (1, 0), interleave="k")) == 3
