"""Clocks under load that no source has: by the joules of a busy cycle, and by another limit of the board."""

from itertools import pairwise, permutations

import numpy as np
import pytest

import hwsim
from hwsim import devices
from hwsim.devices import power
from hwsim.devices.numbers import with_numbers
from hwsim.devices.variants import limited_clock, sustained_clock
from hwsim.errors import ConfigError, InputError, UnsupportedError

LONG_MS = 1000.0


@pytest.mark.parametrize("mhz", [1.0, 400.0, 740.0, 741.0, 900.0, 1000.0])
def test_a_clock_is_that_of_its_power(mhz):
    assert power.clock_at(power.power_at(mhz, 1000.0), 1000.0) == pytest.approx(mhz)
    assert power.power_at(mhz, 1000.0) >= mhz  # and more than in proportion above the voltage's floor


def test_power_grows_with_the_cube_of_the_clock_above_the_floor():
    assert power.power_at(1000.0, 1000.0) / power.power_at(800.0, 1000.0) == pytest.approx(1.25**3)
    assert power.power_at(600.0, 1000.0) / power.power_at(300.0, 1000.0) == 2


@pytest.mark.parametrize(
    ("device", "format", "ratio"),
    [("mi300x", "fp16", 1115 / 1207), ("h200", "tf32", 1401 / 1351), ("a100pcie", "fp16", 898 / 981)],
)
def test_the_table_gives_measured_clocks_of_other_formats(device, format, ratio):
    """MI300X and the A100 set no number of the table: within 10 %."""
    chip = devices.load(device)
    clocks = chip.power_limit.clock_mhz if chip.power_limit is not None else chip.sustained_clock_mhz
    found = power.by_reference({"bf16": clocks["bf16"]}, format, chip.clock_mhz)
    assert found / clocks["bf16"] == pytest.approx(ratio, rel=0.1)


def test_formats_of_one_budget_have_one_power():
    chip = devices.load("b200")
    table = power.busy_cycles()
    of_bf16 = power.power_at(limited_clock(chip, "bf16", LONG_MS), chip.clock_mhz)
    for name in ("e4m3", "int8", "fp32"):
        mhz = limited_clock(chip, name, LONG_MS)
        assert power.power_at(mhz, chip.clock_mhz) * table.joules(name) == pytest.approx(of_bf16, rel=0.01)
    assert sustained_clock(chip, "fp32") == chip.clock_mhz  # no more than the device file's


def test_a_slower_instruction_leaves_a_higher_clock():
    """An H200 kept 1,544.5 MHz under wgmma in fp16 on 131 SMs, and 1,795.1 under mma.sync, which has 2/3 of its rate
    (lab/hwsim_lab/configs/measured/microbenchmarks.csv). Seen; no number of the rule was set by it.
    """
    chip = devices.load("h200")
    assert power.at_rate(1544.5, 2 / 3, chip.clock_mhz) == pytest.approx(1795.1, rel=0.02)
    assert power.at_rate(1544.5, 0.1, chip.clock_mhz) == chip.clock_mhz
    assert power.power_at(power.at_rate(1200.0, 0.9, 1980.0), 1980.0) == pytest.approx(1200 / 0.9, rel=1e-3)


def test_the_clock_of_a_run_is_its_instructions():
    def clock_mhz(instruction, **options):
        options |= {"format": "fp16", "instruction": instruction, "exact": False}
        return hwsim.run(device="h200", m=4096, n=4096, k=1024, **options).state["clock_mhz"]

    chip, narrow = devices.load("h200"), "mma.m16n8k16.f32.f16.f16.f32"
    least = power.at_rate(sustained_clock(chip, "fp16"), 2 / 3, chip.clock_mhz)  # where it never waits
    assert clock_mhz("wgmma.m64n256k16.f32.f16.f16") < least <= clock_mhz(narrow) < chip.clock_mhz
    assert clock_mhz(narrow, clock_mhz=1500) == 1500


