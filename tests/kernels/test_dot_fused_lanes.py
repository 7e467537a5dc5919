"""The fused unit's lanes against the scalar code: whole panels and chunks, and everything that changes lanes midway.

The scalar code is compared with the reference in Python integers elsewhere; here a few rows of each case are, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_dot_models import HALF, HOPPER, NVIDIA, SPECS, build

from hwsim import _kernels
from hwsim._kernels import gemm
from hwsim.formats import code_dtype, format_of
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import DotSpec, FusedUnit, Specials

F32 = ("fp32", "fp32")
UNITS = {name: spec for name, spec in SPECS.items() if name.startswith("fused")} | {
    "b200-e4m3": DotSpec(FusedUnit(32, 25, -133, specials=NVIDIA), "e4m3", "e5m2", *F32),
    "ada-e5m2": DotSpec(FusedUnit(16, 13, -132, result_format="e8m13", specials=NVIDIA), "e5m2", "e4m3", *F32),
    "ampere-tf32": DotSpec(FusedUnit(4, 24, -132, specials=NVIDIA), "tf32", "tf32", *F32),
    "small-bf16": DotSpec(FusedUnit(8, 16, -133, specials=NVIDIA), "bf16", "bf16", *F32),
    "cut-fp16": DotSpec(FusedUnit(16, 20, -133, result_format="e8m13", specials=NVIDIA), "fp16", "fp16", *F32),
    "mixed": DotSpec(FusedUnit(5, 25, -133), "fp16", "bf16", *F32),
    "wide-operands": DotSpec(FusedUnit(12, 30, -200), "fp32", "tf32", *F32),
    "one-term": DotSpec(FusedUnit(1, 24, -133), "bf16", "fp16", *F32),
    "long-step": DotSpec(FusedUnit(96, 23, -133), "fp16", "fp16", *F32),
}
BF16 = DotSpec(HOPPER, "bf16", "bf16", *F32)


def check(spec: DotSpec, a: Any, b: Any, c: Any, rows: int = 1, columns: int = 2) -> None:
    """All builds against the scalar code; a corner against the reference."""
    expected = gemm(spec, a, b, c, _variant="scalar")
    corner = reference.gemm(spec, DotOperands(a[:rows], np.ascontiguousarray(b[:, :columns]), c[:rows, :columns]))
    assert np.array_equal(expected[:rows, :columns], corner)
    for variant in _kernels.variants:
        got = gemm(spec, a, b, c, _variant=variant)
        wrong = np.argwhere(got != expected)
        assert not len(wrong), (
            f"{variant}: {len(wrong)} of {got.size} differ, first at {wrong[0]}: "
            f"{int(got[tuple(wrong[0])]):#x}, expected {int(expected[tuple(wrong[0])]):#x}"
        )


def codes(values: Any, name: str) -> Any:
    """Values that the format holds, as its codes."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    assert name in ("bf16", "fp32")
    return (bits >> 16).astype(np.uint16) if name == "bf16" else bits


@pytest.mark.covering("kind", "name")
@pytest.mark.parametrize("kind", ["near", "wide", "small", "large", "any"])
@pytest.mark.parametrize("name", UNITS)
def test_panels_and_chunks(name: str, kind: str) -> None:
    """More columns than a panel, a K of several chunks that ends within a step."""
    spec, rng = UNITS[name], np.random.default_rng(3)
    for m, n, k in ((3, 147, 293), (2, 33, 40), (1, 8, 130)):
        a, b = build(rng, format_of(spec.a), (m, k), kind), build(rng, format_of(spec.b), (k, n), kind)
        for start in ("near", kind):
            check(spec, a, b, build(rng, format_of(spec.c), (m, n), start))


