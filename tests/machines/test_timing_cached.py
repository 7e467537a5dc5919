"""What follows from a program alone is worked out once, whatever the clock; timing.run runs at every call, hwsim.run
calls it once for a program, a device and an instruction.
"""

from collections import Counter
from dataclasses import replace

import pytest
from timing_device import device, kernel, load, program, store

import hwsim
from hwsim.devices import at_clock, changed
from hwsim.devices.variants import CLOCKS
from hwsim.machines import tables, timing
from hwsim.machines.timing import run
from hwsim.program import flat

L2 = {"capacity_bytes": 1 << 20, "bytes_per_second": 2e9, "latency_ns": 3000.0}


@pytest.fixture
def calls(monkeypatch):
    """How often each step was taken, by its name."""
    count = Counter()

    def counted(module, name):
        step = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *x, **y: (count.update([name]), step(*x, **y))[1])

    counted(flat, "flatten")
    counted(tables, "costs")
    counted(timing, "_executed")
    return count


def copies(rows=64):
    return program(kernel((load("X", rows, 64), store("Y", rows, 64))))


def test_a_program_is_flattened_once_and_timed_anew(calls):
    prog, chip = copies(), device(l2=L2)
    first = run(prog, chip)
    assert run(replace(prog), chip) == first
    assert calls == {"flatten": 1, "costs": 1, "_executed": 2}
    run(copies(), chip)
    assert calls["flatten"] == 2


def test_another_clock_takes_the_same_tables(calls):
    prog, chip = copies(), device(l2=L2)
    timed = [run(prog, at_clock(chip, mhz)) for mhz in (1.0, 2.0, 3.0)]
    assert calls == {"flatten": 1, "costs": 1, "_executed": 3}
    fresh = [run(copies(), device(l2=L2, clock_mhz=mhz)) for mhz in (1.0, 2.0, 3.0)]
    assert timed == fresh and len({one.cycles for one in timed}) == 3


def test_what_costs_nothing_is_not_kept(calls):
    prog, chip = copies(), device(l2=L2)
    usual, nothing = run(prog, chip).cycles, run(prog, chip, free=lambda instr, link: True).cycles
    assert (calls["flatten"], calls["costs"]) == (1, 2)
    assert nothing < usual == run(prog, chip).cycles


@pytest.mark.parametrize(
    "other",
    [
        lambda chip: changed(chip, {"links.GM_L1.bytes_per_cycle": 1.0}),
        lambda chip: chip.model_copy(update={"links": changed(chip, {"links.GM_L1.bytes_per_cycle": 1.0}).links}),
    ],
    ids=["changed", "copied"],
)
def test_another_device_has_tables_of_its_own(other):
    prog, chip = copies(), device()
    at_clock(chip, 5.0)
    usual, slow = run(prog, chip).cycles, other(chip)
    assert run(prog, slow).cycles > usual + 4000
    assert run(prog, at_clock(slow, 5.0)).cycles > run(prog, at_clock(chip, 5.0)).cycles + 4000


def test_a_clock_gives_the_same_device():
    chip = device(sustained_clock_mhz={"fp16": 0.5})
    made = at_clock(chip, 2.0)
    assert made is at_clock(chip, 2) and made.clock_mhz == 2.0 and not made.sustained_clock_mhz
    validated = changed(chip, {"clock_mhz": 2.0, "sustained_clock_mhz": {}, "power_limit": None})
    assert made.canonical() == validated.canonical()
    assert (made.sha256, made.asked_mhz) == (chip.sha256, 2.0)  # the file's content, and the clock beside it
    assert chip.clock_mhz == 1.0 and chip.sustained_clock_mhz == {"fp16": 0.5}
    for mhz in range(3, 3 + CLOCKS):
        at_clock(chip, mhz)
    assert len(chip._clocked) == CLOCKS and at_clock(chip, 2.0) is not made


def test_a_product_that_is_asked_for_again_is_not_timed_again(calls):
    asked = {"m": 40, "n": 24, "k": 48, "exact": False, "format": "fp16"}
    first = hwsim.run(device="h200", **asked)
    cycles, steps = first.cycles, calls["_executed"]
    assert steps > 0
    with pytest.raises(TypeError, match="it cannot be changed"):  # else the next result would have it
        first.phases[0]["cycles"] = -1
    second = hwsim.run(device="h200", **asked)
    assert calls["_executed"] == steps
    assert second.cycles == second.phases[0]["cycles"] == cycles and second.engines["TC"]["busy_cycles"] > 0
    slower = hwsim.run(device=at_clock(hwsim.device("h200"), 100.0), **asked)
    assert calls["_executed"] > steps and slower.cycles != cycles
