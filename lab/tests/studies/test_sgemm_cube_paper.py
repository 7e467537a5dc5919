"""What SGEMM-cube's paper reports, on the simulated 910A: accuracy orderings, traffic, throughput anchors.

Nothing here was used to set a number of the device file; see docs/ascend910a.md for what was.
"""

from __future__ import annotations

import pytest

import hwsim
from hwsim.api import fma_chain
from hwsim.dataflows.davinci.coupled_tiling import Limits, Tiling, traffic
from hwsim.devices import load
from hwsim.gemm.problem import Problem
from hwsim_lab.papers.offset_sweep import markdown, sweep

LIMITS = Limits.of(load("ascend910a"), 2)


@pytest.fixture(scope="module")
def points():
    return list(sweep(hwsim.matmul, fma_chain, size=48, exponents=(-12, -7, 0, 4)))


@pytest.mark.slow
def test_orderings_of_section_4_1(points):
    for point in points:
        errors = point.errors
        schemes = {name: value for name, value in errors.items() if name.startswith("sb=")}
        assert (
            errors["sb=12 elementwise, b_k = 64"] < errors["sb=12 termwise"] / 1.5
        )  # joined every block of the paper's
        assert errors["HGEMM"] > max(schemes.values())  # HGEMM is worst ...
        if point.symmetric:
            assert 1e-4 < errors["HGEMM"] < 5e-4  # ... at about 1e-4
        for sb in (0, 6, 12):
            assert errors[f"sb={sb} termwise"] <= 1.05 * errors[f"sb={sb} elementwise"]
        # Scaled by 2^12, both orders are at least as good as plain fp32, at every exponent.
        assert errors["sb=12 termwise"] < errors["FP32 chain"]
        if point.exponent == -12:
            assert errors["sb=0 termwise"] > 10 * errors["sb=12 termwise"]
            assert errors["sb=0 termwise"] > errors["sb=6 termwise"] > errors["sb=12 termwise"]
            assert errors["sb=0 termwise"] > errors["FP32 chain"]
    low, ordinary = (next(p for p in points if p.symmetric and p.exponent == e) for e in (-12, 4))
    assert low.errors["sb=0 termwise"] > 100 * ordinary.errors["sb=0 termwise"]


def test_table_has_every_point(points):
    assert markdown(points).count("\n") == 2 + len(points)


def gemm(m, n, k, tile, fused, buffering="double"):
    from lowered import lower

    from hwsim.machines import timing
    from hwsim.schemes import scheme_of

    chip, scheme = load("ascend910a"), scheme_of("sgemm-cube")
    plan = scheme.plan(scheme.complete({}), Problem.of("fp32", 1, 1, 1))
    options = {"tile": dict(zip("mkn", tile, strict=True)), "n_fused": fused, "buffering": buffering}
    timed = timing.run(lower(plan, chip, m, n, k, options), chip)
    return next(kernel for kernel in timed.kernels if kernel.name == "gemm")


@pytest.mark.parametrize(
    ("tile", "fused", "rounds", "columns", "groups"),
    [
        ((176, 64, 176), 44, 1, 32, 2),
        ((176, 64, 176), 44, 1, 4, 2),
        ((96, 64, 96), 83, 2, 3, 1),
        ((64, 32, 128), 100, 1, 5, 2),
    ],
)
def test_traffic_is_eq9(tile, fused, rounds, columns, groups):
    """Eq. 9 counts elements of A and B (fp16) once per fetch and C (fp32) twice per group, B once for all cores."""
    b_m, b_k, b_n = tile
    m, n, k = 32 * rounds * b_m, columns * b_n, groups * fused * b_k
    counted = gemm(m, n, k, tile, fused).traffic_bytes
    expected = traffic(LIMITS, Tiling(b_m, b_k, b_n, fused), m, n, k)
    terms, cores = 3, 32
    assert counted["GM_L1"] == terms * 2 * (expected.a_read + cores * expected.b_read)  # unshared: each core fetches B
    assert counted["GM_UB"] + counted["UB_GM"] == terms * 4 * round(expected.c_read_write)
    assert round(expected.c_read_write) == 2 * m * n * groups
    # Eq. 9's sharing assumption: HBM sees B once for all cores of a round (less where L2 still holds a block).
    shared = terms * (2 * round(expected.a_read + expected.b_read) + 4 * groups * m * n)
    assert counted["HBM read"] <= shared
    if n == 32 * b_n:  # large enough that nothing of C survives in L2 from one term to the next
        assert counted["HBM read"] == shared


def test_throughput_anchors():
    """65.3 TFLOP/s double-buffered within 5 %, 41.7 single-buffered within 15 %, at (176, 64, 176, 44)."""
    n = 5632
    double, single = (
        2 * n**3 / (gemm(n, n, n, (176, 64, 176), 44, b).cycles / 1e9) / 1e12 for b in ("double", "single")
    )
    assert abs(double / 65.3 - 1) < 0.05
    assert abs(single / 41.7 - 1) < 0.15


def test_latencies_do_not_change_bits():
    """A device ten times slower to respond gives the same bits and more cycles."""
    import numpy as np

    from hwsim.devices import expanded

    slow = expanded(load("ascend910a"))
    for link in slow["links"].values():
        for key in ("startup_cycles", "overhead_cycles"):
            if key in link:
                link[key] = link[key] | {"value": 10 * link[key]["value"] + 10}
                link[key].pop("span", None)
    result, slower = (hwsim.run(m=50, n=60, k=70, device=d, scheme="sgemm-cube") for d in ("ascend910a", slow))
    assert np.array_equal(result.codes, slower.codes)
    assert slower.cycles > result.cycles
    assert slower.device_sha256 != result.device_sha256
