"""The dot kernels against the reference in Python integers, bit for bit, on operands built from bit fields."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hwsim import _kernels
from hwsim._kernels import dot as dot_module
from hwsim._kernels import gemm
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import FORMATS, Format, code_dtype, format_of
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import (
    BlockScaledUnit,
    CompositeUnit,
    DotSpec,
    ExactUnit,
    FmaChainUnit,
    FusedUnit,
    IntegerUnit,
    PairwiseUnit,
    Specials,
    TwoLevelUnit,
)

Codes = npt.NDArray[Any]
VARIANTS = (*_kernels.variants, "scalar")


def build(rng: np.random.Generator, fmt: Format, shape: tuple[int, ...], kind: str) -> Codes:
    """Codes from bit fields. near: exponents of a few binades; wide: all finite; any: infinities and NaNs too."""
    dtype = code_dtype(fmt)
    if fmt.is_integer:
        return rng.integers(0, 1 << fmt.bits, shape, np.uint64).astype(dtype)
    w, p = fmt.exponent_bits, fmt.fraction_bits
    top = (1 << w) - 1
    exponent = rng.integers(0, top + 1, shape)
    middle = min(fmt.bias, top - 1)
    if kind == "near":
        exponent = middle + rng.integers(-min(3, middle), 2, shape)
    elif kind == "small":
        exponent = rng.integers(0, min(4, top), shape)
    elif kind == "large":
        exponent = rng.integers(max(top - 5, 0), top, shape)
    fraction = rng.integers(0, 1 << p, shape, np.uint64)
    pattern = rng.integers(0, 4, shape)
    sparse = np.uint64(1) << rng.integers(0, max(p, 1), shape).astype(np.uint64) if p else np.zeros(shape, np.uint64)
    fraction = np.select([pattern == 0, pattern == 1], [np.zeros(shape, np.uint64), sparse], fraction)
    magnitude = exponent.astype(np.uint64) << np.uint64(p) | fraction
    magnitude = np.where(rng.random(shape) < 0.06, np.uint64(0), magnitude)
    if kind != "any":
        magnitude = np.minimum(magnitude, np.uint64(fmt.largest_magnitude))
    sign = rng.integers(0, 2, shape).astype(np.uint64) * np.uint64(fmt.signed)
    if kind != "any" and fmt.nan == "minus_zero":
        sign = np.where(magnitude == 0, np.uint64(0), sign)
    codes = (sign << np.uint64(w + p) | magnitude) << np.uint64(fmt.ignored_bits)
    if fmt.ignored_bits:  # a unit must not read these
        codes |= rng.integers(0, 1 << fmt.ignored_bits, shape, np.uint64)
    return codes.astype(dtype)


def operands(
    seed: int, spec: DotSpec, m: int, n: int, k: int, kind: str, batch: tuple[int, ...] = ()
) -> tuple[Codes, Codes, Codes]:
    rng = np.random.default_rng(seed)
    a = build(rng, format_of(spec.a), (*batch, m, k), kind)
    b = build(rng, format_of(spec.b), (*batch, k, n), kind)
    c = build(rng, format_of(spec.c), (*batch, m, n), kind)
    if format_of(spec.d).ignored_bits == 0 and k >= 2 and rng.random() < 0.5:  # products that cancel
        a[..., 1::2] = a[..., : k // 2 * 2 : 2][..., : a[..., 1::2].shape[-1]]
        b[..., 1::2, :] = b[..., : k // 2 * 2 : 2, :]
        if not format_of(spec.b).is_integer and format_of(spec.b).nan != "minus_zero" and kind != "any":
            fmt = format_of(spec.b)
            b[..., 1::2, :] ^= np.asarray(1 << (fmt.magnitude_bits + fmt.ignored_bits), b.dtype)
    return a, b, c


def check(spec: DotSpec, a: Codes, b: Codes, c: Codes) -> None:
    expected = reference.gemm(spec, DotOperands(a, b, c))
    for variant in VARIANTS:
        got = gemm(spec, a, b, c, _variant=variant)
        wrong = np.argwhere(got != expected)
        assert got.dtype == expected.dtype
        assert not len(wrong), (
            f"{variant} {spec}\n{len(wrong)} of {got.size} differ, first at {wrong[0]}: "
            f"{int(got[tuple(wrong[0])]):#x}, expected {int(expected[tuple(wrong[0])]):#x}"
        )


NVIDIA = Specials(nan_code=0x7FFFFFFF)
HALF = Specials(nan_code=0x7FFF)
LOSSY = Specials(operands="saturate", flush_operands=True)
SATURATE = Specials(operands="saturate", overflow="saturate")
CDNA2 = Specials(zero="ieee", flush_operands=True, flush_results=True)
HOPPER = FusedUnit(16, 25, -133, specials=NVIDIA)
F32 = ("fp32", "fp32")
SPECS = {
    "exact16-fp16": DotSpec(ExactUnit(16), "fp16", "fp16", "fp32", "fp32"),
    "exact16-fp16-saturate": DotSpec(ExactUnit(16, specials=SATURATE), "fp16", "fp16", "fp32", "fp32"),
    "exact16-fp16-ieee-zero": DotSpec(ExactUnit(16, specials=Specials(zero="ieee")), "fp16", "fp16", "fp32", "fp32"),
    "exact4-fp16-rz": DotSpec(ExactUnit(4, "RZ"), "fp16", "fp16", "fp32", "fp32"),
    "exact5-fp16-half": DotSpec(ExactUnit(5), "fp16", "fp16", "fp16", "fp16"),
    "exact2-bf16": DotSpec(ExactUnit(2), "bf16", "bf16", "fp32", "fp32"),
    "exact8-tf32": DotSpec(ExactUnit(8), "tf32", "tf32", "fp32", "fp32"),
    "exact8-hf32": DotSpec(ExactUnit(8), "hf32", "hf32", "fp32", "fp32"),
    "exact4-fp32": DotSpec(ExactUnit(4), "fp32", "fp32", "fp32", "fp32"),
    "exact3-fp64": DotSpec(ExactUnit(3), "fp64", "fp64", "fp64", "fp64"),
    "exact16-e4m3": DotSpec(ExactUnit(16), "e4m3", "e5m2", "fp32", "fp32"),
    "fma-fp32": DotSpec(FmaChainUnit(), "fp32", "fp32", "fp32", "fp32"),
    "fma-fp64": DotSpec(FmaChainUnit(), "fp64", "fp64", "fp64", "fp64"),
    "fma-fp64-nans": DotSpec(
        FmaChainUnit(nan_order="bca", specials=Specials(zero="ieee", nan_code=0xFFF8000000000000)), *["fp64"] * 4
    ),
    "fma-fp32-nans": DotSpec(FmaChainUnit(nan_order="cab"), "fp32", "fp32", "fp32", "fp32"),
    "fma-fp16-nans": DotSpec(FmaChainUnit(nan_order="abc"), "fp16", "bf16", "fp16", "fp32"),
    "fma-e4m3-nans": DotSpec(FmaChainUnit(nan_order="bac"), "e4m3", "fp32", "tf32", "fp16"),
    "fma-fp16": DotSpec(FmaChainUnit(), "fp16", "fp16", "fp32", "fp32"),
    "fma-bf16-tf32": DotSpec(FmaChainUnit(), "bf16", "tf32", "fp32", "fp32"),
    "fma-fp32-flush": DotSpec(FmaChainUnit(specials=CDNA2), "fp32", "fp32", "fp32", "fp32"),
    "fma-fp32-rd": DotSpec(FmaChainUnit("RD"), "fp32", "fp32", "fp32", "fp32"),
    "fma-fp32-saturate": DotSpec(FmaChainUnit(specials=SATURATE), "fp32", "fp32", "fp32", "fp32"),
    "fused-hopper-fp16": DotSpec(HOPPER, "fp16", "fp16", "fp32", "fp32"),
    "fused-hopper-bf16": DotSpec(HOPPER, "bf16", "bf16", "fp32", "fp32"),
    "fused-hopper-tf32": DotSpec(FusedUnit(8, 25, -133, specials=NVIDIA), "tf32", "tf32", "fp32", "fp32"),
    "fused-hopper-half": DotSpec(FusedUnit(16, 25, -21, "RNE", specials=HALF), "fp16", "fp16", "fp16", "fp16"),
    "fused-hopper-e4m3": DotSpec(
        FusedUnit(32, 13, -133, result_format="e8m13", specials=NVIDIA), "e4m3", "e5m2", "fp32", "fp32"
    ),
    "fused-ampere-fp16": DotSpec(FusedUnit(8, 24, -132, specials=NVIDIA), "fp16", "fp16", "fp32", "fp32"),
    "fused-volta-fp16": DotSpec(FusedUnit(4, 23, -131, specials=NVIDIA), "fp16", "fp16", "fp32", "fp32"),
    "fused-volta-widened": DotSpec(FusedUnit(4, 23, -131, specials=NVIDIA), "fp16", "fp16", "fp16", "fp32"),
    "fused-fp4": DotSpec(FusedUnit(32, 25, -133, specials=NVIDIA), "e2m1", "e3m2", "fp32", "fp32"),
    "fused-27": DotSpec(FusedUnit(16, 27, -133), "fp16", "fp16", "fp32", "fp32"),
    "pairwise-fp16": DotSpec(PairwiseUnit(4, specials=CDNA2), "fp16", "fp16", "fp32", "fp32"),
    "pairwise-bf16": DotSpec(PairwiseUnit(2, specials=CDNA2), "bf16", "bf16", "fp32", "fp32"),
    "pairwise-tf32-3": DotSpec(PairwiseUnit(3, specials=CDNA2), "tf32", "bf16", "fp32", "fp32"),
    "pairwise-hf32-flush": DotSpec(PairwiseUnit(4, specials=CDNA2), "hf32", "hf32", "fp32", "fp32"),
    "pairwise-fp32-16": DotSpec(PairwiseUnit(16), "fp32", "fp32", "fp32", "fp32"),
    "pairwise-fp16-5": DotSpec(PairwiseUnit(5, specials=CDNA2), "fp16", "fp16", "fp32", "fp32"),
    "pairwise-fp16-7": DotSpec(PairwiseUnit(7), "fp16", "fp16", "fp32", "fp32"),
    "two-level-fp16": DotSpec(TwoLevelUnit(8), "fp16", "fp16", "fp32", "fp32"),
    "two-level-fp16-ieee": DotSpec(TwoLevelUnit(4, specials=Specials(zero="ieee")), "fp16", "fp16", "fp32", "fp32"),
    "two-level-tf32": DotSpec(TwoLevelUnit(4, specials=Specials(zero="ieee")), "tf32", "tf32", "fp32", "fp32"),
    "two-level-other": DotSpec(
        TwoLevelUnit(8, 20, 30, 22, 27, accumulator_drop_bits=12), "fp16", "bf16", "fp32", "fp32"
    ),
    "two-level-33": DotSpec(TwoLevelUnit(8, 24, 33, 24, 32), "fp16", "fp16", "fp32", "fp32"),
    "two-level-bf16": DotSpec(TwoLevelUnit(8), "bf16", "bf16", "fp32", "fp32"),
    "two-level-fp8": DotSpec(
        TwoLevelUnit(16, interleaved=True, accumulator_drop_bits=25), "e4m3fnuz", "e5m2fnuz", "fp32", "fp32"
    ),
    "integer": DotSpec(IntegerUnit(32), "int8", "uint8", "int32", "int32"),
    "integer-wrap-1": DotSpec(IntegerUnit(1), "uint8", "int8", "int32", "int32"),
    "integer-16": DotSpec(IntegerUnit(8), "int16", "int16", "int32", "int32"),
    "integer-saturate-odd": DotSpec(IntegerUnit(5, "saturate"), "int8", "uint8", "int32", "int32"),
    "integer-16-saturate": DotSpec(IntegerUnit(4, "saturate"), "int16", "int8", "int32", "int32"),
    "integer-int4": DotSpec(IntegerUnit(32, "saturate"), "int4", "int4", "int32", "int32"),
    "composite": DotSpec(
        CompositeUnit(32, HOPPER, "fp16", 4, ((0, 1), (2, 3)), specials=NVIDIA), "e4m3", "e5m2", "fp32", "fp32"
    ),
    "composite-half": DotSpec(
        CompositeUnit(32, FusedUnit(16, 25, -21, "RNE", specials=HALF), "fp16", 4, ((0, 1), (2, 3)), specials=HALF),
        *("e5m2", "e5m2", "fp16", "fp16"),
    ),
    "composite-part": DotSpec(  # k mod 3 = 1 takes no part, and the selections do not fill their steps
        CompositeUnit(7, FusedUnit(4, 23, -133), "fp16", 3, ((2,), (0,)), specials=NVIDIA), *("e4m3", "e4m3"), *F32
    ),
    "composite-inner-rules": DotSpec(  # for operands those of the inner unit, in its format
        CompositeUnit(8, FusedUnit(4, 25, -133, specials=LOSSY), "fp16", 4, ((0, 1), (2, 3))), *("fp16", "e5m2"), *F32
    ),
    "composite-outer-rules": DotSpec(  # for the accumulator
        CompositeUnit(8, FusedUnit(4, 25, -133), "fp16", 4, ((0, 1), (2, 3)), specials=LOSSY), *("fp16", "e5m2"), *F32
    ),
}


@pytest.mark.parametrize("kind", ["near", "wide", "small", "large", "any"])
@pytest.mark.parametrize("name", SPECS)
def test_equals_reference(name: str, kind: str) -> None:
    spec = SPECS[name]
    for index, (m, n, k) in enumerate([(3, 5, 1), (2, 3, 3), (3, 5, 16), (2, 5, 67)]):
        a, b, c = operands(1000 * index + 7, spec, m, n, k, kind)
        check(spec, a, b, c)


@pytest.mark.parametrize("name", ["exact16-fp16", "fma-fp32", "fused-hopper-fp16", "fused-hopper-half"])
def test_zeros_and_ties(name: str) -> None:
    spec = SPECS[name]
    d, p = format_of(spec.d), format_of(spec.d).fraction_bits
    one = format_of(spec.a).bias << format_of(spec.a).fraction_bits
    half_place = format_of(spec.b).bias - (p + 1 if format_of(spec.b).exponent_bits > 5 else 11)
    values_b = [0, 1 << format_of(spec.b).magnitude_bits, one, max(half_place, 0) << format_of(spec.b).fraction_bits]
    values_c = [0, 1 << d.magnitude_bits, d.bias << d.fraction_bits, (d.bias << d.fraction_bits) + 1]
    a = np.array(
        [[0], [1 << format_of(spec.a).magnitude_bits], [one], [one | 1 << format_of(spec.a).magnitude_bits]],
        code_dtype(format_of(spec.a)),
    )
    b = np.array([values_b * len(values_c)], code_dtype(format_of(spec.b)))
    c = np.tile(np.repeat(np.array(values_c, code_dtype(d)), len(values_b)), (4, 1))
    check(spec, a, b, c)


@pytest.mark.parametrize("name", ["exact16-fp16", "fma-fp32", "fused-hopper-fp16", "two-level-fp16"])
def test_k_zero_is_a_step_of_zeros(name: str) -> None:
    spec = SPECS[name]
    c = np.array([[0x80000000, 0x3F800001, 0x7FC12345, 1]], np.uint32)
    a, b = np.zeros((1, 0), code_dtype(format_of(spec.a))), np.zeros((0, 4), code_dtype(format_of(spec.b)))
    check(spec, a, b, c)


@pytest.mark.parametrize("name", ["exact16-fp16", "exact16-fp16-ieee-zero", "fused-hopper-fp16", "fused-ampere-fp16"])
def test_sums_near_and_beyond_a_rounding_boundary(name: str) -> None:
    """Ties of the accumulator with a bit far below, under large products that cancel; every sign."""
    spec = SPECS[name]
    rng = np.random.default_rng(2)
    powers = rng.choice([-24, -12, -11, -13, 0, 14, 15], (2, 40, 16))
    values = np.ldexp(rng.choice([1.0, -1.0], (2, 40, 16)), powers)
    values[:, :, 8:10] = 2.0**15
    values[1, :, 9] = -(2.0**15)
    values[:, :, 10:] = np.where(rng.random((2, 40, 6)) < 0.5, 0.0, values[:, :, 10:])
    a, b = values[0].astype(np.float16), values[1].astype(np.float16).T
    c = rng.choice([1.0, -1.0, 1 + 2.0**-23, -(2.0**-10), 0.0, -0.0, 2.0**24, 3e38, 1e-40], (40, 40)).astype(np.float32)
    check(spec, a.view(np.uint16), b.view(np.uint16), c.view(np.uint32))


def test_fused_sum_beyond_32_bits() -> None:
    """Sixteen products of significand just below 4 and an accumulator on top: more than 31 bits."""
    a, b = np.full((2, 32), 0x3FFF, np.uint16), np.full((32, 33), 0x3FFF, np.uint16)
    a[1] |= 0x8000
    c = np.full((2, 33), 0x3FFFFFFF, np.uint32)
    c[1] |= 0x80000000
    check(SPECS["fused-hopper-fp16"], a, b, c)


@pytest.mark.parametrize("name", ["pairwise-bf16", "pairwise-fp16", "pairwise-tf32-3", "two-level-fp16-ieee"])
def test_underflow_and_signed_zeros(name: str) -> None:
    """Products and sums around the least normal number, and zeros of both signs in every place."""
    spec = SPECS[name]
    rng = np.random.default_rng(9)
    fmt = format_of(spec.a)
    p, w = fmt.fraction_bits, fmt.exponent_bits
    codes = []
    for shape in ((9, 24), (24, 21)):
        exponent = rng.choice([0, 1, fmt.bias - 63, fmt.bias - 62] if w == 8 else [0, 1, 2, 15], shape)
        fraction = rng.choice([0, 1, (1 << p) - 1, 1 << p - 1], shape) * (rng.random(shape) < 0.7)
        code = (rng.integers(0, 2, shape) << w | exponent) << p | fraction
        codes.append((code << fmt.ignored_bits).astype(code_dtype(fmt)))
    codes[0][:3] &= np.asarray(1 << (w + p + fmt.ignored_bits), codes[0].dtype)  # rows of zeros of both signs
    b = codes[1] if spec.b == spec.a else build(rng, format_of(spec.b), (24, 21), "small")
    wide = format_of(spec.b)
    b[:, ::3] |= np.asarray(1 << (wide.magnitude_bits + wide.ignored_bits), b.dtype)  # there every product is -0
    c = rng.choice([0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x1000000], (9, 21)).astype(np.uint32)
    c |= rng.integers(0, 2, c.shape).astype(np.uint32) << np.uint32(31)
    check(spec, codes[0], b, c)


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("name", [name for name in SPECS if name.endswith("-nans")])
def test_nan_order(name: str, k: int) -> None:
    """NaNs of both signs, quiet and signalling, with infinities and zeros, in every place and all at once."""
    spec = SPECS[name]
    rng = np.random.default_rng(6)

    def some(fmt: Format, shape: tuple[int, int]) -> Codes:
        one, top = fmt.bias << fmt.fraction_bits, fmt.largest_magnitude + 1
        payloads = [top + 1, top + (1 << fmt.fraction_bits - 1), top + 5] if fmt.nan == "ieee" else [top]
        pool = np.array([0, one, one, top, *payloads, (1 << fmt.magnitude_bits) - 1], np.uint64)
        codes = rng.choice(pool, shape) | rng.integers(0, 2, shape, np.uint64) << np.uint64(fmt.magnitude_bits)
        return (codes << np.uint64(fmt.ignored_bits)).astype(code_dtype(fmt))

    a, b, c = (some(format_of(fmt), shape) for fmt, shape in ((spec.a, (17, k)), (spec.b, (k, 23)), (spec.c, (17, 23))))
    check(spec, a, b, c)


@pytest.mark.parametrize("name", ["integer", "integer-16", "integer-saturate-odd", "integer-int4"])
def test_integer_limits(name: str) -> None:
    """Extreme operands on accumulators at and near both limits of int32: every wrap and clamp, there and back."""
    spec = SPECS[name]
    rng = np.random.default_rng(3)
    bits_a, bits_b = format_of(spec.a).bits, format_of(spec.b).bits
    a = rng.choice([0, 1, (1 << bits_a) - 1, 1 << bits_a - 1, (1 << bits_a - 1) - 1], (7, 45))
    b = rng.choice([1, (1 << bits_b) - 1, 1 << bits_b - 1, (1 << bits_b - 1) - 1], (45, 19))
    a[:2], b[:, :9] = a[:2, :1], b[:1, :9]  # sums that go one way only
    c = rng.choice([0x7FFFFFFF, 0x80000000, 0x7FFFF000, 0x80001000, 0, 0xFFFFFFFF], (7, 19)).astype(np.uint32)
    check(spec, a.astype(code_dtype(format_of(spec.a))), b.astype(code_dtype(format_of(spec.b))), c)


@pytest.mark.parametrize("name", ["two-level-fp16", "two-level-fp8", "two-level-tf32", "two-level-other"])
def test_two_level_cuts(name: str) -> None:
    """Accumulators of every exponent around the products', with bits that each of the cuts takes or leaves."""
    spec = SPECS[name]
    rng = np.random.default_rng(4)
    a, b, _ = operands(8, spec, 12, 40, 32, "near")
    exponent = rng.integers(-40, 40, (12, 40)) + 127
    fraction = rng.choice([0, 1, 0x7FFFFF, 0x400000, 0x2AAAAA], (12, 40))
    c = (rng.integers(0, 2, (12, 40)) << 31 | exponent << 23 | fraction).astype(np.uint32)
    check(spec, a, b, c)


