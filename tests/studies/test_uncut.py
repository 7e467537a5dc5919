"""What a run says that left K in one piece where slices of it would be much faster."""

import numpy as np
import pytest

import hwsim
from hwsim.dataflows.protocol import SplitK
from hwsim.dataflows.tiled import dataflow
from hwsim.dataflows.tiled.dataflow import TiledDataflow
from hwsim.errors import InputError
from hwsim.libraries.model import load
from hwsim.resolve import slice_choice
from hwsim.resolve.choice.idle_cores import CODE as IDLE
from hwsim.resolve.choice.split_k_advice import CODE

NOTABLE = load("cublas-13").split_k.advise_below
LONG = {"m": 128, "n": 128, "k": 8192}


def said(**arguments) -> list[tuple[str, int]]:
    """Code and count of each warning, but for idle cores."""
    found = hwsim.run(**{"device": "h200", "format": "fp32", "exact": False} | arguments).warnings
    return [(notice["code"], notice["count"]) for notice in found if notice["code"] != IDLE]


def test_the_notice_has_the_count_and_the_share_of_the_time():
    whole, auto = (
        hwsim.run(**LONG, device="h200", format="fp32", exact=False, split_k=count) for count in (None, "auto")
    )
    (notice,) = [one for one in whole.warnings if one["code"] == CODE]
    count = auto.options["split_k"]
    assert (notice["code"], notice["count"]) == (CODE, count) and count > 1
    assert f"takes {count} slices" in notice["message"]
    share = int(notice["message"].split("about ")[1].split("%")[0]) / 100
    assert share < NOTABLE
    assert auto.seconds / whole.seconds == pytest.approx(share, abs=0.006)
    assert CODE not in [one["code"] for one in auto.warnings]


#: Of a feed-forward layer for 96 tokens: on two of the chips K in one piece is the fastest, against the estimate.
LAYER = {"m": 96, "n": 5120, "k": 13824, "format": "fp16", "exact": False}


@pytest.mark.parametrize("device", ["h100", "l40s", "b200", "mi300x"])
def test_auto_is_the_fastest_of_what_it_timed_and_the_advice_its_share(device):
    whole, auto = (hwsim.run(**LAYER, device=device, split_k=count) for count in (None, "auto"))
    assert auto.seconds <= whole.seconds
    decision = auto.gemm.decided("split_k")
    tried = [int(count) for count in decision.why.partition("fastest of ")[2].partition(", by")[0].split(", ")]
    assert 1 in tried and len(tried) > 2
    times = {count: hwsim.run(**LAYER, device=device, split_k=count).seconds for count in tried}
    assert auto.seconds == min(times.values()) == times[auto.options["split_k"]]
    share = auto.seconds / whole.seconds
    advised = [one for one in whole.warnings if one["code"] == CODE]
    assert bool(advised) == (auto.options["split_k"] > 1 and share <= NOTABLE)
    for notice in advised:
        assert f"takes {auto.options['split_k']} slices and about {share:.0%} of the time" in notice["message"]
    if auto.options["split_k"] > 1:
        assert f"{share:.0%} of the time of K in one piece" in decision.why


def test_slices_are_said_as_they_run(monkeypatch):
    """Slices are multiples of 64: K = 2112 asked for in 10 runs in 9."""
    call = {"m": 16, "n": 64, "k": 2112, "device": "h200", "format": "fp16", "exact": False}
    estimate = SplitK(10, 0.1, NOTABLE, (10, 9, 8, 1))
    monkeypatch.setattr(TiledDataflow, "split_k", lambda *_: estimate)
    auto, whole = hwsim.run(**call, split_k="auto"), hwsim.run(**call)
    tried = auto.gemm.decided("split_k").why
    assert "the fastest of 1, 7, 9, by" in tried
    running = len(auto.gemm.schedule.slice_lengths(2112))
    assert auto.options["split_k"] == auto.schedule["split_k"] == running
    [notice] = [one for one in whole.warnings if one["code"] == CODE]
    assert notice["count"] == running and f"takes {running} slices" in notice["message"]


def test_numbers_that_run_as_one_are_timed_once_and_leave_room_for_others(monkeypatch):
    """K = 2112 has 33 multiples of 64: 20, 24 and 32 slices all run as 17."""
    estimate = SplitK(20, 0.1, NOTABLE, (20, 24, 32, 10, 9, 6, 4, 1))
    monkeypatch.setattr(TiledDataflow, "split_k", lambda *_: estimate)
    auto = hwsim.run(m=24, n=64, k=2112, device="h200", format="fp16", exact=False, split_k="auto")
    assert "the fastest of 1, 6, 9, 17, by" in auto.gemm.decided("split_k").why


@pytest.mark.parametrize("schedule", [{"slice_k": 256}, {"slice_k": 256, "split_k": 9}, {"split_k": 9}])
@pytest.mark.parametrize("slices", [1, 2, 9, 33])
def test_a_number_of_slices_beside_a_schedule_is_that_of_the_schedule(schedule, slices):
    call = {"m": 16, "n": 64, "k": 2112, "device": "h200", "format": "fp16", "schedule": schedule}
    if slices == 9:
        both, alone = hwsim.run(**call, split_k=slices), hwsim.run(**call)
        assert both.gemm.schedule == alone.gemm.schedule and (both.codes == alone.codes).all()
        assert both.gemm.decided("split_k").value == "9"
    else:
        with pytest.raises(InputError, match=rf"split_k = {slices}, but .* cut \(slices: 9\); leave one out"):
            hwsim.run(**call, split_k=slices)


