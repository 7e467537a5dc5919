"""One run says one thing: shares of engines, slices, kernels and times agree wherever a result names them."""

import pytest

import hwsim
from hwsim.analysis.engine_shares import BUSY, engine_shares, rate_while_busy
from hwsim.analysis.time_shares import IDLE_CORES, LAUNCHES, SKEW
from hwsim.devices.templates import new_device_file
from hwsim.errors import InputError
from hwsim.report.text.run_text import run_text
from hwsim.report.text.words import data

SPLIT = {"device": "h200", "format": "bf16", "library": "cublas", "m": 16, "n": 4096, "k": 14336, "exact": False}
CASES = {
    "idle cores": {"device": "b200", "scheme": "nvfp4", "m": 512, "n": 512, "k": 512},
    "casts before": {"device": "h200", "format": "fp16", "input_format": "fp32", "m": 128, "n": 128, "k": 128},
    "launches": {"device": "h200", "format": "bf16", "m": 256, "n": 256, "k": 512, "launch_overhead": True},
    "a stack": {"device": "v100", "format": "fp16", "m": 256, "n": 256, "k": 256},
    "two kinds of cores": {"device": "ascend910b3", "scheme": "sgemm-cube", "m": 300, "n": 300, "k": 600},
}


@pytest.mark.parametrize("call", CASES.values(), ids=CASES)
def test_engines_and_verdict_share_one_whole(call):
    result = hwsim.run(exact=False, **call)
    shares, verdict = engine_shares(result.times), result.verdict
    assert shares[verdict.shares.engine][BUSY] == pytest.approx(verdict.busy)
    assert all(sum(causes.values()) == pytest.approx(1) and min(causes.values()) >= 0 for causes in shares.values())
    parts = {part.name: part.share for part in verdict.parts if part.kind in ("matrix", "elementwise")}
    assert {name: shares[name][BUSY] for name in parts if parts[name]} == pytest.approx(
        {name: share for name, share in parts.items() if share}
    )


@pytest.mark.parametrize("stationary", ["weights", "outputs", "inputs"])
def test_an_array_is_busy_while_elements_enter(tmp_path, stationary):
    array = new_device_file(tmp_path / "array.yaml", "systolic", {"rows": 32, "cols": 32})
    call = {"device": array, "format": "bf16", "m": 100, "n": 200, "k": 300, "stationary": stationary}
    test_engines_and_verdict_share_one_whole(call)
    result = hwsim.run(exact=False, **call)
    assert rate_while_busy(result.times) == pytest.approx(1)
    [shares] = [x for name, x in engine_shares(result.times).items() if name == result.verdict.shares.engine]
    assert (SKEW in shares) == (stationary != "outputs")  # there the sums leave after the last instruction


def test_cores_without_work_and_launches_are_causes_of_their_own():
    few = engine_shares(hwsim.run(exact=False, **CASES["idle cores"]).times)["TC"]
    assert few[IDLE_CORES] == pytest.approx(84 / 148)
    result = hwsim.run(exact=False, **CASES["launches"])
    assert engine_shares(result.times)["TC"][LAUNCHES] == pytest.approx(result.verdict.lost[LAUNCHES])
    assert "in launches" in run_text(result) and "on cores without work" in run_text(result)


def test_a_state_that_recorded_times_are_not_of_is_said():
    as_recorded = hwsim.run(**SPLIT)
    assert as_recorded.times.by_library
    assert "library_times_of_program" not in [warning["code"] for warning in as_recorded.warnings]
    for option, named in (({"l2": "cold"}, "l2=cold"), ({"clock_mhz": 1500}, "clock_mhz=1500")):
        other = hwsim.run(**SPLIT, **option)
        [message] = [w["message"] for w in other.warnings if w["code"] == "library_times_of_program"]
        assert named in message and "the program's stands" in message and named in other.gemm.decided("times").why
        assert other.gemm.decided("times").by == "user" and not other.times.by_library


