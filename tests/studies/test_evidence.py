"""What a result says of its evidence: no better than what its bits rest on."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import hwsim
from hwsim import devices
from hwsim.devices import load
from hwsim.gemm.problem import Problem
from hwsim.resolve.evidence import of_schedule
from hwsim.resolve.gemm_record import record_of
from hwsim.resolve.prepare import prepare
from hwsim.schemes import scheme_of

GOLDEN = Path(__file__).parents[1] / "golden"

TCGEN05 = "tcgen05.mma.m{}n256k16.f16.f32.bf16.bf16"


def evidence(device, *, m=256, n=256, k=64, **given):
    return hwsim.run(m=m, n=n, k=k, device=device, exact=False, **given).evidence


@pytest.mark.parametrize("device", ["b200", "gb200"])
def test_scale_input_d_counts_where_a_plan_uses_it(device):
    alone = TCGEN05.format(128)
    assert evidence(device, scheme="bf16x9")["numerics"] == "assumption"
    assert evidence(device, scheme="bf16x9", accumulation="termwise", instruction=alone)["numerics"] == "paper"
    assert evidence(device, format="bf16", instruction=alone)["numerics"] == "paper"
    assert devices.numerics_evidence(load(device), alone) == "paper"
    assert devices.numerics_evidence(load(device), alone, scaled=True) == "assumption"


@pytest.mark.parametrize("device", ["b200", "gb200"])
def test_pairs_of_sms_were_compared_with_no_chip(device):
    assert devices.numerics_evidence(load(device), TCGEN05.format(256)) == "assumption"
    assert evidence(device, format="bf16", m=512, cta_group=2)["numerics"] == "assumption"
    assert evidence(device, format="bf16", m=512, instruction=TCGEN05.format(128))["numerics"] == "paper"
    integers = load(device).native["int8"]
    assert ".m256n" in integers and devices.numerics_evidence(load(device), integers) == "datasheet"


def test_the_level_is_of_the_file_and_not_of_its_values():
    """Two files with the same numbers, and so the same hash, may say different things of them."""
    plain = load("a100")
    said = {"source": "DS; a try", "evidence": "paper"}
    other = load({"schema_version": 1, "name": "a100", "title": plain.title, "extends": "a100", "inherited": said})
    a, b = np.ones((16, 16), np.float16), np.ones((16, 16), np.float16)
    levels = [hwsim.run(a, b, device=x, format="fp16", timing=False).evidence["numerics"] for x in (plain, other)]
    assert plain.sha256 == other.sha256 and levels == ["silicon-by-others", "paper"]


H200 = {"device": "h200", "m": 2048, "n": 1536, "k": 2048}


@pytest.mark.parametrize("format", ["fp16", "bf16", "e4m3", "tf32"])
def test_what_was_seen_is_silicon_on_the_h200_alone(format):
    assert evidence(**H200, format=format)["schedule"] == "silicon"
    assert evidence(**H200 | {"device": "h100"}, format=format)["schedule"] == "assumption"


@pytest.mark.parametrize(
    "given",
    [
        {"m": 1},
        {"n": 1},
        {"m": 16, "n": 16, "k": 8192},  # k_not_cut
        {"k": 2044},  # rows of A
        {"n": 1532},  # rows of B
        {"m": 16384},  # larger than any
        {"split_k": "auto"},
        {"split_k": 3},
        {"format": "int8"},
        {"format": "fp32"},
        {"format": "tf32", "k": 2040},  # CUTLASS's kernels take the rest of their tile first
        {"format": "tf32", "k": 4096},  # CTAs may share the K of a tile
        {"k_group": 64},
        {"format": "e4m3", "k_group": 64},
    ],
    ids=str,
)
def test_what_was_not_seen_is_an_assumption(given):
    assert evidence(**H200 | {"format": "fp16"} | given)["schedule"] == "assumption"


def test_promoted_sums_were_seen_with_e4m3():
    assert evidence(**H200, format="e4m3", accumulate="promoted")["schedule"] == "silicon"


SMALL = {"device": "h200", "timing": False, "rows": [0], "cols": [0]}


@pytest.fixture(scope="module")
def ones():
    return np.ones((32, 64), np.float16), np.ones((64, 32), np.float16)


@pytest.mark.parametrize(
    "schedule",
    [
        {"split_k": 2, "slice_multiple": 32},
        {"slice_k": 32},
        {"promotion_k": 32},
        {"k_permutation": [1, 0]},
        {"remainder": "first", "tile_k": 32},
        {"instruction": "mma.m16n8k8.f32.f16.f16.f32"},
        {"operand_rounding": "RZ"},
        {"epilogue": {"contraction": "none"}},
        {"epilogue": {"output_rounding": "RZ"}},
    ],
    ids=str,
)
def test_a_schedule_of_the_callers_own_is_an_assumption(ones, schedule):
    assert hwsim.run(*ones, format="fp16", schedule=schedule, **SMALL).evidence["schedule"] == "assumption"


def test_a_schedule_that_says_the_default_is_the_default(ones):
    for schedule in ({}, {"instruction": "mma.m16n8k16.f32.f16.f16.f32"}, {"slice_multiple": 128}):
        assert hwsim.run(*ones, format="fp16", schedule=schedule, **SMALL).evidence["schedule"] == "silicon"


def test_the_epilogue_counts(ones):
    c = np.ones((32, 32), np.float32)

    def of(format, **given):
        return hwsim.run(*ones, format=format, **given, **SMALL).evidence["schedule"]

    assert of("fp16", output="fp16") == "silicon"
    assert of("fp16", output="bf16") == of("bf16", output="fp16") == "assumption"
    assert of("fp16", c=c.astype(np.float16), output="fp16") == "assumption"  # cuBLAS rounds alpha times the sum first
    assert of("fp16", alpha=2) == of("fp16", c=c) == of("fp16", bias=c[0]) == "assumption"
    assert of("bf16", c=c, output="bf16", alpha=-1.5, beta=0.75) == "silicon"
    large = np.ones((1024, 32), np.float32)
    added = hwsim.run(large, large.T, large @ large.T, format="tf32", alpha=1.7, beta=-0.3, **SMALL)
    assert added.evidence["schedule"] == "silicon"


def test_stacks_were_not_surveyed():
    a, b = np.ones((2, 32, 64), np.float16), np.ones((64, 32), np.float16)
    assert hwsim.run(a, b, device="h200", format="fp16", timing=False).evidence["schedule"] == "assumption"


@pytest.mark.parametrize(
    ("scheme", "given", "level"),
    [
        ("tf32x1", {}, "silicon"),
        ("tf32x3", {}, "silicon"),
        ("sgemm-cube", {"scaling_exponent": 11}, "silicon"),
        ("sgemm-cube", {"accumulation": "elementwise"}, "assumption"),
        ("bf16x9", {}, "silicon"),  # termwise
        ("bf16x9", {"accumulation": "bands"}, "assumption"),
        ("ape-fp32-f", {"accumulation": "termwise"}, "silicon"),
        ("ape-fp32-f", {}, "assumption"),
        ("ape-fp32-b", {"accumulation": "termwise"}, "silicon"),
        ("ape-fp32-b", {}, "assumption"),
        ("ape-fp32-t", {}, "assumption"),
        ("ape-int16", {}, "assumption"),
        ("ape", {}, "assumption"),
        ("markidis", {}, "assumption"),
        ("markidis", {"accumulation": "termwise", "rounding": "RNE"}, "silicon"),
        ("egemm-tc", {}, "assumption"),
        ("le-gemm", {}, "assumption"),
        ("ootomo-fp16", {}, "assumption"),
        ("ootomo-tf32", {}, "assumption"),
        ("ozaki-fp16", {"slices": 3}, "assumption"),
        ("quantensor", {}, "assumption"),
    ],
)
def test_only_schemes_of_library_calls_that_were_recorded(scheme, given, level):
    run = {"device": "h200", "scheme": scheme, "timing": False, "rows": [0], "cols": [0], **given}
    data = np.ones((32, 64), np.int16 if scheme == "ape-int16" else np.float32)
    found = hwsim.run(data, np.ascontiguousarray(data.T), **run)
    expected = level if scheme != "tf32x1" and scheme != "tf32x3" else "assumption"  # one tile: not in tf32's class
    assert found.evidence["schedule"] == expected
    if expected != level:
        assert evidence(**H200, scheme=scheme, **given)["schedule"] == level


@pytest.mark.parametrize("device", ["mi300x", "a100", "a2", "ada"])
def test_rounding_to_tf32_is_an_assumption_off_the_h200(device):
    """Libraries there cut, or round ties away: the page says so, and no result claims more."""
    x = np.ones((32, 32), np.float32)
    found = hwsim.run(x, x, device=device, format="tf32", timing=False)
    assert found.evidence["schedule"] == "assumption"
    page = (Path(__file__).parents[2] / "docs/numerics.md").read_text()
    assert "fp32 operands of tf32 units" in page


def test_calls_in_an_order_of_ones_own_were_not_recorded():
    chip, problem = load("h200"), Problem.of("fp32", 2048, 1536, 2048)
    plan = prepare(chip, scheme_of("tf32x3"), problem).gemm.single
    for order, level in (("calls", "silicon"), ("ours", "assumption")):
        record = record_of(dataclasses.replace(plan, order=order), chip, problem)
        assert of_schedule(chip, record) == level