def test_clocks_of_the_device_file_stand():
    chip = devices.load("h200")
    assert limited_clock(chip, "fp32", LONG_MS) == chip.sustained_clock_mhz["fp32"]
    assert limited_clock(chip, "e4m3", LONG_MS) == chip.power_limit.clock_mhz["e4m3"]
    assert sustained_clock(devices.load("t4"), "int8") == 900  # `default` is for all formats
    assert sustained_clock(devices.load("rtx4090"), "fp16") == devices.load("rtx4090").clock_mhz


def test_a_second_drop_comes_later():
    chip = devices.load("gb200")
    first, later = chip.power_limit, chip.power_limit.later
    assert [limited_clock(chip, "bf16", ms) for ms in (0.5, first.after_ms, later.after_ms)] == [
        chip.sustained_clock_mhz["bf16"],
        first.clock_mhz["bf16"],
        later.clock_mhz["bf16"],
    ]


def test_a_boards_limit_changes_the_clock_under_load():
    sizes = {"device": "b200", "m": 4096, "n": 4096, "k": 4096, "format": "fp16", "output": "fp16", "exact": False}
    full, less = (hwsim.run(**sizes, power_limit_w=watts) for watts in (None, 750))
    assert less.tflops < 0.85 * full.tflops
    assert less.options["power_limit_w"] == less.state["power_limit_w"] == 750
    assert hwsim.run(**sizes, power_limit_w=1000).cycles == full.cycles


def test_at_the_boards_own_limit_the_clocks_are_the_files():
    chip = devices.load("h200")
    same = devices.at_power(chip, 700)
    assert {name: same.sustained_clock_mhz[name] for name in chip.sustained_clock_mhz} == pytest.approx(
        chip.sustained_clock_mhz, abs=1
    )


@pytest.mark.parametrize(
    ("device", "options", "error", "said"),
    [
        ("h200", {"power_limit_w": 100}, InputError, "draws 176 W whatever runs"),
        ("h200", {"power_limit_w": 701}, InputError, "its board 700 W at most"),
        ("h200", {"power_limit_w": 500, "clock_mhz": 1500}, InputError, "leave one of them out"),
        ("rtx4090", {"power_limit_w": 300}, UnsupportedError, "no clock under load"),
        ("h200", {"power_limit_w": "much"}, InputError, "a number"),
    ],
)
def test_limits_that_say_nothing_are_refused(device, options, error, said):
    with pytest.raises(error, match=said):
        hwsim.run(device=device, m=64, n=64, k=64, exact=False, **options)


WITH_BOARDS = [name for name, _ in devices.names() if devices.load(name).board_power is not None]
CHANGED_BOARDS = (0.6, 0.85, 1.0, 1.15, 2.0)  # of the file's watts


def loaded_clocks(chip):
    """Clocks under load at once, and where the limit has acted, by format."""
    return [limited_clock(chip, name, busy_ms) for name in chip.native for busy_ms in (0.0, LONG_MS)]


def none_falls(clocks):
    return all(low <= high for before, after in pairwise(clocks) for low, high in zip(before, after, strict=True))


@pytest.mark.parametrize("device", WITH_BOARDS)
def test_more_watts_slow_no_clock(device):
    """More of the board, at its own limit and at one beneath; and a higher limit of each board."""
    chip = devices.load(device)
    own, static = chip.board_power.watts, chip.board_power.static_watts
    boards = [with_numbers(chip, {"board_power.watts": own * share}) for share in CHANGED_BOARDS]
    assert none_falls([loaded_clocks(board) for board in boards])
    limits = np.linspace(static, own * CHANGED_BOARDS[0], 12)[1:]
    of_limits = [[loaded_clocks(power.at_power(board, watts)) for watts in limits] for board in boards]
    for clocks, board in zip(of_limits, boards, strict=True):
        assert none_falls([*clocks, loaded_clocks(board)])
        assert clocks == of_limits[0]  # a limit leaves what it leaves, whatever the board could draw


