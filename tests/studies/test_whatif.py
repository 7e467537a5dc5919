"""What to speed up, and the roofline: a small pipeline whose bottlenecks are known by hand."""

from dataclasses import replace

import pytest
from timing_device import device, kernel, load, program, sync

import hwsim
from hwsim.analysis.roofline import roofline
from hwsim.analysis.what_if import what_if
from hwsim.errors import UnsupportedError
from hwsim.machines.timing import run
from hwsim.program.ir import Instr, LocalTile, Loop, variable
from hwsim.report.text.whatif_text import changed_text, roofline_text, what_if_text


def pipeline():
    """64 passes: a load of 8192 bytes, then an mma of 16 blocks of K (9 + 16 * 10 cycles), then a cast."""
    body = (
        Loop(
            "i",
            64,
            (
                load("X", 64, 64, variable("i") * 64, waits="free", signals="full"),
                Instr(
                    "M",
                    "mma",
                    (LocalTile("lc", 16, 16, "fp32"),),
                    (LocalTile("la", 16, 256, "fp16"), LocalTile("lb", 256, 16, "fp16")),
                    sync("M", "full").waits,
                    sync("M", "", "free done").signals,
                    unit="mm",
                ),
                Instr(
                    "V",
                    "cast",
                    (LocalTile("ub", 16, 16, "fp16"),),
                    (LocalTile("ub", 16, 16, "fp32"),),
                    sync("V", "done").waits,
                ),
            ),
        ),
    )
    return program(kernel(body, counts=(4,), semaphores={"free": 2, "full": 0, "done": 0}))


CHANGES = {
    "hbm": {"capacity_bytes": 1 << 40, "bytes_per_second": 512e6},
    "l2": {"capacity_bytes": 1 << 22, "bytes_per_second": 1e9},
}


def test_the_bottleneck_comes_first_and_the_rest_saves_what_it_hides():
    dev = device(**CHANGES)
    found = what_if(pipeline(), dev)
    cycles = {one.part: one.cycles for one in found}
    now = run(pipeline(), dev).cycles
    assert {
        "engine M",
        "engine IN",
        "engine V",
        "link GM_L1",
        "opcode cast",
        "issue",
        "HBM",
        "L2",
        "L2 capacity",
    } == set(cycles)
    assert found[0].part == "engine M"
    # The four cores share tiles: 64 bytes a cycle each, so 128 cycles a load; the mma takes 169.
    assert now == 1 + 128 + 64 * 169 + 20 + 28
    assert cycles["engine M"] == 1 + 64 * 128 + 28
    assert cycles["engine IN"] == cycles["link GM_L1"] < now
    assert cycles["engine V"] == cycles["opcode cast"] == now - 28
    assert cycles["HBM"] == cycles["L2"] == cycles["L2 capacity"] == now
    assert [one.cycles for one in found] == sorted(cycles.values())
    assert all(one.saved == (now - one.cycles) / now for one in found)


def test_shared_memory_is_a_part_of_its_own():
    dev = device(**{**CHANGES, "hbm": {"capacity_bytes": 1 << 40, "bytes_per_second": 16e6}})
    found = what_if(pipeline(), dev)
    assert found[0].part == "HBM"  # 512 cycles a load that four cores share
    link = next(one for one in found if one.part == "link GM_L1")
    assert link.cycles > 64 * 512  # a free link moves its bytes through HBM all the same


def test_text():
    text = what_if_text(what_if(pipeline(), device(**CHANGES)))
    lines = text.splitlines()
    assert lines[2].split()[:2] == ["engine", "M"] and lines[2].endswith("%")
    assert lines[-1].startswith("  nothing to gain from: ") and "L2 capacity" in lines[-1]


def test_a_rate_that_operands_hold_back_is_said_to_be_held():
    """512 cubed: tiles with a short n, whose operands fill the port of shared memory at the present rate already."""
    path = "instructions.wgmma.m64nNk16.f32.bf16.bf16.timing.macs_per_cycle"
    small, large = (
        hwsim.run(device="h200", format="bf16", exact=False, m=size, n=size, k=size).with_numbers({path: "2x"})
        for size in (512, 2048)
    )
    assert small.cycles[0] == small.cycles[1] and small.held == {path: "operand_bytes_per_cycle"}
    assert "4,096  held by operand_bytes_per_cycle" in changed_text(small)
    assert large.cycles[1] < large.cycles[0] and not large.held and "held" not in changed_text(large)


def test_bytes_of_a_roofline_are_those_read_and_those_written():
    """From a cold L2 A and B are read; of C is written what L2 does not hold at the end."""
    m, n, k = 8192, 8192, 256
    result = hwsim.run(device="h200", format="bf16", output="bf16", exact=False, l2="cold", m=m, n=n, k=k)
    moved, point = result.traffic_bytes, result.roofline
    assert moved["HBM read"] >= 2 * (m * k + k * n) and moved["HBM write"] > 0
    assert point.hbm_bytes == moved["HBM read"] + moved["HBM write"]
    assert point.intensity == pytest.approx(2 * m * n * k / point.hbm_bytes, rel=1e-12)


def test_roofline_by_hand():
    dev = device(**CHANGES)
    timing = run(pipeline(), dev)
    point = roofline(timing, dev, "mm")
    work = 2 * 4 * 64 * 16 * 16 * 256
    assert point.hbm_bytes == 64 * 8192
    assert point.intensity == pytest.approx(work / (64 * 8192), rel=1e-12)
    assert point.peak == pytest.approx(2 * 4096 * 64 * 1e6 / 1e12, rel=1e-12)  # 64 cores at 1 MHz
    assert point.attainable == pytest.approx(point.intensity * 512e6 / 1e12, rel=1e-12) and point.bound == "memory"
    assert point.achieved == pytest.approx(work / (timing.cycles / 1e6) / 1e12, rel=1e-12)
    assert "limited by HBM" in roofline_text(point)
    still = roofline_text(replace(point, hbm_bytes=0, intensity=float("inf")))
    assert "no traffic to HBM" in still and "inf" not in still
    rich = device(**{**CHANGES, "hbm": {"capacity_bytes": 1 << 40, "bytes_per_second": 1e15}})
    assert roofline(timing, rich, "mm").bound == "compute" and roofline(timing, rich, "mm").attainable == point.peak
    with pytest.raises(UnsupportedError, match="no time of mm"):
        roofline(timing, device(instructions__mm__timing=None), "mm")
