"""What scaling in the matrix unit gives BF16x9, and what steps for infinities cost: Section 4.

It knows the K blocks and sizes that the claims assume, and tiles that hwsim's kernels may have for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwsim.analysis.energy import energy
from hwsim.errors import HwsimError
from hwsim_lab.papers.bf16x9 import runs
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series

STEP = 16  # of K of one instruction; promotion_interval counts these
BLOCKS = (64, 128, 256)
#: Tiles of scaling in hardware with K blocks of more than 16: beyond 128 none fits shared memory.
HARDWARE_TILES = {64: (64, 64, 64), 128: (64, 16, 128)}
#: Tiles that both ways of scaling are tried with, beside hwsim's choice; each way keeps its fastest.
TILES = ((128, 128, 16), (128, 128, 32), (128, 64, 16), (128, 64, 32), (64, 64, 64))
SIZES = (2048, 3072, 4096, 5120, 6144, 8192)
CASTS = 3  # conversions of an element to BF16 in a split
EXTRA = 1  # lane operations of an element, as the claim has it
FAST_CAST = 1.0
BEST_SIZES = (1024, 2048, 3072, 4096, 8192, 16384)
PATCHED = (1024, 2048, 3072, 4096, 6144, 8192)


def software(block: int) -> dict[str, Any]:
    """Options of scaling by the lanes after each K block."""
    return {"accumulation": "bands", "promotion_interval": block // STEP}


def fastest(n: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the tile that takes the least time at m = n = k, of TILES and hwsim's choice."""
    times = {}
    for tile in (None, *TILES):
        with_tile = dict(options) if tile is None else {**options, "tile": tile}
        try:
            times[tile] = runs.seconds("x9", n, n, n, **with_tile)
        except HwsimError:  # a tile that does not fit, or that this order of sums cannot have
            continue
    best = min(times, key=times.__getitem__)
    return dict(options) if best is None else {**options, "tile": best}