@pytest.mark.parametrize("device", WITH_BOARDS)
def test_a_limit_gives_back_the_clocks_of_the_file(device):
    """At the board's own limit, on a board of more power, and on a chip of half the cores that may draw half."""
    chip = devices.load(device)
    own, static = chip.board_power.watts, chip.board_power.static_watts
    twice = with_numbers(chip, {"board_power.watts": "2x"})
    half = with_numbers(with_numbers(chip, {"cores": "0.5x"}), {"hbm.latency_ns": "2x"})
    for same in (power.at_power(chip, own), power.at_power(twice, own), power.at_power(half, (own + static) / 2)):
        assert loaded_clocks(same) == loaded_clocks(chip)


def test_a_board_of_more_power_makes_a_run_faster_and_a_limit_beneath_it_does_not():
    sizes = {"device": "h200", "m": 4096, "n": 4096, "k": 4096, "format": "bf16", "exact": False}
    run, limited = hwsim.run(**sizes), hwsim.run(**sizes, power_limit_w=500)
    board = {"board_power.watts": 1400}
    assert run.with_numbers(board).seconds[1] < run.seconds
    assert limited.with_numbers(board).seconds[1] == limited.seconds
    with pytest.raises(InputError, match=r"power_limit_w = 500: h200 .* its board 400 W at most"):
        limited.with_numbers({"board_power.watts": 400})
    above = hwsim.sweep(
        {"devices": {"device": "h200", "set": board}, "options": {"format": "bf16", "power_limit_w": 1000}}
        | {name: sizes[name] for name in "mnk"},
        jobs=1,
        cache=False,
    )
    assert above.rows[0]["seconds"] < run.seconds  # the mapping of the file's board is tried at that board's own limit


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"board_power.watts": 176}, "static_watts is less than watts"),
        ({"board_power.static_watts": 800, "board_power.watts": 1000}, "measured at 700 W"),
    ],
)
def test_a_board_without_power_for_work_is_refused(changes, said):
    with pytest.raises(InputError, match=said):
        with_numbers(devices.load("h200"), changes)


def test_what_flows_whatever_runs_is_below_the_limit_in_either_order():
    chip, changes = devices.load("h200"), {"board_power.static_watts": 250}
    with pytest.raises(InputError, match="are of a board that is held to 200 W; allowed: less"):
        with_numbers(power.at_power(chip, 200.0), changes)
    with pytest.raises(InputError, match="draws 250 W whatever runs"):
        power.at_power(with_numbers(chip, changes), 200.0)


def test_a_file_with_another_board_gives_its_clocks():
    file = {"schema_version": 1, "name": "mine", "extends": "h200", "source": "NONE; my own", "evidence": "assumption"}
    with pytest.raises(ConfigError, match=r"got 1400; sustained_clock_mhz and power_limit of the base are of 700.* W"):
        devices.load(file | {"board_power": {"watts": 1400}})
    same = devices.load(file | {"board_power": {"watts": 700}})
    assert same.sustained_clock_mhz == devices.load("h200").sustained_clock_mhz
    unknown = {"board_power": {"watts": 1400}, "sustained_clock_mhz": None, "power_limit": None}
    assert not devices.load(file | unknown).sustained_clock_mhz


@pytest.mark.parametrize("cores", [100, 198])
def test_other_cores_share_the_boards_power(cores):
    chip = devices.load("h200")
    variant = with_numbers(chip, {"cores": cores})
    assert variant.board_power == chip.board_power
    for before, after in [
        (chip.sustained_clock_mhz, variant.sustained_clock_mhz),
        *zip(
            (stage.clock_mhz for stage in chip.power_limit.stages),
            (stage.clock_mhz for stage in variant.power_limit.stages),
            strict=True,
        ),
    ]:
        for fmt, mhz in before.items():
            drawn = [
                count * power.power_at(at_mhz, chip.clock_mhz)
                for count, at_mhz in ((chip.cores, mhz), (variant.cores, after[fmt]))
            ]
            assert after[fmt] == chip.clock_mhz or drawn[1] == pytest.approx(drawn[0], rel=3e-3), fmt