def test_slices_of_k_are_counted_once():
    result = hwsim.run(**SPLIT)
    data, slices = result.to_dict(), len(result.gemm.schedule.slice_k)
    assert slices > 1
    assert data["schedule"]["split_k"] == data["options"]["split_k"] == len(data["schedule"]["slice_k"]) == slices
    assert data["schedule"]["instruction"] == data["options"]["unit"]
    again = hwsim.run(device="h200", format="bf16", m=16, n=4096, k=14336, exact=False, schedule=data["schedule"])
    assert again.gemm.schedule.slice_lengths(14336) == result.gemm.schedule.slice_k
    [row] = result.occupancy
    assert row.slices == slices and row.tiles == slices * (4096 // result.options["tile"]["n"])
    assert f"{row.tiles // slices} tiles of C, each in {slices} slices of K, on" in run_text(result)
    assert "slices" not in hwsim.run(**CASES["idle cores"], exact=False).occupancy[0]


@pytest.mark.parametrize(
    ("slice_k", "words"),
    [
        ([100, 100], "2 slices of K of 100"),
        ([80, 80, 40], "3 slices of K of 80, the last of 40"),
        ([40, 80, 80], "3 slices of K of 40 to 80"),
    ],
)
def test_lengths_of_slices_add_up_to_k(slice_k, words):
    schedule = {"slice_k": slice_k}
    result = hwsim.run(device="h200", format="fp16", m=64, n=64, k=200, exact=False, schedule=schedule)
    assert result.gemm.decided("order of summation").value == words


def test_kernels_say_of_what_they_are_counted():
    result = hwsim.run(**SPLIT)
    assert result.options["kernels"] == len(result.phases) == 2
    assert result.gemm.decided("kernels").value == "1 with products"


def test_a_clock_too_low_for_the_timing_machine_is_named_with_its_unit():
    with pytest.raises(InputError, match=r"clock_mhz = 1\.2 \(MHz\).*give a higher clock"):
        hwsim.run(device="h200", format="bf16", m=64, n=64, k=64, exact=False, clock_mhz=1.2)


def test_a_larger_l2_is_advised_only_for_what_one_run_reads_again():
    """112 MiB of weights fit in twice the L2 of an H200 from call to call, but no call reads them twice."""
    advice = hwsim.run(**{**SPLIT, "library": None}).verdict.advice
    assert advice and not [item for item in advice if item.option.startswith("--what-if l2.capacity_bytes")]


def test_the_rate_of_a_busy_unit_explains_the_share_of_the_peak():
    sparse = hwsim.run(device="h200", format="fp16", sparsity="2:4", m=2048, n=2048, k=2048, exact=False)
    rate = rate_while_busy(sparse.times)
    assert rate < 0.95 and rate * sparse.verdict.busy == pytest.approx(sparse.peak_fraction, rel=1e-6)
    assert any(
        sentence.startswith("tensor cores: ") and "of the peak's products per cycle while busy" in sentence
        for sentence in sparse.verdict.sentences
    )
    dense = hwsim.run(device="h200", format="fp16", m=2048, n=2048, k=2048, exact=False)
    assert rate_while_busy(dense.times) == pytest.approx(1, abs=0.05)
    assert not any("while busy" in sentence for sentence in dense.verdict.sentences)


def test_the_memory_that_a_kernel_takes_by_hand(tmp_path):
    """Blocks of A and B in 16 bits in each stage; two tiles of C in fp32, one computed while the other is stored."""
    mine = new_device_file(tmp_path / "mine.yaml", "accelerator", {})
    sizes = {"m": 512, "n": 512, "k": 512}
    result = hwsim.run(device=mine, format="bf16", tile=(64, 128, 64), stages=3, exact=False, **sizes)
    [row] = result.occupancy
    assert row.memory_bytes == {"SRAM": 3 * (64 + 128) * 64 * 2, "ACC": 2 * 64 * 128 * 4}
    assert row.capacity_bytes == {name: hwsim.device(mine).memories[name].capacity_bytes for name in ("SRAM", "ACC")}
    assert "memory  gemm, per core: SRAM 72.0 KiB of 512.0 KiB, ACC 64.0 KiB of " in run_text(result)


@pytest.mark.parametrize("device", ["v100", "a100", "h200", "b200", "mi300x", "ascend910a", "ascend910b3"])
def test_every_family_says_what_memory_a_kernel_takes(device):
    result = hwsim.run(device=device, format="fp16", m=256, n=256, k=256, exact=False)
    text = " ".join(run_text(result).split())
    assert result.occupancy
    for row in result.occupancy:
        assert row.memory_bytes
        for name, used in row.memory_bytes.items():
            assert 0 < used <= row.capacity_bytes[name] == hwsim.device(device).memories[name].capacity_bytes
            assert f"{name} {data(used)} of {data(row.capacity_bytes[name])}" in text
