"""Times of a library's kernels: beside recorded ones, and where no program carries a kernel's order."""

import csv
import gzip
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import hwsim
import hwsim.api
from hwsim.errors import InputError, UnsupportedError
from hwsim.library_calls.choose import VERSIONS
from hwsim.library_calls.times import QUANTITIES, TimeRow, quantities, rows_of
from hwsim.resolve import library_call

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
    errors = defaultdict(list)
    for row in recorded(device):
        try:
            run = run_of(row)
        except UnsupportedError:  # cuBLASLt refused it as well
            continue
        error = (run.seconds * 1e6 + float(row["launch_us"])) / float(row["us"]) - 1
        errors["nvjet" if "nvjet" in row["kernels"] else "others"].append(abs(error))
    assert len(errors["nvjet"]) > 15 and len(errors["others"]) > 25
    assert np.mean(errors["nvjet"]) < 0.12 and np.mean(errors["others"]) < 0.2


def test_a_kernel_whose_order_no_program_carries_has_cycles_of_the_same_kernel_in_order() -> None:
    call = {"device": "h200", "library": "cublas", "format": "fp16", "m": 300, "n": 333, "k": 1001}
    run = hwsim.run(exact=False, **call)
    assert run.gemm.schedule.remainder == "first" and run.cycles > 0 and run.seconds > 0
    _, program = hwsim.api.program(**call)
    assert program.gemm.schedule.remainder == "last"
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
    choice = hwsim.library("cublas", device="h200").choose(m=300, n=520, k=1024, format="fp16")
    found = quantities(choice, (300, 520, 1024), "fp16", "fp32", 132, 5.0, 6.0)
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
            patch.setattr(library_call, "row_of", lambda *_: TimeRow(alone, 9, 0.1))
            found = hwsim.run(library="cublas", **given)
        assert found.seconds == pytest.approx(hwsim.run(split_k="auto", **given).seconds)


def test_every_chip_has_rows() -> None:
    for device in VERSIONS[0].devices:
        assert (66, "fp16", False) in rows_of(VERSIONS[0].times, device)


def test_a_batch_takes_longer_and_a_clock_of_ones_own_has_the_programs_time() -> None:
    call = {"device": "h200", "library": "cublas", "format": "fp16"}
    a, b = np.ones((256, 512), np.float16), np.ones((512, 384), np.float16)
    one, many = (hwsim.run(x, b, exact=False, **call) for x in (a, np.stack([a] * 64)))
    assert one.seconds < many.seconds and many.evidence["timing"]
    slow = hwsim.run(a, b, exact=False, clock_mhz=1000.0, **call)
    assert slow.seconds == pytest.approx(slow.cycles / 1e9)
    with pytest.raises(InputError, match="beyond a launch"):
        hwsim.run(a, b, exact=False, launch_overhead=True, **call)
