"""Campaign: no time is below bytes over bandwidth, or products over peak, in any state of L2 and at any clock.

    python lab/tools/fuzz/times.py --count 100000 --log times.jsonl    # all cores; goes on where the log ends

A case is a product of a drawn device, format or scheme, sizes, layouts, state of L2, clock and power limit, on h100 and
h200 mostly through cuBLAS. It computes no bits. Bounds are the device file's: each byte of A and B crosses L2 once,
what L2 cannot hold crosses HBM, all of it in a cold run, and products go at the peak rate of the unit, at the clock in
force. The parts of a program's time add up to it. STATES_EACH cases that follow each other are of one product.
"""

import random
from functools import cache

from campaign import main

import hwsim
from hwsim.dataflows.registry import dataflows
from hwsim.devices import names
from hwsim.devices.power import has_clocks
from hwsim.devices.query import find
from hwsim.errors import HwsimError
from hwsim.formats import format_of
from hwsim.machines import timing
from hwsim.machines.l2_state import COLD, DEFAULT, STATES

SCHEMES = ("bf16x9", "tf32x3", "sgemm-cube", "ootomo-tf32", "le-gemm", "bf16x6")
MOST_MACS, MOST_BYTES = 2**36, 3e9
STATES_EACH = 5  # of a product, whose tiles are searched once
CHIPS_ASKED = ("h100", "h200")
ROUNDING = 1e-9
LIMIT_S = 60.0  # of one case: large products of schemes take some seconds


@cache
def chips():
    """The devices with times, without those that only bits are known of."""
    loaded = [hwsim.device(name) for name, _ in names()]
    return [chip for chip in loaded if chip.family in dataflows() and timing.missing(chip) is None]


def size(rng, most, step):
    """Log-uniform, a whole multiple of `step`."""
    return max(step, int(most ** rng.random()) // step * step)


def drawn(rng):
    """(device, options, sizes) of a product."""
    chip = rng.choice(chips()) if rng.random() < 0.6 else hwsim.device(rng.choice(CHIPS_ASKED))
    step = rng.choice((1, 8, 16, 64))
    options = {"b_layout": rng.choice(("rows", "columns"))} if rng.random() < 0.5 else {}
    if rng.random() < 0.2:
        options["scheme"] = rng.choice(SCHEMES)
    else:
        options["format"] = rng.choice(sorted(chip.native))
    if chip.name in CHIPS_ASKED and rng.random() < 0.7:
        options["library"] = "cublas"
    while True:
        m, n, k = size(rng, 8192, rng.choice((1, step))), size(rng, 300_000, step), size(rng, 32768, step)
        if rng.random() < 0.5:
            m, n = n, m
        if m * n * k <= MOST_MACS and 4 * max(m * k, k * n, m * n) <= MOST_BYTES:
            return chip, options, {"m": m, "n": n, "k": k}


def drawn_state(rng, chip):
    """Options of the state: of L2 in two cases of three, and a clock or a power limit in one of three."""
    options = {} if rng.random() < 1 / 3 else {"l2": rng.choice(tuple(STATES))}
    kind = rng.random()
    if kind < 1 / 6:
        options["clock_mhz"] = chip.clock_mhz * rng.uniform(0.2, 1.2)
    elif kind < 1 / 3 and chip.board_power is not None and has_clocks(chip):
        board = chip.board_power
        options["power_limit_w"] = rng.uniform(board.static_watts * 1.1, board.watts)
    return options


def check_bounds(chip, result, sizes, operands):
    """Raise where the time is below what the chip needs. operands: their format in memory."""
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    state, plan = result.state, result.gemm.single
    read = (m * k + k * n) * format_of(operands).bits / 8
    clock = state["clock_mhz"] or chip.clock_mhz
    unit = result.times.unit or chip.native.get(plan.a_pieces[0].format)
    instruction = find(chip, unit) if unit else None
    floors = {}
    if instruction is not None and instruction.timing is not None:
        peak = float(instruction.macs_per_cycle) * chip.cores * clock * 1e6
        floors["products over peak"] = m * n * k * plan.products / peak
    if chip.l2 is not None:
        floors["bytes over L2"] = read / chip.l2.bytes_per_second
    if chip.hbm is not None:
        held = 0 if chip.l2 is None or state["l2"] == COLD else chip.l2.capacity_bytes
        floors["bytes over HBM"] = max(0.0, read - held) / chip.hbm.bytes_per_second
    for name, least in floors.items():
        assert result.seconds * (1 + ROUNDING) >= least, f"below {name}: {result.seconds:.4g} s of {least:.4g} s"
    fraction = result.peak_fraction
    assert fraction is None or fraction <= 1 + ROUNDING, f"peak_fraction {fraction}"
    if not state["by_library"]:
        parts = sum(phase.seconds for phase in result.phases)
        assert abs(parts - result.seconds) <= ROUNDING * result.seconds, f"parts {parts:.6g} s, {result.seconds:.6g} s"


def check_state(chip, result, asked):
    """Raise where the result says another state than was asked for, or a clock beyond the chip's."""
    state = result.state
    assert state["l2"] == asked.get("l2", DEFAULT), f"l2 {state['l2']}"
    if "clock_mhz" in asked and not state["by_library"]:
        assert state["clock_mhz"] == asked["clock_mhz"] and state["clock"] == "asked", f"clock {state['clock_mhz']}"
    elif state["clock_mhz"] is not None:
        most = max((chip.clock_mhz, *chip.sustained_clock_mhz.values()))
        assert 0 < state["clock_mhz"] <= most * (1 + ROUNDING), f"clock {state['clock_mhz']} of {most}"


def run(chip, options, sizes):
    """The result of a product without bits; None where it is refused or has no time."""
    try:
        result = hwsim.run(device=chip, exact=False, threads=1, **options, **sizes)
    except HwsimError:
        return None
    return None if result.seconds is None else result


def case(number):
    """One product in one state."""
    chip, options, sizes = drawn(random.Random(number // STATES_EACH))
    asked = drawn_state(random.Random(f"state {number}"), chip)
    result = run(chip, options | asked, sizes)
    if result is None:
        return "without a time"
    try:
        is_as_asked = "library" in options and "format" in options
        operands = options["format"] if is_as_asked else result.gemm.problem.input_format
        check_bounds(chip, result, sizes, operands)
        check_state(chip, result, asked)
    except AssertionError as error:
        raise AssertionError(f"{error}; {chip.name} {options | asked} {sizes}") from None
    return "by a library" if result.times.by_library else result.state["l2"]


if __name__ == "__main__":
    main("bounds", case, __doc__.partition("\n")[0], LIMIT_S)
