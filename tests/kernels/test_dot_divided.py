"""Accumulators divided between steps inside a chain (scale-input-d), against the reference step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_dot_fused_lanes import UNITS
from test_dot_models import build

from hwsim import _kernels
from hwsim._kernels import gemm
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import code_dtype, format_of
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import DotSpec, IntegerUnit

NAMES = ["fused-hopper-fp16", "fused-hopper-bf16", "fused-hopper-tf32", "fused-volta-fp16", "small-bf16", "cut-fp16"]
KINDS = ["near", "wide", "small", "large", "any"]


def expected(spec: DotSpec, a: Any, b: Any, c: Any, divide: Any) -> Any:
    """By the reference, one step at a time."""
    terms = spec.unit.terms
    for at, places in enumerate(divide):
        part = slice(at * terms, (at + 1) * terms)
        right = np.ascontiguousarray(b[part])
        c = reference.gemm(spec, DotOperands(np.ascontiguousarray(a[:, part]), right, c, scale_d=int(places)))
    return c


def check(spec: DotSpec, a: Any, b: Any, c: Any, divide: Any, corner: tuple[slice, slice]) -> None:
    """All builds against the scalar code, and that on a corner against the reference."""
    rows, columns = corner
    whole = gemm(spec, a, b, c, divide=divide, _variant="scalar")
    right = np.ascontiguousarray(b[:, columns])
    assert np.array_equal(whole[corner], expected(spec, a[rows], right, np.ascontiguousarray(c[corner]), divide))
    for variant in _kernels.variants:
        got = gemm(spec, a, b, c, divide=divide, _variant=variant)
        wrong = np.argwhere(got != whole)
        assert not len(wrong), f"{variant}: {len(wrong)} of {got.size} differ, first at {wrong[0]}"


def test_the_units_are_there() -> None:
    assert set(NAMES) <= set(UNITS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_divisions_between_steps(name: str, kind: str) -> None:
    """More columns than a panel; a K of several chunks that ends within a step; divisions anywhere, also at first."""
    spec, rng = UNITS[name], np.random.default_rng([len(name), len(kind)])
    for m, n, k in ((3, 147, 293), (2, 5, 67), (1, 33, 3), (2, 8, 1)):
        a, b = build(rng, format_of(spec.a), (m, k), kind), build(rng, format_of(spec.b), (k, n), kind)
        divide = rng.choice([0, 0, 1, 8, 15], -(-k // spec.unit.terms)).astype(np.uint8)
        for start in ("near", kind):
            c = build(rng, format_of(spec.c), (m, n), start)
            check(spec, a, b, c, divide, (slice(0, 1), slice(0, 2)))


@pytest.mark.parametrize("places", [1, 8, 15])
@pytest.mark.parametrize("name", ["fused-hopper-fp16", "fused-hopper-bf16"])
def test_accumulators_near_the_least_numbers(name: str, places: int) -> None:
    """Every exponent of C; small products, or none: what a division takes below the lanes' or the format's range."""
    spec, rng = UNITS[name], np.random.default_rng(places)
    m, n, terms = 4, 256, spec.unit.terms
    a, b = build(rng, format_of(spec.a), (m, 3 * terms), "small"), build(rng, format_of(spec.b), (3 * terms, n), "near")
    a[2:] = 0
    fraction = rng.choice([0, 1, 0x7FFFFF, 0x400000, 0x123456], (m, n)).astype(np.uint32)
    sign = rng.integers(0, 2, (m, n), np.uint32) << np.uint32(31)
    c = np.arange(n, dtype=np.uint32) << np.uint32(23) | fraction | sign
    divide = np.array([places, 0, places], np.uint8)
    for columns in (slice(0, 40), slice(98, 130), slice(240, 256)):
        check(spec, a, b, c, divide, (slice(0, m), columns))


@pytest.mark.parametrize("places", [1, 8])
@pytest.mark.parametrize("name", ["small-bf16", "cut-fp16", "fused-hopper-fp16"])
def test_quotients_at_the_least_exponent_of_the_lanes(name: str, places: int) -> None:
    """A whole panel of accumulators that a division takes to 2^-103 to 2^-98, beside products that are zero."""
    spec, rng = UNITS[name], np.random.default_rng(places)
    terms, columns = spec.unit.terms, 70
    a = np.zeros((2, terms), code_dtype(format_of(spec.a)))
    b = build(rng, format_of(spec.b), (terms, columns), "near")
    for exponent in range(-103, -97):
        fraction = rng.integers(0, 1 << 23, (2, columns), np.uint32) | np.uint32(0x7F)
        c = fraction | np.uint32(exponent + places + 127 << 23) | rng.integers(0, 2, (2, columns), np.uint32) << 31
        check(spec, a, b, c.astype(np.uint32), np.array([places], np.uint8), (slice(0, 2), slice(0, 9)))


def test_zeros_divide_nothing() -> None:
    spec, rng = UNITS["fused-hopper-bf16"], np.random.default_rng(1)
    a, b = build(rng, format_of("bf16"), (9, 64), "wide"), build(rng, format_of("bf16"), (64, 70), "wide")
    assert np.array_equal(gemm(spec, a, b, divide=np.zeros(4, np.uint8)), gemm(spec, a, b))


def test_what_does_not_fit() -> None:
    spec = UNITS["fused-hopper-bf16"]
    a, b = np.zeros((2, 32), np.uint16), np.zeros((32, 2), np.uint16)
    for divide in (np.zeros(3, np.uint8), np.zeros(2, np.int64), [0, 8]):
        with pytest.raises(InputError, match=r"divide must be uint8 \(2,\)"):
            gemm(spec, a, b, divide=divide)
    integers = DotSpec(IntegerUnit(32), "int8", "int8", "int32", "int32")
    with pytest.raises(UnsupportedError, match="integer accumulators are not divided"):
        gemm(integers, a.astype(np.uint8), b.astype(np.uint8), divide=np.zeros(1, np.uint8))


def test_an_accumulator_of_another_format() -> None:
    """The first step reads a binary16 C, whose codes have no such quotient, and the rest goes on in binary32."""
    unit, rng = UNITS["fused-hopper-fp16"].unit, np.random.default_rng(2)
    spec = DotSpec(unit, "fp16", "fp16", "fp16", "fp32")
    a, b = build(rng, format_of("fp16"), (3, 40), "small"), build(rng, format_of("fp16"), (40, 9), "near")
    c, divide = build(rng, format_of("fp16"), (3, 9), "any"), np.array([15, 0, 8], np.uint8)
    first = reference.gemm(spec, DotOperands(np.ascontiguousarray(a[:, :16]), b[:16].copy(), c, scale_d=15))
    rest = expected(DotSpec(unit, "fp16", "fp16", "fp32", "fp32"), a[:, 16:], b[16:], first, divide[1:])
    assert np.array_equal(gemm(spec, a, b, c, divide=divide), rest)