@pytest.mark.parametrize(
    "how", [{"split_k": 10}, {"schedule": {"split_k": 10}}, {"schedule": {"split_k": 10}, "split_k": 10}]
)
def test_a_record_has_the_slices_that_run(how):
    call = {"m": 16, "n": 64, "k": 2112, "device": "h200", "format": "fp16"}
    asked, same = hwsim.run(**call, **how), hwsim.run(**call, split_k=9)
    assert asked.gemm.schedule.split_k == asked.options["split_k"] == asked.schedule["split_k"] == 9
    assert asked.cycles == same.cycles and (asked.codes == same.codes).all()
    assert asked.gemm.schedule == same.gemm.schedule


def test_orders_of_summation_are_compared_by_the_slices_that_run():
    ten, nine, lengths = ({"device": "h200", "schedule": {name: value}} for name, value in
                          (("split_k", 10), ("split_k", 9), ("slice_k", 256)))  # fmt: skip
    sizes = {"m": 16, "n": 16, "k": 2112, "format": "fp16"}
    reasons = [hwsim.diff(left=left, right=right, **sizes).reason.reasons
               for left, right in ((ten, nine), ("h200", ten), (nine, lengths))]  # fmt: skip
    words = "the order of summation differs: slices of K"
    assert reasons[0] == () and reasons[1][0] == f"{words} 1 on left, 9 on right"
    assert not [reason for reason in reasons[2] if reason.startswith(words)]


def test_bits_do_not_depend_on_whether_times_are_wanted():
    timed, bits = (
        hwsim.run(m=128, n=128, k=4096, device="h200", format="fp16", split_k="auto", timing=is_timed)
        for is_timed in (True, False)
    )
    assert timed.options["split_k"] > 1 and (timed.codes == bits.codes).all()


def test_without_times_auto_takes_the_estimate(monkeypatch):
    call = {"m": 128, "n": 128, "k": 8192, "device": "h200", "format": "fp32", "exact": False, "split_k": "auto"}
    monkeypatch.setattr(slice_choice, "fastest_slices", lambda *_: None)
    decision = hwsim.run(**call, stages=2).gemm.decided("split_k")
    assert int(decision.value) > 1 and "of the estimated time of K in one piece" in decision.why


def test_auto_beside_a_schedule_that_cuts_k_is_refused_by_its_own_name():
    with pytest.raises(InputError, match="split_k = 'auto', but the schedule says how K is cut"):
        hwsim.run(**LONG, split_k="auto", schedule={"split_k": 2})


@pytest.mark.parametrize("given", [1, 2, "auto"])
def test_a_run_that_says_how_k_is_cut_is_told_nothing(given):
    assert said(**LONG, split_k=given) == []


def test_full_cores_and_short_k_are_told_nothing():
    assert said(m=4096, n=4096, k=4096) == []
    assert said(m=128, n=128, k=128) == []


def test_a_small_gain_is_not_spoken_of(monkeypatch):
    assert said(**LONG)
    monkeypatch.setattr(dataflow, "best_split", lambda *_: (2, NOTABLE + 0.01))
    assert said(**LONG) == []
    monkeypatch.setattr(dataflow, "best_split", lambda *_: (2, NOTABLE))
    assert said(**LONG) == [(CODE, 2)]


def test_bits_and_operands_have_their_notices_beside_it():
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((64, 8192), (8192, 64)))
    a[0, 0] = np.nan
    assert said(a=a, b=b, exact=True) == [("nan_input", 1), *said(m=64, n=64, k=8192)]
    assert said(a=a, b=b, exact=True, timing=False) == [("nan_input", 1)]


@pytest.mark.parametrize(
    ("device", "scheme", "sizes"),
    [
        ("h200", "tf32x1", LONG),
        ("h200", "tf32x3", LONG),
        ("ascend910a", "sgemm-cube", {"m": 512, "n": 512, "k": 8192}),
    ],
)
def test_schemes_of_any_number_of_products_are_told(device, scheme, sizes):
    ((code, count),) = said(**sizes, device=device, format=None, scheme=scheme)
    auto = hwsim.run(**sizes, device=device, scheme=scheme, split_k="auto", exact=False)
    assert (code, count) == (CODE, len(auto.gemm.schedule.slice_lengths(8192)))


def test_a_scheme_with_full_cores_and_short_k_is_told_nothing():
    assert said(m=1024, n=1024, k=1024, device="ascend910a", format=None, scheme="sgemm-cube") == []


def test_stacks_are_looked_at_as_they_are_lowered():
    a = np.zeros((132, 16, 8192), np.float32)
    assert said(a=a[:1], b=a[:1].transpose(0, 2, 1), exact=True)
    assert said(a=a, b=a.transpose(0, 2, 1), exact=True) == []  # a matrix for each core


def test_dataflows_that_do_not_cut_k_say_nothing():
    assert said(**LONG, device="ascend910b3", format=None) == []


def test_without_cycles_nothing_is_said_of_time():
    result = hwsim.run(**LONG, device="a2", format="fp16", exact=False)
    assert result.cycles is None
    assert result.warnings == []
