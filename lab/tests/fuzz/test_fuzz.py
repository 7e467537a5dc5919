"""Campaigns of lab/tools/fuzz, short here: the long ones are run by command (lab/docs/robustness.md)."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hwsim
from hwsim.dataflows.options import STAGES
from hwsim.gemm.problem import Problem
from hwsim.resolve import mapping_search
from hwsim.resolve.planning import plan_for
from hwsim.schemes import scheme_of
from hwsim.studies.tune import tune

FOLDER = Path(__file__).parents[2] / "tools" / "fuzz"
COUNTS = {"devices": 30, "options": 25, "goldens": 200, "programs": 10, "records": 25, "libraries": 150}
GOOD = {
    "devices": "both",
    "options": "both",
    "goldens": "passes",
    "programs": "equal, damage caught and harmless",
    "records": "computed, by its program too",
    "libraries": "answers the same",
}
FIRST = 10_000_000  # numbers that no long campaign has


def campaign(name, *arguments):
    return subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), "--processes", "1", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", COUNTS)
def test_no_fault_is_found(name):
    """Each campaign on cases that no long run had: a traceback, a hang or a wrong bit that a change brings in."""
    found = campaign(name, "--first", FIRST, "--count", COUNTS[name])
    assert found.returncode == 0, found.stdout
    assert "0 faults" in found.stdout
    words = found.stdout.partition("\n")[0]
    assert "refused" in words
    assert GOOD[name] in words  # some are good, and compared


def test_no_call_of_a_framework_has_other_bits_than_its_products():
    pytest.importorskip("torch")
    found = campaign("frameworks", "--first", FIRST, "--count", 60)
    assert found.returncode == 0, found.stdout
    assert re.search(r": [4-6]\d equal", found.stdout)
    for name in ("torch convolution", "torch gradients", "numpy matmul"):
        assert re.search(rf" {name}(,|$)", found.stdout, re.MULTILINE)


def test_a_campaign_whose_time_is_over_ends_after_a_chunk_and_goes_on(tmp_path):
    log = tmp_path / "log.jsonl"
    found = campaign("goldens", "--count", 250, "--seconds", 0, "--log", log)
    assert found.returncode == 2 and found.stdout.startswith("100 cases")
    assert "150 of 250 cases are left: the time was up; the same command goes on\n" in found.stdout
    rest = campaign("goldens", "--count", 250, "--log", log)
    assert rest.returncode == 0 and rest.stdout.startswith("250 cases") and "left" not in rest.stdout


ROW = {
    "reference": "tune",
    "seed": 0,
    "number": 1,
    "family": "sm80",
    "device": "a100",
    "scheme": "native fp16",
    "sizes": [16, 16, 32],
    "cycles": 1020,
    "least": 1000,
    "first": 1500,
    "options": {},
}


def test_draws_of_tiles_that_have_not_ended_are_named(tmp_path):
    log = tmp_path / "log.jsonl"
    stopped = campaign("tiles", "--draws", 2, "--seconds", 0, "--log", log)
    left = "draws are left, the same command goes on; begun: [0]\n"
    assert stopped.returncode == 2 and stopped.stdout == f"2 of 2 {left}"
    log.write_text(json.dumps(ROW) + "\n")
    stopped = campaign("tiles", "--draws", 2, "--seconds", 0, "--log", log)
    assert stopped.returncode == 2 and f"1 of 2 {left}" in stopped.stdout
    assert "| all | 1 | 1.020 | 1.02 | 0 | 0 | 1.500 | 1.50 |" in stopped.stdout
    log.write_text(json.dumps(ROW | {"cycles": 1200}) + "\n")
    assert campaign("tiles", "--draws", 2, "--seconds", 0, "--log", log).returncode == 1  # beyond what is promised


def test_draws_of_tiles_of_another_version_or_reference_are_refused(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({name: ROW[name] for name in ROW if name not in ("reference", "first")}) + "\n")
    old = campaign("tiles", "--draws", 2, "--log", log)
    assert old.returncode == 2 and "draw 1 has no reference, first: an earlier version" in old.stderr
    log.write_text(json.dumps(ROW) + "\n")
    other = campaign("tiles", "--draws", 2, "--exhaustive", "--log", log)
    assert other.returncode == 2 and "draw 1 is beside 'tune', asked is 'all mappings'" in other.stderr


@pytest.mark.parametrize(
    ("device", "scheme", "form", "sizes"),
    [
        ("mi300x", "native", "fp32", (256, 40, 64)),
        ("v100", "native", "fp16", (100, 240, 96)),
        ("h800", "native", "tf32", (72, 24, 40)),
        ("ascend910b3", "native", "fp16", (48, 40, 33)),
    ],
)
def test_no_mapping_that_is_left_out_is_better(device, scheme, form, sizes, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    from all_mappings import best_of_all

    chip = hwsim.device(device)
    plan = plan_for(chip, scheme_of(scheme), Problem.of("fp32", *sizes), form, {}, None).plan
    found = best_of_all(chip, plan, sizes)
    every = tune(chip, plan, sizes, exhaustive=True, budget=100_000, same_bits=True)
    assert every.complete and found.default == every.default.cycles
    assert found.cycles == min(point.cycles for point in (every.default, *every.points) if point.cycles is not None)
    assert found.timed <= found.mappings


def test_all_mappings_have_stages_beyond_the_axis(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    from all_mappings import best_of_all

    monkeypatch.setattr(mapping_search, "DEEPENED", 0)
    monkeypatch.setattr(mapping_search, "_CACHE", type(mapping_search._CACHE)(8))
    chip, sizes = hwsim.device("a10"), (16, 16, 700)
    plan = plan_for(chip, scheme_of("native"), Problem.of("fp32", *sizes), "fp32", {}, None).plan
    found = best_of_all(chip, plan, sizes)
    assert found.options["stages"] > max(STAGES.axis) and found.cycles < found.default
    tile = found.options["tile"]
    given = {"device": "a10", "format": "fp32", "exact": False} | dict(zip("mnk", sizes, strict=True))
    between = range(max(STAGES.axis), found.options["stages"])
    assert found.cycles <= min(hwsim.run(**given, tile=tile, stages=count).cycles for count in between)
    monkeypatch.undo()
    assert hwsim.run(**given).cycles == found.cycles


def test_a_campaign_goes_on_from_its_log_and_adds_up(tmp_path):
    log = tmp_path / "log.jsonl"
    assert campaign("goldens", "--count", 150, "--log", log).returncode == 0
    with log.open("a") as file:
        file.write('{"campaign": "goldens", "first"')  # killed while writing
        file.write("\n")
    assert campaign("goldens", "--count", 250, "--log", log).returncode == 0
    rows = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
    assert sorted((row["first"], row["count"]) for row in rows) == [(0, 100), (100, 50), (100, 100), (200, 50)]
    said = campaign("goldens", "--summary", log).stdout
    assert said.startswith("250 cases")


FAULTY = """
import os, sys, time
sys.path.insert(0, {folder!r})
import campaign
campaign.HANG_S = 0.2
def case(number):
    if number == 3: raise KeyError("three")
    if number == 5:
        while True: pass
    if number == 207: os._exit(9)
    return "fine"
