"""Fields that say how long things take: what is refused and why, evidence, the text, and changed devices."""

from fractions import Fraction

import pytest

from hwsim import devices
from hwsim.errors import ConfigError, InputError
from hwsim.report.text.device_text import device_text, sources_text

TIMING = "    timing: {issue_interval_cycles: 1}\n"


def problems(write, text):
    with pytest.raises(ConfigError) as caught:
        devices.load(write("d.yaml", text))
    return caught.value.problems


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (TIMING, "    timing: {overhead_cycles: 1}\n", ["mm.timing", "exactly one of issue_interval_cycles and"]),
        (
            TIMING,
            "    timing: {issue_interval_cycles: 1, macs_per_cycle: 4096}\n",
            ["d.yaml:26:13: instructions.mm.timing: exactly one of issue_interval_cycles and macs_per_cycle is needed"],
        ),
        (TIMING, "    timing: {macs_per_cycle: 0}\n", ["mm.timing.macs_per_cycle: got 0; must be at least"]),
        (
            TIMING,
            "    timing: {macs_per_cycle: 64, operand_bytes_per_cycle: {SMEM: 64}}\n",
            ["mm.timing.operand_bytes_per_cycle.SMEM: 'SMEM' is not one of memories; allowed: L1"],
        ),
        (
            TIMING,
            "    timing: {macs_per_cycle: 64, tile_macs_per_cycle: {64x64: 0}}\n",
            ["tile_macs_per_cycle.64x64: got 0; must be at least"],
        ),
        (
            TIMING,
            "    timing: {macs_per_cycle: 64, operand_bytes_per_cycle: {L1: -1}}\n",
            ["operand_bytes_per_cycle.L1: got -1; must be at least"],
        ),
        (
            "memories: [L1, L1, L1]",
            "memories: [[L1, LX], L1, L1]",
            ["d.yaml:25:21", "memories.0.1: 'LX'", "allowed: L1"],
        ),
        (
            "memories: [L1, L1, L1]",
            "memories: [[], L1, L1]",
            ["mm.memories.0: too few entries"],
        ),
        ("memories: [L1, L1, L1]", "memories: [[L1, L1]]", ["mm.memories: too few entries"]),
        ("from: GM,", "from: GM, in_flight_bytes: 0,", ["links.GM_L1.in_flight_bytes: got 0; must be at least"]),
        ("from: GM,", "from: GM, conflict_factor: 0.5,", ["GM_L1.conflict_factor: got 0.5; must be at least 1"]),
        ("from: GM,", "from: GM, miss_factor: 0.5,", ["GM_L1.miss_factor: got 0.5; must be at least 1"]),
        (
            "cores: 2",
            "cores: 2\nl2: {capacity_bytes: 1, bytes_per_second: 1, replacement: fifo}",
            ["l2.replacement: got 'fifo'; allowed: lru, random"],
        ),
        ("cores: 2", "cores: 2\nlaunch_overhead_us: -1", ["launch_overhead_us: got -1; must be at least 0"]),
        ("cores: 2", "cores: 2\nlaunch_overhead_us: {value: 3.5}\nsource: 1", ["source"]),
        (
            "cores: 2",
            "cores: 2\nsustained_clock_mhz: {fp61: 900}",
            ["sustained_clock_mhz.fp61: 'fp61' is not a known format, or default", "did you mean 'fp16'?"],
        ),
        ("cores: 2", "cores: 2\nsustained_clock_mhz: {default: 0}", ["sustained_clock_mhz.default: got 0"]),
        (
            "cores: 2",
            "cores: 2\nhbm: {capacity_bytes: 1, bytes_per_second: 1, latency_ns: -1}",
            ["hbm.latency_ns: got -1; must be at least 0"],
        ),
    ],
)
def test_what_does_not_fit_is_refused(write, small, old, new, words):
    assert old in small
    found = "\n".join(problems(write, small.replace(old, new, 1)))
    assert all(word in found for word in words), found


def test_one_interval_does_not_hold_for_every_n(write, small):
    text = small.replace("  mm:\n", "  mm.nN:\n").replace("    n: 16\n", "    n: 16\n    n_last: 64\n")
    text = text.replace("{fp16: mm}", "{fp16: mm.n16}")
    (found,) = problems(write, text)
    assert "mm.nN.timing.issue_interval_cycles: one interval does not hold for every N; give macs_per_cycle" in found
    chip = devices.load(write("n.yaml", text.replace("issue_interval_cycles: 1", "macs_per_cycle: 1024")))
    assert [devices.instruction(chip, f"mm.n{n}").interval_cycles() for n in (16, 64)] == [4, 16]


FULL = {
    "memories: [L1, L1, L1]": "memories: [[L1, L2B], L1, L1]",
    "  L1: {capacity_bytes: 1024}\n": "  L1: {capacity_bytes: 1024}\n  L2B: {capacity_bytes: 1024}\n",
    TIMING: "    timing: {macs_per_cycle: 1000, operand_bytes_per_cycle: {L1: 32, L2B: 64.5}}\n",
    "from: GM,": "from: GM, in_flight_bytes: 32768, conflict_factor: 1.5, miss_factor: 2.5,",
    "cores: 2": "cores: 2\nlaunch_overhead_us: 3.5\nsustained_clock_mhz: {default: 900, fp16: 800}\n"
    "l2: {capacity_bytes: 1024, bytes_per_second: 1e9, latency_ns: 150}",
}