@pytest.mark.parametrize("name", ["two-level-fp16", "two-level-bf16", "two-level-tf32"])
def test_two_level_ties(name: str) -> None:
    """A cancelled pair, then a few last places of the sum, on accumulators at and just below a power of two."""
    spec = SPECS[name]
    fmt, rng = format_of(spec.a), np.random.default_rng(9)
    terms, rows, columns = spec.unit.terms, 96, 40
    a = np.zeros((rows, terms))
    a[:, 0], a[:, 1] = 1, -1
    a[:, 2:] = 2.0 ** rng.integers(-24, -12, (rows, terms - 2))
    a[:, 2] = 2.0 ** rng.choice([-24, -23], rows)
    sign = np.broadcast_to(rng.choice([1.0, -1.0], columns), (terms, columns))

    def codes(x: Any) -> Codes:
        if fmt.name == "fp16":
            return x.astype(np.float16).view(np.uint16)
        words = x.astype(np.float32).view(np.uint32)
        return (words >> np.uint32(16)).astype(np.uint16) if fmt.name == "bf16" else words

    exponent = rng.integers(5, 13, (rows, columns)) + 127
    fraction = rng.choice([0, 1, 0x7FFFFF, 0x7FFFFE], (rows, columns))
    c = (rng.integers(0, 2, (rows, columns)) << 31 | exponent << 23 | fraction).astype(np.uint32)
    check(spec, codes(a), codes(sign), c)


