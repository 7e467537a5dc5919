"""Times of a library's kernels: beside recorded ones, and where no program carries a kernel's order."""

import csv
import gzip
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import hwsim
import hwsim.api
import hwsim.libraries.adopt
from hwsim.analysis.energy import energy
from hwsim.errors import InputError, UnsupportedError
from hwsim.libraries.cublas import rules
from hwsim.libraries.cublas.times.fitted_times import (
    FACTS,
    QUANTITIES,
    TimeRow,
    facts,
    forest_of,
    quantities,
    rows_of,
    with_factor,
)
from hwsim.libraries.cublas.times.forest import LEAF, unpack
from hwsim.libraries.cublas.versions import versions
from hwsim.libraries.gemm_call import GemmCall

ROOT = Path(__file__).parents[2]
HELD, EVERY = "blind2", 12  # no number is fitted to this set
ACCUMULATE = {"fast": "fast", "slow": "promoted"}


def recorded(device):
    with gzip.open(ROOT / "tests" / "golden" / "h200_library" / "times.csv.gz", "rt") as file:
        rows = [x for x in csv.DictReader(file) if x["device"] == device and x["set"] == HELD]
        return rows[::EVERY]


def run_of(row):
    operand, _, output = row["kind"].partition(">")
    more = {"accumulate": ACCUMULATE[output[-4:]]} if output[-4:] in ACCUMULATE else {}
    sizes = {name: int(row[name]) for name in "mnk"}
    return hwsim.run(
        device=row["device"], library="cublas", exact=False, format=operand, b_layout=row["b_layout"],
        output=output.removesuffix("fast").removesuffix("slow"), **sizes, **more,
    )  # fmt: skip


@pytest.mark.parametrize("device", ["h200", "h100"])
def test_times_are_near_recorded_ones(device) -> None:
    """Errors of times against every GEMM that was timed on the chip: what docs/library.md says of them."""
    errors = defaultdict(list)
    for row in recorded(device):
        try:
            run = run_of(row)
        except UnsupportedError:  # cuBLASLt refused it as well
            continue
        error = (run.seconds * 1e6 + float(row["launch_us"])) / float(row["us"]) - 1
        errors["nvjet" if "nvjet" in row["kernels"] else "others"].append(abs(error))
    assert len(errors["nvjet"]) > 15 and len(errors["others"]) > 25
    assert np.mean(errors["nvjet"]) < 0.08 and np.mean(errors["others"]) < 0.13


def test_a_kernel_whose_order_no_program_carries_has_cycles_of_the_same_kernel_in_order() -> None:
    """It is one of CUDA cores."""
    call = {"device": "h200", "library": "cublas", "format": "fp32", "m": 209, "n": 491, "k": 1430}
    run = hwsim.run(exact=False, **call)
    assert run.gemm.schedule.sum is not None and run.cycles > 0 and run.seconds > 0
    _, program = hwsim.api.program(**call)
    assert program.gemm.schedule.sum is None
    assert run.gemm.decided("times").by == "library" and run.gemm.decided("times").evidence == "fitted"


def test_a_kernel_without_a_program_has_seconds_and_says_why_no_cycles() -> None:
    run = hwsim.run(device="h200", library="cublas", format="fp16", m=1, n=1, k=4096, exact=False)
    assert run.cycles is None and run.timing_note
    assert 0 <= run.seconds < 1e-4


def test_bits_are_the_same_with_and_without_times() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((30, 1001)).astype(np.float16), rng.standard_normal((1001, 33)).astype(np.float16)
    call = {"device": "h200", "library": "cublas", "format": "fp16"}
    timed, bare = (hwsim.run(a, b, timing=x, **call) for x in (True, False))
    assert timed.c.tobytes() == bare.c.tobytes() and timed.seconds > 0 and bare.seconds is None


def test_a_row_is_a_sum_and_never_negative() -> None:
    call = GemmCall(m=300, n=520, k=1024, format="fp16")
    found = quantities(hwsim.library("cublas", device="h200").choose(call), call, 132, 5.0, 6.0)
    assert len(found) == len(QUANTITIES) and found[:3] == (1.0, 5.0, 6.0)
    assert found[3] == pytest.approx((300 * 1024 * 2 + 1024 * 520 * 2 + 300 * 520 * 4) / 1e6)
    one = TimeRow((-1.0, 2.0, *(0.0,) * (len(QUANTITIES) - 2)), 9, 0.1)
    assert one.seconds(found) == pytest.approx(9e-6)
    assert TimeRow((-99.0, *one.numbers[1:]), 9, 0.1).seconds(found) == 0