@pytest.mark.parametrize("name", ["fused-hopper-fp16", "fused-hopper-bf16", "fused-hopper-tf32", "fused-hopper-e4m3"])
@pytest.mark.parametrize("kind", ["wide", "any"])
def test_single_outliers(name: str, kind: str) -> None:
    """One odd operand, in A, in B or in C, among ordinary ones."""
    spec, rng = UNITS[name], np.random.default_rng(4)
    for place in range(6):
        arrays = [
            build(rng, format_of(f), shape, "near")
            for f, shape in ((spec.a, (5, 290)), (spec.b, (290, 140)), (spec.c, (5, 140)))
        ]
        target = arrays[place % 3]
        fmt = format_of((spec.a, spec.b, spec.c)[place % 3])
        for _ in range(3):
            target[tuple(rng.integers(0, size) for size in target.shape)] = build(rng, fmt, (1,), kind)[0]
        check(spec, *arrays)


@pytest.mark.parametrize("name", UNITS)
def test_accumulators_at_the_ends(name: str) -> None:
    """Accumulators from the least subnormal to infinity and NaN, ordinary products and none."""
    spec, rng = UNITS[name], np.random.default_rng(5)
    a, b = (build(rng, format_of(f), shape, "near") for f, shape in ((spec.a, (6, 64)), (spec.b, (64, 150))))
    a[:2] = 0
    b[:, ::7] = 0
    if spec.c == "fp16":
        c = rng.choice([0, 0x8000, 1, 0x3FF, 0x400, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0x0401], (6, 150)).astype(np.uint16)
    else:
        exponent = rng.integers(0, 256, (6, 150), np.uint32)
        fraction = rng.choice([0, 1, 0x7FFFFF, 0x400000, 0x123456], (6, 150)).astype(np.uint32)
        c = exponent << np.uint32(23) | fraction | rng.integers(0, 2, (6, 150), np.uint32) << np.uint32(31)
        c[:, ::11] = 0x80000000
    check(spec, a, b, c, rows=3, columns=3)


