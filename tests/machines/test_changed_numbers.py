"""Cycles with other numbers of the device file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hwsim
from hwsim.analysis.changed_numbers import BESIDE
from hwsim.devices import load
from hwsim.devices.device import Device
from hwsim.devices.numbers import NEAR, Reach, new_values, numbers_of, reach_of, with_numbers
from hwsim.devices.templates import new_device_file
from hwsim.errors import InputError
from hwsim.gemm.record import Gemm
from hwsim.report.text.provenance_text import provenance_rows
from hwsim.report.text.whatif_text import changed_text
from hwsim.request.request import TimedState
from hwsim.resolve import mapping_of_base, record_cost, resolver
from hwsim.resolve.record_cost import PlanCost
from hwsim.studies.sensitivity import sensitivity

SIZES = {"m": 256, "n": 256, "k": 256}


@pytest.mark.parametrize("device", ["h200", "ascend910a"])
def test_factor_one_changes_nothing(device: str) -> None:
    result = hwsim.run(device=device, exact=False, **SIZES)
    found = result.with_numbers({"hbm.bytes_per_second": "1x"})
    assert found is not None and found.cycles == (result.cycles, result.cycles)


def test_a_slower_part_takes_longer_and_a_value_is_as_its_factor() -> None:
    result = hwsim.run(device="ascend910a", exact=False, l2="cold", **SIZES)
    slow = result.with_numbers({"hbm.bytes_per_second": "0.1x"})
    assert slow is not None and slow.cycles[1] > slow.cycles[0]
    same = result.with_numbers({"hbm.bytes_per_second": slow.numbers["hbm.bytes_per_second"][1]})
    assert same == slow


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hbm.bytes_per_secnd": "2x"}, "did you mean 'hbm.bytes_per_second'"),
        ({"hbm.bytes_per_second": "fast"}, "allowed: a factor"),
        ({"hbm.bytes_per_second": "infx"}, "allowed: a factor"),
        ({"hbm.bytes_per_second": "-1x"}, r"bytes_per_second = -[\d.e+]+; allowed: at least 1,000"),
        ({"dot_units.f32_k16.rounding": 1}, "dot_units.f32_k16.rounding of h200 is 'RZ', a word; here numbers are"),
        ({"dot_units.f32_k16.specials.overflow": "2x"}, "is 'infinity', a word"),
        ({"dot_units.f32_k16.rounding.mode": 1}, "h200 has no number"),
        ({"instructions.mma.macs_per_cycle": "2x"}, "did you mean 'instructions.*timing.macs_per_cycle'"),
        ({"instructions.wgmma": 1}, r"did you mean 'instructions.\S*timing.macs_per_cycle'"),
        ({"cores": 0}, "h200 with cores = 0; allowed: at least 1$"),
        ({"cores": 2.5}, "cores = 2.5; allowed: an integer$"),
    ],
)
def test_bad_changes_say_why(changes: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        hwsim.run(device="h200", exact=False, **SIZES).with_numbers(changes)


def test_errors_name_a_few_numbers_that_are_near() -> None:
    with pytest.raises(InputError) as error:
        hwsim.run(device="h200", exact=False, **SIZES).with_numbers({"instructions.mma.macs_per_cycle": "2x"})
    assert str(error.value).count("macs_per_cycle'") == 1 + NEAR and len(str(error.value)) < 600
    with pytest.raises(InputError) as error:
        hwsim.run(device="h200", exact=False, **SIZES).with_numbers({"l2.read_bytes_per_cycle": "2x"})
    first, second = str(error.value).split("did you mean ")[1].split(" or ")[:2]
    assert {first, second} == {"'l2.bytes_per_second'", "'l2.write_bytes_per_second'"}


@pytest.mark.parametrize("name", ["h200", "ascend910a", "mi300x"])
def test_every_number_that_devices_show_lists_is_taken_or_refused_with_its_reason(name: str) -> None:
    device = load(name)
    tree = device.model_dump(by_alias=True)
    numbers = numbers_of(device)
    shown = [path for path, value, _, _ in provenance_rows(tree, device.evidence) if value[:1].isdigit()]
    listed = [path for path in shown if path in numbers or not path.startswith("instructions")]
    assert set(listed) <= set(numbers) and len(listed) > 90
    for path in numbers:
        assert new_values(device, {path: "1x"}) == {path: (numbers[path], numbers[path])}
    assert {"cores", *(path for path in numbers if path.startswith("memories."))} == {
        path
        for path in numbers
        if reach_of(path) == Reach.MAPPING and not path.startswith(("instructions.", "fractal."))
    }


def test_numbers_of_sensitivity_are_taken() -> None:
    result = hwsim.run(device="h200", exact=False, **SIZES)
    assert result.times.program is not None
    paths = [influence.path for influence in sensitivity(result.times.program, load("h200"))]
    assert len(paths) > 10
    for path in paths:
        found = result.with_numbers({path: "1x"})
        assert found is not None and found.cycles == (result.cycles, result.cycles), path


def test_what_if_takes_every_number_of_a_file_and_says_what_else_follows(tmp_path: Path) -> None:
    file = new_device_file(tmp_path / "my.yaml", "accelerator", {})
    file.write_text(f"{file.read_text()}\nenergy: {{static_watts: 5, mac_pj: {{bf16: 1}}}}\narea: {{core_mm2: 2}}\n")
    device = load(str(file))
    result = hwsim.run(device=device, format="bf16", exact=False, m=64, n=64, k=64)
    for path in numbers_of(device):
        found = result.with_numbers({path: "1x"})
        assert found is not None and found.cycles == (result.cycles, result.cycles), path
        reach = reach_of(path)
        assert found.beside == ({path: BESIDE[reach]} if reach in BESIDE else {})
    bits = result.with_numbers({"dot_units.tree.fraction_bits": 13})
    assert bits is not None and bits.cycles[1] == bits.cycles[0]
    assert "changes bits too: compare a file with it by hwsim diff" in changed_text(bits) == str(bits)
    costs = result.with_numbers({"energy.static_watts": "2x", "hbm.bytes_per_second": "0.1x"})
    assert costs is not None and costs.mapping == "kept" and costs.cycles[1] > costs.cycles[0]
    assert "of energy or area alone" in changed_text(costs)


def test_a_kernel_is_chosen_anew_for_other_cores() -> None:
    wide = {"device": "h200", "format": "bf16", "m": 2304, "n": 2304, "k": 512, "exact": False}
    result = hwsim.run(**wide)
    found = result.with_numbers({"cores": "0.5x"})
    other = hwsim.run(**(wide | {"device": with_numbers(load("h200"), {"cores": 66})}))
    assert found is not None and found.mapping == "chosen anew" and found.cycles == (result.cycles, other.cycles)
    assert found.seconds == (result.seconds, other.seconds) and found.cycles[1] > found.cycles[0]
    assert found.clock_mhz == (result.state["clock_mhz"], other.state["clock_mhz"])
    assert found.clock_mhz[1] > found.clock_mhz[0] and "clock under load" in changed_text(found)
    half = result.with_numbers({"sustained_clock_mhz.*": "0.5x"})
    assert half is not None and half.mapping == "kept" and half.seconds[1] > 1.15 * half.seconds[0]
    with pytest.raises(InputError, match="a saved record fixes it"):
        hwsim.run(gemm=result.gemm, exact=False).with_numbers({"cores": "0.5x"})


def test_a_pattern_changes_all_that_it_names() -> None:
    result = hwsim.run(device="h200", format="bf16", exact=False, l2="cold", m=2048, n=2048, k=2048)
    found = result.with_numbers({"instructions.*.macs_per_cycle": "0.5x"})
    assert found is not None and found.mapping in ("kept", "chosen anew") and found.cycles[1] > 1.5 * found.cycles[0]
    assert len(found.numbers) > 5 and {after / before for before, after in found.numbers.values()} == {0.5}


def test_a_changed_number_is_an_assumption() -> None:
    device = with_numbers(load("h200"), {"dot_units.f32_k16.fraction_bits": 24})
    assert device.evidence["dot_units.f32_k16.fraction_bits"].evidence == "assumption"
    result = hwsim.run(device=device, format="fp16", m=16, n=16, k=32, timing=False)
    assert result.evidence["numerics"] == "assumption"


L1_TWICE = {"memories.L1.capacity_bytes": "2x"}


@pytest.mark.searches
def test_a_larger_memory_keeps_the_mapping_where_the_one_chosen_anew_takes_longer() -> None:
    """Of the doubled L1 the choice alone took 444,757 cycles where the mapping of before takes 439,270."""
    result = hwsim.run(device="ascend910a", scheme="sgemm-cube", exact=False, m=2048, n=2048, k=2048)
    found = result.with_numbers(L1_TWICE)
    assert found is not None and found.mapping == "kept" and found.cycles[1] <= found.cycles[0]
    study = {"devices": {"device": "ascend910a", "set": L1_TWICE}, "schemes": "sgemm-cube", "m": 2048, "n": 2048}
    (row,) = hwsim.sweep(study | {"k": 2048}, jobs=1, cache=False).rows
    assert row["cycles"] == found.cycles[1]


@pytest.mark.searches
def test_a_kept_mapping_stands_beside_the_one_chosen_anew(tmp_path: Path) -> None:
    """A device file with the changed number has no mapping of before: its time is the one with the mapping anew."""
    call = {"scheme": "sgemm-cube", "exact": False, "m": 2048, "n": 2048, "k": 2048}
    found = hwsim.run(device="ascend910a", **call).with_numbers(L1_TWICE)
    own = 'schema_version: 1\nname: own\nextends: ascend910a\nsource: "NONE; mine"\nevidence: assumption\n'
    file = tmp_path / "own.yaml"
    file.write_text(f"{own}memories: {{L1: {{capacity_bytes: 2097152}}}}\n")
    alone = hwsim.run(device=file, **call)
    assert found is not None and found.anew_seconds == alone.seconds > found.seconds[1]
    said = " ".join(changed_text(found).split())
    assert "with the mapping chosen anew 439.3 us 444.8 us +1.2%" in said
    same = hwsim.run(device="ascend910a", **call).with_numbers({"hbm.bytes_per_second": "1x"})
    assert same is not None and same.anew_seconds is None and "chosen anew 4" not in changed_text(same)


@pytest.mark.searches
def test_a_tile_that_reaches_the_time_without_the_change_is_named() -> None:
    """With L1 as it is the tile has K in two runs: other sums, and nearly the time of the doubled L1."""
    call = {"device": "ascend910a", "scheme": "sgemm-cube", "exact": False, "m": 512, "n": 512, "k": 8192}
    found = hwsim.run(**call).with_numbers(L1_TWICE)
    assert found is not None and found.mapping == "chosen anew" and found.new_mapping_seconds is None
    assert found.tile is not None and found.tile.has_other_sums
    sides = dict(side.split("=") for side in found.tile.tile.split(","))
    tiled = hwsim.run(**call, tile={side: int(size) for side, size in sides.items()})
    assert tiled.seconds == found.tile.seconds < 0.8 * found.seconds[0]
    share = f"{tiled.seconds / found.seconds[0] - 1:+.1%}"
    said = " ".join(changed_text(found).split())
    assert f"its tile alone does, with other sums of K: --tile {found.tile.tile} takes" in said and share in said
    given = hwsim.run(**call, tile={"m": 32, "n": 256, "k": 64}).with_numbers(L1_TWICE)
    assert given is not None and given.tile is None


@pytest.mark.searches
def test_what_if_and_sweep_have_one_answer_and_what_if_says_what_is_the_mappings(tmp_path: Path) -> None:
    """A quarter of the rate of HBM takes another mapping, slower without the change; a latency keeps the mapping."""
    file = new_device_file(tmp_path / "my.yaml", "accelerator", {})
    sizes = {"m": 512, "n": 512, "k": 512}
    result = hwsim.run(device=file, format="fp16", exact=False, **sizes)
    answers = {}
    for name, value in (("hbm.latency_ns", 400), ("hbm.bytes_per_second", 200e9)):
        found = answers[name] = result.with_numbers({name: value})
        study = {"devices": {"device": str(file), "set": {name: value}}, "options": {"format": "fp16"}}
        (row,) = hwsim.sweep(study | sizes, jobs=1, cache=False).rows
        assert found is not None and row["cycles"] == found.cycles[1]
    kept, anew = answers.values()
    assert kept.mapping == "kept" and kept.old_mapping_seconds is kept.new_mapping_seconds is None
    assert anew.mapping == "chosen anew" and anew.seconds[1] < anew.old_mapping_seconds
    assert anew.new_mapping_seconds > anew.seconds[0]
    said = changed_text(anew)
    assert "chosen anew" in said and "with the mapping of before" in said


@pytest.mark.parametrize(
    "changes",
    [{"board_power.watts": "1.5x"}, {"sustained_clock_mhz.bf16": "0.9x"}, {"clock_mhz": "0.5x"}, {"cores": 66}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_power_limit_holds_for_the_changed_device_in_what_if_and_sweep(changes: dict[str, object]) -> None:
    sizes = {"m": 1024, "n": 1024, "k": 1024}
    found = hwsim.run(device="h200", format="bf16", exact=False, power_limit_w=400, **sizes).with_numbers(changes)
    study = {"devices": {"device": "h200", "set": changes}, "options": {"format": "bf16", "power_limit_w": 400}}
    (row,) = hwsim.sweep(study | sizes, jobs=1, cache=False).rows
    assert found is not None and (row["cycles"], row["seconds"]) == (found.cycles[1], found.seconds[1])


def test_a_clock_that_is_asked_for_twice_is_refused_by_what_if_and_sweep() -> None:
    said = "clock_mhz = 1500: the device's number clock_mhz was set to 990, too; leave one of them out"
    result = hwsim.run(device="h200", format="bf16", exact=False, m=256, n=256, k=256, clock_mhz=1500)
    with pytest.raises(InputError, match=said):
        result.with_numbers({"clock_mhz": "0.5x"})
    study = {"devices": {"device": "h200", "set": {"clock_mhz": 990}}, "options": {"format": "bf16", "clock_mhz": 1500}}
    (row,) = hwsim.sweep(study | {"m": 256, "n": 256, "k": 256}, jobs=1, cache=False).rows
    assert row["refused"] == said


def test_a_library_s_kernel_on_a_changed_device_is_compared_as_programs() -> None:
    """The library's own time is of the chip as it is. A tile that needs more shared memory does not fit any more."""
    call = {"device": "h100", "format": "fp16", "output": "fp16", "m": 512, "n": 5120, "k": 4096, "exact": False}
    result = hwsim.run(**call, library="cublas")
    fewer, smaller = (result.with_numbers({path: "0.5x"}) for path in ("cores", "memories.SMEM.capacity_bytes"))
    assert result.times.by_library and fewer is not None and smaller is not None
    seconds = result.cycles / (result.times.chip.clock_mhz * 1e6)
    for found in (fewer, smaller):
        assert found.mapping == "of the library" and found.seconds[0] == pytest.approx(seconds) != result.seconds
        assert found.seconds[1] == pytest.approx(found.cycles[1] / found.clock_mhz[1] / 1e6)
    assert fewer.old_mapping_seconds > seconds and fewer.new_mapping_seconds > 0
    assert "does not fit" not in changed_text(fewer) and "that the library runs there" in changed_text(fewer)
    assert smaller.old_mapping_seconds is None and "does not fit" in changed_text(smaller)