@pytest.mark.parametrize("name", ["two-level-bf16", "two-level-tf32"])
def test_two_level_range(name: str) -> None:
    """Products, sums that cancel, and accumulators at both ends of binary32, subnormal, infinite and NaN ones too."""
    spec = SPECS[name]
    fmt, rng = format_of(spec.a), np.random.default_rng(10)
    terms = spec.unit.terms

    def some(shape: tuple[int, int], exponent: int, spread: int) -> Codes:
        field = np.clip(rng.integers(exponent - spread, exponent + spread + 1, shape) + fmt.bias, 0, 254)
        code = rng.integers(0, 2, shape) << 8 | field
        code = code << fmt.fraction_bits | rng.integers(0, 1 << fmt.fraction_bits, shape)
        return (code << fmt.ignored_bits).astype(code_dtype(fmt))

    for top in (-140, -126, -115, -108, -103, -101, -99, -60, 60, 100, 110, 114, 120, 125, 127):
        high = int(rng.integers(max(-120, top - 120), min(120, top + 120) + 1))
        a, b = some((8, 2 * terms), high, 1), some((2 * terms, 19), top - high, 1)
        half = np.arange(terms) < terms // 2  # these cancel the others of their step, in some of the rows
        for step in (0, terms):
            first, second = np.flatnonzero(half) + step, np.flatnonzero(~half) + step
            a[::2, second] = a[::2, first] ^ np.asarray(1 << (fmt.magnitude_bits + fmt.ignored_bits), a.dtype)
            b[second] = b[first]
        field = np.clip(top + rng.choice([-30, -24, -8, 0, 1, 8, 24, 30], (8, 19)) + 127, 0, 255)
        field = np.where(rng.random((8, 19)) < 0.2, rng.choice([0, 1, 254, 255], (8, 19)), field)
        c = rng.integers(0, 2, (8, 19)) << 31 | field << 23 | rng.choice([0, 1, 0x400000, 0x7FFFFF], (8, 19))
        check(spec, a, b, c.astype(np.uint32))
        for row in range(8):  # alone: no other accumulator of the row leaves the lanes' range
            for column in (0, 7):
                one = slice(row, row + 1), slice(column, column + 1)
                check(spec, a[one[0]], b[:, one[1]], c[one].astype(np.uint32))


