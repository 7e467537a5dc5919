"""The search over blockings: legal, no worse than the default, the papers' formulas beside it."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest

import hwsim
from hwsim.analysis.energy import energy
from hwsim.cli import command
from hwsim.dataflows.davinci.coupled_tiling import Limits, b_m_least_traffic
from hwsim.dataflows.registry import dataflow
from hwsim.dataflows.tiled.dataflow import TiledDataflow
from hwsim.devices.templates import new_device_file
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.mapping import Tile
from hwsim.gemm.problem import Problem
from hwsim.report.text.cost_text import joules_text
from hwsim.report.text.tune_text import (
    BEST,
    alike,
    gap_text,
    heat,
    plotting,
    tune_csv,
    tune_dict,
    tune_text,
    write_heat,
)
from hwsim.report.text.words import duration
from hwsim.resolve import mapping_search, resolver
from hwsim.resolve.planning import plan_for
from hwsim.schemes import scheme_of
from hwsim.studies.analytic_tiles import eq11, parallelism, tlp
from hwsim.studies.tune import tune, unlike_first

SIZES = (256, 384, 320)
LONG = (256, 256, 4096)
TILES = [Tile(m, n, 32) for m in (64, 128) for n in (64, 128)]


def plan_of(device: str, scheme: str = "native", fmt: str | None = None, sizes=SIZES):
    return plan_for(hwsim.device(device), scheme_of(scheme), Problem.of(fmt or "fp32", *sizes), fmt, {}).plan


@pytest.fixture(scope="module")
def found():
    return tune(hwsim.device("a100"), plan_of("a100", fmt="fp16"), SIZES)


@pytest.fixture
def first_choice(monkeypatch):
    """Runs take what the dataflow likes best by estimate: no other mapping is fast enough for the search."""
    monkeypatch.setattr(mapping_search, "LEAST_GAIN", 0)
    monkeypatch.setattr(mapping_search, "_CACHE", type(mapping_search._CACHE)(8))
    monkeypatch.setattr(resolver, "_CACHE", type(resolver._CACHE)(8))


@pytest.fixture(scope="module")
def davinci():
    return tune(hwsim.device("ascend910a"), plan_of("ascend910a", "sgemm-cube"), SIZES, budget=90)


def test_nothing_timed_is_better_than_the_best(found, davinci):
    for one in (found, davinci):
        timed = [point for point in one.points if point.cycles is not None]
        assert one.best.seconds == min(point.seconds for point in timed)
        assert one.default in timed and one.best.seconds <= one.default.seconds
        assert [point.seconds for point in one.ranked] == sorted(point.seconds for point in timed)


def test_the_order_is_by_time_and_not_by_cycles():
    """The clock under load differs between configurations: fewer cycles may take longer."""
    chip, plan = hwsim.device("h200"), plan_of("h200", fmt="bf16", sizes=(1024, 1024, 512))
    found = tune(chip, plan, (1024, 1024, 512), budget=40)
    assert found.best.cycles > min(point.cycles for point in found.ranked)
    assert found.best.seconds == min(point.seconds for point in found.ranked)
    seconds = [row["seconds"] for row in tune_dict(found)["points"] if row["seconds"] is not None]
    assert seconds == sorted(seconds) and tune_dict(found)["best"]["seconds"] == seconds[0]
    by_cycles = tune(chip, plan, (1024, 1024, 512), objective="cycles", budget=40)
    assert by_cycles.best.cycles == min(point.cycles for point in by_cycles.ranked) < found.best.cycles


def test_the_gap_to_the_default_is_a_sentence(found):
    default, best = found.default, replace(found.default, seconds=found.default.seconds / 2)
    said = gap_text(replace(found, best=best, points=[best, default]))
    times = [duration(point.seconds) for point in (best, default)]
    others = "; tiles outside the search may be faster (hwsim run --tile)"
    assert said == f"the best of 2 configurations takes {times[0]}, 50.0 % less than the default's {times[1]}{others}"
    said = gap_text(replace(found, best=default, points=[default]))
    assert said == f"the default is the best of 1 configuration: {times[1]}{others}"
    little = replace(default, seconds=default.seconds * 0.9999)
    said = gap_text(replace(found, best=little, points=[little, default]))
    assert said == f"the default is within 0.1 % of the best of 2 configurations: {times[1]}{others}"
    slow = replace(default, seconds=default.seconds * 3)
    said = gap_text(replace(found, best=slow, points=[slow, default]))
    assert said.startswith("the formula's choice takes") and "3.000 times the default's" in said


def test_the_best_is_faster_than_the_choice_by_estimate(first_choice):
    found = tune(hwsim.device("h200"), plan_of("h200", fmt="tf32", sizes=LONG), LONG)
    assert found.best.cycles < found.default.cycles


def test_a_search_takes_the_format_of_c(capsys):
    """A narrower C is stored in less time; each point is the run with its options."""
    call = {"device": "h200", "format": "bf16", "m": 4096, "n": 512, "k": 512}
    wide, narrow = hwsim.tune(**call, budget=5), hwsim.tune(**call, budget=5, output="bf16")
    assert narrow.default.cycles < wide.default.cycles
    for point in (narrow.default, narrow.best):
        assert hwsim.run(**call, output="bf16", exact=False, **point.options).cycles == point.cycles
    flags = [word for name, value in call.items() for word in (f"--{name}", str(value))]
    assert command.main(["tune", *flags, "--budget", "5", "--output", "bf16", "--json", "-q"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["output"] == "bf16" and printed["best"]["cycles"] == narrow.best.cycles
    assert command.main(["tune", *flags, "--output", "bf17", "-q"]) == 2
    assert "bf17" in capsys.readouterr().err


def test_points_are_what_a_run_with_their_options_gives(found, davinci):
    for device, scheme, fmt, one in (("a100", "native", "fp16", found), ("ascend910a", "sgemm-cube", None, davinci)):
        given = {"device": device, "scheme": scheme, "format": fmt, "exact": False}
        m, n, k = SIZES
        for point in (one.default, one.best):
            result = hwsim.run(m=m, n=n, k=k, **given, **point.options)
            assert result.cycles == point.cycles
            assert result.tflops == pytest.approx(point.tflops)
            moved = [size for name, size in result.traffic_bytes.items() if name.startswith("HBM")]
            assert sum(moved) == point.hbm_bytes
            assert result.options["tile"] == point.facts["tile"]


def test_refused_points_say_why(monkeypatch):
    monkeypatch.setattr(TiledDataflow, "tiles", lambda self, gemm, device: [Tile(256, 128, 64)])
    found = tune(hwsim.device("a100"), plan_of("a100", fmt="fp16"), SIZES, exhaustive=True)
    refused = [point for point in found.points if point.cycles is None]
    assert refused and all(point.refused for point in refused)
    with pytest.raises(InputError):
        hwsim.run(m=256, n=384, k=320, device="a100", format="fp16", exact=False, **refused[0].options)


def test_every_option_of_the_family_is_varied(found, davinci):
    assert {name for point in found.points for name in point.options} == {"tile", "stages", "split_k", "swizzle"}
    assert {name for point in davinci.points for name in point.options} == {"tile", "buffering", "n_fused", "split_k"}


def test_instructions_are_varied_where_a_device_has_several(monkeypatch):
    monkeypatch.setattr(TiledDataflow, "tiles", lambda self, gemm, device: TILES)
    found = tune(hwsim.device("h200"), plan_of("h200", fmt="tf32", sizes=(256, 256, 4096)), (256, 256, 4096))
    used = {(point.options.get("instruction"), point.facts["unit"].split(".")[0])
            for point in found.points if point.cycles is not None}  # fmt: skip
    assert {("wgmma.m64nNk8.f32.tf32.tf32", "wgmma"), ("mma.m16n8k8.f32.tf32.tf32.f32", "mma")} <= used
    # Slices of K are mma.sync's unless they are asked for by name: wgmma's are the fastest.
    assert found.best.facts["split_k"] > 1 and found.best.facts["unit"].startswith("wgmma.")
    again = hwsim.run(m=256, n=256, k=4096, device="h200", format="tf32", exact=False, **found.best.options)
    assert again.cycles == found.best.cycles and found.best.row()["unit"] == again.options["unit"]


@pytest.mark.parametrize(("k", "counts"), [(64, [1]), (320, [1, 2, 3, 5]), (2112, [1, 2, 3, 4, 5, 6, 7])])
def test_slices_of_k_are_the_number_that_runs_and_are_tried_once(monkeypatch, k, counts):
    """Slices are multiples of 64: K = 320 asked for in 4 runs in 3, 2112 in 8 runs in 7."""
    monkeypatch.setattr(TiledDataflow, "tiles", lambda self, gemm, device: TILES[:1])
    found = hwsim.tune("h200", 64, 256, k, format="fp16", exhaustive=True, budget=2000)
    cut = [point for point in found.points if {"tile", "split_k"} <= set(point.options)]
    assert list(dict.fromkeys(point.options["split_k"] for point in cut)) == counts
    for point in found.ranked:
        assert point.options.get("split_k", 1) == point.facts["split_k"] == point.row()["split_k"]


def repeated(printed: dict, row: dict) -> float:
    """The seconds of a run with what the JSON of a search says of one of its rows."""
    mapping = {name: row[name] for name in ("stages", "split_k", "swizzle") if row.get(name) is not None}
    tile = {side: row[f"tile_{side}"] for side in "mnk"}
    return hwsim.run(**printed["call"], tile=tile, **mapping).seconds


@pytest.mark.parametrize(
    "more",
    [
        ["--batch", "3", "--power-limit-w", "400", "--b-layout", "columns", "--output", "bf16"],
        ["--clock-mhz", "1200", "--input-format", "fp32", "--l2", "cold"],
    ],
)
def test_the_json_of_a_search_says_how_to_repeat_each_row(capsys, more):
    flags = ["--device", "h200", "--format", "bf16", "--m", "256", "--n", "512", "--k", "2112", *more]
    assert command.main(["tune", *flags, "--budget", "12", "--json", "-q"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["hwsim_version"] == hwsim.__version__ and len(printed["device_sha256"]) == 64
    rows = [row for row in (printed["best"], printed["default"], *printed["points"]) if row["cycles"]]
    for row in rows[:6]:
        assert repeated(printed, row) == row["seconds"]


def test_a_search_says_what_its_times_are_of():
    found = hwsim.tune("h200", 256, 256, 512, format="bf16", input_format="fp32", budget=3, power_limit_w=400)
    assert "state     L2 as the same call" in str(found) and "; board of 400 W; operands fp32 in memory" in " ".join(
        str(found).split()
    )
    assert found.call["input_format"] == "fp32" and found.call["l2"] == "series" and "clock_mhz" not in found.call
    assert "; clock 1,200 MHz" in str(hwsim.tune("h200", 256, 256, 512, format="bf16", budget=3, clock_mhz=1200))


def test_a_search_finds_what_auto_takes_and_the_slices_between():
    """A search begins with the slices of a run with split_k="auto" too, which the best uncut tiles may not lead to."""
    call = {"device": "a100", "format": "tf32", "m": 1536, "n": 1536, "k": 8192}
    auto = hwsim.run(**call, exact=False, split_k="auto")
    assert auto.options["split_k"] == 3
    found = hwsim.tune(**call, budget=150)
    assert found.best.seconds <= auto.seconds
    assert {point.facts["split_k"] for point in found.ranked} >= set(range(1, 9))


def test_a_search_times_what_auto_takes_where_no_slices_between_lead_to_it(monkeypatch):
    call = {"device": "h200", "format": "fp16", "m": 16, "n": 16, "k": 32768}
    auto = hwsim.run(**call, exact=False, split_k="auto")
    assert auto.options["split_k"] > 8
    found = hwsim.tune(**call, budget=150)
    assert found.best.seconds <= auto.seconds
    monkeypatch.setattr(TiledDataflow, "tiles", lambda self, gemm, device: TILES[:1])
    combinations = hwsim.tune(**call, exhaustive=True)
    assert auto.options["split_k"] in {point.facts["split_k"] for point in combinations.ranked}


@pytest.mark.parametrize(
    ("call", "least"),
    [
        ({"device": "ascend910a", "scheme": "sgemm-cube", "m": 512, "n": 512, "k": 8192}, 0.4),
        ({"device": "h200", "format": "fp16", "m": 256, "n": 256, "k": 8192}, 0.5),
        ({"device": "a100", "scheme": "markidis", "m": 512, "n": 512, "k": 4096}, 0.15),
    ],
)
def test_a_small_budget_finds_most_of_the_gain(call, least):
    """What auto takes and unlike tiles come first, and half of the budget is for the other options."""
    found = hwsim.tune(**call, budget=20)
    assert not found.complete and len(found.ranked) <= 21
    assert 1 - found.best.seconds / found.default.seconds > least
    assert found.best.has_same_bits is False and "it changes the bits" in gap_text(found)


def test_unlike_tiles_come_first():
    sides = [(16, 512), (16, 528), (16, 544), (32, 512), (96, 512), (64, 512)]
    tiles = [{"m": m, "n": n, "k": 16} for m, n in sides]
    ordered = [(tile["m"], tile["n"]) for tile in unlike_first(tiles)]
    assert ordered == [(16, 512), (32, 512), (96, 512), (16, 528), (64, 512), (16, 544)]


def test_the_best_with_the_bits_of_the_default_has_a_row():
    call = {"device": "h200", "format": "fp16", "m": 64, "n": 64, "k": 4096}
    found = hwsim.tune(**call, budget=60)
    kept = found.best_with_same_bits
    assert found.best.facts["split_k"] > 1 and not found.best.has_same_bits
    assert kept.has_same_bits and kept.facts["split_k"] == 1
    assert all(point.has_same_bits == (point.facts["split_k"] == 1) for point in found.ranked)
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((64, 4096)).astype(np.float16), rng.standard_normal((4096, 64)).astype(np.float16)
    bits = [hwsim.run(a, b, device="h200", **one.options).codes for one in (found.default, kept, found.best)]
    assert (bits[0] == bits[1]).all() and (bits[0] != bits[2]).any()
    text, said = tune_text(found), duration(kept.seconds)
    assert f"it changes the bits: with the default's bits the best takes {said}" in gap_text(found)
    assert re.search(rf"^  same bits +tile .* split_k 1 .* {said} ", text, re.MULTILINE)
    assert tune_dict(found)["points"][0]["has_same_bits"] is False
    same = hwsim.tune(**call, budget=20, split_k=1)
    assert same.best.has_same_bits and "changes the bits" not in gap_text(same) and "same bits" not in str(same)


def test_options_of_the_mapping_that_are_given_stay(capsys):
    call = {"device": "h200", "format": "fp16", "m": 128, "n": 256, "k": 512}
    kept = {"b_layout": "columns", "split_k": 2, "stages": 3}
    found = hwsim.tune(**call, **kept, budget=12)
    for point in found.points:
        assert {name: point.options[name] for name in kept} == kept
    assert found.best.cycles == hwsim.run(**call, exact=False, **found.best.options).cycles
    assert found.default.cycles == hwsim.run(**call, **kept, exact=False).cycles
    every = hwsim.tune(**call, **kept, budget=12, exhaustive=True)
    assert all({name: point.options[name] for name in kept} == kept for point in every.points)
    flags = [word for name, value in (call | kept).items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert command.main(["tune", *flags, "--budget", "12", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["best"] == json.loads(json.dumps(found.best.row()))
    with pytest.raises(InputError, match="b_layout = 'diagonal'; allowed: rows, columns"):
        hwsim.tune(**call, b_layout="diagonal")
    for name, value in (("tile", (64, 64, 64)), ("rows", [0]), ("alpha", 2.0)):
        with pytest.raises(InputError, match=f"{name}: a search does not take it"):
            hwsim.tune(**call, **{name: value})


@pytest.mark.parametrize("device", ["h200", "ascend910a"])
def test_a_search_takes_a_stack_and_the_format_in_memory(device):
    call = {"device": device, "format": "fp16", "m": 128, "n": 256, "k": 512, "batch": 6, "input_format": "fp32"}
    found = hwsim.tune(**call, budget=6)
    again = hwsim.run(**call, exact=False, **found.best.options)
    assert again.cycles == found.best.cycles and again.tflops == pytest.approx(found.best.tflops)
    assert again.options["batch"] == [6] and "in a stack of 6" in str(found)
    assert found.best.cycles > hwsim.tune(**call | {"batch": 1}, budget=6).best.cycles


OF_LIBRARY = {"library": "cublas", "b_layout": "columns", "reductions": "compute"}


def test_a_library_stands_beside_a_search_with_settings_that_stay():
    call = {"device": "h100", "format": "fp16", "m": 96, "n": 512, "k": 1024, "output": "fp16", "budget": 3}
    found = hwsim.tune(**call, split_k=2, **OF_LIBRARY)
    beside = found.library
    assert beside is not None and beside.name == "cublas"
    run = hwsim.run(**{name: value for name, value in call.items() if name != "budget"}, **OF_LIBRARY, exact=False)
    assert (beside.cycles, beside.seconds) == (run.cycles, run.seconds) and beside.is_fitted
    assert beside.program_seconds == run.times.program_seconds != run.seconds
    text = str(found)
    shown, program = (duration(seconds) for seconds in (beside.seconds, beside.program_seconds))
    assert f"cublas's kernel takes {shown} by fitted times, " in " ".join(text.split())
    assert text.splitlines()[-1].endswith(f"as a program {beside.cycles:,} cycles, {program}; by fitted times {shown}")
    row = next(line for line in text.splitlines() if line.startswith("  cublas "))
    assert shown in row and row.split()[-1] == f"{found.ranked[0].seconds / beside.seconds:.3f}"
    faster = sum(point.seconds < beside.seconds for point in found.ranked)
    assert ("less than every configuration" if not faster else f"more than {faster} of {len(found.ranked)}") in text
    with pytest.raises(InputError, match="reductions: a search does not take it"):
        hwsim.tune(**call, reductions="compute")


def test_traffic_as_the_objective():
    chip, plan = hwsim.device("ascend910a"), plan_of("ascend910a", "sgemm-cube")
    found = tune(chip, plan, SIZES, objective="traffic", budget=40)
    timed = [point for point in found.points if point.cycles is not None]
    assert found.best.hbm_bytes == min(point.hbm_bytes for point in timed)
    assert not found.complete and len(timed) <= 40 + 2  # the formula's point may come on top


def test_energy_as_the_objective():
    chip = hwsim.device("a100")
    by_energy = tune(chip, plan_of("a100", fmt="fp16"), SIZES, objective="energy", budget=12)
    timed = [point for point in by_energy.points if point.cycles is not None]
    assert by_energy.best.joules == min(point.joules for point in timed)
    assert len({point.joules for point in timed}) > 6
    m, n, k = SIZES
    for point in (by_energy.best, by_energy.default, timed[-1]):
        again = hwsim.run(m=m, n=n, k=k, device="a100", format="fp16", exact=False, **point.options)
        assert point.joules == energy(again.times, again.gemm).joules and point.row()["energy_evidence"] == "assumption"
    text = tune_text(by_energy)
    assert f"{joules_text(by_energy.best.joules)} " in text and "evidence of the energies: assumption" in text
    with pytest.raises(UnsupportedError, match="no energies of device ascend910a"):
        tune(hwsim.device("ascend910a"), plan_of("ascend910a", "sgemm-cube"), SIZES, objective="energy")


def test_products_of_a_stack_are_timed_one_after_another_where_a_program_is_of_one(tmp_path):
    file = new_device_file(tmp_path / "array.yaml", "systolic", {})
    costs = {"static_watts": 1, "mac_pj": "{int8: 1}", "lane_fma_pj": 1, "lane_other_pj": 1, "hbm_pj_per_byte": 7}
    file.write_text("\n".join([file.read_text(), "energy:", *(f"  {name}: {cost}" for name, cost in costs.items())]))
    chip, plan = hwsim.device(file), plan_of(file, fmt="int8")
    assert not dataflow(chip).features.stacks
    found, stack = (tune(chip, plan, SIZES, objective="energy", budget=8, lead=lead) for lead in ((), (2, 3)))
    for one, six in ((found.best, stack.best), (found.default, stack.default)):
        assert (six.cycles, six.hbm_bytes) == (6 * one.cycles, 6 * one.hbm_bytes)
        assert six.joules == pytest.approx(6 * one.joules) and six.tflops == pytest.approx(one.tflops)


def test_the_energy_of_a_stack_is_of_all_its_products():
    call = {"device": "a100", "format": "fp16", "m": 128, "n": 256, "k": 512, "batch": 6}
    best = hwsim.tune(**call, objective="energy", budget=3).best
    again = hwsim.run(**call, exact=False, **best.options)
    assert best.joules == energy(again.times, again.gemm).joules
    assert best.joules > 2 * hwsim.tune(**call | {"batch": 1}, objective="energy", budget=3).best.joules


def test_energies_of_a_file_are_searched(tmp_path):
    """By bytes of HBM alone, the least energy is the least traffic."""
    file = new_device_file(tmp_path / "my.yaml", "accelerator", {})
    costs = {"static_watts": 0, "mac_pj": "{bf16: 0}", "lane_fma_pj": 0, "lane_other_pj": 0, "hbm_pj_per_byte": 7}
    lines = "".join(f"  {name}: {value}\n" for name, value in costs.items())
    file.write_text(f"{file.read_text()}\nenergy:\n{lines}")
    search = {"sizes": (512, 512, 512), "budget": 8}
    found = tune(hwsim.device(file), plan_of(file, fmt="bf16"), objective="energy", **search)
    assert {round(point.joules / 7e-12) for point in found.points if point.joules is not None} == {
        point.hbm_bytes for point in found.points if point.joules is not None
    }
    assert found.best.hbm_bytes == min(point.hbm_bytes for point in found.points if point.hbm_bytes is not None)


def test_exhaustive_times_combinations(monkeypatch):
    monkeypatch.setattr(TiledDataflow, "tiles", lambda self, gemm, device: TILES)
    axes = {"stages": (2, 3), "split_k": (1, 2)}
    options = tuple(
        replace(option, axis=axes.get(option.name, ())) for option in dataflow(hwsim.device("a100")).options
    )
    monkeypatch.setattr(TiledDataflow, "options", property(lambda self: options))
    found = tune(hwsim.device("a100"), plan_of("a100", fmt="fp16"), SIZES, exhaustive=True)
    combinations = [point for point in found.points if set(point.options) == {"tile", "stages", "split_k"}]
    assert len(combinations) == 4 * 2 * 2 and found.complete


def test_eq11_takes_the_b_m_of_least_traffic():
    chip, plan = hwsim.device("ascend910a"), plan_of("ascend910a", "sgemm-cube")
    tile = eq11(chip, plan, 4096, 4096, 4096)
    limits = Limits.of(chip, 2)
    assert b_m_least_traffic(limits, 1.0) == pytest.approx(90.5, abs=0.1)
    assert tile["m"] == 96 and tile["k"] * tile["n"] == limits.l0b
    found = tune(chip, plan, SIZES, chooser="eq11")
    assert found.best == found.analytic["eq11"] and found.best.options["tile"] == eq11(chip, plan, *SIZES)
    with pytest.raises(UnsupportedError, match="eq11"):
        tune(hwsim.device("a100"), plan_of("a100", fmt="fp16"), SIZES, chooser="eq11")


def test_parallelism_by_hand():
    one = parallelism(hwsim.device("mi210"), {"m": 128, "n": 128, "k": 32}, 1024, 1024)
    assert one.threads == 4 * 8 * 8 * 64  # Eq. 12
    assert one.per_byte == 96.0  # Eq. 15: 3 * 128 / 4
    assert one.load == (128 * 128 + 2 * 128 * 32) / 256 and one.work == 128 * 128 / 256  # Eq. 16, 17
    assert parallelism(hwsim.device("a800"), {"m": 128, "n": 128, "k": 32}, 1024, 1024).threads == 4 * 8 * 8 * 32


def test_tlp_weighs_threads_against_computation_per_byte():
    chip = hwsim.device("a800")
    tiles = [{"m": side, "n": side, "k": 32} for side in (32, 64, 128, 256)]

    def any_tile(tile):
        return True

    assert tlp(chip, tiles, any_tile, 8192, 8192) == tiles[3]
    assert tlp(chip, tiles, lambda tile: tile["m"] < 256, 8192, 8192) == tiles[2]
    assert tlp(chip, tiles, any_tile, 1024, 1024) == tiles[1]  # 128 gives 64 workgroups to 108 cores
    assert tlp(chip, tiles, any_tile, 64, 64)["m"] == 32
    found = tune(chip, plan_of("a800", "le-gemm"), SIZES, chooser="tlp")
    assert found.best == found.analytic["tlp"] and found.best.cycles
    with pytest.raises(UnsupportedError, match="tlp"):
        tune(hwsim.device("ascend910a"), plan_of("ascend910a", "sgemm-cube"), SIZES, chooser="tlp")


def test_what_is_refused():
    chip, plan = hwsim.device("a100"), plan_of("a100", fmt="fp16")
    with pytest.raises(InputError, match="objective = 'joules'"):
        tune(chip, plan, SIZES, objective="joules")
    with pytest.raises(InputError, match="chooser = 'luck'"):
        tune(chip, plan, SIZES, chooser="luck")
    with pytest.raises(UnsupportedError, match="blocks follow different plans"):
        tune(chip, plan_of("a100", "ape"), SIZES)
    without = chip.model_copy(update={"hbm": None})
    with pytest.raises(UnsupportedError, match="no timing data"):
        tune(without, plan, SIZES)


def test_reports(found, davinci):
    for one in (found, davinci):
        text = tune_text(one)
        m, n, k = (f"{size:,}" for size in one.sizes)
        assert f"C[{m} x {n}], K = {k}; {one.scheme} on {one.device}" in text
        assert str(one) == text and len(repr(one)) < 250 and "TunedPoint" not in repr(one)
        assert text.startswith("verdict ") and "the best with each tile" in text and "default" in text
        assert "@ from 90, % from 80" in text
        table = list(csv.DictReader(io.StringIO(tune_csv(one))))
        assert len(table) == len(one.points)
        assert float(table[0]["seconds"]) == one.best.seconds
        rows, columns, shares = heat(one)
        assert max(shares.values()) == 1 and set(shares) <= {(m, n) for m in rows for n in columns}
        tile = one.best.facts["tile"]
        assert shares[tile["m"], tile["n"]] == 1


def test_points_that_nothing_tells_apart_are_one_group(found):
    groups = alike(found)
    assert sum(map(len, groups)) == sum(point.cycles is not None for point in found.points)
    assert [group[0].seconds for group in groups] == sorted(group[0].seconds for group in groups)
    for group in groups:
        assert len({(point.cycles, str(point.facts.get("tile")), point.row().get("split_k")) for point in group}) == 1
    near = sum(point.cycles is not None and point.seconds <= 1.08 * found.best.seconds for point in found.points)
    text = tune_text(found)
    verb = "is" if near == 1 else "are"
    assert f"{near} of {sum(map(len, groups))} configurations {verb} within 8 % of the best" in text
    if any(len(group) > 1 for group in groups[:BEST]):
        assert "the same with " in text


def test_heat_map_as_an_image(found):
    try:
        plotting()
    except UnsupportedError as error:
        assert "pip install matplotlib" in str(error)
        return
    file = io.BytesIO()
    write_heat(found, "title", file)
    assert file.getvalue().startswith(b"\x89PNG")


def test_without_matplotlib_it_says_what_to_do(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(UnsupportedError, match="pip install matplotlib"):
        plotting()


def test_the_default_is_the_run_s_where_a_dataflow_cuts_k_by_itself():
    """Narrow operands of few rows on a 910A: the run has slices, so the default of tune has them, and its bits."""
    chip, sizes = hwsim.device("ascend910a"), {"m": 16, "n": 512, "k": 16384}
    run = hwsim.run(device=chip, format="fp16", input_format="fp16", exact=False, **sizes)
    assert run.gemm.schedule.split_k > 1
    search = hwsim.tune(device=chip, format="fp16", budget=4, **sizes)
    assert search.default.cycles == run.cycles and search.default.has_same_bits
