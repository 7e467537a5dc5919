"""Chains of equal runs of K added up outside the unit: against the reference's chains and one addition at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_dot_fused_lanes import UNITS
from test_dot_models import build

from hwsim import _kernels
from hwsim._kernels import gemm, promote
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import format_of
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import DotSpec, FmaChainUnit

NAN = 0x7FFFFFFF
HALVES = DotSpec(FmaChainUnit(), "fp16", "fp16", "fp16", "fp16")
DOUBLES = DotSpec(FmaChainUnit(), "fp64", "fp64", "fp64", "fp64")


def expected(spec: DotSpec, a: Any, b: Any, total: Any, length: int, divide: Any, *, saturate: bool) -> Any:
    """The reference's chain of each run, then NumPy's addition and the edges of the lanes."""
    terms, real = spec.unit.terms, total.dtype
    total = total.copy()
    for start in range(0, a.shape[1], length):
        codes = np.zeros(total.shape, f"u{real.itemsize}")
        for step in range(start, start + length, terms):
            part = slice(step, step + terms)
            places = 0 if divide is None else int(divide[(step - start) // terms])
            left, right = np.ascontiguousarray(a[:, part]), np.ascontiguousarray(b[part])
            codes = reference.gemm(spec, DotOperands(left, right, codes, scale_d=places))
        with np.errstate(all="ignore"):
            if saturate:
                most = np.finfo(real).max
                values = np.nan_to_num(codes.view(real), nan=0.0, posinf=most, neginf=-most)
                total = total + values
                total = np.nan_to_num(total, nan=0.0, posinf=most, neginf=-most)
            else:
                total = total + codes.view(real)
        if not saturate and real == np.float32:
            total.view(np.uint32)[np.isnan(total)] = NAN
    return total


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("kind", ["near", "wide", "large", "any"])
@pytest.mark.parametrize("name", ["fused-hopper-bf16", "fused-volta-fp16"])
def test_runs_are_chained_and_added(name: str, kind: str, saturate: bool) -> None:
    spec, rng = UNITS[name], np.random.default_rng([len(name), len(kind)])
    terms = spec.unit.terms
    for runs, steps in ((1, 1), (3, 2), (5, 3)):
        m, n, k = 2, 5, runs * steps * terms
        a, b = build(rng, format_of(spec.a), (m, k), kind), build(rng, format_of(spec.b), (k, n), kind)
        divide = rng.choice([0, 1, 8], steps).astype(np.uint8)
        divide[0] = 0
        total = build(rng, format_of("fp32"), (m, n), "near").view(np.float32)
        for places in (None, divide):
            wanted = expected(spec, a, b, total, steps * terms, places, saturate=saturate)
            for variant in (*_kernels.variants, "scalar"):
                got = total.copy()
                options = {"saturate": saturate, "nan_code": NAN, "divide": places, "_variant": variant}
                assert promote(spec, a, b, got, length=steps * terms, **options) is got
                assert np.array_equal(got.view(np.uint32), wanted.view(np.uint32)), variant


@pytest.mark.parametrize("shape", [(3, 1100), (300, 70), (517, 519)])
def test_blocks_and_threads_change_nothing(shape: tuple[int, int]) -> None:
    """More rows and columns than a block has; operands that are no whole arrays."""
    spec, rng = UNITS["fused-hopper-bf16"], np.random.default_rng(shape[0])
    (m, n), length, runs = shape, 2 * spec.unit.terms, 3
    a = build(rng, format_of("bf16"), (m, length * runs + 5), "near")[:, 2 : length * runs + 2]
    b = build(rng, format_of("bf16"), (n, length * runs), "near").T
    total = build(rng, format_of("fp32"), (m, n), "near").view(np.float32)
    wanted = total.copy()
    for run in range(runs):
        part = slice(run * length, (run + 1) * length)
        wanted += gemm(spec, a[:, part], b[part]).view(np.float32)
    for threads in (1, 2, 5):
        got = promote(spec, a, b, total.copy(), length=length, threads=threads)
        assert np.array_equal(got.view(np.uint32), wanted.view(np.uint32))


def test_doubles() -> None:
    rng = np.random.default_rng(3)
    a, b = build(rng, format_of("fp64"), (3, 12), "near"), build(rng, format_of("fp64"), (12, 4), "near")
    total = np.ones((3, 4))
    got = promote(DOUBLES, a, b, total.copy(), length=4)
    assert np.array_equal(got, expected(DOUBLES, a, b, total, 4, None, saturate=False))


def test_what_does_not_fit() -> None:
    spec = UNITS["fused-hopper-bf16"]
    a, b = np.zeros((2, 64), np.uint16), np.zeros((64, 3), np.uint16)
    total = np.zeros((2, 3), np.float32)
    for length in (0, 24, 48, 8):
        with pytest.raises(InputError, match=r"length must be a multiple of 16 that divides K = 64; got"):
            promote(spec, a, b, total, length=length)
    for wrong in (total.astype(np.float64), np.zeros((3, 2), np.float32).T, total[0], [[0.0]]):
        with pytest.raises(InputError, match="total must be a C-contiguous matrix of float32"):
            promote(spec, a, b, wrong, length=16)
    with pytest.raises(InputError, match=r"a \(M, K\), b \(K, N\) and total \(M, N\)"):
        promote(spec, a, b[:32], total, length=16)
    with pytest.raises(InputError, match=r"divide must be uint8 \(1,\)"):
        promote(spec, a, b, total, length=16, divide=np.zeros(4, np.uint8))
    with pytest.raises(InputError, match="threads must be at least 1"):
        promote(spec, a, b, total, length=16, threads=0)
    with pytest.raises(UnsupportedError, match="accumulator and result are both fp32"):
        promote(HALVES, a, b, total, length=16)
