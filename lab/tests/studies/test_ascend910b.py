"""The 910B's published measurements beside the timing machine. What was calibrated on what: lab/docs/ascend910b.md."""

from __future__ import annotations

import pytest

from hwsim.devices import load
from hwsim_lab.papers import ascend910b
from hwsim_lab.papers.ascend910b_data import published

PTO = published().pto.cases
WHY = {(what, quantity) for what, reasons in published().why.items() for quantity in reasons}


@pytest.fixture(scope="module")
def huawei():
    return {(point.what, point.quantity): point for point in ascend910b.huawei()}


def test_huaweis_gemm(huawei):
    """8192^3 FP16: core time and task within 10 %, each pipe's busy time within 20 %."""
    found = {quantity: point.error for (what, quantity), point in huawei.items() if what == "FP16 8192^3"}
    assert abs(found["core time, mean"]) < 0.10 and abs(found["task"]) < 0.10
    for pipe in ("cube busy", "MTE1 busy", "MTE2 busy", "FixPipe busy, no UnitFlag", "FixPipe busy, UnitFlag"):
        assert abs(found[pipe]) < 0.20


@pytest.mark.parametrize("size", sorted(PTO))
def test_ptos_gemms(huawei, size):
    """Core time within 10 %, each pipe within 20 %."""
    found = {quantity: point.error for (what, quantity), point in huawei.items() if what == f"PTO {size}^3"}
    assert abs(found.pop("core time")) < 0.10
    assert len(found) == 4 and all(abs(error) < 0.20 for error in found.values())


def test_ptos_times_are_core_times(huawei):
    """Its busy shares are of that time: a Mmad takes 524 to 525 cycles at three sizes, and the launch is not in it."""
    each = {}
    for size, case in PTO.items():
        number = size**3 / (24 * 128 * 256 * 64)
        each[size] = case.busy["M"] * case.us * 1850 / number
    assert all(each[size] == pytest.approx(524.5, abs=0.5) for size in (3072, 6144, 7680))
    assert each[1536] == pytest.approx(543, abs=0.5)  # 3.5 % more of 38.8 us, 1.3 us: less than a launch


def test_the_tuning_guide():
    found = {(point.what, point.quantity): point for point in ascend910b.guide()}
    missed = {key for key, point in found.items() if abs(point.error) >= (0.2 if "busy" in key[1] else 0.1)}
    assert len(found) == 9 and missed == {key for key in WHY if key in found}


def test_torch_on_a_910b2():
    """One of these has set what long fp32 work leaves of the clock."""
    points = ascend910b.torch()
    assert len(points) == 15
    assert [point.what for point in points if point.role == "calibration"] == ["torch fp32 8192^3"]
    assert all(abs(point.error) < 0.10 for point in points)
    assert sum(abs(point.error) for point in points) / len(points) < 0.05
    rates = {point.what: point.simulated for point in points}
    assert rates["torch fp16 4096^3"] > rates["torch fp16 8192^3"] > rates["torch fp16 10240^3"]  # as measured
    assert rates["torch fp32 4096^3"] > 1.03 * rates["torch fp32 10240^3"]


def test_every_reason_belongs_to_a_point(huawei):
    rest = (*ascend910b.guide(), *ascend910b.torch(), *ascend910b.paper())
    assert {(point.what, point.quantity) for point in rest} | set(huawei) >= WHY


def test_fp32_on_a_910b3_is_as_in_the_paper_where_the_clock_falls():
    (point,) = ascend910b.paper()
    assert abs(point.error) < 0.10
    alone = ascend910b.gemm(load("ascend910b3"), 4096, 4096, 8192, "fp32", **ascend910b.library_tile("fp32"))
    at_full_clock = 2 * 4096 * 4096 * 8192 / alone.total / 1e6
    assert 1.05 * point.simulated < at_full_clock < 73.73  # the peak


@pytest.mark.slow
def test_native_fp32_is_flat_in_k_and_falls_when_all_sizes_grow():
    sweeps = {"k": [(4096, 4096, k) for k in (8192, 16384)], "m = n = k": [(n, n, n) for n in (4096, 12288)]}
    low, high, small, large = ascend910b.fig11(sweeps)
    for one in (low, high, small, large):
        assert 63 < one.bands_910b3 < 73.73  # the paper's plateau, the peak
    assert abs(high.bands_910b3 / low.bands_910b3 - 1) < 0.02
    assert abs(high.rows_910b3 / low.rows_910b3 - 1) < 0.02
    assert large.bands_910b3 < 0.96 * small.bands_910b3  # the clock
    assert large.rows_910b3 < 0.85 * small.rows_910b3  # and the traffic beyond L2
    assert small.cube_910a < small.rows_910b3 and large.cube_910a > large.rows_910b3  # the 910A overtakes
    assert large.cube_910a > 60


def test_the_device_files_agree_with_what_is_published():
    old, new = load("ascend910b3"), load("ascend910b1")
    assert (old.cores, old.clock_mhz, new.cores, new.clock_mhz) == (20, 1800, 24, 1850)
    peak = {
        name: 2 * i.m * i.n * i.k / float(i.interval_cycles()) * old.cores * old.clock_mhz / 1e6
        for name, i in old.matrix_instructions.items()
    }
    assert peak["mmad.m16n16k8.f32.f32.f32"] == pytest.approx(73.73, abs=0.01)
    assert peak["mmad.m16n16k16.f32.f16.f16"] == pytest.approx(294.9, abs=0.05)


def test_tables_have_every_point():
    points = [
        ascend910b.Comparison("one", "time", "us", (1.0, 2.0), 3.0),
        ascend910b.Comparison("two", "time", "us", (5, 5), 4.0),
    ]
    assert [round(point.error, 3) for point in points] == [0.5, -0.2]
    text = ascend910b.points_text(points)
    assert text.count("\n") == 4 and "+50.0%" in text and "1.0 to 2.0" in text