campaign.main("faulty", case, "faults")
"""


ENDLESS = """
import os, sys
sys.path.insert(0, {folder!r})
import campaign
def case(number):
    if not os.path.exists({seen!r}):
        open({seen!r}, "w").write(str(os.getpid()))
    return "fine"
campaign.main("endless", case, "endless")
"""


def test_faults_hangs_and_dead_processes_are_found(tmp_path):
    script = tmp_path / "faulty.py"
    script.write_text(FAULTY.format(folder=str(FOLDER)))
    found = subprocess.run(
        [sys.executable, str(script), "--count", "400", "--processes", "2"], capture_output=True, text=True, check=False
    )
    assert found.returncode == 1
    assert "KeyError: 'three'" in found.stdout and "1 hang" in found.stdout and "the process died" in found.stdout
    assert "3 faults" in found.stdout and "again: --number 207" in found.stdout


def test_workers_end_with_their_campaign(tmp_path):
    """A campaign that is killed leaves no process behind, which would wait for its next chunk."""
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS.format(folder=str(FOLDER), seen=str(tmp_path / "pid")))
    with subprocess.Popen([sys.executable, str(script), "--count", "100000", "--processes", "1"]) as campaign_of_one:
        wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        campaign_of_one.kill()
    worker = int((tmp_path / "pid").read_text())
    wait_for(lambda: not Path(f"/proc/{worker}").exists())


def wait_for(done):
    """Wait until it is so, a minute at most."""
    for _ in range(600):
        if done():
            return
        time.sleep(0.1)
    raise AssertionError("a minute went by")


@pytest.mark.parametrize("number", [27, 441])
def test_slots_of_formats_narrower_than_a_byte(number):
    """Damaged programs of narrow formats whose slots hold no more than packed codes: the machines execute them."""
    found = subprocess.run(
        [sys.executable, str(FOLDER / "programs.py"), "--number", str(number)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("equal, damage")