def idle(m: int, options: Mapping[str, Any]) -> float:
    """Per cent of the time in steady state that the matrix unit is idle: from K of half of M to M."""
    half, full = (runs.timed("x9", m, m, k, **options) for k in (m // 2, m))
    assert half.cycles is not None and full.cycles is not None
    assert full.times.chip is not None
    busy = (full.engines["TC"]["busy_cycles"] - half.engines["TC"]["busy_cycles"]) / full.times.chip.cores
    return float(100 * (1 - busy / (full.cycles - half.cycles)))


def measure_scaling(scale: Scale) -> Found:
    """Idle time of the matrix unit, and speed: scaling in hardware and by the lanes, each with its fastest tile."""
    by_lanes = {(n, block): fastest(n, software(block)) for n in SIZES for block in (STEP, *BLOCKS)}
    in_unit = {n: fastest(n, {}) for n in SIZES}
    rates = {key: runs.tflops("x9", key[0], key[0], key[0], **options) for key, options in by_lanes.items()}
    unit_rates = [runs.tflops("x9", n, n, n, **in_unit[n]) for n in SIZES]
    idles = [idle(n, by_lanes[n, block]) for n in SIZES for block in BLOCKS]
    idles_unit = [idle(n, in_unit[n]) for n in SIZES]
    native = {n: runs.tflops("native", n, n, n) for n in SIZES}
    lanes = {n: max(rates[n, block] for block in (STEP, *BLOCKS)) for n in SIZES}
    ninth = runs.peak_tflops("bf16") / 9
    bound = runs.bound_tflops("x9", 4096)
    every = [runs.tflops("x9", n, n, n) for n in BEST_SIZES]
    largest = SIZES[-1]
    quick = runs.tflops("x9", largest, largest, largest, cast_cycles=FAST_CAST, **in_unit[largest]) / ninth
    measured: dict[str, dict[str, Any]] = {
        "section4-bound-one-ninth": {"bound_ratio": round(9 * ninth / bound, 9), "best": max(every) / (9 * ninth)},
        "section4-close-to-peak": {
            "utilisation": max(unit_rates) / ninth, "utilisation_software": max(lanes.values()) / ninth,
        },
        "section4-idle-software-scaling": {"idle": idles, "idle_hardware": idles_unit},
        "section4-software-scaling-loss": {
            "throughput_ratio": [rates[n, STEP] / rate for n, rate in zip(SIZES, unit_rates, strict=True)],
        },
        "intro-gains-destroyed": {
            "speedup_software": [lanes[n] / native[n] for n in SIZES],
            "speedup_hardware": [rate / native[n] for n, rate in zip(SIZES, unit_rates, strict=True)],
        },
    }  # fmt: skip
    of_each = "; ".join(f"{block}: {rates[largest, block] / native[largest]:.2f}" for block in (STEP, *BLOCKS))
    tiles = (
        f"Each way with the fastest of hwsim's choice and of {len(TILES)} tiles. Speeds over native FP32 at "
        f"{largest} by K block, scaled by the lanes: {of_each}; in the matrix unit "
        f"{unit_rates[-1] / native[largest]:.2f}. In the matrix unit a sum is added to the FP32 sum after each {STEP} "
        f"of K, as NVIDIA's FastF32 does, so that the ratio of the two ways compares K blocks of {STEP}."
    )
    wide = {
        block: idle(largest, {"promotion_interval": block // STEP, "tile": tile})
        for block, tile in HARDWARE_TILES.items()
    }
    notes = {
        "section4-bound-one-ninth": "Rounded to nine digits; the bound is the unit's peak by the plan's products.",
        "section4-close-to-peak": (
            f"The default adds to an FP32 sum outside the unit after each {STEP} of K (as NVIDIA's FastF32 does) and "
            f"splits in the same kernel: the lanes are what it waits for. With conversions to BF16 at "
            f"{FAST_CAST:g} instead of 2 cycles per 128 the utilisation at {largest} is {quick:.2f}."
        ),
        "section4-idle-software-scaling": (
            f"Between half of K and K. At {largest}: "
            + "; ".join(f"K block {block} {x:.0f} %" for block, x in zip(BLOCKS, idles[-len(BLOCKS) :], strict=True))
            + f". In the matrix unit with K block {STEP}; with 64 and 128, which need tiles of 64 rows: "
            + ", ".join(f"{x:.0f} %" for x in wide.values())
            + ". Tiles of 64 rows run at half the rate of 128, by which busy time is counted here."
        ),
        "section4-software-scaling-loss": tiles,
        "intro-gains-destroyed": tiles,
    }
    columns: dict[str, list[Any]] = {
        "scaling": [f"lanes, K block {block}" for _ in SIZES for block in BLOCKS] + ["matrix unit"] * len(SIZES),
        "n": [n for n in SIZES for _ in BLOCKS] + [*SIZES],
        "idle percent": [*idles, *idles_unit],
    }
    return Found(measured, notes, (Series("idle", columns, x="n", y="idle percent", by="scaling", log="x"),))


def with_extra(n: int, operations: int) -> tuple[float, float]:
    """Time and energy of a product with lane operations more for each element that is split, by those without.

    They are charged to the conversions, with the tile of the run without them, each SM alone.
    """
    plain = runs.timed("x9", n, n, n, cta_group=1)
    device = runs.chip()
    assert device.vector is not None
    cast = float(device.vector.cycles_per_repeat["cast"]) + operations / CASTS
    size = plain.options["tile"]
    given: dict[str, Any] = {"tile": (size["m"], size["n"], size["k"]), "stages": plain.options["stages"]}
    given["cta_group"] = 1
    more = runs.timed("x9", n, n, n, cast_cycles=cast, **given)
    assert plain.seconds is not None and more.seconds is not None
    joules = [energy(one.times, one.gemm).joules for one in (plain, more)]
    return more.seconds / plain.seconds, joules[1] / joules[0]


def measure_steps(scale: Scale) -> Found:
    """The check behind the patching step, as an operation of the split."""
    overhead = [with_extra(size, EXTRA)[0] for size in PATCHED]
    two = with_extra(4096, 2 * EXTRA)[0]
    lanes = runs.timed("x9", 4096, 4096, 4096)
    assert lanes.cycles is not None and lanes.times.chip is not None
    busy = lanes.engines["FMA"]["busy_cycles"] / (lanes.cycles * lanes.times.chip.cores)
    note = (
        f"One lane operation more per element each time it is split (once for each tile that reads it), added to the "
        f"cost of its conversions. The lanes are busy {100 * busy:.0f} % of the time and in step with the matrix unit, "
        f"so that it does show in time; two operations: {two:.3f} at 4096. The check is taken as one operation (a "
        "running maximum of magnitudes that keeps NaN); inputs are finite, so that no row is rewritten, and the look "
        "at the flags in the epilogue is not counted."
    )
    return Found({"section4-patching-overhead": {"overhead": overhead}}, {"section4-patching-overhead": note})


EXPERIMENTS = (
    Experiment(
        "scaling",
        (
            "section4-bound-one-ninth", "section4-close-to-peak", "section4-idle-software-scaling",
            "section4-software-scaling-loss", "intro-gains-destroyed",
        ),
        measure_scaling,
        {"quick": 30.0, "full": 30.0},
    ),
    Experiment(
        "special-values",
        ("section4-patching-overhead",),
        measure_steps,
        {"quick": 4.0, "full": 4.0},
    ),
)  # fmt: skip