def test_the_estimate_is_what_a_run_without_the_library_takes() -> None:
    """With a row whose numbers are all 0 but that of the estimate."""
    alone = tuple(float(name == "estimate_us") for name in QUANTITIES)
    for call in ({"format": "fp16", "b_layout": "columns"}, {"format": "tf32", "output": "fp32"}):
        given = {"device": "h200", "m": 512, "n": 768, "k": 2048, "exact": False, **call}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rules, "row_of", lambda *_: TimeRow(alone, 9, 0.1))
            patch.setattr(rules, "forest_of", lambda *_: None)
            found = hwsim.run(library="cublas", **given)
        assert found.seconds == pytest.approx(hwsim.run(split_k="auto", **given).seconds)


def test_every_chip_has_rows_and_trees() -> None:
    for device in versions()[0].devices:
        assert (66, "fp16", False) in rows_of(versions()[0].times, device)
        forest = forest_of(versions()[0].factors, device)
        assert forest is not None and len(forest.roots) > 100


def test_a_forest_walks_each_tree_and_is_the_same_packed() -> None:
    """Two trees, by hand: one leaf; x1 <= 2.5 ? (x0 <= 0 ? 1 : 2) : 4, breadth first."""
    parts = {
        "trees": np.array([1, 5], np.uint16),
        "feature": np.array([LEAF, 1, 0, LEAF, LEAF, LEAF], np.uint8),
        "threshold": np.array([2.5, 0], np.float32),
        "value": np.array([0.5, 4, 1, 2], np.float16),
    }
    forest = unpack(parts)
    for point, value in (((0, 2.5), 1.5), ((0.1, 2.5), 2.5), ((0, 2.6), 4.5)):
        assert forest.at(point) == value
    for name, found in forest.pack().items():
        assert found.dtype == parts[name].dtype and found.tolist() == parts[name].tolist()
    for name in parts:
        with pytest.raises(ValueError, match="nodes"):
            unpack(parts | {name: parts[name][:-1]})


def test_a_factor_is_of_the_time_with_a_launch_and_leaves_nothing_below_zero() -> None:
    double = unpack({"trees": [1], "feature": [LEAF], "threshold": [], "value": [math.log(2)]})
    assert with_factor(double, (), 10.0) == pytest.approx(2 * 12 - 2, rel=1e-3)
    half = unpack({"trees": [1], "feature": [LEAF], "threshold": [], "value": [-math.log(2)]})
    assert with_factor(half, (), 1.0) == 0


def test_facts_of_a_gemm() -> None:
    call = GemmCall(m=300, n=520, k=1024, format="fp16")
    choice = hwsim.library("cublas", device="h200").choose(call)
    found = dict(zip(FACTS, facts(choice, call, 7.0), strict=True))
    rows, columns = choice.tile
    assert (found["m"], found["n"], found["k"], found["sum_us"], found["b_by_rows"]) == (300, 520, 1024, 7, 1)
    assert (found["m_alignment"], found["n_alignment"], found["k_alignment"]) == (4, 8, 128)
    assert found["edge_m"] == (300 % rows or rows) / rows and found["edge_n"] == (520 % columns or columns) / columns


def test_a_batch_takes_longer_and_a_clock_of_ones_own_has_the_programs_time() -> None:
    call = {"device": "h200", "library": "cublas", "format": "fp16"}
    a, b = np.ones((256, 512), np.float16), np.ones((512, 384), np.float16)
    one, many = (hwsim.run(x, b, exact=False, **call) for x in (a, np.stack([a] * 64)))
    assert one.seconds < many.seconds and many.evidence["timing"]
    slow = hwsim.run(a, b, exact=False, clock_mhz=1000.0, **call)
    assert slow.seconds == pytest.approx(slow.cycles / 1e9)
    with pytest.raises(InputError, match="beyond a launch"):
        hwsim.run(a, b, exact=False, launch_overhead=True, **call)


def test_a_time_of_zero_has_no_power() -> None:
    found = hwsim.run(m=2, n=2, k=16, device="h200", library="cublas", format="tf32", exact=False)
    assert found.seconds == 0 and found.tflops is None
    with pytest.raises(UnsupportedError, match="a time of 0"):
        energy(found.times, found.gemm)
