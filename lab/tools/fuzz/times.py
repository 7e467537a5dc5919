"""Campaign: no time is below bytes over bandwidth or products over peak, and a larger product takes no less.

    python lab/tools/fuzz/times.py --count 100000 --processes 1 --log times.jsonl

A case is a product of a drawn device, format or scheme, sizes and layouts, on h100 and h200 mostly through cuBLAS; and
the same with one size larger by 1 to 50 %. Bounds are the device file's: each byte of A and B crosses L2 once, what L2
cannot hold crosses HBM, and products go at the peak rate of the unit, at the clock in force. Growth is of programs,
and of a library's calls that run the same kernel.
"""

import math
import random
from functools import cache

from campaign import main

import hwsim
from hwsim.dataflows.registry import dataflows
from hwsim.devices import names
from hwsim.devices.least_time import least_time
from hwsim.devices.query import find
from hwsim.errors import HwsimError
from hwsim.formats import format_of
from hwsim.machines import timing

SCHEMES = ("bf16x9", "tf32x3", "sgemm-cube", "ootomo-tf32", "le-gemm", "bf16x6")
MOST_MACS, MOST_BYTES = 2**36, 3e9
CHIPS_ASKED = ("h100", "h200")
ROUNDING = 1e-9
SHORTER = 0.05  # a larger product may take so much less: cycles of one tile's edge
SHORTER_BY_LIBRARY = 0.15  # steps of the regression trees
LAUNCH_S = 2.1e-6  # in which differences of a library's short kernels are lost
ALIGNED = 64


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


def check_bounds(chip, result, sizes, operands):
    """Raise where the time is below what the chip needs. operands: their format in memory."""
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    plan = result.gemm.single
    item = format_of(operands).bits / 8
    read = (m * k + k * n) * item
    clock = result.options.get("clock_mhz") or chip.clock_mhz
    unit = result.times.unit or chip.native.get(plan.a_pieces[0].format)
    instruction = find(chip, unit) if unit else None
    products = m * n * k * plan.products
    if instruction is not None and instruction.timing is not None:
        least = products / (float(instruction.macs_per_cycle) * chip.cores * clock * 1e6)
        assert result.seconds * (1 + ROUNDING) >= least, (
            f"below products over peak: {result.seconds:.4g} s of {least:.4g} s"
        )
    is_series = bool(result.times.warm) or result.times.by_library
    moved = least_time(chip, None, 0, read, is_series=is_series)
    held = chip.l2.capacity_bytes if is_series and chip.l2 is not None and not result.times.by_library else None
    hbm_us = moved.hbm_us
    if held is not None and chip.hbm is not None:  # a program's L2 may replace any block
        hbm_us = max(0.0, read - held) / chip.hbm.bytes_per_second * 1e6
    for name, us in (("L2", moved.l2_us), ("HBM", hbm_us)):
        assert result.seconds * 1e6 * (1 + ROUNDING) >= us, (
            f"below bytes over {name}: {result.seconds * 1e6:.4g} us of {us:.4g} us"
        )
    fraction = result.peak_fraction
    assert fraction is None or fraction <= 1 + ROUNDING, f"peak_fraction {fraction}"


def kernel(result, sizes):
    """What a library runs, in words, and how its sizes are aligned; "": a program of hwsim's own choice."""
    decided = [result.gemm.decided(name) for name in ("kernel", "split_k")]
    words = [decision.value for decision in decided if decision is not None and decision.by == "library"]
    return " ".join([*words, *(str(math.gcd(size, ALIGNED)) for size in sizes.values())]) if words else ""


def case(number):
    """One product, and a larger one."""
    rng = random.Random(number)
    chip, options, sizes = drawn(rng)
    name, share = rng.choice("mnk"), 1 + rng.uniform(0.01, 0.5)
    larger = sizes | {name: max(sizes[name] + 1, int(sizes[name] * share))}
    if rng.random() < 0.7:  # as aligned as the other
        step = next(step for step in (64, 16, 8, 1) if sizes[name] % step == 0)
        larger[name] = -(-larger[name] // step) * step
    said = f"{chip.name} {options} {sizes}"
    try:
        first = hwsim.run(device=chip, exact=False, threads=1, **options, **sizes)
    except HwsimError:
        return "refused"
    if first.seconds is None:
        return "no time"
    try:
        is_as_asked = "library" in options and "format" in options
        operands = options["format"] if is_as_asked else first.gemm.problem.input_format
        check_bounds(chip, first, sizes, operands)
    except AssertionError as error:
        raise AssertionError(f"{error}; {said}") from None
    try:
        second = hwsim.run(device=chip, exact=False, threads=1, **options, **larger)
    except HwsimError:
        return "bounds"
    if second.seconds is None or kernel(first, sizes) != kernel(second, larger):
        return "bounds"
    most, launch = (SHORTER_BY_LIBRARY, LAUNCH_S) if first.times.by_library else (SHORTER, 0.0)
    shorter = 1 - (second.seconds + launch) / (first.seconds + launch)
    if shorter > most:
        raise ArithmeticError(f"{100 * shorter:.0f} % shorter with {name} = {larger[name]}; {said}")
    return "bounds and growth"


if __name__ == "__main__":
    main("times", case, __doc__.partition("\n")[0])
