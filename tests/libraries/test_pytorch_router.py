"""library="pytorch": which library an operator is a call of, and PyTorch's switches as options of that call."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.gemm.schedule import Schedule
from hwsim.libraries.protocol import LibraryRequest
from hwsim.libraries.pytorch.router import ROUTER
from hwsim.libraries.pytorch.routes import is_of_gemms, route_of

RAGGED = {"m": 500, "n": 132, "k": 6886, "format": "bf16", "output": "bf16", "b_layout": "columns"}


def test_reductions_are_any_for_pytorch_and_the_accumulators_for_cublas():
    of_cublas = hwsim.library("cublas", device="h100")
    expected = {kind: of_cublas.choose(reductions=kind, **RAGGED).schedule for kind in ("any", "compute")}
    assert expected["any"] != expected["compute"]
    assert hwsim.library("pytorch", device="h100").choose(**RAGGED).schedule == expected["any"]
    options = {**RAGGED, "device": "h100", "exact": False, "timing": False}
    formats = {}
    for name, more in (("cublas", {}), ("pytorch", {}), ("cublas", {"reductions": "any"})):
        schedule = hwsim.run(library=name, **more, **options).gemm.schedule
        formats[name, *more] = schedule.partial_format, schedule.merge_into
    assert formats["pytorch",] == formats["cublas", "reductions"] != formats["cublas",]


def test_times_of_an_assumed_kernel_are_assumed():
    """With reductions="none" cuBLASLt was not asked: the kernel is that of the call with less workspace."""
    for reductions, level in ((None, "fitted"), ("any", "fitted"), ("none", "assumption")):
        result = hwsim.run(library="cublas", device="h100", exact=False, reductions=reductions, **RAGGED)
        assert result.gemm.decided("kernel").evidence == level
        assert result.evidence["timing"] == level


def test_scales_of_rows_are_cublas_on_hopper_and_cutlass_elsewhere():
    libraries = {name: ROUTER.on(LibraryRequest(device=name)).of_rows for name in ("h100", "l40s", "b200", "t4")}
    assert {name: rules and rules.id.name for name, rules in libraries.items()} == {
        "h100": None,
        "l40s": "cutlass",
        "b200": "cutlass",
        "t4": None,
    }


def test_a_record_says_which_reductions_and_workspace_were_asked_for():
    asked = {"reductions": "any", "workspace_bytes": 131072}
    gemm = hwsim.run(library="pytorch", device="h100", exact=False, timing=False, **asked, **RAGGED).gemm
    assert {name: gemm.decided(name).value for name in asked} == {"reductions": "any", "workspace_bytes": "131072"}


def test_slices_fit_in_the_workspace():
    call = {"m": 256, "n": 256, "k": 8192, "format": "bf16", "output": "bf16", "b_layout": "columns"}
    options = {**call, "device": "h100", "library": "pytorch", "exact": False, "timing": False}
    assert int(hwsim.run(**options).gemm.decided("split_k").value) > 1
    small = hwsim.run(workspace_bytes=1024, reductions="compute", **options).gemm.decided("split_k")
    assert (small.value, small.evidence) == ("1", "assumption")


def test_switches_without_a_library_are_refused():
    with pytest.raises(hwsim.InputError, match=r"reductions: .* library"):
        hwsim.run(m=16, n=16, k=16, device="h100", format="bf16", reductions="any", exact=False)


def test_a_chip_whose_library_is_not_known_keeps_the_units_order():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((40, 40)).astype(ml_dtypes.bfloat16) for _ in range(2))
    plain = hwsim.matmul(a, b, device="mi300x", format="bf16")
    result = hwsim.run(a, b, device="mi300x", format="bf16", library="pytorch", timing=False)
    assert np.array_equal(result.c, plain)
    assert result.gemm.decided("kernel").evidence == "assumption"
    assert "mi300x" in result.gemm.decided("kernel").why


def test_routes():
    assert route_of("mm", "bf16", "h100", "sm90").library == "cublas"
    assert route_of("convolution", "bf16", "h100", "sm90").library == "cudnn"
    assert route_of("_grouped_mm", "bf16", "h100", "sm90").order == "unit"
    assert is_of_gemms("_grouped_mm", "fp16", "h100", "sm90")
    assert is_of_gemms("_grouped_mm", "bf16", "a100", "sm80")


def test_another_version_of_pytorch_is_refused():
    with pytest.raises(hwsim.UnsupportedError, match=r"no version '1\.0'"):
        hwsim.library("pytorch", device="h100", version="1.0")


def test_slices_merged_in_a_narrow_output_are_rounded_one_after_the_other():
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((32, 192)).astype(np.float16) for _ in range(2))
    bias = rng.standard_normal(32).astype(np.float16)
    common = {"device": "h100", "format": "fp16"}
    parts = [hwsim.matmul(a[:, at : at + 64], b[:, at : at + 64].T, output="fp32", **common) for at in (0, 64, 128)]
    expected = (parts[0] + bias.astype(np.float32)).astype(np.float16)
    for part in parts[1:]:
        expected = (expected.astype(np.float32) + part).astype(np.float16)
    schedule = Schedule(slice_k=64, merge_into="output")
    got = hwsim.matmul(a, b.T, bias=bias, output="fp16", schedule=schedule, **common)
    assert np.array_equal(got.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("left", ["e4m3", "e5m2"])
def test_fp8_sums_are_promoted_unless_fast_ones_are_asked_for(left):
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((16, 4096), (4096, 32)))
    a = a.astype({"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[left])
    options = {"device": "h100", "format": left, "format_b": "e4m3", "output": "bf16", "b_layout": "columns"}
    default, fast, slow = (
        hwsim.matmul(a, b, library="pytorch", **options, **more).view(np.int16)
        for more in ({}, {"accumulate": "fast"}, {"accumulate": "promoted"})
    )
    assert np.array_equal(default, slow) and not np.array_equal(default, fast)
    assert np.array_equal(fast, hwsim.matmul(a, b, library="cublas", **options).view(np.int16))
