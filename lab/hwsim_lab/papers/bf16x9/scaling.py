"""What scaling in the matrix unit gives BF16x9, and what steps for infinities cost: Section 4.

It knows the K blocks that the claims assume, and which tiles hwsim's kernels have for them.
"""

from __future__ import annotations

from typing import Any

from hwsim.analysis.energy import energy
from hwsim_lab.papers.bf16x9 import runs
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series

STEP = 16  # of K of one instruction; promotion_interval counts these
BLOCKS = (64, 128, 256)
BLOCK = 64
#: Tiles of scaling in hardware by K block: hwsim's own choice has none, and beyond 128 none fits shared memory.
HARDWARE_TILES = {64: (64, 64, 64), 128: (64, 16, 128)}
CASTS = 3  # conversions of an element to BF16 in a split
EXTRA = 1  # lane operations of an element, as the claim has it
FAST_CAST = 1.0
BEST_SIZES = (1024, 2048, 4096, 8192, 16384)


def software(block: int, **more: Any) -> dict[str, Any]:
    """Options of scaling by the lanes after each K block, with the simulator's own tile."""
    return {"accumulation": "bands", "promotion_interval": block // STEP} | more


def hardware(block: int) -> dict[str, Any]:
    """Options of scaling in the matrix unit, with an addition outside after each K block."""
    if block == STEP:
        return {}
    return {"promotion_interval": block // STEP, "tile": HARDWARE_TILES[block]}


def idle(m: int, **options: Any) -> float:
    """Per cent of the time in steady state that the matrix unit is idle: from K of half of M to M."""
    half, full = (runs.timed("x9", m, m, k, **options) for k in (m // 2, m))
    assert half.cycles is not None and full.cycles is not None
    assert full.times.chip is not None
    busy = (full.engines["TC"]["busy_cycles"] - half.engines["TC"]["busy_cycles"]) / full.times.chip.cores
    return float(100 * (1 - busy / (full.cycles - half.cycles)))


def measure_scaling(scale: Scale) -> Found:
    """Idle time of the matrix unit, and speed, with scaling in hardware and by the lanes."""
    n = 8192
    idles = [idle(n, **software(block)) for block in BLOCKS]
    idles_hardware = [idle(n, **hardware(block)) for block in (STEP, *HARDWARE_TILES)]
    ninth = runs.peak_tflops("bf16") / 9
    rates = [runs.tflops("x9", size, size, size) for size in BEST_SIZES]
    best = max(rates[2:]) / ninth
    best_software = max(runs.tflops("x9", size, size, size, **software(BLOCK)) for size in BEST_SIZES[2:])
    sizes = (2048, 4096, 8192)
    ratio = [
        runs.tflops("x9", size, size, size, **software(BLOCK)) / runs.tflops("x9", size, size, size) for size in sizes
    ]
    native = runs.seconds("native", n, n, n)
    gains = [native / runs.seconds("x9", n, n, n, **one) for one in (software(BLOCK), hardware(STEP))]
    tile = HARDWARE_TILES[BLOCK]
    same = runs.tflops("x9", n, n, n, **software(BLOCK, tile=tile)) / runs.tflops("x9", n, n, n, **hardware(BLOCK))
    given = runs.tflops("x9", n, n, n, **software(BLOCK)) / runs.tflops("x9", n, n, n, **hardware(BLOCK))
    own = runs.timed("x9", n, n, n, **software(BLOCK)).options["tile"]
    bound = runs.bound_tflops("x9", 4096)
    quick = runs.tflops("x9", n, n, n, cast_cycles=FAST_CAST) / ninth
    often = runs.tflops("x9", n, n, n, accumulation="bands")
    best_tile = native / runs.seconds("x9", n, n, n, **software(BLOCK, tile=tile))
    measured: dict[str, dict[str, Quantity]] = {
        "section4-bound-one-ninth": {
            "bound_ratio": round(9 * ninth / bound, 9),
            "best": max(rates) / (9 * ninth),
        },
        "section4-close-to-peak": {"utilisation": best, "utilisation_software": best_software / ninth},
        "section4-idle-software-scaling": {"idle": idles, "idle_hardware": idles_hardware},
        "section4-software-scaling-loss": {"throughput_ratio": ratio},
        "intro-gains-destroyed": {"speedup_software": gains[0], "speedup_hardware": gains[1]},
    }
    tiles = (
        f"Both with the simulator's own tile: software {own['m']} x {own['n']} x {own['k']} at K block 64, hardware as "
        f"by default, with an addition outside the unit per {STEP} of K, since it has no own tile for a K block of 64. "
        f"The verdict hangs on the tile: of software's ratios at {n}, with {tile[0]} x {tile[1]} x {tile[2]} given to "
        f"hardware at K block 64 it is {given:.2f}, with that tile given to both {same:.2f}, with additions per {STEP} "
        f"of K and own tiles of both {often / runs.tflops('x9', n, n, n):.2f}. The search for a tile misses that one, "
        "with which software is faster than with its own."
    )
    notes = {
        "section4-bound-one-ninth": "Rounded to nine digits; the bound is the unit's peak by the plan's products.",
        "section4-close-to-peak": (
            f"The default adds to an FP32 sum outside the unit after each {STEP} of K (as NVIDIA's FastF32 does) and "
            f"splits in the same kernel: the lanes are what it waits for. With conversions to BF16 at "
            f"{FAST_CAST:g} instead of 2 cycles per 128 the utilisation at {n} is {quick:.2f}. An addition per 64 of K "
            f"needs tiles of 64 rows in hwsim, at half the instruction's rate: "
            f"{runs.tflops('x9', n, n, n, **hardware(BLOCK)) / ninth:.2f}. Software scaling at K block 64; with an "
            f"addition per {STEP} of K, as the hardware's default, {often / ninth:.2f}."
        ),
        "section4-idle-software-scaling": (
            f"Between K = {n // 2} and {n}. Largest at K block 64 ({idles[0]:.0f} %), where the lanes also split the "
            f"operands; at 256 it is {idles[2]:.0f} %. idle_hardware: K blocks 16 (default), 64 and 128, since the "
            f"pieces of 256 of K do not fit shared memory. A larger tile of software at K block 64 "
            f"(64 x 64 x 64) idles {idle(n, **software(BLOCK, tile=tile)):.0f} %: the number hangs on the tile. Tiles "
            "of 64 rows run at half the rate of 128, by which busy time is counted here."
        ),
        "section4-software-scaling-loss": tiles,
        "intro-gains-destroyed": f"{tiles} With that tile software scaling has {best_tile:.2f} of native FP32's speed.",
    }
    columns: dict[str, list[Any]] = {
        "scaling": ["lanes"] * len(BLOCKS) + ["matrix unit"] * len(idles_hardware),
        "k block": [*BLOCKS, STEP, *HARDWARE_TILES],
        "idle percent": [*idles, *idles_hardware],
    }
    return Found(measured, notes, (Series("idle", columns, x="k block", y="idle percent", by="scaling", log="x"),))


def with_extra(n: int, operations: int) -> tuple[float, float]:
    """Time and energy of a product with lane operations more for each element that is split, by those without.

    They are charged to the conversions, with the tile of the run without them.
    """
    plain = runs.timed("x9", n, n, n)
    device = runs.chip()
    assert device.vector is not None
    cast = float(device.vector.cycles_per_repeat["cast"]) + operations / CASTS
    size = plain.options["tile"]
    given = {"tile": (size["m"], size["n"], size["k"]), "stages": plain.options["stages"]}
    more = runs.timed("x9", n, n, n, cast_cycles=cast, **given)
    assert plain.seconds is not None and more.seconds is not None
    joules = [energy(one.times, one.gemm).joules for one in (plain, more)]
    return more.seconds / plain.seconds, joules[1] / joules[0]


def measure_steps(scale: Scale) -> Found:
    """The override of infinities, and the check behind the patching step, as operations of the split."""
    time_ratio, energy_ratio = with_extra(4096, EXTRA)
    sizes = (2048, 4096, 8192)
    overhead = [with_extra(size, EXTRA)[0] for size in sizes]
    two = with_extra(4096, 2 * EXTRA)[0]
    lanes = runs.timed("x9", 4096, 4096, 4096)
    assert lanes.cycles is not None and lanes.times.chip is not None
    busy = lanes.engines["FMA"]["busy_cycles"] / (lanes.cycles * lanes.times.chip.cores)
    why = (
        f"One lane operation more per element each time it is split (once for each tile that reads it), added to the "
        f"cost of its conversions. The lanes are busy {100 * busy:.0f} % of the time and in step with the matrix unit, "
        f"so that it does show in time; two operations: {two:.3f} at 4096."
    )
    return Found(
        {
            "section4-infinity-option-b-cost": {"time_ratio": time_ratio, "energy_ratio": energy_ratio},
            "section4-patching-overhead": {"overhead": overhead},
        },
        {
            "section4-infinity-option-b-cost": f"{why} Energies: typical level of configs/energy, assumed.",
            "section4-patching-overhead": (
                f"{why} The check is taken as one operation (a running maximum of magnitudes that keeps NaN); inputs "
                "are finite, so that no row is rewritten, and the look at the flags in the epilogue is not counted."
            ),
        },
    )


EXPERIMENTS = (
    Experiment(
        "scaling",
        (
            "section4-bound-one-ninth", "section4-close-to-peak", "section4-idle-software-scaling",
            "section4-software-scaling-loss", "intro-gains-destroyed",
        ),
        measure_scaling,
        {"quick": 10.0, "full": 10.0},
    ),
    Experiment(
        "special-values",
        ("section4-infinity-option-b-cost", "section4-patching-overhead"),
        measure_steps,
        {"quick": 5.0, "full": 5.0},
    ),
)  # fmt: skip