def test_environment_chooses_the_build() -> None:
    code = "from hwsim import _kernels; print(_kernels.variant)"
    for wanted in _kernels.variants:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "HWSIM_KERNEL": wanted},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == wanted
    failed = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HWSIM_KERNEL": "avx3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed.returncode != 0
    assert "HWSIM_KERNEL" in failed.stderr
    assert "baseline" in failed.stderr


BLOCKED = [
    "exact16-fp16",
    "exact2-bf16",
    "fma-fp32",
    "fma-fp64",
    "fma-fp64-nans",
    "fma-fp16",
    "fused-hopper-fp16",
    "fused-ampere-fp16",
    "fused-hopper-half",
    "fused-hopper-e4m3",
    "fused-hopper-bf16",
    "fused-hopper-tf32",
    "pairwise-fp16",
    "pairwise-bf16",
    "pairwise-fp16-7",
    "two-level-fp16",
    "two-level-bf16",
    "two-level-fp8",
    "integer",
    "integer-wrap-1",
    "integer-saturate-odd",
    "composite",
    "composite-half",
    "composite-part",
]


@pytest.mark.covering("kind", "name")
@pytest.mark.parametrize("kind", ["near", "wide", "any"])
@pytest.mark.parametrize("name", BLOCKED)
def test_variants_agree_over_blocks(name: str, kind: str) -> None:
    """Shapes beyond one cache block: rows, columns and chunks of k; the expected value is the scalar chain."""
    spec = SPECS[name]
    a, b, c = operands(5, spec, 37, 75, 300, kind)
    if kind == "any":  # specials in a few rows only, so that most results stay finite
        plain, _, _ = operands(6, spec, 37, 75, 300, "near")
        a[3:-2] = plain[3:-2]
        b = operands(7, spec, 37, 75, 300, "near")[1]
    expected = gemm(spec, a, b, c, _variant="scalar")
    for variant in VARIANTS:
        for threads in (1, 2):
            assert np.array_equal(gemm(spec, a, b, c, threads=threads, _variant=variant), expected)