def test_two_mappings_are_compared_in_the_state_that_the_request_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of L2, and the launches of all kernels."""
    call = {"format": "fp16", "m": 256, "n": 256, "k": 2048, "exact": False}
    changed_chip = with_numbers(load("h200"), {"hbm.bytes_per_second": 1e12})
    seen: list[str] = []

    def timed(gemm: Gemm, device: Device, *, l2: str, launch_overhead: bool) -> PlanCost:
        seen.append(l2)
        return record_cost.cost_of(gemm, device, l2=l2, launch_overhead=launch_overhead)

    monkeypatch.setattr(mapping_of_base, "cost_of", timed)
    records = {}
    for split_k in (1, 4):
        records[split_k] = hwsim.run(device="h200", **call, split_k=split_k).gemm
    [cold, plain] = [
        {split_k: mapping_of_base._seconds(gemm, changed_chip, state) for split_k, gemm in records.items()}
        for state in (TimedState("cold", launches=True), TimedState("cold"))
    ]
    assert set(seen) == {"cold"}
    launch = changed_chip.launch_overhead_us * 1e-6
    assert cold[1] - plain[1] == pytest.approx(launch) and cold[4] - plain[4] == pytest.approx(2 * launch)
    states: list[TimedState] = []
    monkeypatch.setattr(resolver, "faster_of", partial(_with_state, states))
    for more in ({}, {"l2": "cold"}, {"l2": "cold", "launch_overhead": True}):
        hwsim.run(device=changed_chip, **call, **more)
    assert states == [TimedState(), TimedState("cold"), TimedState("cold", launches=True)]


def _with_state(states: list[TimedState], *arguments: Any) -> None:
    states.append(arguments[-1])