@pytest.mark.parametrize("shift", [-140, -133, -126, -120, -101, -100, -99, -74, 60, 108, 110, 112, 124, 126])
def test_products_at_the_ends(shift: int) -> None:
    """bf16 products around the alignment floor, the least normal number and the overflow, with cancellation."""
    rng = np.random.default_rng(shift + 200)
    split = int(rng.integers(-6, 7))
    left = np.ldexp(rng.choice([1.0, 1.5, 1.9921875, -1.0, -1.25, 0.0], (4, 160)), shift // 2 + split)
    right = np.ldexp(rng.choice([1.0, 1.75, 1.9921875, -1.5, -1.0, 0.0], (160, 140)), shift - shift // 2 - split)
    left[1:, 1::2] = left[1:, ::2]
    right[1::2, 50:] = -right[::2, 50:]
    left = np.ldexp(left, rng.integers(-3, 2, left.shape))
    with np.errstate(over="ignore"):
        a, b = codes(left, "bf16"), codes(right, "bf16")
    c = rng.choice([0, 0x80000000, 1, 0x80000003, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFE, 0x7F000000], (4, 140))
    check(BF16, a, b, c.astype(np.uint32), rows=4, columns=2)
    check(BF16, a, b, np.zeros((4, 140), np.uint32), rows=4, columns=2)


def test_sums_below_the_least_subnormal() -> None:
    """They are cut to zero, which has no sign, as the accumulator of the next step too."""
    left = np.ldexp(np.array([[1.0], [-1.0], [1.5]]), -75) * (np.arange(20) % 16 == 0)
    right = np.ldexp(np.tile([1.0, -1.0, 1.9921875, -1.9921875, 0.0], (20, 14)), [[-75 - (k & 3)] for k in range(20)])
    for start in (0, 0x80000000, 1, 0x80000001):
        c = np.full((3, 70), start, np.uint32)
        check(BF16, codes(left, "bf16"), codes(right, "bf16"), c, rows=3, columns=5)


def test_infinity_stays() -> None:
    """A sum that overflows in one step and would come back in the next."""
    a = np.ones((3, 48))
    b = np.zeros((48, 70))
    b[:16] = 2.0**124 * 1.9921875
    b[16:32] = -(2.0**124) * 1.9921875
    b[:, 60:] *= 0.5
    a[1, 16:] = 0
    a[2] = -1
    c = np.full((3, 70), 2.0**127)
    check(BF16, codes(a, "bf16"), codes(b, "bf16"), codes(c, "fp32"), rows=3, columns=1)


@pytest.mark.parametrize("name", ["fused-hopper-fp16", "fused-hopper-bf16", "b200-e4m3", "fused-fp4", "long-step"])
def test_full_significands(name: str) -> None:
    """All significand bits set: a step's sum at its bound, with and without an accumulator on top; every sign."""
    spec, rng = UNITS[name], np.random.default_rng(6)
    arrays = []
    for f, shape in ((spec.a, (4, 200)), (spec.b, (200, 70)), (spec.c, (4, 70))):
        fmt = format_of(f)
        ones = (fmt.bias << fmt.fraction_bits) | ((1 << fmt.fraction_bits) - 1)
        x = np.full(shape, ones, code_dtype(fmt))
        arrays.append(x)
    a, b, c = arrays
    a[0] |= np.asarray(1 << format_of(spec.a).magnitude_bits, a.dtype)
    a[2, ::5] = 0
    a[3] |= (rng.integers(0, 2, 200) << format_of(spec.a).magnitude_bits).astype(a.dtype)
    b[:, 40:] |= (rng.integers(0, 2, (200, 30)) << format_of(spec.b).magnitude_bits).astype(b.dtype)
    c[:, ::3] |= np.asarray(1 << 31, c.dtype)
    check(spec, a, b, c, rows=4, columns=1)


def test_layouts_and_threads() -> None:
    """Transposed and cut operands, results in place, threads over rows and over columns."""
    spec, rng = UNITS["fused-hopper-bf16"], np.random.default_rng(7)
    a, b = build(rng, format_of("bf16"), (70, 200), "near"), build(rng, format_of("bf16"), (200, 150), "near")
    c = build(rng, format_of("fp32"), (70, 150), "near")
    expected = gemm(spec, a, b, c, _variant="scalar")
    for variant in _kernels.variants:
        for threads in (1, 2, 5):
            left, right = np.asfortranarray(a), np.asfortranarray(b)
            assert np.array_equal(gemm(spec, left, right, c, threads=threads, _variant=variant), expected)
            few = gemm(spec, a[:3], b, c[:3], threads=threads, _variant=variant)
            assert np.array_equal(few, expected[:3])
        wide = np.repeat(np.repeat(a, 2, 0), 3, 1)
        out = c.copy()
        assert gemm(spec, wide[::2, ::3], b[::-1][::-1], out, out=out, _variant=variant) is out
        assert np.array_equal(out, expected)


def test_more_rows_than_a_block() -> None:
    spec, rng = UNITS["fused-hopper-fp16"], np.random.default_rng(8)
    a, b = build(rng, format_of("fp16"), (1100, 40), "wide"), build(rng, format_of("fp16"), (40, 20), "wide")
    a[5, 7] = a[1050, 30] = 0x7C01
    check(spec, a, b, build(rng, format_of("fp32"), (1100, 20), "near"))


@pytest.mark.parametrize("edges", [Specials(zero="ieee"), Specials(operands="saturate", overflow="saturate"), HALF])
def test_units_that_the_lanes_leave_alone(edges: Specials) -> None:
    """Other edges than NVIDIA's go to other code."""
    spec, rng = DotSpec(FusedUnit(16, 25, -133, specials=edges), "fp16", "fp16", *F32), np.random.default_rng(9)
    arrays = [build(rng, format_of(f), s, "any") for f, s in (("fp16", (3, 50)), ("fp16", (50, 70)), ("fp32", (3, 70)))]
    check(spec, *arrays)