@pytest.fixture
def full(write, small):
    for old, new in FULL.items():
        assert old in small
        small = small.replace(old, new, 1)
    return devices.load(write("full.yaml", small))


def test_what_the_fields_say(full):
    mm = devices.instruction(full, "mm")
    assert [mm.places(i) for i in range(3)] == [("L1", "L2B"), ("L1",), ("L1",)]
    assert mm.interval_cycles() == 16  # B alone: 512 bytes / 32; where A lies is not known
    assert mm.interval_cycles(("L1", "L1")) == 32
    assert mm.interval_cycles(("L2B", "L1")) == 16
    assert mm.interval_cycles(("L2B", "L2B")) == Fraction(1024) / Fraction("64.5")
    assert mm.interval_cycles(("", "")) == Fraction(4096, 1000)
    link = full.links["GM_L1"]
    assert (link.in_flight_bytes, link.conflict_factor, link.miss_factor) == (32768, 1.5, 2.5)
    assert devices.sustained_clock(full, "fp16") == 800 and devices.sustained_clock(full, "bf16") == 900
    assert devices.load(devices.expanded(full)) == full


def test_an_instruction_of_two_cores_reads_half_of_b_in_each(write, small):
    """256 x 64 x 16 fp16 of two cores: 4096 bytes of A and 1024 of B each, 131072 products of each."""
    text = small.replace("    m: 16\n    n: 16\n", "    m: 256\n    n: 64\n    cores: 2\n", 1)
    text = text.replace(TIMING, "    timing: {macs_per_cycle: 8192, operand_bytes_per_cycle: {L1: 128}}\n", 1)
    mm = devices.instruction(devices.load(write("two.yaml", text)), "mm")
    assert (mm.cores, mm.rows) == (2, 128)
    assert mm.interval_cycles() == 40 and mm.macs_per_cycle == Fraction(131072, 40)
    odd = text.replace("    cores: 2\n", "    cores: 3\n", 1)
    assert any("m is a multiple of cores" in found for found in problems(write, odd))


@pytest.mark.parametrize(("n", "measured", "latency"), [(256, 128, 298), (128, 64, 234), (64, 43, 202)])
def test_pairs_of_sms_on_a_b200_take_what_was_measured(n, measured, latency):
    """Cycles from one to the next, and of one alone (SA, umma_throughput). N = 64 takes 3 more than its reads."""
    mma = devices.instruction(devices.load("b200"), f"tcgen05.mma.m256n{n}k16.f16.f32.bf16.bf16")
    interval = mma.interval_cycles(("SMEM", "SMEM"))
    assert interval == pytest.approx(measured, rel=0.08)
    assert interval + mma.timing.drain_cycles == pytest.approx(latency, rel=0.05)


def test_numbers_left_out_are_no_numbers(write, small):
    """Optional fields add nothing to the evidence of a device that does not have them."""
    paths = set(devices.load(write("d.yaml", small)).evidence)
    assert not any(
        word in path for path in paths for word in ("latency_ns", "in_flight", "conflict", "launch", "sustained")
    )


def test_the_text_shows_them(full, write, small):
    text = device_text(full)
    for part in (
        "1,000 MHz; under load (MHz): default 900, fp16 800",
        "3.5 us a kernel",
        "adds 150 ns",
        "32.0 KiB",
        "x 1.5",
        "256",  # products per cycle, fed by L1: 4096 / 16
    ):
        assert part in text, part
    plain = device_text(devices.load(write("d.yaml", small)))
    assert not any(word in plain for word in ("under load", "launch", "adds", "in flight", "conflicts"))
    assert "instructions.mm.timing.operand_bytes_per_cycle.L2B" in sources_text(full)


# --- changed devices ------------------------------------------------------------------------------------------


def test_another_clock_is_the_same_chip(full):
    slower = devices.at_clock(full, 750)
    assert slower.clock_mhz == 750 and full.clock_mhz == 1000
    assert slower.sha256 == full.sha256 and slower.evidence == full.evidence
    assert devices.at_clock(slower, 1000) == devices.at_clock(full, 1000)
    assert devices.sustained_clock(slower, "fp16") == 750  # the clock asked for, whatever is multiplied
    for wrong in (0, -1, float("inf"), float("nan"), "fast", True, None):
        with pytest.raises(InputError, match=r"clock_mhz = .*; allowed: a number of MHz of at least"):
            devices.at_clock(full, wrong)


def test_changes_by_path(full):
    other = devices.changed(full, {"links.GM_L1.bytes_per_cycle": 1.0, "l2.latency_ns": None})
    assert other.links["GM_L1"].bytes_per_cycle == 1 and other.l2.latency_ns is None
    assert full.links["GM_L1"].bytes_per_cycle == 64
    # what was looked up before does not show through
    assert devices.instruction(full, "mm").interval_cycles() == 16
    quick = devices.changed(full, {"instructions.mm.timing.operand_bytes_per_cycle": {}})
    assert devices.instruction(quick, "mm").interval_cycles() == Fraction(4096, 1000)
    for path in ("links.L1.bytes_per_cycle", "linkz", "hbm.latency_ns", "cores.x"):
        with pytest.raises(InputError, match=f"small has no '{path}'"):
            devices.changed(full, {path: 1})
