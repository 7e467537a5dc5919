"""Times of BF16x9 beside native FP32: Fig. 11, the hybrid choice, the peaks of Section 7.1, Sections 1, 2 and 8.

It knows the sizes that the claims assume.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import hwsim
from hwsim_lab.papers.bf16x9 import runs
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series

EDGES = (256, 512, 1024, 2048, 4096, 8192, 16384)
THIN = (16, 32, 64)
#: Sizes of low intensity: M = N, K.
LOW = (*((8192, k) for k in THIN), *((n, 16384) for n in THIN))
TREND = (16, 64, 256, 1024, 4096, 8192)
POWER_SIZES = (2048, 3072, 4096, 6144, 8192, 16384)
SIX_SIZES = (1024, 2048, 3072, 4096, 6144, 8192)  # nine products against six
CROSSOVER = (64, 128, *EDGES)
SPLIT_BYTES = 4 + 3 * 2  # of an element: FP32 read, three BF16 written
SLOW_LAUNCH_US = 5.0  # of a host that launches each call


def grid() -> list[tuple[int, int]]:
    """M = N and K of the heat maps."""
    return [(n, k) for n in EDGES for k in EDGES]


def measure_heatmaps(scale: Scale) -> Found:
    """Fig. 11: both methods over M = N and K, and the hybrid choice."""
    points = grid()
    gain = [runs.speedup(n, n, k) for n, k in points]
    bare = [runs.speedup(n, n, k, launches=False) for n, k in points]
    low = [runs.speedup(n, n, k) for n, k in LOW]
    trend = [runs.speedup(8192, 8192, k) for k in TREND]
    apart = [_split_apart(n, n, k) for n, k in LOW]
    both = [*points, *LOW]
    rates = {method: [runs.tflops(method, n, n, k) for n, k in both] for method in ("native", "x9", "hybrid")}
    taken = [runs.timed("hybrid", n, n, k).options["taken"] for n, k in both]
    hybrid_gain = [runs.seconds("native", n, n, k) / runs.seconds("hybrid", n, n, k) for n, k in points]
    measured: dict[str, dict[str, Quantity]] = {
        "fig11-max-speedup": {"speedup": gain},
        "fig11-vast-majority": {"speedup": gain},
        "fig11-bandwidth-bound": {"speedup": low},
        "fig11-intensity-trend": {"speedup": trend},
        "intro-hybrid-fastest": {
            "hybrid": rates["hybrid"], "native": rates["native"], "emulated": rates["x9"],
        },
        "intro-hybrid-gain": {"speedup": hybrid_gain},
    }  # fmt: skip
    launch_us = runs.launch_seconds() * 1e6
    slow = [_with_launch(n, n, k, SLOW_LAUNCH_US) for n, k in points]
    launch = (
        f"Times include {launch_us:.2f} us from kernel to kernel (the H200's in a graph; the B200's "
        f"is not known); without it the speedups are {min(bare):.2f} to {max(bare):.2f}, with {SLOW_LAUNCH_US:g} us "
        f"{min(slow):.2f} to {max(slow):.2f}: both methods are one kernel, so that it turns no sign."
    )
    drained = runs.timed("native", 8192, 8192, 16)
    floor = 8192 * 8192 * 4 / _memory_rate() * 1e6
    split = runs.seconds("native", 16, 16, 16384, split_k="auto"), runs.seconds("x9", 16, 16, 16384, split_k="auto")
    why = (
        f"hwsim's BF16x9 splits in the kernel that multiplies and so moves no more bytes than native FP32. At K = 16 "
        f"writing C alone takes {floor:.0f} us at the memory's rate; BF16x9 takes "
        f"{runs.seconds('x9', 8192, 8192, 16) * 1e6:.0f}, native FP32 {(drained.seconds or 0) * 1e6:.0f}, since its "
        "accumulators in registers are written before the next tile begins. At M = N = 16, K = 16384 with K "
        f"split over the cores native FP32 takes {split[0] * 1e6:.1f} us and BF16x9 {split[1] * 1e6:.1f}. With a "
        f"kernel of its own for the splits (a launch, 4 bytes read and 6 written per element) the speedups would be "
        f"{', '.join(f'{x:.2f}' for x in apart)}. The paper does not say which."
    )
    notes = {
        "fig11-max-speedup": launch,
        "fig11-vast-majority": launch,
        "fig11-bandwidth-bound": why,
        "fig11-intensity-trend": why,
        "intro-hybrid-fastest": (
            f"The rule times both ways in the simulator before the run, so that it can be wrong only "
            f"by launches; it takes native FP32 at {taken.count('native')} of {len(taken)} sizes, as BF16x9 is never "
            "slower here (see fig11-bandwidth-bound)."
        ),
        "intro-hybrid-gain": launch,
    }
    columns: dict[str, list[Any]] = {
        "line": [f"{runs.NAMES[name]}, M = N = {n}" for name in rates for n, _ in both],
        "m = n": [n for _ in rates for n, _ in both],
        "k": [k for _ in rates for _, k in both],
        "tflops": [x for one in rates.values() for x in one],
    }
    lines: dict[str, list[Any]] = {
        "m = n": [f"M = N = {n}" for n, _ in points], "k": [k for _, k in points], "speedup": gain,
    }  # fmt: skip
    series = (
        Series("fig11", columns, x="k", y="tflops", by="line", log="xy"),
        Series("fig11-speedup", lines, x="k", y="speedup", by="m = n", log="x"),
    )
    return Found(measured, notes, series)


def _with_launch(m: int, n: int, k: int, launch_us: float) -> float:
    times = [runs.seconds(name, m, n, k, launches=False) + launch_us * 1e-6 for name in ("native", "x9")]
    return times[0] / times[1]


def _split_apart(m: int, n: int, k: int) -> float:
    """The speedup, if a kernel of its own wrote the three pieces of A and B to memory first."""
    before = runs.launch_seconds() + (m * k + k * n) * SPLIT_BYTES / _memory_rate()
    return runs.seconds("native", m, n, k) / (runs.seconds("x9", m, n, k) + before)


def measure_crossover(scale: Scale) -> Found:
    """Section 8: the size from which BF16x9 is faster."""
    gain = [runs.speedup(n, n, n) for n in CROSSOVER]
    sides = [one > 1 for one in gain]
    crossings = sum(x != y for x, y in itertools.pairwise(sides))
    apart = [_split_apart(n, n, n) for n in CROSSOVER]
    note = (
        "hwsim's BF16x9 splits in the kernel that multiplies, so that both methods have one launch and small sizes are "
        "latency alone. With a kernel of its own for the splits (a launch, 4 bytes read and 6 written per element) the "
        f"series would be {', '.join(f'{x:.2f}' for x in apart)}."
    )
    columns: dict[str, list[Any]] = {
        "split": ["in the kernel"] * len(gain) + ["its own kernel"] * len(gain),
        "n": [*CROSSOVER, *CROSSOVER],
        "speedup": [*gain, *apart],
    }
    return Found(
        {"section8-crossover": {"speedup": gain, "crossings": crossings}},
        {"section8-crossover": note},
        (Series("crossover", columns, x="n", y="speedup", by="split", log="x"),),
    )


def _memory_rate() -> float:
    hbm = runs.chip().hbm
    assert hbm is not None
    return float(hbm.bytes_per_second)


def measure_peaks(scale: Scale) -> Found:
    """Section 7.1: peaks of BF16 and FP32, and the bound of the speedup."""
    lanes, matrix = runs.lanes_tflops(), runs.peak_tflops("bf16")
    use = [runs.tflops("native", n, n, n) / lanes for n in POWER_SIZES]
    gain = [runs.speedup(n, n, n) for n in POWER_SIZES]
    ratio = matrix / lanes
    clock, share = runs.limited_share()
    note = (
        f"By the device file {matrix:.0f} TFLOPS of BF16 and {lanes:.1f} of FP32 (an FMA per lane and cycle), both at "
        f"{runs.chip().clock_mhz:g} MHz, as others measured single instructions; its FFMA sustains "
        f"{runs.peak_tflops('fp32'):.1f}, by which the ratio would be {matrix / runs.peak_tflops('fp32'):.1f}. At "
        f"the {clock:g} MHz that the file has for long BF16 work, with FP32 at its full clock, "
        f"the ratio is {share * matrix / lanes:.1f}."
    )
    return Found(
        {
            "section7-peak-ratio": {"ratio": ratio},
            "section7-speedup-bound": {"bound": ratio / 9, "utilisation_native": use, "speedup": gain},
        },
        {"section7-peak-ratio": note, "section7-speedup-bound": note},
    )


def measure_gains(scale: Scale) -> Found:
    """Nine products against native FP32 and against six."""
    gain = {n: runs.speedup(n, n, n) for n in (1024, *POWER_SIZES)}
    ratio = [1 / runs.speedup(n, n, n, over="x9", method="x6") for n in SIX_SIZES]
    result = runs.timed("x9", 4096, 4096, 4096)
    products = result.macs["useful"] / 4096**3
    columns: dict[str, list[Any]] = {
        "method": [runs.NAMES[name] for name in ("native", "x9", "x6") for _ in SIX_SIZES],
        "n": [n for _ in range(3) for n in SIX_SIZES],
        "tflops": [runs.tflops(name, n, n, n) for name in ("native", "x9", "x6") for n in SIX_SIZES],
    }
    return Found(
        {
            "intro-nine-term-net-speedup": {"products": products, "speedup": [gain[n] for n in POWER_SIZES]},
            "section8-greatly-exceeds": {"speedup": list(gain.values())},
            "section2-bf16x6-time": {"time_ratio": ratio},
        },
        {
            "section2-bf16x6-time": (
                "hwsim chooses the same tile for both at each size, as the claim asks; BF16x6 keeps all additions "
                "outside the unit, one per 16 of K, which are what the lanes are busy with."
            )
        },
        (Series("products", columns, x="n", y="tflops", by="method", log="x"),),
    )


# --- accuracy of the timed data ---------------------------------------------------------------------------------------

LENGTHS = (256, 1024, 4096, 16384)
PART: dict[Scale, tuple[int, int]] = {"quick": (32, 1), "full": (128, 3)}  # rows and columns computed, seeds


def rms_ratio(length: int, edge: int, seeds: int, *, scheme: str = "bf16x9") -> float:
    """RMS error of BF16x9 by that of native FP32 against FP64, mean over seeds, of edge x edge outputs."""
    found = []
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        a = random.standard_normal((edge, length)).astype(np.float32)
        b = random.standard_normal((length, edge)).astype(np.float32)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        products = [
            hwsim.matmul(a, b, device="b200", scheme=scheme),
            hwsim.matmul(a, b, device="b200", format="fp32"),
        ]
        errors = [np.sqrt(np.mean((one.astype(np.float64) - exact) ** 2)) for one in products]
        found.append(errors[0] / errors[1])
    return float(np.mean(found))


def measure_accuracy(scale: Scale) -> Found:
    """Section 8: the error on the data of the timed runs."""
    edge, seeds = PART[scale]
    ratio = [rms_ratio(length, edge, seeds) for length in LENGTHS]
    native = "Native FP32 is hwsim's default on the B200: one chain of FMAs over K."
    part = f"{edge} x {edge} of 256 x 256 outputs, {seeds} seed{'s' * (seeds > 1)}. "
    return Found({"section8-no-accuracy-lost": {"ratio": ratio}}, {"section8-no-accuracy-lost": part + native})


EXPERIMENTS = (
    Experiment(
        "heatmaps",
        (
            "fig11-max-speedup", "fig11-vast-majority", "fig11-bandwidth-bound", "fig11-intensity-trend",
            "intro-hybrid-fastest", "intro-hybrid-gain",
        ),
        measure_heatmaps,
        {"quick": 25.0, "full": 25.0},
    ),
    Experiment("crossover", ("section8-crossover",), measure_crossover, {"quick": 4.0, "full": 4.0}),
    Experiment("peaks", ("section7-peak-ratio", "section7-speedup-bound"), measure_peaks, {"quick": 3.0, "full": 3.0}),
    Experiment(
        "gains",
        ("intro-nine-term-net-speedup", "section8-greatly-exceeds", "section2-bf16x6-time"),
        measure_gains,
        {"quick": 3.0, "full": 3.0},
    ),
    Experiment("timed-data", ("section8-no-accuracy-lost",), measure_accuracy, {"quick": 4.0, "full": 150.0}),
)  # fmt: skip
