"""The state of L2 is an option of its own: apart from the clock, with the same default on every chip, and said."""

import json

import pytest

import hwsim
from hwsim.errors import InputError
from hwsim.machines.l2_state import DEFAULT, STATES

DEVICES = ("h200", "a100", "l40s", "mi300x", "mi210", "ascend910a", "ascend910b3", "v100", "rtx4090")
SIZES = {"m": 256, "n": 512, "k": 512, "format": "fp16"}  # which every L2 holds


def cycles(device, **options):
    return hwsim.run(device=device, exact=False, **SIZES, **options)


@pytest.mark.parametrize("device", DEVICES)
def test_what_l2_holds_is_not_read_from_hbm(device):
    """On every chip alike: all of A and B in a cold run, nothing in a series."""
    read = {l2: cycles(device, l2=l2).traffic_bytes.get("HBM read", 0) for l2 in STATES}
    assert read["cold"] >= 2 * (256 * 512 + 512 * 512) and read["series"] == read["warm"] == 0
    assert cycles(device).traffic_bytes.get("HBM read", 0) == 0
    assert cycles(device, l2="series").cycles <= cycles(device, l2="cold").cycles


@pytest.mark.parametrize("device", ["h200", "mi300x", "ascend910a"])
def test_a_clock_leaves_the_state_and_the_state_the_clock(device):
    clock = hwsim.device(device).clock_mhz
    states = {l2: cycles(device, l2=l2, clock_mhz=clock) for l2 in STATES}
    assert states["cold"].traffic_bytes["HBM read"] > 0 == states["series"].traffic_bytes.get("HBM read", 0)
    assert cycles(device, clock_mhz=clock).cycles == states["series"].cycles
    assert len({cycles(device, l2=l2).state["clock_mhz"] for l2 in STATES}) == 1


def test_operands_beyond_l2_come_from_hbm_in_a_series():
    """512 MB of weights, 50 MB of L2: no less than HBM needs for what does not fit."""
    result = hwsim.run(m=1, n=16384, k=16384, format="fp16", device="h100", exact=False)
    chip = hwsim.device("h100")
    assert result.seconds >= (2 * 16384**2 - chip.l2.capacity_bytes) / chip.hbm.bytes_per_second


def test_a_warm_run_has_nothing_to_write_back():
    """C of the run before is dirty in a series; more than L2 holds of it has to leave during the next run."""
    sizes = {"m": 8192, "n": 8192, "k": 64, "format": "fp16", "device": "a100", "exact": False}
    series, warm = (hwsim.run(**sizes, l2=l2).traffic_bytes["HBM write"] for l2 in ("series", "warm"))
    assert warm < series


def test_result_and_json_say_the_state():
    result = hwsim.run(device="h200", m=128, n=128, k=128, format="bf16", l2="cold", exact=False, input_format="fp32")
    assert result.state == json.loads(result.to_json())["state"]
    assert result.state["l2"] == "cold" and result.state["clock"] == "under load" and not result.state["launches"]
    assert result.state["power_limit_w"] == 700 and result.state["kernels"] == [x["name"] for x in result.phases]
    asked = hwsim.run(device="h200", m=128, n=128, k=128, clock_mhz=1500, launch_overhead=True, exact=False).state
    assert (asked["l2"], asked["clock"], asked["clock_mhz"]) == (DEFAULT, "asked", 1500) and asked["launches"]
    assert hwsim.run(device="rtx4090", m=128, n=128, k=128, exact=False).state["clock"] == "device file"
    assert hwsim.run(device="h200", m=128, n=128, k=128, timing=False).state is None


def test_a_librarys_times_are_of_a_series_under_load():
    call = {"device": "h200", "m": 512, "n": 512, "k": 512, "format": "bf16", "library": "cublas", "exact": False}
    assert hwsim.run(**call).state["by_library"]
    for other in ({"l2": "cold"}, {"clock_mhz": 1500}, {"power_limit_w": 500}):
        assert not hwsim.run(**call, **other).state["by_library"]


def test_a_record_is_timed_in_any_state():
    result = cycles("a100", l2="cold")
    assert hwsim.run(gemm=result.gemm, exact=False).cycles == cycles("a100").cycles
    assert hwsim.run(gemm=result.gemm, exact=False, l2="cold").cycles == result.cycles


def test_an_unknown_state_is_refused():
    with pytest.raises(InputError, match="series, warm, cold"):
        cycles("a100", l2="hot")
