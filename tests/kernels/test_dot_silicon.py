"""The dot kernels against results of an H200: every captured output must be equal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hwsim import _kernels
from hwsim._kernels import gemm
from hwsim.devices import dot_spec, load
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import CompositeUnit, DotSpec, FusedUnit, Specials

GOLDEN = Path(__file__).parents[1] / "golden/h200/instructions.npz"
NANS = Path(__file__).parents[1] / "golden/h200_nan/fp64_nan.npz"
NAMES = {"f16": "fp16", "bf16": "bf16", "tf32": "tf32", "e4m3": "e4m3", "e5m2": "e5m2", "f32": "fp32"}


def hopper(instruction: str) -> DotSpec:
    """The spec of an instruction, by the rules of its family."""
    family, shape, *types = instruction.split(".")
    d, a, b = (NAMES[name] for name in types[:3])
    k = int(shape.split("k")[-1])
    fp8 = a in ("e4m3", "e5m2")
    half = d == "fp16"
    if fp8 and family == "mma":  # two fp16 instructions and an addition
        specials = Specials(nan_code=0x7FFF if half else 0x7FFFFFFF)
        inner = FusedUnit(16, 25, -21 if half else -133, "RNE" if half else "RZ", specials=specials)
        return DotSpec(CompositeUnit(k, inner, "fp16", 4, ((0, 1), (2, 3)), specials), a, b, d, d)
    unit = FusedUnit(
        k,
        13 if fp8 else 25,
        -21 if half else -133,
        "RNE" if half else "RZ",
        "e8m13" if fp8 and not half else None,
        Specials(nan_code=0x7FFF if half else 0x7FFFFFFF),
    )
    return DotSpec(unit, a, b, d, d)


@pytest.mark.parametrize("variant", _kernels.variants)
def test_every_captured_result(variant: str) -> None:
    checked = 0
    with np.load(GOLDEN) as golden:
        for key in sorted({name.rsplit("/", 1)[0] for name in golden.files}):
            spec = hopper(key.split("/")[0])
            a, b, c, d = (golden[f"{key}/{name}"] for name in "abcd")
            got = gemm(spec, a, b.swapaxes(-1, -2), c, _variant=variant)
            assert np.array_equal(got, d), f"{key}: {np.count_nonzero(got != d)} of {d.size} differ"
            checked += d.size
    assert checked == 884_736


@pytest.mark.parametrize("variant", [*_kernels.variants, "scalar"])
def test_every_captured_nan_of_fp64(variant: str) -> None:
    device, checked, nans = load("h200"), 0, 0
    with np.load(NANS) as golden:
        for key in sorted({name.rsplit("/", 1)[0] for name in golden.files}):
            a, b, c, d = (golden[f"{key}/{name}"] for name in "abcd")
            got = gemm(dot_spec(device, key.split("/")[0]), a, b.swapaxes(-1, -2), c, _variant=variant)
            assert np.array_equal(got, d), f"{key}: {np.count_nonzero(got != d)} of {d.size} differ"
            checked += d.size
            nans += int(np.isnan(d.view(np.float64)).sum())
    assert (checked, nans) == (32_000, 29_090)


def test_captured_nans_of_fp64_by_the_reference() -> None:
    device = load("h200")
    with np.load(NANS) as golden:
        for key in sorted({name.rsplit("/", 1)[0] for name in golden.files}):
            a, b, c, d = (golden[f"{key}/{name}"] for name in "abcd")
            spec = dot_spec(device, key.split("/")[0])
            for case in range(0, len(a), 20):
                assert np.array_equal(reference.gemm(spec, DotOperands(a[case], b[case].T, c[case])), d[case])
