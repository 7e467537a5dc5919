"""K cut by estimate: where it is, that the program is that of the count, and what the estimate counts."""

import numpy as np
import pytest

import hwsim
from hwsim.dataflows.registry import dataflow
from hwsim.dataflows.tiled.choice import TileRequest
from hwsim.dataflows.tiled.dataflow import least_seconds
from hwsim.dataflows.tiled.estimate import best_split, reduction_seconds
from hwsim.dataflows.tiled.partition import Partition
from hwsim.devices import load
from hwsim.errors import InputError
from hwsim.gemm.problem import Problem
from hwsim.gemm.schedule import Schedule
from hwsim.libraries import model as libraries
from hwsim.resolve.choice.cost import cost
from hwsim.resolve.gemm_record import record_of
from hwsim.resolve.planning import plan_for
from hwsim.schemes import scheme_of


def timed(m: int, n: int, k: int, format: str, split_k: int | str | None, device: str = "h200"):
    return hwsim.run(m=m, n=n, k=k, device=device, format=format, exact=False, split_k=split_k)


@pytest.mark.parametrize(("format", "device"), [("fp32", "h200"), ("fp64", "h200"), ("fp16", "a100")])
def test_long_k_with_few_tiles_is_cut_and_faster(format, device):
    auto, whole = (timed(128, 128, 4096, format, split, device) for split in ("auto", None))
    count = auto.options["split_k"]
    assert count > 1 and whole.options["split_k"] == 1
    assert auto.cycles < whole.cycles / 2
    assert auto.cycles == timed(128, 128, 4096, format, count, device).cycles


def test_full_cores_are_not_cut():
    auto = timed(4096, 4096, 1024, "fp32", "auto")
    assert auto.options["split_k"] == 1
    assert auto.cycles == timed(4096, 4096, 1024, "fp32", None).cycles


def test_bits_are_those_of_the_count():
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, 1531), (1531, 16)))
    auto = hwsim.run(a, b, device="h200", format="fp32", split_k="auto")
    count = auto.options["split_k"]
    assert count > 1
    same = hwsim.run(a, b, device="h200", format="fp32", split_k=count)
    whole = hwsim.run(a, b, device="h200", format="fp32")
    assert (auto.codes == same.codes).all()
    assert (auto.codes != whole.codes).any()


def test_other_words_are_refused():
    with pytest.raises(InputError, match="split_k = 'most'"):
        timed(64, 64, 256, "fp32", "most")


RULES = libraries.load("cublas-13").split_k


def none(count: int) -> float:
    return 0.0


def test_short_slices_are_not_tried():
    tried = []
    assert best_split(5 * RULES.min_slice, lambda count: tried.append(count) or 1 / count, none, RULES) == (5, 0.2)
    assert tried == [c for c in RULES.counts if c <= 5]
    assert best_split(RULES.min_slice, lambda count: 1 / count, none, RULES) == (1, 1.0)
    assert best_split(100 * RULES.min_slice, lambda count: 1.0, none, RULES) == (1, 1.0)


def test_counts_that_cannot_win_are_not_weighed():
    weighed = []

    def estimate(count: int) -> float:
        weighed.append(count)
        return {1: 8.0, 2: 5.0, 3: 4.0, 4: 3.5}[count]

    # The third may win by a hair, and does; the fourth cannot be below what the third takes.
    assert best_split(4 * RULES.min_slice, estimate, lambda count: {2: 1.0, 3: 3.99, 4: 4.0}[count], RULES) == (3, 0.5)
    assert weighed == [1, 2, 3]


@pytest.mark.parametrize(
    ("device", "format"),
    [("h200", "fp16"), ("h200", "tf32"), ("h200", "fp32"), ("h200", "fp64"), ("b200", "bf16"), ("a100", "fp16"),
     ("v100", "fp16"), ("mi210", "fp32")],
)  # fmt: skip
@pytest.mark.parametrize("sizes", [(96, 128, 4160), (640, 768, 1536), (2048, 1920, 8192)])
def test_no_estimate_is_below_its_bound(device, format, sizes):
    chip = load(device)
    plan = plan_for(chip, scheme_of("native"), Problem.of("fp32", *sizes), format, {}).plan
    flow = dataflow(chip)
    for count in (1, 2, 5, 16):
        gemm = record_of(plan, chip, Problem.of("fp32", *sizes), Schedule(split_k=count))
        cut = (
            Partition(gemm, chip, flow.family, gemm.unit, ("rows", "rows"), count > 1),
            gemm.schedule.slice_lengths(sizes[2]),
        )
        assert 0 < least_seconds(*cut) <= flow.seconds(*cut, TileRequest())


def test_a_merge_costs_its_bytes_and_a_launch():
    chip = load("h200")
    none = reduction_seconds(chip, 1 << 20, 1, "fp32", "fp32", 1)
    two, four = (reduction_seconds(chip, 1 << 20, count, "fp32", "fp32", 1) for count in (2, 4))
    assert none == 0
    assert four - two == pytest.approx(2 * 4 * (1 << 20) / chip.l2.bytes_per_second)
    assert two > chip.launch_overhead_us * 1e-6


def test_the_time_between_kernels_raises_the_clock():
    plan = plan_for(load("h200"), scheme_of("native"), Problem.of("fp16", 1024, 1024, 1024), "fp16", {}).plan
    seconds = []
    for gap_us in (0.0, 5.0):
        chip = load("h200").model_copy(update={"launch_overhead_us": gap_us})
        found = cost(plan, chip, (1024, 1024, 1024))
        seconds.append(found.seconds)
    assert seconds[1] < seconds[0]


def test_a_tile_that_ends_with_c_is_taken_where_estimates_are_close():
    tile = timed(1024, 1024, 1024, "fp16", None).options["tile"]
    assert 1024 % tile["m"] == 1024 % tile["n"] == 0