def test_clocks_that_are_given_beside_the_cores_stay():
    variant = with_numbers(devices.load("h200"), {"cores": "0.5x", "sustained_clock_mhz.bf16": 1500})
    assert variant.sustained_clock_mhz["bf16"] == 1500
    assert with_numbers(devices.load("h200"), {"cores": "1x"}).sustained_clock_mhz["bf16"] == 1535
    assert not with_numbers(devices.load("rtx4090"), {"cores": "0.5x"}).sustained_clock_mhz


@pytest.mark.parametrize("watts", [float("inf"), float("nan")])
def test_a_limit_is_finite(watts):
    with pytest.raises(InputError, match="power_limit_w"):
        power.at_power(devices.load("h200"), watts)


@pytest.mark.parametrize(
    "changes",
    [
        {"clock_mhz": 1200, "cores": 131, "board_power.watts": 500},
        {"clock_mhz": 2600, "cores": 66, "board_power.static_watts": 50},
    ],
)
def test_clocks_under_load_do_not_depend_on_the_order_of_changes(changes):
    """And none is above the chip's own."""
    found = []
    for order in permutations(changes):
        chip = devices.load("h200")
        for path in order:
            chip = with_numbers(chip, {path: changes[path]})
        found.append(loaded_clocks(chip))
    assert all(clocks == found[0] for clocks in [*found, loaded_clocks(with_numbers(devices.load("h200"), changes))])
    assert max(found[0]) <= changes["clock_mhz"]


def test_a_lower_clock_of_the_chip_bounds_its_clocks_under_load():
    """The curve of clock and power stays: where a load leaves less than the new clock, nothing changes."""
    chip = devices.load("h200")
    for mhz in (1200.0, 1500.0):
        assert loaded_clocks(with_numbers(chip, {"clock_mhz": mhz})) == [min(mhz, one) for one in loaded_clocks(chip)]
    assert loaded_clocks(with_numbers(chip, {"clock_mhz": "2x"})) == loaded_clocks(chip)
    given = with_numbers(with_numbers(chip, {"sustained_clock_mhz.bf16": 1500}), {"clock_mhz": 1200})
    assert sustained_clock(given, "bf16") == limited_clock(given, "bf16", LONG_MS) == 1200
    run = hwsim.run(device=with_numbers(chip, {"clock_mhz": 1200}), format="bf16", m=4096, n=4096, k=4096, exact=False)
    assert run.state["clock_mhz"] == 1200


def test_a_limit_after_another_is_of_the_board():
    chip = devices.load("h200")
    twice = power.at_power(power.at_power(chip, 500), 600)
    assert loaded_clocks(twice) == loaded_clocks(power.at_power(chip, 600)) and twice.most_watts == 600
    with pytest.raises(InputError, match="its board 700 W at most"):
        power.at_power(power.at_power(chip, 500), 701)
    limited = power.at_power(chip, 500)
    assert limited.board_power == chip.board_power and limited.most_watts == 500
    for watts, most in ((1400, 500), (400, 400)):
        board = with_numbers(limited, {"board_power.watts": watts})
        assert board.most_watts == most and loaded_clocks(board) == loaded_clocks(power.at_power(chip, most))


@pytest.mark.parametrize("device", ["h200", "rtx4090"])
def test_a_device_at_a_fixed_clock_has_no_power_limit(device):
    with pytest.raises(InputError, match="clock_mhz fixes the clock that power_limit_w would change"):
        power.at_power(devices.at_clock(devices.load(device), 1500), 300)


def test_a_limit_beneath_what_flows_without_a_change_is_one_of_the_changed_device():
    chip = with_numbers(devices.load("h200"), {"board_power.static_watts": 50})
    run = hwsim.run(device=chip, format="bf16", m=2048, n=2048, k=2048, exact=False, power_limit_w=150)
    assert run.state["power_limit_w"] == 150 and run.state["clock_mhz"] < 700
