"""Assumed numbers over their ranges: which are varied, and how the time moves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hwsim
from hwsim.api import program
from hwsim.devices import changed
from hwsim.devices.templates import new_device_file
from hwsim.errors import UnsupportedError
from hwsim.machines import timing
from hwsim.report.text.sensitivity_text import sensitivity_text
from hwsim.studies.sensitivity import SPREAD, sensitivity


@pytest.fixture(scope="module")
def case():
    chip, lowered = program(m=256, n=256, k=256, device="ascend910a", scheme="sgemm-cube")
    return chip, lowered, sensitivity(lowered, chip)


def test_only_what_is_assumed_or_disagreed_about_is_varied(case):
    chip, _, found = case
    assert found
    for one in found:
        about = chip.evidence[one.path]
        assert about.span is not None or about.evidence in ("assumption", "unknown")
        if about.span is not None:
            assert (one.low, one.high) == pytest.approx(about.span, abs=0.5 * isinstance(one.value, int))
            assert one.from_span
        else:
            assert one.low == pytest.approx(one.value * (1 - SPREAD), abs=0.5)
            assert one.high == pytest.approx(one.value * (1 + SPREAD), abs=0.5)
        assert not one.path.startswith(("dot_units", "cores", "memories"))
    paths = {one.path for one in found}
    assert len(paths) == len(found)
    spans = {path for path, about in chip.evidence.items() if about.span and path.startswith(("links.", "vector."))}
    assert spans & paths


def test_cycles_at_the_ends_are_those_of_a_device_with_that_number(case):
    chip, lowered, found = case
    now = timing.run_in(lowered, chip, "series").cycles
    assert all(one.cycles == now for one in found)
    for one in found[:3]:
        assert timing.run_in(lowered, changed(chip, {one.path: one.low}), "series").cycles == one.cycles_low
        assert timing.run_in(lowered, changed(chip, {one.path: one.high}), "series").cycles == one.cycles_high


def test_sorted_by_what_they_move(case):
    _, _, found = case
    moved = [one.moved for one in found]
    assert moved == sorted(moved, reverse=True) and moved[0] > 0.01
    top = found[0]
    assert top.moved == max(abs(end - top.seconds) for end in (top.seconds_low, top.seconds_high)) / top.seconds


def test_other_instructions_do_not_count(case):
    _, lowered, found = case
    unit = lowered.gemm.mapping.kernels[0].instruction
    named = [one.path for one in found if one.path.startswith("instructions.")]
    assert all(path.startswith(f"instructions.{unit}.timing.") for path in named)


def test_a_slower_link_takes_longer(case):
    _, _, found = case
    rates = [one for one in found if one.path.startswith("links.") and one.path.endswith("bytes_per_cycle")]
    assert rates and all(one.cycles_low >= one.cycles >= one.cycles_high for one in rates)


def test_text(case):
    _, _, found = case
    text = sensitivity_text(found, "a problem", found[0].cycles, found[0].seconds)
    lines = [line for line in text.splitlines() if found[0].path in line]
    assert len(lines) == 1 and "%" in lines[0]
    assert "other numbers move the time" in text and "new mapping" not in text


def test_refused_without_times(case):
    chip, lowered, _ = case
    with pytest.raises(UnsupportedError, match="no timing data"):
        sensitivity(lowered, chip.model_copy(update={"hbm": None}))


def test_devices_whose_clock_falls_under_load():
    given = {"m": 128, "n": 128, "k": 128, "device": "h200", "scheme": "tf32x3"}
    chip, lowered = program(**given)
    found = sensitivity(lowered, chip)
    result = hwsim.run(**given, exact=False)
    assert found[0].cycles == result.cycles


def test_the_late_start_of_cores_is_among_what_is_varied():
    """Its whole range, for each kernel, is what the cycles move by."""
    chip, lowered = program(m=256, n=256, k=256, device="ascend910b3", format="fp16")
    (start,) = (one for one in sensitivity(lowered, chip) if one.path == "core_start_us")
    wide = (start.high - start.low) * chip.clock_mhz * len(lowered.kernels)
    assert start.cycles_high - start.cycles_low == pytest.approx(wide, abs=2)


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    return str(new_device_file(tmp_path_factory.mktemp("devices") / "mine.yaml", "accelerator", {}))


@pytest.fixture(scope="module")
def said():
    """What the command said of sizes, for all tests here."""
    return {}


COMPUTE, MEMORY = {"m": 1024, "n": 1024, "k": 1024}, {"m": 1, "n": 4096, "k": 4096}


@pytest.fixture
def of_command(cli, mine, said):
    def found(sizes):
        words = [word for name, size in sizes.items() for word in (f"--{name}", size)]
        if (key := tuple(sizes.values())) not in said:
            said[key] = cli("sensitivity", "--device", mine, "--format", "fp16", *words, "--json").json
        return said[key], {number["path"]: number for number in said[key]["numbers"]}

    return found


@pytest.mark.searches
def test_a_clock_moves_the_time_of_what_it_bounds(of_command):
    """Cycles would say the opposite: they stay where the engines bound, and grow where the memory does."""
    _, compute = of_command(COMPUTE)
    clock = compute["clock_mhz"]
    assert clock["seconds_low"] > 1.2 * clock["seconds"] and clock["seconds_high"] < 0.87 * clock["seconds"]
    _, memory = of_command(MEMORY)
    clock, rate = memory["clock_mhz"], memory["hbm.bytes_per_second"]
    assert abs(clock["seconds_high"] / clock["seconds"] - 1) < 0.01 < 0.2 < rate["moved"]
    assert clock["cycles_high"] > 1.2 * clock["cycles"]


@pytest.mark.searches
@pytest.mark.parametrize("sizes", [COMPUTE, MEMORY])
def test_the_ends_are_those_of_what_if_and_sweep(mine, of_command, sizes):
    """One rule for the mapping: the faster of the one chosen for the number and the one of before."""
    found, numbers = of_command(sizes)
    result = hwsim.run(device=mine, format="fp16", exact=False, **sizes)
    assert found["seconds"] == result.seconds and {"cores", "memories.ACC.capacity_bytes"} <= set(numbers)
    for path in ("cores", "hbm.latency_ns", "links.GM_SRAM.bytes_per_cycle"):
        number = numbers[path]
        tried = result.with_numbers({path: number["high"]})
        study = {"devices": {"device": mine, "set": {path: number["high"]}}, "options": {"format": "fp16"}}
        (row,) = hwsim.sweep(study | sizes, jobs=1, cache=False).rows
        assert number["seconds_high"] == tried.seconds[1] == row["seconds"]
        assert number["is_new_high"] == (tried.mapping == "chosen anew")


@pytest.mark.searches
def test_a_mapping_that_takes_as_long_as_the_one_chosen_is_kept(of_command):
    """Of 20 cores the one chosen anew takes as many cycles as the one of 16."""
    _, numbers = of_command(COMPUTE)
    assert not numbers["cores"]["is_new_high"] and numbers["cores"]["is_new_low"]


@pytest.mark.searches
def test_a_change_compares_the_faster_of_the_same_two_mappings(tmp_path, cli):
    """A slower clock makes nothing faster: its mapping is the better one at the file's clock, too."""
    mine = str(new_device_file(tmp_path / "mine.yaml", "accelerator", {}))
    text = Path(mine).read_text()
    for before, after in (
        ("cores: 16\nclock_mhz: 1000", "cores: 2\nclock_mhz: 900"),
        ("bytes_per_second: 2.0e+12", "bytes_per_second: 6.0e+11"),
        ("SRAM: {capacity_bytes: 524288}", "SRAM: {capacity_bytes: 1048576}"),
    ):
        assert text.count(before) == 1
        text = text.replace(before, after)
    Path(mine).write_text(re.sub(r"(GM_(?:SRAM|ACC): .*bytes_per_cycle: )\d+", r"\g<1>512", text))
    sizes = {"m": 8, "n": 4096, "k": 4096}
    words = [f"--{name}={size}" for name, size in sizes.items()]
    found = cli("sensitivity", "--device", mine, "--format", "fp16", *words, "--json").json
    numbers = {number["path"]: number for number in found["numbers"]}
    clock = numbers["clock_mhz"]
    assert clock["is_new_low"] and clock["seconds_low"] < 0.99 * clock["seconds"]
    slow = hwsim.run(device=mine, format="fp16", exact=False, clock_mhz=675, **sizes)
    tile = slow.options["tile"]
    same = hwsim.run(device=mine, format="fp16", exact=False, tile=tuple(tile[side] for side in "mnk"), **sizes)
    assert clock["seconds_before_low"] == same.seconds < clock["seconds"]
    assert (
        clock["changes"][0] == pytest.approx(clock["seconds_low"] / same.seconds - 1, abs=1e-9)
        and clock["changes"][0] >= 0
    )
    said = cli("sensitivity", "--device", mine, "--format", "fp16", *words)
    assert re.search(r"clock_mhz .* \+0\.\d %  new mapping, -\d\.\d % alone", said.out)