@pytest.mark.parametrize("name", ["exact16-fp16", "fma-fp32", "fused-hopper-fp16", "two-level-fp16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_layouts(name: str, variant: str) -> None:
    """Transposed, strided, reversed, read-only, batched operands, and no accumulator."""
    spec = SPECS[name]
    a, b, c = operands(11, spec, 21, 34, 40, "near", batch=(2, 3))
    expected = np.stack(
        [[gemm(spec, a[i, j], b[i, j], c[i, j], _variant="scalar") for j in range(3)] for i in range(2)]
    )
    for threads in (1, 2, 3):
        assert np.array_equal(gemm(spec, a, b, c, threads=threads, _variant=variant), expected)
    transposed = [np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) for x in (a, b, c)]
    assert np.array_equal(gemm(spec, *transposed, _variant=variant), expected)
    every_other = [np.repeat(np.repeat(x, 2, -1), 2, -2)[..., ::2, ::2] for x in (a, b, c)]
    for x in every_other:
        x.flags.writeable = False
    assert np.array_equal(gemm(spec, *every_other, _variant=variant), expected)
    flipped = gemm(spec, a[..., ::-1, :], b[..., ::-1], c[..., ::-1, ::-1], _variant=variant)
    assert np.array_equal(flipped[..., ::-1, ::-1], expected)
    broadcast = np.broadcast_to(a[:1, :1], a.shape)
    assert np.array_equal(
        gemm(spec, broadcast, b, c, _variant=variant)[1, 2], gemm(spec, a[0, 0], b[1, 2], c[1, 2], _variant=variant)
    )
    no_c = gemm(spec, a, b, _variant=variant)
    assert np.array_equal(no_c, gemm(spec, a, b, np.zeros_like(c), _variant=variant))


def test_out_may_be_c() -> None:
    spec = SPECS["exact16-fp16"]
    a, b, c = operands(3, spec, 6, 7, 33, "near")
    expected = gemm(spec, a, b, c)
    result = gemm(spec, a, b, c, out=c)
    assert result is c
    assert np.array_equal(c, expected)


def test_empty_shapes() -> None:
    spec = SPECS["fma-fp32"]
    u4 = np.uint32
    assert gemm(spec, np.zeros((0, 4), u4), np.zeros((4, 5), u4)).shape == (0, 5)
    assert gemm(spec, np.zeros((0, 3, 4), u4), np.zeros((0, 4, 5), u4)).shape == (0, 3, 5)


def test_formats_equal_the_table() -> None:
    for name, fmt in FORMATS.items():
        if name == "int64":  # of joined sums, not of any unit
            continue
        fields = dot_module.format_fields(name)
        assert fields["storage_bits"] == max(fmt.bits, 8)
        assert fields["fraction_bits"] == fmt.fraction_bits + (fmt.is_integer and fmt.signed)
        for mine, theirs in (
            ("exponent_bits", fmt.exponent_bits),
            ("pad", fmt.ignored_bits),
            ("is_signed", fmt.signed),
            ("bias", fmt.bias),
        ):
            assert fields[mine] == theirs, (name, mine)
        if fmt.nan != "none":
            assert fields["default_nan"] == fmt.nan_code, name


def test_a_composite_unit_widens_exactly() -> None:
    unit = CompositeUnit(8, FusedUnit(4, 25, -133), "fp16", 4, ((0, 1), (2, 3)))
    zeros = np.zeros((8, 8), np.uint16)
    with pytest.raises(InputError, match="operand_format fp16 does not hold all values of bf16"):
        gemm(DotSpec(unit, "bf16", "bf16", *F32), zeros, zeros)


def test_wrong_inputs_say_what_is_allowed() -> None:
    spec = SPECS["exact16-fp16"]
    a, b, c = operands(3, spec, 4, 5, 6, "near")
    with pytest.raises(InputError, match="uint16"):
        gemm(spec, a.astype(np.uint32), b, c)
    with pytest.raises(InputError, match="uint16"):
        gemm(spec, a.view(np.float16), b, c)
    with pytest.raises(InputError, match=r"\(\.\.\., M, K\)"):
        gemm(spec, a, b[:-1], c)
    with pytest.raises(InputError, match=r"shape \(4, 5\)"):
        gemm(spec, a, b, c[:-1])
    with pytest.raises(InputError, match="threads"):
        gemm(spec, a, b, c, threads=0)
    with pytest.raises(InputError, match="baseline"):
        gemm(spec, a, b, c, _variant="avx3")
    with pytest.raises(InputError, match="C-contiguous"):
        gemm(spec, a, b, c, out=np.zeros((5, 4), np.uint32).T)
    with pytest.raises(InputError, match="scale_a"):
        gemm(spec, a, b, c, scale_a=a)


NVFP4 = BlockScaledUnit(64, 16, 35, -139, -139, specials=NVIDIA)
SCALED = {
    "mxf4": DotSpec(NVFP4, "e2m1", "e2m1", *F32, "ue8m0", 32),
    "nvf4": DotSpec(NVFP4, "e2m1", "e2m1", *F32, "ue4m3", 16),
    "groups": DotSpec(BlockScaledUnit(32, 8, 24, -133, -20), "e2m1", "e4m3", *F32, "ue4m3", 16),
    "wide": DotSpec(
        BlockScaledUnit(32, 12, 60, -133, 3, "RNE", Specials(zero="ieee")), "e5m2", "e5m2", *F32, "ue4m3", 32
    ),
    "mxf8": DotSpec(FusedUnit(32, 25, -133, specials=NVIDIA), "e4m3", "e5m2", *F32, "ue8m0", 32),
    "mxf6": DotSpec(FusedUnit(64, 25, -133, specials=NVIDIA), "e2m3", "e3m2", *F32, "ue4m3", 16),
}


def scale_codes(rng: np.random.Generator, fmt: Format, shape: tuple[int, ...], kind: str) -> Codes:
    if kind == "any":
        return rng.integers(0, 256, shape, np.uint64).astype(np.uint8)
    middle = fmt.bias << fmt.fraction_bits
    spread = {"near": 5, "wide": 60}[kind]
    codes = rng.integers(max(middle - spread, 0), min(middle + spread, fmt.largest_magnitude), shape)
    if fmt.fraction_bits:
        codes[rng.random(shape) < 0.1] = 0
    return codes.astype(np.uint8)


@pytest.mark.parametrize("kind", ["near", "wide", "any"])
@pytest.mark.parametrize("name", SCALED)
def test_block_scales_equal_the_reference(name: str, kind: str) -> None:
    spec = SCALED[name]
    fmt, block = format_of(spec.scale_format or ""), spec.scale_block or 1
    rng = np.random.default_rng(12)
    for m, n, k in ((3, 5, 1), (2, 3, 64), (3, 4, 131)):
        a, b, c = operands(m + k, spec, m, n, k, kind)
        a[0, : k // 2] = 0
        blocks = -(-k // block)
        scale_a, scale_b = scale_codes(rng, fmt, (m, blocks), kind), scale_codes(rng, fmt, (blocks, n), kind)
        expected = reference.gemm(spec, DotOperands(a, b, c, scale_a=scale_a, scale_b=scale_b))
        for variant in VARIANTS:
            got = gemm(spec, a, b, c, scale_a=scale_a, scale_b=scale_b, _variant=variant)
            assert np.array_equal(got, expected), (variant, m, n, k)


@pytest.mark.parametrize("shape", [(2, 3, 41, 9), (2, 3, 5, 70)])
def test_block_scales_of_stacks_and_threads(shape: tuple[int, ...]) -> None:
    spec = SCALED["nvf4"]
    rng = np.random.default_rng(13)
    (*lead, m, n), k = shape, 96
    a, b, c = operands(1, spec, m, n, k, "near", batch=(2, 3))
    fmt = format_of("ue4m3")
    scale_a, scale_b = scale_codes(rng, fmt, (*lead, m, 6), "wide"), scale_codes(rng, fmt, (*lead, n, 6), "wide")
    scale_b = scale_b.swapaxes(-1, -2)
    expected = np.stack(
        [
            [gemm(spec, a[i, j], b[i, j], c[i, j], scale_a=scale_a[i, j], scale_b=scale_b[i, j]) for j in range(3)]
            for i in range(2)
        ]
    )
    assert np.array_equal(
        expected[1, 2, :3, :3],
        reference.gemm(
            spec,
            DotOperands(
                a[1, 2, :3], b[1, 2, :, :3], c[1, 2, :3, :3], scale_a=scale_a[1, 2, :3], scale_b=scale_b[1, 2, :, :3]
            ),
        ),
    )
    for threads in (1, 2, 3):
        got = gemm(spec, a, b, c, scale_a=scale_a, scale_b=scale_b, threads=threads)
        assert np.array_equal(got, expected)


def test_wrong_block_scales_say_what_is_needed() -> None:
    spec = SCALED["nvf4"]
    a, b, c = operands(1, spec, 2, 3, 64, "near")
    good = np.zeros((2, 4), np.uint8), np.zeros((4, 3), np.uint8)
    with pytest.raises(InputError, match="scale_a"):
        gemm(spec, a, b, c)
    with pytest.raises(InputError, match=r"scale_b: .*\(4, 3\)"):
        gemm(spec, a, b, c, scale_a=good[0], scale_b=good[0])
    with pytest.raises(InputError, match="scale_a"):
        gemm(spec, a, b, c, scale_a=good[0].astype(np.uint16), scale_b=good[1])
    with pytest.raises(InputError, match="does not divide"):
        gemm(DotSpec(NVFP4, "e2m1", "e2m1", *F32, "ue8m0", 24), a, b, c, scale_a=good[0], scale_b=good[1])
    with pytest.raises(UnsupportedError, match="operands of up to"):
        gemm(DotSpec(NVFP4, "fp16", "fp16", *F32, "ue8m0", 16), a.astype(np.uint16), b.astype(np.uint16), c)


@pytest.mark.parametrize("name", SPECS)
def test_rows_beyond_the_first_block(name: str) -> None:
    """More rows than any kernel takes at once: each has the bits that it has alone."""
    spec = SPECS[name]
    a, b, c = operands(3, spec, 4200, 9, 5, "any")
    for variant in VARIANTS:
        whole = gemm(spec, a, b, c, _variant=variant)
        for part in (slice(0, 9), slice(2000, 2100), slice(4190, 4200)):
            assert np.array_equal(whole[part], gemm(spec, a[part], b, c[part], _variant=variant))
